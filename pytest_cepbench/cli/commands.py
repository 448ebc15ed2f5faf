"""The commands of `cepbench`, with their options.

Standard library only: help is shown at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.cli.arena_commands import ANSWERS, ARENA, JUDGE_CARD, LEADERBOARD
from pytest_cepbench.cli.arguments import (
    BASELINES,
    DAMAGED,
    DEFAULT,
    DELETE,
    DRY_RUN,
    EXIT_CODES,
    MODELS,
    PAGES,
    REFUSED,
    RESULTS,
    ROLES,
    STORE,
    SUITE,
    UNMEASURED,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    flag,
    option,
    several,
    shared,
)
from pytest_cepbench.cli.history_commands import COMPARE, EXPORT, HISTORY, VIEW
from pytest_cepbench.cli.rating_commands import AGREEMENT, ALIGNMENT, LABELS, RATE, RATINGS

_STORE_ACTIONS = (
    Command("stats", "what a store holds", DAMAGED, [flag("--json", "print JSON"), *STORE]),
    Command(
        "verify",
        "read all of a store, and say what is damaged",
        DAMAGED,
        [
            option(
                "url",
                metavar="URL",
                nargs="?",
                help="a shared store of objects, in the place of a local one",
            ),
            flag("--repair", "drop what is damaged; it is computed again"),
            *STORE,
        ],
    ),
    Command(
        "gc",
        "find what is old, too much, or needed by no baseline, and delete it",
        DAMAGED,
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
            OptionGroup(
                None,
                [
                    several(
                        "--baselines",
                        metavar="DIR",
                        type=Path,
                        help="keep all that the models of these baselines made (several allowed)",
                    ),
                    flag(
                        "--without-baselines",
                        "delete also what is kept for the project's baselines",
                    ),
                ],
            ),
            DELETE,
            *STORE,
        ],
    ),
    Command(
        "pull",
        "take over what a shared store of objects has more",
        DAMAGED,
        [
            option(
                "url",
                metavar="URL|DIR",
                help="s3://BUCKET/PREFIX, gs://..., or a folder that machines mount",
            ),
            *STORE,
        ],
    ),
)

STORE_COMMAND = Command(
    "store",
    "look at a store of results, make it smaller, fill it from a shared one",
    DAMAGED,
    commands=_STORE_ACTIONS,
)


_FOLDER = option("folder", metavar="FOLDER", type=Path, help="of dataset patterns or dataset arena")

_CHECKING = [
    option(
        "--annotators",
        metavar="NAME,...|N",
        help="who checks labels, or how many people; not needed where the study is there already",
    ),
    option("--overlap", metavar="N", help="people who see each item; default: all of them"),
]

_PATTERNS = [
    option("images", metavar="IMAGES", type=Path, help="folder of images, also below it"),
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder of the data set"),
    option("--describer", metavar="SPEC", required=True, help="the model that names patterns"),
    option("--writer", metavar="SPEC", help="the model that summarizes names; not with a file"),
    option("--encoder", metavar="SPEC", help="reports near duplicates, which are kept"),
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
    option("--seed", metavar="N", default="0", help=f"of draws and of models; {DEFAULT}"),
    option(
        "--prompts",
        choices=("neutral", "paper"),
        default="neutral",
        help=f"the questions, plain or built as MMGenBench's; {DEFAULT}",
    ),
    option(
        "--examples",
        choices=("none", "paper"),
        default="none",
        help=f"whether the first question names the paper's patterns, which primes; {DEFAULT}",
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
    option(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="of dataset patterns or dataset arena, or a frozen set that was passed on without its "
        "images",
    ),
    option("--name", metavar="NAME", help="of the data set; default: that of the folder"),
    option("--to", metavar="DIR", type=Path, help="folder to write; default: FOLDER/frozen"),
    flag("--copy", "copy the images into the table; without it paths and digests are written"),
    flag("--unverified", "take the model's labels where nobody looked at an image"),
    option("--images", metavar="DIR", type=Path, help="where the images lie, if they have moved"),
]

_VERIFY = [
    _FOLDER,
    *_CHECKING,
    option("--seed", metavar="N", help="of the order of items; default: 0"),
    option("--images", metavar="DIR", type=Path, help="where the images lie, if they have moved"),
]

_PAIRS = [
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder of the data set"),
    option("--docci", metavar="DIR", type=Path, required=True, help="local copy of DOCCI"),
    option("--nocaps", metavar="DIR", type=Path, required=True, help="local copy of NoCaps"),
    option(
        "--ids",
        metavar="FILE",
        type=Path,
        help="list of ids (source, image_id), such as the paper's; default: they are chosen",
    ),
    option(
        "--per-source",
        metavar="N",
        default="200",
        help=f"pairs that are chosen of each source; {DEFAULT}",
    ),
    option("--seed", metavar="N", default="0", help=f"of the choice; {DEFAULT}"),
    flag("--copy", "copy the images, in the layout of SDP's code"),
]

_ARENA = [
    option("templates", metavar="TEMPLATES.toml", type=Path, help="tasks and what fills them"),
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder of the data set"),
]

_ACTIONS = (
    Command(
        "patterns",
        "find the patterns of your images, label them by a model, and choose images of each",
        UNMEASURED,
        _PATTERNS,
    ),
    Command(
        "verify",
        "let people check labels, or approve gold answers, on pages of this machine",
        UNWRITTEN,
        [*_VERIFY, PAGES],
    ),
    Command(
        "freeze",
        "settle the labels by vote, and write the set with its card in the layout that suites load",
        UNWRITTEN,
        _FREEZE,
    ),
    Command(
        "pairs",
        "join images and captions of DOCCI and NoCaps into pairs for SDP",
        UNWRITTEN,
        _PAIRS,
    ),
    Command(
        "arena",
        "make questions of task templates, whose gold answers people approve",
        UNWRITTEN,
        _ARENA,
    ),
)

DATASET = Command(
    "dataset",
    "make a data set of your own images or questions: labelled by models, checked by people",
    None,
    commands=_ACTIONS,
)


_PROBLEM = (
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked"
)

_OUT = option("--out", metavar="DIR", type=Path, default=Path(".cepbench/studies"), help=DEFAULT)

_ROLE_AND_DATA = [
    *shared("role", choices=(*ROLES, "unified"), help="what the models under test play"),
    *shared("data", metavar="NAME=PATH", action="append", default=[], help="where a data set lies"),
    *shared("samples", metavar="N", help="most samples of each category"),
]

_STUDIES = {
    "seeds": "the same models with several seeds",
    "generators": "the same models with several text-to-image models",
    "encoders": "the same chains compared by several encoders",
    "lengths": "descriptions of fewer than 20, 20 to 60, and more than 60 words",
    "weighting": "GC@T against s(T), its last similarity without weights",
}


def _study_options(name: str) -> Iterator[Option]:
    yield SUITE
    yield option(
        "--model",
        metavar="[NAME=]SPEC",
        action="append",
        required=True,
        help="a model under test, and its name in tables (several allowed)",
    )
    if name == "seeds":
        yield option("--seeds", metavar="N,N,...", default="0,1,2,3,4", help=DEFAULT)
    for role in ROLES:
        if name != f"{role}s":
            yield MODELS[role]
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
    yield from (*STORE, _OUT)


def _trial_options(model: Option, seeds: str) -> list[Option]:
    """Of a model that is measured with several seeds and judged by the suite's cases."""
    instead = "in the place of the suite's, for what is printed"
    about = f"how many seeds, from the suite's own on; {DEFAULT}"
    return [
        SUITE,
        model,
        *MODELS.values(),
        *_ROLE_AND_DATA,
        option("--seeds", metavar="N", default=seeds, help=about),
        *shared("tolerance", metavar="X", help=f"tolerated drop of every case, {instead}"),
        *shared("alpha", metavar="X", help=f"error that the cases share, {instead}"),
        *STORE,
        *BASELINES,
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
        option(
            "--seeds",
            metavar="K",
            help="measure it under so many seeds, at least 2, and accept the means; the gate then "
            "allows for the spread between them; take 5 or more",
        ),
        option("--model", metavar="SPEC", help="default: as in the results"),
        *MODELS.values(),
        *_ROLE_AND_DATA,
        *STORE,
    ],
)

