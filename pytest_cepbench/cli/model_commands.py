"""The commands on models, judges, people and data sets, with their options. Standard library."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import (
    EXIT_CODES,
    REFUSED,
    SHARED,
    UNMEASURED,
    UNWRITTEN,
    Command,
    comma_names,
    number_from,
    options,
    verdict_file,
)

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
    options(
        """
        @suite
        --vary {seeds,generators,encoders} required
            the seed; the text-to-image model; or the encoder that compares the same chains
        --model [NAME=]SPEC required
            a model under test, and its name in tables (several allowed)
        --seeds N,N,...     that are compared; default: 0,1,2,3,4
        @describer detector vqa
        --interleaver SPEC  the interleaver of a suite of answers, the same for all
        --writer SPEC       the writer of a suite of answers, the same for all
        --editor SPEC       the editor of a suite of answers, the same for all
        --judge SPEC        the judge of a suite of answers, the same for all
        --generator [NAME=]SPEC several
            the generator, the same for all; or one of those that are compared, and its name in
            tables
        --encoder [NAME=]SPEC several
            model whose vectors are compared, with NAME= one of the suite's further encoders; or one
            of the encoders that are compared, and its name in tables
        --seat NAME  which of the suite's encoders is exchanged; default: the one without a name
        --role       what the models under test play
        @data samples
        --metrics NAME,...  of the suite's metrics; default: all
        --parts NAME,...    categories, groups or mappings, beside the whole
        @store
        --out DIR = .cepbench/studies
        """,
        model={"action": "append"},
        seeds={"type": _seeds},
        role={
            "choices": (
                *("describer", "generator", "encoder", "detector", "vqa"),
                *("interleaver", "writer", "editor", "judge", "unified"),
            )
        },
        parts={"default": ()},
    ),
    description=f"Measure {_STUDIED}.",
)

# -- arena -----------------------------------------------------------------------------------------

SHARED["judge"] = options("--judge SPEC  the judge; default: the suite's own")

# Where what a judge is shown lies, for battles of which the verdicts alone are in a file.
SHARED["shown-answers"] = options(
    """
    --answers [MODEL=]FOLDER +  the answers of a model in OpenING's layout (several allowed)
    --[cep-]data NAME=PATH several
                                where the questions lie: opening=FOLDER
    --partial                   leave out battles whose question or answers are not all there
    """,
    answers={"action": "extend", "default": []},
)

_PLAY = Command(
    "play",
    "let answers of several models battle before a judge, and rank the models",
    UNMEASURED,
    "arena_play",
    options(
        """
        answers [NAME=]ANSWERS +
            a folder of answers in OpenING's layout, or the report of a run of the suite
        --suite SUITE = pytest_cepbench.suites.opening
            whose questions, judge and order they are
        @judge
        --rounds K = 2       of each question
        --order {both,balanced}
            show each pair of answers in both orders, or once; default: the suite's
        --reference NAME     let the reference answers battle too, as a model of this name
        --samples N          the first N battles of all
        --seed SEED = 0      of draw and judge
        --name NAME          of the leaderboard; default: the suite's
        --plan               say what it would take, and ask nothing
        @data
        --out DIR = .cepbench/play
        @store
        """,
        suite={"type": Path},
    ),
)

_LEADERBOARD = Command(
    "leaderboard",
    "rank the models of each file of verdicts, by win rates and by a model of pairs",
    UNWRITTEN,
    "arena",
    options(
        """
        verdicts VERDICTS +  verdicts of one judge each: files, or ratings folders of pairs
        --by {task,meta-topic,capability,difficulty}
            win rates of OpenING's tasks, meta-topics, capabilities, or of common and hard tasks too
        --out DIR = .cepbench/arena
        """
    ),
)

_TRAINING = Command(
    "training",
    "write battles with the verdicts of people or of the truth, to train a judge with them",
    UNWRITTEN,
    "arena:export_training",
    options(
        """
        sources SOURCE +
            a suite of battles with stored verdicts, such as suites/judge; a study of pairs,
            ratings/NAME; or shapes-arena, battles of the embedded world, which the truth decides
        --format {chat,battles} = chat
            chats for trl, each battle in both orders; or a table that suites/judge reads
        --out DIR required  a new folder for the files
        --unseen NAME several
            a model, or a category, whose battles go into a split of their own (several allowed)
        --prompt {criteria,letters,opening-gpt,opening-intjudge} = criteria
            what the judge is asked, as in its spec
        @store
        """
    ),
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
            options("@suite judge dry-run baselines store"),
            recovers=True,
        ),
        _LEADERBOARD,
        _TRAINING,
    ),
)

# -- agree -----------------------------------------------------------------------------------------

SHARED["ratings"] = options("ratings RATINGS  a ratings folder")

SHARED["agreement-out"] = options("--out DIR = .cepbench/agreement")

SHARED["draws"] = options("--draws N = 1000  of the bootstrap behind each interval")

_JUDGES = Command(
    "judges",
    "a judge against people, as a card of its agreement, order effect and bias; or two "
    "judges over the battles that both judged",
    EXIT_CODES.format("the judge gave no verdict or the files could not be written"),
    "judges:agree_judges",
    options(
        """
        verdicts VERDICTS *
            verdicts of the judge, with --people; or of two judges, the first of which is right
        --people FILE|RATINGS
            verdicts of people on the same battles, in either order of the answers, or a folder of
            their ratings
        --seen MODEL several
            a model that was known while the judge was made (several allowed)
        --unseen MODEL several
            a model that the second of two judges did not know while it was made (several allowed)
        @agreement-out
        [a judge that is asked]
        --judge SPEC  the judge, in the place of a file of its verdicts
        --on FILE|RATINGS
            verdicts of people, or a folder of ratings, whose battles it judges; or shapes-arena,
            the battles of the embedded world, which the truth decides
        --order {both,balanced}
            show each pair of answers in both orders, or once; default: both
        --samples N   ask about so many battles, chosen by --seed; fewer are among more
        --seed SEED   of the judge and of the choice; default: 0
        @shown-answers
        --dry-run     keep no card beside the baselines
        @baselines store
        """,
        people={"type": verdict_file},
    ),
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
            options(
                """
                @ratings
                --report [NAME=]REPORT several
                    JSON report (--cep-report) of a run of a rated model (several allowed)
                @draws agreement-out
                """
            ),
        ),
        _JUDGES,
        Command(
            "people",
            "how far annotators agree with one another, with themselves and with known answers",
            UNWRITTEN,
            "agree:agree_people",
            options("@ratings draws agreement-out"),
        ),
    ),
)

# -- rate ------------------------------------------------------------------------------------------

SHARED["pages"] = options(
    """
    [the server]
    --port PORT = 8766   default: %(default)s, 0: any free
    --host ADDRESS = 127.0.0.1
        address of this machine to listen on; default: %(default)s, this machine alone
    --name HOST several  name by which browsers may call the server (several allowed)
    --only-write         write the folder, and start no server
    """
)

_ASK = Command(
    "ask",
    "serve blind ratings, descriptions and checks; a study that is new is written first",
    UNWRITTEN,
    "rate",
    options(
        """
        target SUITE|FILE|FOLDER
            a suite, a file of items (.jsonl), or a ratings folder that is there already
        --kind {pair,grades,caption,describe,verify}
            what people do: say which of two answers or captions is better, grade and rank outputs,
            describe images, check names
        --out DIR      the ratings folder to write
        --report [NAME=]REPORT several
            the JSON report of a run whose outputs are rated (several allowed)
        --samples N    ask about so many items, chosen by --seed; default: all
        --seed SEED    of the choice, and of all orders; default: 0
        --annotators N|NAME,...
            how many people, or their names; default: 3, who are called a1, a2 and a3
        --overlap N    how many people judge each item; default: 2
        @pages
        [where a suite's outputs are]
        @data
        --[cep-]store DIR|URL several
            stores of the runs (several allowed); default: .cepbench/store
        @baselines
        """,
        target={"type": Path},
        report={"dest": "reports"},
    ),
)

RATE = Command(
    "rate",
    "ask people on pages of this machine; their ratings as battles",
    commands=(_ASK,),
)

# -- dataset ---------------------------------------------------------------------------------------

SHARED["folder"] = options("folder FOLDER  of dataset patterns")

DATASET = Command(
    "dataset",
    "make a data set of your own images: labelled by models, checked by people",
    commands=(
        Command(
            "patterns",
            "find the patterns of your images, label them by a model, and choose images of each",
            UNMEASURED,
            "dataset:patterns",
            options(
                """
                images IMAGES  folder of images, also below it
                --out FOLDER required  folder of the data set
                --describer SPEC required  the model that names patterns
                --writer SPEC  the model that summarizes names; not with a file
                --patterns N|FILE = 13
                    how many patterns a summary has at most, or a file of patterns
                --per-pattern N = 100  images of each pattern that are wanted
                --until {count,summary,sample}
                    the last stage; default: sample
                @store
                """
            ),
        ),
        Command(
            "verify",
            "let people check labels, on pages of this machine",
            UNWRITTEN,
            "dataset:verify",
            options(
                """
                @folder
                --annotators N|NAME,...
                    who checks labels, or how many people; not needed where the study is there
                    already
                --overlap N  people who see each item; default: all of them
                @pages
                """
            ),
        ),
        Command(
            "freeze",
            "settle the labels by vote, and write the set with its card in the layout that suites "
            "load",
            UNWRITTEN,
            "dataset:freeze",
            options(
                """
                @folder
                --name NAME   of the data set; default: that of the folder
                --to DIR      folder to write; default: FOLDER/frozen
                --unverified  take the model's labels where nobody looked at an image
                """
            ),
        ),
    ),
)
