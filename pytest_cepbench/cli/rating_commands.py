"""The commands that ask people and read their ratings, with options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import (
    ANSWER_ROLES,
    BASELINES,
    DEFAULT,
    PAGES,
    REFUSED,
    STORE,
    SUITE,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    option,
    several,
    shared,
)

_RATINGS = option("ratings", metavar="RATINGS", type=Path, help="a ratings folder")


def _out(default: str) -> Option:
    return option(
        "--out", metavar="DIR", type=Path, default=Path(default), help="default: %(default)s"
    )


_DRAWS = option(
    "--draws",
    metavar="N",
    default="1000",
    help="of the bootstrap behind each interval; default: %(default)s",
)

_ONE_ANNOTATOR = option(
    "--annotator", metavar="NAME", help="of this annotator alone; default: of all"
)

AGREEMENT = Command(
    "agreement",
    "how far annotators agree with one another, with themselves and with known answers",
    UNWRITTEN,
    [
        _RATINGS,
        _DRAWS,
        _out(".cepbench/agreement"),
    ],
)

ALIGNMENT = Command(
    "alignment",
    "what people think of each model, and how the metrics of runs agree with them",
    UNWRITTEN,
    [
        _RATINGS,
        several(
            "--report",
            metavar="[NAME=]REPORT",
            help="JSON report (--cep-report) of a run of a rated model (several allowed)",
        ),
        _DRAWS,
        _out(".cepbench/alignment"),
    ],
)

RATINGS = Command(
    "ratings",
    "bring ratings into other tools and back",
    UNWRITTEN,
    commands=(
        Command(
            "export",
            "write a study for Label Studio, its descriptions as chains, its verdicts as battles",
            UNWRITTEN,
            [
                _RATINGS,
                option(
                    "--format",
                    choices=("label-studio", "replay", "opening"),
                    required=True,
                    help="tasks for Label Studio; descriptions as chains for replay:; verdicts of "
                    "the majority in OpenING's format",
                ),
                option(
                    "--out",
                    metavar="DIR",
                    type=Path,
                    help="default: below .cepbench/ratings, by name and format",
                ),
                _ONE_ANNOTATOR,
            ],
        ),
        Command(
            "import",
            "add the answers of a JSON export of Label Studio to the votes of a study",
            UNWRITTEN,
            [
                _RATINGS,
                option("file", metavar="FILE", type=Path, help="what Label Studio exported"),
                several(
                    "--annotator",
                    metavar="USER=NAME",
                    help="number or address of a user there, and the annotator's name here "
                    "(several allowed)",
                ),
            ],
        ),
    ),
)

_LABELS_ACTIONS = (
    Command(
        "draw",
        "choose the battles that people label, before the judge is asked",
        REFUSED,
        [
            SUITE,
            option("--model", metavar="SPEC", required=True, help="the model that will be gated"),
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
            option(
                "--data",
                metavar="NAME=PATH",
                action="append",
                default=[],
                help="where a data set lies",
            ),
            option("--samples", metavar="N", help="most samples of each category"),
            option(
                "--ratings",
                metavar="DIR",
                type=Path,
                help="write the battles into a new ratings folder, which `cepbench rate` serves",
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
    ),
    Command(
        "import",
        "write what people said of drawn battles into the label files",
        REFUSED,
        [
            option("ratings", metavar="RATINGS", type=Path, help="a ratings folder of pairs"),
            option(
                "--score",
                choices=("mean", "majority"),
                default="mean",
                help=f"what the votes of several people on a battle make; {DEFAULT}",
            ),
            *BASELINES,
        ],
    ),
)

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
    option("--out", metavar="DIR", type=Path, help="the ratings folder to write"),
    option(
        "--from",
        dest="reports",
        metavar="[NAME=]REPORT",
        action="append",
        default=[],
        help="the JSON report of a run whose outputs are rated (several allowed)",
    ),
    option("--sample", metavar="N", help="ask about so many items, chosen by --seed; default: all"),
    option("--seed", metavar="N", help="of the choice, and of all orders; default: 0"),
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
            *shared(
                "data",
                metavar="NAME=PATH",
                action="append",
                default=[],
                help="where a data set lies",
            ),
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

LABELS = Command(
    "labels",
    "people's labels of a part of a suite's battles, which make the bounds of win rates valid",
    REFUSED,
    commands=_LABELS_ACTIONS,
)

RATE = Command(
    "rate",
    "ask people: blind ratings, descriptions and checks on pages of this machine",
    UNWRITTEN,
    _RATE,
)