_ACCEPT = [
    RESULTS,
    option(
        "--reason", metavar="TEXT", required=True, help="why, in a sentence; kept in each baseline"
    ),
    several(
        "--case",
        metavar="[SUITE/]PART/METRIC",
        help="accept this case only (several allowed); default: all",
    ),
    *BASELINES,
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
    DRY_RUN,
]

_PRUNE = [
    RESULTS,
    DELETE,
    several(
        "--suite",
        metavar="NAME",
        help="also all baselines of this suite, which is gone (several allowed)",
    ),
    *BASELINES,
]

_STUDIED = "how far the numbers of a suite move when something else than the model changes"

_INIT = [
    option("--images", metavar="DIR", type=Path, required=True, help="sub-folders are categories"),
    option("--model", metavar="SPEC", required=True, help="the model that will be gated"),
    *(
        option(
            f"--{role}", metavar="SPEC", help=f"the {role} of the suite, the same for all models"
        )
        for role in ("describer", "generator", "encoder")
    ),
    *shared("role", choices=(*ROLES[:3], "unified"), help="what the model under test plays"),
    option("--name", metavar="NAME", help="of the suite; default: that of the folder of images"),
    option(
        "--pilot",
        metavar="N",
        default="8",
        help=f"most images of each category that the noise is measured on; {DEFAULT}",
    ),
    option("--seeds", metavar="N", default="3", help=f"under how many seeds; {DEFAULT}"),
    flag("--no-measure", "ask no model, and write the default tolerance"),
    flag("--accept", "measure the model on the whole suite, and accept its numbers as baselines"),
    *STORE,
]

