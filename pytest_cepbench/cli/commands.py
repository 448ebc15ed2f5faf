"""The commands of `cepbench`, with their options.

Standard library only: help is shown at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.cli.arguments import (
    Command,
    Option,
    OptionGroup,
    flag,
    option,
    several,
    shared,
)
from pytest_cepbench.cli.dataset_commands import DATASET
from pytest_cepbench.cli.rating_commands import AGREEMENT, ALIGNMENT, RATINGS
from pytest_cepbench.cli.shared_options import DEFAULT as _DEFAULT
from pytest_cepbench.cli.shared_options import EXIT_CODES as _EXIT_CODES
from pytest_cepbench.cli.shared_options import PAGES
from pytest_cepbench.cli.shared_options import STORE as _STORE
from pytest_cepbench.cli.shared_options import UNMEASURED as _UNMEASURED
from pytest_cepbench.cli.shared_options import UNWRITTEN as _UNWRITTEN

_ROLES = ("describer", "generator", "encoder", "detector")
"""The roles of chains, to which these commands can give a model."""

_REFUSED = _EXIT_CODES.format("the results were refused or a file could not be changed")

_PROBLEM = (
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked"
)

_DAMAGED = _EXIT_CODES.format("something is damaged, was refused or could not be written")

_RESULTS = option(
    "results", metavar="RESULTS.json", type=Path, help="what pytest --cep-report wrote"
)

_SUITE = option(
    "suite", metavar="SUITE", type=Path, help="folder with a suite.toml, or such a file"
)

_BASELINES = shared(
    "baselines",
    metavar="DIR",
    type=Path,
    default=Path("baselines"),
    help=f"folder of accepted baselines; {_DEFAULT}",
)

_DRY_RUN = flag("--dry-run", "write no baseline")

_DELETE = flag("--delete", "delete what is listed")

_OUT = option("--out", metavar="DIR", type=Path, default=Path(".cepbench/studies"), help=_DEFAULT)

_ROLE_AND_DATA = [
    *shared("role", choices=(*_ROLES, "unified"), help="what the models under test play"),
    *shared("data", metavar="NAME=PATH", action="append", default=[], help="where a data set lies"),
    *shared("samples", metavar="N", help="most samples of each category"),
]

_ENCODER = several(
    "--encoder",
    metavar="[NAME=]SPEC",
    help="model whose vectors are compared; with NAME= one of the suite's further encoders",
)

_MODELS = {
    role: _ENCODER
    if role == "encoder"
    else option(f"--{role}", metavar="SPEC", help=f"the {role}, the same for all")
    for role in _ROLES
}
"""Role -> its option, where its model is the same for all."""

_STUDIES = {
    "seeds": "the same models with several seeds",
    "generators": "the same models with several text-to-image models",
    "encoders": "the same chains compared by several encoders",
    "lengths": "descriptions of fewer than 20, 20 to 60, and more than 60 words",
    "weighting": "GC@T against s(T), its last similarity without weights",
}


def _study_options(name: str) -> Iterator[Option]:
    yield _SUITE
    yield option(
        "--model",
        metavar="[NAME=]SPEC",
        action="append",
        required=True,
        help="a model under test, and its name in tables (several allowed)",
    )
    if name == "seeds":
        yield option("--seeds", metavar="N,N,...", default="0,1,2,3,4", help=_DEFAULT)
    for role in _ROLES:
        if name != f"{role}s":
            yield _MODELS[role]
            continue
        about = f"one of the {role}s that are compared, and its name in tables"
        yield several(f"--{role}", metavar="[NAME=]SPEC", help=about)
        if role == "encoder":
            yield option(
                "--seat",
                metavar="NAME",
                default="encoder",
                help="which of the suite's encoders is exchanged; default: the one without a name",
            )
    yield from _ROLE_AND_DATA
    yield option("--metrics", metavar="NAME,...", help="of the suite's metrics; default: all")
    about = "categories, groups or mappings, beside the whole"
    yield option("--parts", metavar="NAME,...", help=about)
    yield from (*_STORE, _OUT)


def _trial_options(model: Option, seeds: str) -> list[Option]:
    """Of a model that is measured with several seeds and judged by the suite's cases."""
    instead = "in the place of the suite's, for what is printed"
    about = f"how many seeds, from the suite's own on; {_DEFAULT}"
    return [
        _SUITE,
        model,
        *_MODELS.values(),
        *_ROLE_AND_DATA,
        option("--seeds", metavar="N", default=seeds, help=about),
        *shared("tolerance", metavar="X", help=f"tolerated drop of every case, {instead}"),
        *shared("alpha", metavar="X", help=f"error that the cases share, {instead}"),
        *_STORE,
        *_BASELINES,
    ]


