"""The commands on models, judges, people and data sets, with their options. Standard library."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import (
    ANSWER_ROLES,
    BASELINES,
    DATA,
    DRY_RUN,
    EXIT_CODES,
    MODELS,
    REFUSED,
    ROLE_AND_DATA,
    STORE,
    SUITE,
    UNMEASURED,
    UNWRITTEN,
    Command,
    OptionGroup,
    comma_names,
    flag,
    number_from,
    option,
    several,
    shared,
    verdict_file,
)

_JUDGE = option("--judge SPEC", "the judge; default: the suite's own")

_RATINGS = option("ratings RATINGS", "a ratings folder")

_NEW_FOLDER = option("--out FOLDER", "folder of the data set", required=True)

# -- study -----------------------------------------------------------------------------------------


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(_one_seed(name) for name in comma_names(text))


_one_seed = number_from(0, "no seed; whole numbers from 0 on are expected, as in --seeds=0,1,2")

_STUDIED = "how far the numbers of a suite move when something else than the model changes"

STUDY = Command(
    "study",
    _STUDIED,
    UNMEASURED,
    "study",
    [
        SUITE,
        option(
            "--vary",
            "the seed; the text-to-image model; the encoder that compares the same chains; "
            "descriptions of fewer than 20, 20 to 60, and more than 60 words; or GC@T against "
            "s(T), its last similarity without weights",
            required=True,
            choices=("seeds", "generators", "encoders", "lengths", "weighting"),
        ),
        option(
            "--model [NAME=]SPEC",
            "a model under test, and its name in tables (several allowed)",
            action="append",
            required=True,
        ),
        option("--seeds N,N,...", "that are compared; default: 0,1,2,3,4", type=_seeds),
        *(own for role, own in MODELS.items() if role not in ("generator", "encoder")),
        *(
            option(f"--{role} SPEC", f"the {role} of a suite of answers, the same for all")
            for role in ANSWER_ROLES
            if role != "generator"
        ),
        several(
            "--generator [NAME=]SPEC",
            "the generator, the same for all; or one of those that are compared, and its name in "
            "tables",
        ),
        several(
            "--encoder [NAME=]SPEC",
            "model whose vectors are compared, with NAME= one of the suite's further encoders; or "
            "one of the encoders that are compared, and its name in tables",
        ),
        option(
            "--seat NAME",
            "which of the suite's encoders is exchanged; default: the one without a name",
        ),
        option(
            "--role",
            "what the models under test play",
            choices=(*dict.fromkeys((*MODELS, *ANSWER_ROLES)), "unified"),
        ),
        *ROLE_AND_DATA[1:],
        option("--metrics NAME,...", "of the suite's metrics; default: all"),
        option("--parts NAME,...", "categories, groups or mappings, beside the whole", default=()),
        STORE,
        option("--out DIR", default=".cepbench/studies"),
    ],
    description=f"Measure {_STUDIED}.",
)

# -- arena -----------------------------------------------------------------------------------------

_SHOWN_ANSWERS = [
    option(
        "--answers [MODEL=]FOLDER",
        "the answers of a model in OpenING's layout (several allowed)",
        nargs="+",
        action="extend",
        default=[],
    ),
    shared(
        "--data NAME=PATH", "where the questions lie: opening=FOLDER", action="append", default=[]
    ),
    flag("--partial", "leave out battles whose question or answers are not all there"),
]
"""Where what a judge is shown lies, for battles of which the verdicts alone are in a file."""

_PAIR_MODEL = option(
    "--pair-model",
    "ordered logit of all four verdicts, or one of those in which ties are alike",
    choices=("ordered", "davidson", "rao-kupper"),
    default="ordered",
)

_FORFEITS = option(
    "--forfeits",
    "lost by the one and won by the other, lost only, or left out",
    choices=("charged-and-credited", "charged", "ignored"),
    default="charged-and-credited",
)

_BY = option(
    "--by",
    "win rates of OpenING's tasks, meta-topics, capabilities, or of common and hard tasks too",
    choices=("task", "meta-topic", "capability", "difficulty"),
)

_ORDERS = ("both", "balanced")

_PLAY = Command(
    "play",
    "let answers of several models battle before a judge, and rank the models",
    UNMEASURED,
    "arena_play",
    [
        option(
            "answers [NAME=]ANSWERS",
            "a folder of answers in OpenING's layout, or the report of a run of the suite",
            nargs="+",
        ),
        option(
            "--suite SUITE",
            "whose questions, judge and order they are",
            type=Path,
            default="pytest_cepbench.suites.opening",
        ),
        _JUDGE,
        option("--rounds K", "of each question", default=2),
        option(
            "--order",
            "show each pair of answers in both orders, or once; default: the suite's",
            choices=_ORDERS,
        ),
        option("--only", "leave the other modality out of the answers", choices=("text", "image")),
        option("--reference NAME", "let the reference answers battle too, as a model of this name"),
        option("--samples N", "the first N battles of all"),
        option("--seed SEED", "of draw and judge", default=0),
        option("--name NAME", "of the leaderboard; default: the suite's"),
        flag("--plan", "say what it would take, and ask nothing"),
        DATA,
        _PAIR_MODEL,
        _FORFEITS,
        _BY,
        option("--out DIR", default=".cepbench/play"),
        STORE,
    ],
)

_LEADERBOARD = Command(
    "leaderboard",
    "rank the models of each file of verdicts, by win rates and by a model of pairs",
    UNWRITTEN,
    "arena",
    [
        option(
            "verdicts VERDICTS",
            "verdicts of one judge each: files, or ratings folders of pairs",
            nargs="+",
        ),
        _PAIR_MODEL,
        option("--battles VERDICTS", "the battles that were to be judged"),
        flag(
            "--merge-equal-ids",
            "count verdicts of one question and the same two model ids once, as OpenING's "
            "script does, and name those that fall away",
        ),
        several(
            "--no-answer MODEL",
            "a model whose arranged battles without verdict are forfeits (several allowed)",
        ),
        _FORFEITS,
        _BY,
        option("--out DIR", default=".cepbench/arena"),
    ],
)

_TRAINING = Command(
    "training",
    "write battles with the verdicts of people or of the truth, to train a judge with them",
    UNWRITTEN,
    "arena:export_training",
    [
        option(
            "sources SOURCE",
            "a suite of battles with stored verdicts, such as suites/judge; a study of "
            "pairs, ratings/NAME; people's verdicts in OpenING's format; or shapes-arena, "
            "battles of the embedded world, which the truth decides",
            nargs="+",
        ),
        option(
            "--format",
            "chats for trl and LLaMA-Factory, each battle in both orders; or a table that "
            "suites/judge reads",
            choices=("chat", "battles"),
            default="chat",
        ),
        option("--out DIR", "a new folder for the files", required=True),
        several(
            "--unseen NAME",
            "a model, or a category, whose battles go into a split of their own (several allowed)",
        ),
        option(
            "--prompt",
            "what the judge is asked, as in its spec",
            choices=("criteria", "letters", "opening-gpt", "opening-intjudge"),
            default="criteria",
        ),
        option(
            "--samples N", "so many battles of each panel, chosen by --seed; fewer are among more"
        ),
        option("--seed SEED", "of that choice", default=0),
        *_SHOWN_ANSWERS,
        STORE,
    ],
)

ARENA = Command(
    "arena",
    "let models battle: their ranks, another judge, verdicts to train a judge with",
    commands=(
        _PLAY,
        Command(
            "rejudge",
            "let a suite's accepted answers be judged by another judge from now on",
            REFUSED,
            "arena:rejudge",
            [SUITE, _JUDGE, DRY_RUN, BASELINES, STORE],
            recovers=True,
        ),
        _LEADERBOARD,
        _TRAINING,
    ),
)

# -- agree -----------------------------------------------------------------------------------------

_DRAWS = option("--draws N", "of the bootstrap behind each interval", default=1000)

_OUT = option("--out DIR", default=".cepbench/agreement")

_ASKED = OptionGroup(
    "a judge that is asked",
    [
        option("--judge SPEC", "the judge, in the place of a file of its verdicts"),
        option(
            "--on FILE|RATINGS",
            "verdicts of people, or a folder of ratings, whose battles it judges; or "
            "shapes-arena, the battles of the embedded world, which the truth decides",
        ),
        option(
            "--order",
            "show each pair of answers in both orders, or once; default: both",
            choices=_ORDERS,
        ),
        option("--samples N", "ask about so many battles, chosen by --seed; fewer are among more"),
        option("--seed SEED", "of the judge and of the choice; default: 0"),
        *_SHOWN_ANSWERS,
        flag("--dry-run", "keep no card beside the baselines"),
        BASELINES,
        STORE,
    ],
)

AGREE = Command(
    "agree",
    "how far judges, people and the metrics of models agree with one another",
    commands=(
        Command(
            "models",
            "what people think of each model, and how the metrics of runs agree with them",
            UNWRITTEN,
            "agree:agree_models",
            [
                _RATINGS,
                several(
                    "--report [NAME=]REPORT",
                    "JSON report (--cep-report) of a run of a rated model (several allowed)",
                ),
                _DRAWS,
                _OUT,
            ],
        ),
        Command(
            "judges",
            "a judge against people, as a card of its agreement, order effect and bias; or two "
            "judges over the battles that both judged",
            EXIT_CODES.format("the judge gave no verdict or the files could not be written"),
            "judges:agree_judges",
            [
                option(
                    "verdicts VERDICTS",
                    "verdicts of the judge, with --people; or of two judges, the first of which "
                    "is right",
                    nargs="*",
                ),
                option(
                    "--people FILE|RATINGS",
                    "verdicts of people on the same battles, in either order of the answers, or a "
                    "folder of their ratings",
                    type=verdict_file,
                ),
                several(
                    "--seen MODEL",
                    "a model that was known while the judge was made (several allowed)",
                ),
                several(
                    "--unseen MODEL",
                    "a model that the second of two judges did not know while it was made "
                    "(several allowed)",
                ),
                several(
                    "--repeat FILE|N",
                    "verdicts of the same judge, asked again (several allowed); with --judge, how "
                    "often it is asked again, each time with another seed",
                ),
                _OUT,
                _ASKED,
            ],
        ),
        Command(
            "people",
            "how far annotators agree with one another, with themselves and with known answers",
            UNWRITTEN,
            "agree:agree_people",
            [_RATINGS, _DRAWS, _OUT],
        ),
        Command(
            "scores",
            "how a leaderboard and outside scores of the same models agree: Pearson, Spearman and "
            "Kendall, with bootstrap intervals",
            UNWRITTEN,
            "agree:agree_scores",
            [
                option(
                    "board LEADERBOARD",
                    "JSON that `compare --out` or `arena leaderboard` wrote",
                    type=Path,
                ),
                option(
                    "outside CSV",
                    "a column of models, by the names of the leaderboard, and one of scores for "
                    "each benchmark; without it the leaderboards of the file are correlated with "
                    "one another",
                    nargs="?",
                    type=Path,
                ),
                _DRAWS,
                _OUT,
            ],
        ),
    ),
)

# -- rate ------------------------------------------------------------------------------------------

_PAGES = OptionGroup(
    "the server",
    [
        option("--port PORT", "default: %(default)s, 0: any free", default="8766"),
        option(
            "--host ADDRESS",
            "address of this machine to listen on; default: %(default)s, this machine alone",
            default="127.0.0.1",
        ),
        several("--name HOST", "name by which browsers may call the server (several allowed)"),
        flag("--peek", "show verdicts to the operator before the study has ended"),
        flag("--only-write", "write the folder, and start no server"),
    ],
)
"""Of the commands that ask people."""

_ASK = Command(
    "ask",
    "serve blind ratings, descriptions and checks; a study that is new is written first",
    UNWRITTEN,
    "rate",
    [
        option(
            "target SUITE|FILE|FOLDER",
            "a suite, a file of items (.jsonl), or a ratings folder that is there already",
            type=Path,
        ),
        option(
            "--kind",
            "what people do: say which of two answers or captions is better, grade and rank "
            "outputs, describe images, check names",
            choices=("pair", "grades", "caption", "describe", "verify"),
        ),
        option("--out DIR", "the ratings folder to write"),
        several(
            "--report [NAME=]REPORT",
            "the JSON report of a run whose outputs are rated (several allowed)",
            dest="reports",
        ),
        option("--samples N", "ask about so many items, chosen by --seed; default: all"),
        option("--seed SEED", "of the choice, and of all orders; default: 0"),
        option(
            "--annotators N|NAME,...",
            "how many people, or their names; default: 3, who are called a1, a2 and a3",
        ),
        option("--overlap N", "people who judge an item of the share; default: 3 or all"),
        option(
            "--share X",
            "share of the items that several people judge; others go to one; default: 0.2",
        ),
        option(
            "--practice N",
            "items at the start, with feedback; default: 5",
            type=number_from(0, "a number of items is expected, 0 for none"),
        ),
        option("--attention X", "share of hidden items whose answer is known; default: 0.05"),
        option("--repeats X", "share of items that come again with sides swapped; default: 0.05"),
        _PAGES,
        OptionGroup(
            "where a suite's outputs are",
            [
                DATA,
                shared(
                    "--store DIR|URL",
                    "stores of the runs (several allowed); default: .cepbench/store",
                    action="append",
                    default=[],
                ),
                BASELINES,
            ],
        ),
    ],
)

_DRAW = Command(
    "draw",
    "choose the battles that people label, before the judge is asked",
    REFUSED,
    "labels:draw",
    [
        SUITE,
        option("--model SPEC", "the model that will be gated", required=True),
        option(
            "--battles N",
            "how many; below 50 the judge's verdicts are of no use beside them",
            default="200",
        ),
        *(
            option(f"--{role} SPEC", f"the {role}, as in the gate; default: the suite's")
            for role in ANSWER_ROLES
        ),
        option("--role ROLE", "what the model under test plays"),
        DATA,
        option("--samples N", "most samples of each category"),
        option(
            "--ratings DIR", "write the battles into a new folder, which `cepbench rate ask` serves"
        ),
        option("--annotators N|NAME,...", "the people who rate them"),
        option("--overlap N", "how many people rate each battle", default="1"),
        BASELINES,
        STORE,
    ],
)

RATE = Command(
    "rate",
    "ask people on pages of this machine; their ratings as chains, battles and labels",
    commands=(
        _ASK,
        Command(
            "export",
            "write a study's descriptions as chains, or its verdicts as battles",
            UNWRITTEN,
            "rate:export",
            [
                _RATINGS,
                option(
                    "--format",
                    "descriptions as chains for replay:, or verdicts of the majority in OpenING's "
                    "format",
                    choices=("replay", "opening"),
                    required=True,
                ),
                option("--out DIR", "default: below .cepbench/ratings, by name and format"),
                option("--annotator NAME", "of this annotator alone; default: of all"),
            ],
        ),
        _DRAW,
        Command(
            "labels",
            "write what people said of drawn battles into the label files",
            REFUSED,
            "labels:import_ratings",
            [
                option("ratings RATINGS", "a ratings folder of pairs"),
                option(
                    "--score",
                    "what the votes of several people on a battle make",
                    choices=("mean", "majority"),
                    default="mean",
                ),
                flag(
                    "--all-annotators",
                    "count those too who fail known items or agree with nobody; default: left out",
                ),
                BASELINES,
            ],
            finds=True,
        ),
    ),
)

# -- dataset ---------------------------------------------------------------------------------------

_CHECKING = [
    option(
        "--annotators N|NAME,...",
        "who checks labels, or how many people; not needed where the study is there already",
    ),
    option("--overlap N", "people who see each item; default: all of them"),
]

_FOLDER = option("folder FOLDER", "of dataset patterns or dataset arena")

_MOVED_IMAGES = option("--images IMAGES", "where the images lie, if they have moved")

_PATTERNS = Command(
    "patterns",
    "find the patterns of your images, label them by a model, and choose images of each",
    UNMEASURED,
    "dataset_patterns",
    [
        option("images IMAGES", "folder of images, also below it"),
        _NEW_FOLDER,
        option("--describer SPEC", "the model that names patterns", required=True),
        option("--writer SPEC", "the model that summarizes names; not with a file"),
        option(
            "--patterns N|FILE",
            "how many patterns a summary has at most, or a file of patterns",
            default="13",
        ),
        option("--per-pattern N", "images of each pattern that are wanted", default="100"),
        option(
            "--sampling",
            "so many of each pattern, or each image of a pattern of M with the probability N / M, "
            "as the paper drew",
            choices=("quota", "bernoulli"),
            default="quota",
        ),
        option("--seed SEED", "of draws and of models", default="0"),
        option(
            "--prompts",
            "the questions, plain or built as MMGenBench's, whose first one names examples of "
            "patterns",
            choices=("neutral", "paper"),
            default="neutral",
        ),
        option(
            "--until",
            "the last stage; verify writes the study of people too; default: sample",
            choices=("extract", "count", "summary", "annotate", "sample", "verify"),
        ),
        *_CHECKING,
        STORE,
    ],
)

DATASET = Command(
    "dataset",
    "make a data set of your own images or questions: labelled by models, checked by people",
    commands=(
        _PATTERNS,
        Command(
            "verify",
            "let people check labels, or approve gold answers, on pages of this machine",
            UNWRITTEN,
            "dataset_files:run_verify",
            [
                _FOLDER,
                *_CHECKING,
                option("--seed SEED", "of the order of items; default: 0"),
                _MOVED_IMAGES,
                _PAGES,
            ],
        ),
        Command(
            "freeze",
            "settle the labels by vote, and write the set with its card in the layout that suites "
            "load",
            UNWRITTEN,
            "dataset_files:run_freeze",
            [
                _FOLDER,
                option("--name NAME", "of the data set; default: that of the folder"),
                option("--to DIR", "folder to write; default: FOLDER/frozen"),
                flag(
                    "--copy",
                    "copy the images into the table; without it paths and digests are written",
                ),
                flag("--unverified", "take the model's labels where nobody looked at an image"),
                _MOVED_IMAGES,
            ],
        ),
        Command(
            "arena",
            "make questions of task templates, whose gold answers people approve",
            UNWRITTEN,
            "dataset_files:run_arena",
            [option("templates FILE", "tasks and what fills them"), _NEW_FOLDER],
        ),
    ),
)