_COMMANDS = (
    # Set up.
    Command(
        "init",
        "write a suite for your own images, its test and a workflow, with measured tolerances",
        UNWRITTEN,
        _INIT,
    ),
    Command(
        "suites",
        "list the suites that come with the package, and what each of them needs",
        EXIT_CODES.format("a suite's file cannot be read"),
        [option("name", metavar="NAME", nargs="?", help="show this suite in full")],
    ),
    Command(
        "doctor",
        "check whether a suite as it is set up can see anything, without gating",
        _PROBLEM,
        [*_trial_options(_EXAMINED, seeds="2"), _OUT],
    ),
    Command(
        "calibrate",
        "measure the noise of a model against itself over seeds, and keep it with the baselines",
        UNMEASURED,
        [*_trial_options(_CALIBRATED, seeds="5"), DRY_RUN],
    ),
    Command(
        "study",
        _STUDIED,
        None,
        commands=[
            Command(name, about, UNMEASURED, [*_study_options(name)])
            for name, about in _STUDIES.items()
        ],
        choice="study",
        description=f"Measure {_STUDIED}.",
    ),
    # Baselines.
    Command("accept", "accept the results of a run as baselines", REFUSED, [*_ACCEPT, _REMEASURE]),
    ANSWERS,
    Command("prune", "find baselines that no case has any more, and delete them", REFUSED, _PRUNE),
    Command(
        "series",
        "show what a series of gates looked at, and how soon it finds a drop",
        EXIT_CODES.format("the record could not be shown"),
        [option("name", metavar="NAME", help="as in --cep-series NAME"), *BASELINES],
    ),
    # Results.
    HISTORY,
    VIEW,
    COMPARE,
    EXPORT,
    LEADERBOARD,
    # Judges and people.
    JUDGE_CARD,
    ARENA,
    RATE,
    AGREEMENT,
    ALIGNMENT,
    RATINGS,
    LABELS,
    # Data.
    DATASET,
    STORE_COMMAND,
)

CEPBENCH = Command(
    "cepbench",
    "set up suites, accept baselines, look at results, ask judges and people, make data sets",
    UNMEASURED,
    commands=_COMMANDS,
    choice="command",
    description="Set up suites, accept baselines, look at results, ask judges and people, make "
    "data sets. A gate itself is a run of pytest: pytest SUITES --model=CHECKPOINT.",
)
"""The command itself, with all its commands."""