_CALIBRATED = option(
    "--model", metavar="SPEC", required=True, help="the model that is measured against itself"
)

_EXAMINED = option(
    "--model",
    metavar="SPEC",
    help="the model that would be gated; default: the suite's describer",
)

_REMEASURE = OptionGroup(
    "a checkpoint that was chosen as the best of several",
    [
        option(
            "--remeasure",
            metavar="SUITE",
            type=Path,
            help="measure it again, on held-out samples or under a fresh seed, and accept that",
        ),
        option("--model", metavar="SPEC", help="default: as in the results"),
        *_MODELS.values(),
        *_ROLE_AND_DATA,
        *_STORE,
    ],
)

_ACCEPT = [
    _RESULTS,
    option(
        "--reason", metavar="TEXT", required=True, help="why, in a sentence; kept in each baseline"
    ),
    several(
        "--case",
        metavar="[SUITE/]PART/METRIC",
        help="accept this case only (several allowed); default: all",
    ),
    *_BASELINES,
    flag(
        "--move-anchor",
        "make what is accepted the anchor too: the steps until here are forgotten",
    ),
    option(
        "--accept-insensitive",
        "--cep-accept-insensitive",
        action="store_true",
        help="accept also what lies at the floor by chance, where a regression could not be seen",
    ),
    _DRY_RUN,
]

_PRUNE = [
    _RESULTS,
    _DELETE,
    several(
        "--suite",
        metavar="NAME",
        help="also all baselines of this suite, which is gone (several allowed)",
    ),
    *_BASELINES,
]


def _needed(about: str) -> Option:
    return several(
        "--baselines",
        metavar="DIR",
        type=Path,
        help=f"{about} of these baselines made (several allowed)",
    )


_EXPORTED = OptionGroup(
    None,
    [
        _needed("only what the models"),
        option(
            "--used-within",
            metavar="7d",
            help="only what runs used in the last so many days (d) or weeks (w)",
        ),
    ],
)

_URL = option(
    "url", metavar="URL|DIR", help="s3://BUCKET/PREFIX, gs://..., or a folder that machines mount"
)

_STORE_ACTIONS = (
    Command("stats", "what a store holds", _DAMAGED, [flag("--json", "print JSON"), *_STORE]),
    Command(
        "verify",
        "read all of a store, and say what is damaged",
        _DAMAGED,
        [
            option(
                "url",
                metavar="URL",
                nargs="?",
                help="a shared store of objects, in the place of a local one",
            ),
            flag("--repair", "drop what is damaged; it is computed again"),
            *_STORE,
        ],
    ),
    Command(
        "gc",
        "find what is old, too much, or needed by no baseline, and delete it",
        _DAMAGED,
        [
            option(
                "--unused-for",
                metavar="30d",
                help="results that no run has used for so many days (d) or weeks (w)",
            ),
            option(
                "--max-size",
                metavar="20G",
                help="the least recently used results, until no more than this is left",
            ),
            _needed("keep all that the models"),
            _DELETE,
            *_STORE,
        ],
    ),
    Command(
        "export",
        "write a frozen copy, a folder or one .tar, for others to read",
        _DAMAGED,
        [
            option(
                "target",
                metavar="TARGET",
                type=Path,
                help="folder to make, or archive where it ends in .tar",
            ),
            flag("--force", "replace an earlier copy that is at TARGET"),
            _EXPORTED,
            *_STORE,
        ],
    ),
    Command(
        "import",
        "take over what is sound of another store or an archive",
        _DAMAGED,
        [
            option(
                "source", metavar="SOURCE", type=Path, help="folder of a store, or archive of one"
            ),
            *_STORE,
        ],
    ),
    Command("push", "upload what a shared store of objects lacks", _DAMAGED, [_URL, *_STORE]),
    Command("pull", "take over what a shared store of objects has more", _DAMAGED, [_URL, *_STORE]),
)

