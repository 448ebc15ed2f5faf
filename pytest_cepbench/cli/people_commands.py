"""The commands that ask people and make data sets, with options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import (
    ANSWER_ROLES,
    BASELINES,
    DATA,
    DEFAULT,
    PAGES,
    REFUSED,
    STORE,
    SUITE,
    UNMEASURED,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    flag,
    number_from,
    option,
    shared,
)

_RATINGS = option("ratings", metavar="RATINGS", help="a ratings folder")

_ONE_ANNOTATOR = option(
    "--annotator", metavar="NAME", help="of this annotator alone; default: of all"
)

_PRACTICE = number_from(0, "a number of items is expected, 0 for none")

_RATE: list[Option | OptionGroup] = [
    option(
        "target",
        metavar="SUITE|FILE|FOLDER",
        type=Path,
        help="a suite, a file of items (.jsonl), or a ratings folder that is there already",
    ),
    option(
        "--kind",
        choices=("pair", "grades", "caption", "describe", "verify"),
        help="what people do: say which of two answers or captions is better, grade and rank "
        "outputs, describe images, check names",
    ),
    option("--out", metavar="DIR", help="the ratings folder to write"),
    option(
        "--report",
        dest="reports",
        metavar="[NAME=]REPORT",
        action="append",
        default=[],
        help="the JSON report of a run whose outputs are rated (several allowed)",
    ),
    option(
        "--samples", metavar="N", help="ask about so many items, chosen by --seed; default: all"
    ),
    option("--seed", metavar="SEED", help="of the choice, and of all orders; default: 0"),
    option(
        "--annotators",
        metavar="N|NAME,...",
        help="how many people, or their names; default: 3, who are called a1, a2 and a3",
    ),
    option(
        "--overlap", metavar="N", help="people who judge an item of the share; default: 3 or all"
    ),
    option(
        "--share",
        metavar="X",
        help="share of the items that several people judge; others go to one; default: 0.2",
    ),
    option(
        "--practice",
        metavar="N",
        type=_PRACTICE,
        help="items at the start, with feedback; default: 5",
    ),
    option(
        "--attention",
        metavar="X",
        help="share of hidden items whose answer is known; default: 0.05",
    ),
    option(
        "--repeats",
        metavar="X",
        help="share of items that come again with sides swapped; default: 0.05",
    ),
    PAGES,
    OptionGroup(
        "where a suite's outputs are",
        [
            *DATA,
            *shared(
                "store",
                metavar="DIR|URL",
                action="append",
                default=[],
                help="stores of the runs (several allowed); default: .cepbench/store",
            ),
            *BASELINES,
        ],
    ),
]

RATE = Command(
    "rate",
    "ask people on pages of this machine; their ratings as chains, battles and labels",
    None,
    commands=(
        Command(
            "ask",
            "serve blind ratings, descriptions and checks; a study that is new is written first",
            UNWRITTEN,
            _RATE,
            run="rate",
        ),
        Command(
            "export",
            "write a study's descriptions as chains, or its verdicts as battles",
            UNWRITTEN,
            [
                _RATINGS,
                option(
                    "--format",
                    choices=("replay", "opening"),
                    required=True,
                    help="descriptions as chains for replay:, or verdicts of the majority in "
                    "OpenING's format",
                ),
                option(
                    "--out",
                    metavar="DIR",
                    help="default: below .cepbench/ratings, by name and format",
                ),
                _ONE_ANNOTATOR,
            ],
            run="rate:export",
        ),
        Command(
            "draw",
            "choose the battles that people label, before the judge is asked",
            REFUSED,
            [
                SUITE,
                option(
                    "--model", metavar="SPEC", required=True, help="the model that will be gated"
                ),
                option(
                    "--battles",
                    metavar="N",
                    default="200",
                    help="how many; below 50 the judge's verdicts are of no use beside them; "
                    + DEFAULT,
                ),
                *(
                    option(
                        f"--{role}",
                        metavar="SPEC",
                        help=f"the {role}, as in the gate; default: the suite's",
                    )
                    for role in ANSWER_ROLES
                ),
                option("--role", metavar="ROLE", help="what the model under test plays"),
                *DATA,
                option("--samples", metavar="N", help="most samples of each category"),
                option(
                    "--ratings",
                    metavar="DIR",
                    help="write the battles into a new folder, which `cepbench rate ask` serves",
                ),
                option("--annotators", metavar="N|NAME,...", help="the people who rate them"),
                option(
                    "--overlap",
                    metavar="N",
                    default="1",
                    help=f"how many people rate each battle; {DEFAULT}",
                ),
                *BASELINES,
                *STORE,
            ],
            run="labels:draw",
        ),
        Command(
            "labels",
            "write what people said of drawn battles into the label files",
            REFUSED,
            [
                option("ratings", metavar="RATINGS", help="a ratings folder of pairs"),
                option(
                    "--score",
                    choices=("mean", "majority"),
                    default="mean",
                    help=f"what the votes of several people on a battle make; {DEFAULT}",
                ),
                flag(
                    "--all-annotators",
                    "count those too who fail known items or agree with nobody; default: left out",
                ),
                *BASELINES,
            ],
            run="labels:import_ratings",
        ),
    ),
)


_FOLDER = option("folder", metavar="FOLDER", help="of dataset patterns or dataset arena")

_CHECKING = [
    option(
        "--annotators",
        metavar="N|NAME,...",
        help="who checks labels, or how many people; not needed where the study is there already",
    ),
    option("--overlap", metavar="N", help="people who see each item; default: all of them"),
]

_PATTERNS = [
    option("images", metavar="IMAGES", help="folder of images, also below it"),
    option("--out", metavar="FOLDER", required=True, help="folder of the data set"),
    option("--describer", metavar="SPEC", required=True, help="the model that names patterns"),
    option("--writer", metavar="SPEC", help="the model that summarizes names; not with a file"),
    option(
        "--patterns",
        metavar="N|FILE",
        default="13",
        help=f"how many patterns a summary has at most, or a file of patterns; {DEFAULT}",
    ),
    option(
        "--per-pattern",
        metavar="N",
        default="100",
        help=f"images of each pattern that are wanted; {DEFAULT}",
    ),
    option(
        "--sampling",
        choices=("quota", "bernoulli"),
        default="quota",
        help="so many of each pattern, or each image of a pattern of M with the probability N / M, "
        f"as the paper drew; {DEFAULT}",
    ),
    option("--seed", metavar="SEED", default="0", help=f"of draws and of models; {DEFAULT}"),
    option(
        "--prompts",
        choices=("neutral", "paper"),
        default="neutral",
        help="the questions, plain or built as MMGenBench's, whose first one names examples of "
        f"patterns; {DEFAULT}",
    ),
    option(
        "--until",
        choices=("extract", "count", "summary", "annotate", "sample", "verify"),
        help="the last stage; verify writes the study of people too; default: sample",
    ),
    *_CHECKING,
    *STORE,
]

_FREEZE = [
    option("folder", metavar="FOLDER", help="of dataset patterns or dataset arena"),
    option("--name", metavar="NAME", help="of the data set; default: that of the folder"),
    option("--to", metavar="DIR", help="folder to write; default: FOLDER/frozen"),
    flag("--copy", "copy the images into the table; without it paths and digests are written"),
    flag("--unverified", "take the model's labels where nobody looked at an image"),
    option("--images", metavar="IMAGES", help="where the images lie, if they have moved"),
]

_VERIFY = [
    _FOLDER,
    *_CHECKING,
    option("--seed", metavar="SEED", help="of the order of items; default: 0"),
    option("--images", metavar="IMAGES", help="where the images lie, if they have moved"),
]

_ARENA = [
    option("templates", metavar="FILE", help="tasks and what fills them"),
    option("--out", metavar="FOLDER", required=True, help="folder of the data set"),
]

_DATASET_ACTIONS = (
    Command(
        "patterns",
        "find the patterns of your images, label them by a model, and choose images of each",
        UNMEASURED,
        _PATTERNS,
        run="dataset_patterns",
    ),
    Command(
        "verify",
        "let people check labels, or approve gold answers, on pages of this machine",
        UNWRITTEN,
        [*_VERIFY, PAGES],
        run="dataset_files:run_verify",
    ),
    Command(
        "freeze",
        "settle the labels by vote, and write the set with its card in the layout that suites load",
        UNWRITTEN,
        _FREEZE,
        run="dataset_files:run_freeze",
    ),
    Command(
        "arena",
        "make questions of task templates, whose gold answers people approve",
        UNWRITTEN,
        _ARENA,
        run="dataset_files:run_arena",
    ),
)

DATASET = Command(
    "dataset",
    "make a data set of your own images or questions: labelled by models, checked by people",
    None,
    commands=_DATASET_ACTIONS,
)