_LEADERBOARD = [
    option("suite", metavar="SUITE", help="its name, or its folder"),
    option(
        "reports",
        metavar="[NAME=]REPORT",
        nargs="+",
        help="JSON reports (--cep-report) of two or more runs, and what to call their models",
    ),
    several(
        "--case",
        metavar="PART/METRIC",
        help="rank in this case (several allowed); default: the whole suite in each metric",
    ),
    option(
        "--out", metavar="DIR", type=Path, default=Path(".cepbench/leaderboards"), help=_DEFAULT
    ),
]

_HISTORY_FOLDER = shared(
    "history",
    metavar="DIR",
    type=Path,
    default=Path(".cepbench/history"),
    help=f"folder of the history; {_DEFAULT}",
)

_CASES = [
    several("--suite", metavar="NAME", help="cases of this suite only (several allowed)"),
    several(
        "--case",
        metavar="PATTERN",
        help="cases like this SUITE/PART/METRIC, with *, ? and [...] (several allowed)",
    ),
]

_HISTORY = [
    option("--html", metavar="FILE", type=Path, help="draw the cases on a page, in this file"),
    *_CASES,
    several(
        "--model",
        metavar="PATTERN",
        help="runs of models whose spec is like this, such as 'runs/a/*' (several allowed)",
    ),
    option("--last", metavar="N", help="the latest N runs only"),
    *_HISTORY_FOLDER,
]

_VIEW = [
    option(
        "words",
        metavar="DIR | bundle DIR",
        nargs="*",
        help="the project to serve, by default the folder where you are; with bundle, a new folder "
        "into which the pages are written",
    ),
    option("--port", metavar="N", default="8765", help=f"of 127.0.0.1; {_DEFAULT}, 0: any free"),
    *shared(
        "history",
        metavar="DIR",
        type=Path,
        help="folder of the history; default: .cepbench/history of the project",
    ),
]

_COMPARE = [
    option(
        "runs",
        metavar="[NAME=]REPORT|SPEC",
        nargs="+",
        help="two or more runs, the first one being compared with: a JSON report (--cep-report), "
        "or the spec of a model, whose latest report the history knows",
    ),
    option("--html", metavar="FILE", type=Path, help="write a page with plots and chains as well"),
    *_CASES,
    *shared(
        "alpha",
        metavar="ERROR",
        default="0.05",
        help=f"error of all bounds together, in each direction; {_DEFAULT}",
    ),
    *shared(
        "store",
        metavar="DIR|URL",
        action="append",
        default=[],
        help="where the page's chains are read (several allowed); default: .cepbench/store",
    ),
    several(
        "--suite-file",
        metavar="FILE",
        type=Path,
        help="a suite of the page's chains (several allowed); default: beside the tests of the "
        "reports",
    ),
    *_MODELS.values(),
    *shared("data", metavar="NAME=PATH", action="append", default=[], help="where a data set lies"),
    *_HISTORY_FOLDER,
]

_ARENA_OUT = option(
    "--out", metavar="DIR", type=Path, default=Path(".cepbench/arena"), help=_DEFAULT
)

_ANSWERS_ACTIONS = (
    Command(
        "export",
        "write a suite's accepted answers into one file beside its baselines, for others to battle",
        _DAMAGED,
        [
            _SUITE,
            option(
                "--out",
                metavar="FILE",
                type=Path,
                help="the file; default: answers.zip beside the suite's baselines. Of the layout "
                "opening a folder; default: .cepbench/answers",
            ),
            option(
                "--layout",
                choices=("bundle", "opening"),
                default="bundle",
                help=f"one file, or a folder as OpenING's scripts read it; {_DEFAULT}",
            ),
            option(
                "--name",
                metavar="MODEL",
                default="accepted",
                help=f"name of the model, of the layout opening; {_DEFAULT}",
            ),
            option(
                "--data",
                metavar="NAME=PATH",
                action="append",
                default=[],
                help="where the questions lie, of the layout opening",
            ),
            *_BASELINES,
            *_STORE,
        ],
    ),
    Command(
        "import",
        "take over answers that were exported",
        _DAMAGED,
        [
            option("bundles", metavar="FILE", type=Path, nargs="+", help="what export wrote"),
            *_STORE,
        ],
    ),
)

_ARENA_ACTIONS = (
    Command(
        "rejudge",
        "let a suite's accepted answers be judged by another judge from now on",
        _REFUSED,
        [
            _SUITE,
            option("--judge", metavar="SPEC", help="the judge; default: the suite's own"),
            _DRY_RUN,
            *_BASELINES,
            *_STORE,
        ],
    ),
    Command(
        "leaderboard",
        "rank the models of each file of verdicts, by win rates and by a model of pairs",
        _UNWRITTEN,
        [
            option(
                "verdicts", metavar="FILE", type=Path, nargs="+", help="verdicts of one judge each"
            ),
            option(
                "--pair-model",
                choices=("ordered", "davidson", "rao-kupper"),
                default="ordered",
                help="ordered logit of all four verdicts, or one of those in which ties are alike; "
                + _DEFAULT,
            ),
            option(
                "--battles", metavar="FILE", type=Path, help="the battles that were to be judged"
            ),
            several(
                "--no-answer",
                metavar="MODEL",
                help=(
                    "a model whose arranged battles without verdict are forfeits (several allowed)"
                ),
            ),
            option(
                "--forfeits",
                choices=("charged-and-credited", "charged", "ignored"),
                default="charged-and-credited",
                help=f"lost by the one and won by the other, lost only, or left out; {_DEFAULT}",
            ),
            option(
                "--by",
                choices=("task", "meta-topic"),
                help="win rates of OpenING's tasks or meta-topics too",
            ),
            _ARENA_OUT,
        ],
    ),
    Command(
        "export-training",
        "write battles with the verdicts of people or of the truth, to train a judge with them",
        _UNWRITTEN,
        [
            option(
                "sources",
                metavar="SOURCE",
                nargs="+",
                help="a suite of battles with stored verdicts, such as suites/judge; a study of "
                "pairs, ratings/NAME; people's verdicts in OpenING's format; or shapes-arena, "
                "battles of the embedded world, which the truth decides",
            ),
            option(
                "--format",
                choices=("chat", "battles"),
                default="chat",
                help="chats for trl and LLaMA-Factory, each battle in both orders; or a table that "
                f"suites/judge reads; {_DEFAULT}",
            ),
            option(
                "--out", metavar="DIR", type=Path, required=True, help="a new folder for the files"
            ),
            several(
                "--unseen",
                metavar="NAME",
                help="a model, or a category, whose battles go into a split of their own (several "
                "allowed)",
            ),
            option(
                "--prompt",
                choices=("criteria", "letters", "opening-gpt", "opening-intjudge"),
                default="criteria",
                help=f"what the judge is asked, as in its spec; {_DEFAULT}",
            ),
            option(
                "--limit",
                metavar="N",
                help="so many battles of each panel, chosen by --seed; fewer are among more",
            ),
            option("--seed", metavar="N", default="0", help=f"of that choice; {_DEFAULT}"),
            option(
                "--answers",
                metavar="[MODEL=]FOLDER",
                nargs="+",
                action="extend",
                default=[],
                help="the answers of a model in OpenING's layout (several allowed)",
            ),
            *shared(
                "data",
                metavar="NAME=PATH",
                action="append",
                default=[],
                help="where the questions lie: opening=FOLDER",
            ),
            flag("--partial", "leave out battles whose question or answers are not all there"),
            *_STORE,
        ],
    ),
    Command(
        "agreement",
        "agreement of two judges over the battles that both judged",
        _UNWRITTEN,
        [
            option("first", metavar="FILE", type=Path, help="verdicts that count as right"),
            option("second", metavar="FILE", type=Path, help="verdicts of the other judge"),
            several(
                "--unseen",
                metavar="MODEL",
                help=(
                    "a model that the second judge did not know while it was made (several allowed)"
                ),
            ),
            _ARENA_OUT,
        ],
    ),
)

_LABELS_ACTIONS = (
    Command(
        "draw",
        "choose the battles that people label, before the judge is asked",
        _REFUSED,
        [
            _SUITE,
            option("--model", metavar="SPEC", required=True, help="the model that will be gated"),
            option(
                "--battles",
                metavar="N",
                default="200",
                help="how many; below 50 the judge's verdicts are of no use beside them; "
                + _DEFAULT,
            ),
            option("--judge", metavar="SPEC", help="the judge of the gate; default: the suite's"),
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
            option("--annotators", metavar="NAME,...", help="the people who rate them"),
            option(
                "--overlap",
                metavar="N",
                default="1",
                help=f"how many people rate each battle; {_DEFAULT}",
            ),
            *_BASELINES,
            *_STORE,
        ],
    ),
    Command(
        "import",
        "write what people said of drawn battles into the label files",
        _REFUSED,
        [
            option("ratings", metavar="RATINGS", type=Path, help="a ratings folder of pairs"),
            option(
                "--score",
                choices=("mean", "majority"),
                default="mean",
                help=f"what the votes of several people on a battle make; {_DEFAULT}",
            ),
            *_BASELINES,
        ],
    ),
)

_STUDIED = "how far the numbers of a suite move when something else than the model changes"

_ASKED = OptionGroup(
    "a judge that is asked",
    [
        option("--judge", metavar="SPEC", help="the judge, in the place of a file of its verdicts"),
        option(
            "--on",
            metavar="FILE",
            help="verdicts of people, whose battles it judges; or shapes-arena, the battles of the "
            "embedded world, which the truth decides",
        ),
        option(
            "--order",
            choices=("both", "balanced"),
            help="show each pair of answers in both orders, or once; default: both",
        ),
        option(
            "--limit",
            metavar="N",
            help="ask about so many battles, chosen by --seed; fewer are among more",
        ),
        option("--seed", metavar="N", help="of the judge and of the choice; default: 0"),
        flag("--partial", "leave out battles whose question or answers are not all there"),
        flag("--dry-run", "keep no card beside the baselines"),
        *_BASELINES,
        *_STORE,
    ],
)

_JUDGE_CARD: list[Option | OptionGroup] = [
    option("verdicts", metavar="FILE", type=Path, nargs="?", help="verdicts of the judge"),
    option(
        "--people",
        metavar="FILE",
        type=Path,
        help="verdicts of people on the same battles, in either order of the answers",
    ),
    several(
        "--seen",
        metavar="MODEL",
        help="a model that was known while the judge was made (several allowed)",
    ),
    several(
        "--family", metavar="MODEL", help="a model of the judge's own family (several allowed)"
    ),
    several(
        "--repeat",
        metavar="FILE|N",
        help="verdicts of the same judge, asked again (several allowed); with --judge, how often "
        "it is asked again, each time with another seed",
    ),
    option(
        "--answers",
        metavar="[MODEL=]FOLDER",
        nargs="+",
        action="extend",
        default=[],
        help="the answers of a model in OpenING's layout (several allowed)",
    ),
    *shared(
        "data",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="where the questions lie: opening=FOLDER",
    ),
    option("--out", metavar="DIR", type=Path, default=Path(".cepbench/judge-cards"), help=_DEFAULT),
    _ASKED,
]

_EXPORT = [
    _RESULTS,
    option(
        "--to",
        metavar="FORMAT",
        required=True,
        help="csv, parquet, lm-eval, hf-eval-results, wandb, mlflow or tensorboard",
    ),
    option(
        "--rows",
        choices=("cases", "samples"),
        default="cases",
        help=f"what a row of csv and parquet is; {_DEFAULT}",
    ),
    option(
        "--out",
        metavar="PATH",
        type=Path,
        help="file or folder to write; default: below .cepbench/exports",
    ),
    option("--name", metavar="NAME", help="of the run; default: the report's file name"),
    option("--step", metavar="N", default="0", help=f"of the training; {_DEFAULT}"),
    option("--dataset", metavar="ORG/NAME", help="benchmark on the Hub, for hf-eval-results"),
]

_INIT = [
    option("--images", metavar="DIR", type=Path, required=True, help="sub-folders are categories"),
    option("--model", metavar="SPEC", required=True, help="the model that will be gated"),
    *(
        option(
            f"--{role}", metavar="SPEC", help=f"the {role} of the suite, the same for all models"
        )
        for role in ("describer", "generator", "encoder")
    ),
    *shared("role", choices=(*_ROLES[:3], "unified"), help="what the model under test plays"),
    option("--name", metavar="NAME", help="of the suite; default: that of the folder of images"),
    option(
        "--pilot",
        metavar="N",
        default="8",
        help=f"most images of each category that the noise is measured on; {_DEFAULT}",
    ),
    option("--seeds", metavar="N", default="3", help=f"under how many seeds; {_DEFAULT}"),
    flag("--no-measure", "ask no model, and write the default tolerance"),
    flag("--accept", "measure the model on the whole suite, and accept its numbers as baselines"),
    *_STORE,
]

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
        default="5",
        help=f"items at the start, with feedback; {_DEFAULT}",
    ),
    option(
        "--attention",
        metavar="X",
        default="0.05",
        help=f"share of hidden items whose answer is known; {_DEFAULT}",
    ),
    option(
        "--repeats",
        metavar="X",
        default="0.05",
        help=f"share of items that come again with sides swapped; {_DEFAULT}",
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
            *_BASELINES,
        ],
    ),
]

_COMMANDS = (
    Command(
        "study",
        _STUDIED,
        None,
        commands=[
            Command(name, about, _UNMEASURED, [*_study_options(name)])
            for name, about in _STUDIES.items()
        ],
        choice="study",
        description=f"Measure {_STUDIED}.",
    ),
    Command(
        "calibrate",
        "measure the noise of a model against itself over seeds, and keep it with the baselines",
        _UNMEASURED,
        [*_trial_options(_CALIBRATED, seeds="5"), _DRY_RUN],
    ),
    Command(
        "doctor",
        "check whether a suite as it is set up can see anything, without gating",
        _PROBLEM,
        [*_trial_options(_EXAMINED, seeds="2"), _OUT],
    ),
    Command("accept", "accept the results of a run as baselines", _REFUSED, [*_ACCEPT, _REMEASURE]),
    Command(
        "export",
        "write the report of a run in the format of another tool",
        _UNWRITTEN,
        _EXPORT,
    ),
    Command(
        "series",
        "show what a series of gates looked at, and how soon it finds a drop",
        _EXIT_CODES.format("the record could not be shown"),
        [option("name", metavar="NAME", help="as in --cep-series NAME"), *_BASELINES],
    ),
    Command(
        "init",
        "write a suite for your own images, its test and a workflow, with measured tolerances",
        _UNWRITTEN,
        _INIT,
    ),
    Command(
        "suites",
        "list the suites that come with the package, and what each of them needs",
        _EXIT_CODES.format("a suite's file cannot be read"),
        [option("name", metavar="NAME", nargs="?", help="show this suite in full")],
    ),
    Command("prune", "find baselines that no case has any more, and delete them", _REFUSED, _PRUNE),
    Command(
        "leaderboard",
        "rank the models of several runs of a suite, by paired differences",
        _UNWRITTEN,
        _LEADERBOARD,
    ),
    Command(
        "history",
        "show each case over the runs of a project, with its bounds and baselines",
        _UNWRITTEN,
        _HISTORY,
    ),
    Command(
        "view",
        "show the history and the reports of a project in a browser, or write them as a site",
        _UNWRITTEN,
        _VIEW,
    ),
    Command(
        "compare",
        "compare two or more runs case by case, over the same samples",
        _UNWRITTEN,
        _COMPARE,
    ),
    Command(
        "judge-card",
        "measure a judge on battles that people judged: agreement, order effect, bias",
        _EXIT_CODES.format("the judge gave no verdict or the files could not be written"),
        _JUDGE_CARD,
    ),
    Command(
        "answers",
        "export and import the answers that were accepted",
        _DAMAGED,
        commands=_ANSWERS_ACTIONS,
    ),
    Command(
        "labels",
        "people's labels of a part of a suite's battles, which make the bounds of win rates valid",
        _REFUSED,
        commands=_LABELS_ACTIONS,
    ),
    Command(
        "rate",
        "ask people: blind ratings, descriptions and checks on pages of this machine",
        _UNWRITTEN,
        _RATE,
    ),
    Command(
        "arena",
        "rank models by the verdicts of a judge, compare two judges",
        _UNWRITTEN,
        commands=_ARENA_ACTIONS,
    ),
    DATASET,
    AGREEMENT,
    ALIGNMENT,
    RATINGS,
    Command(
        "store",
        "look at a store of results, make it smaller, copy it",
        _DAMAGED,
        commands=_STORE_ACTIONS,
    ),
)

CEPBENCH = Command(
    "cepbench",
    "Baselines of the gate, and what test runs do not measure",
    _UNMEASURED,
    commands=_COMMANDS,
    choice="command",
)
"""The command itself, with all its commands."""
