"""The commands of `cepbench`, with their options.

Standard library only: help is shown at once.
"""

from __future__ import annotations

from pytest_cepbench.cli.arguments import (
    BASELINES,
    CASES,
    DAMAGED,
    DATA,
    DEFAULT,
    DELETE,
    DRY_RUN,
    EXIT_CODES,
    MODELS,
    OWN_STORE,
    REFUSED,
    RESULTS,
    ROLE_AND_DATA,
    ROLES,
    STORE,
    SUITE,
    UNMEASURED,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    flag,
    image_folder,
    number_from,
    option,
    several,
    shared,
)
from pytest_cepbench.cli.model_commands import AGREE, ARENA, STUDY
from pytest_cepbench.cli.people_commands import DATASET, RATE
from pytest_cepbench.cli.result_commands import COMPARE, EXPORT, HISTORY, VIEW

_STORE_ACTIONS = (
    Command(
        "stats",
        "what a store holds",
        DAMAGED,
        [flag("--json", "print JSON"), *OWN_STORE],
        run="store",
    ),
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
        run="store",
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
                        help="keep all that the models of these baselines made (several allowed)",
                    ),
                    flag(
                        "--without-baselines",
                        "delete also what is kept for the project's baselines",
                    ),
                ],
            ),
            DELETE,
            *OWN_STORE,
        ],
        run="store",
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
        run="store",
    ),
    Command(
        "export",
        "write a suite's accepted answers into one file beside its baselines, for others to battle",
        DAMAGED,
        [
            option(
                "--answers",
                metavar="SUITE",
                required=True,
                dest="suite",
                help="folder with a suite.toml, or such a file",
            ),
            option(
                "--out",
                metavar="FILE",
                help="the file; default: answers.zip beside the suite's baselines. Of the layout "
                "opening a folder; default: .cepbench/answers",
            ),
            option(
                "--layout",
                choices=("bundle", "opening"),
                default="bundle",
                help=f"one file, or a folder as OpenING's scripts read it; {DEFAULT}",
            ),
            option(
                "--name",
                metavar="MODEL",
                default="accepted",
                help=f"name of the model, of the layout opening; {DEFAULT}",
            ),
            *DATA,
            *BASELINES,
            *STORE,
        ],
        run="store:move_answers",
    ),
    Command(
        "import",
        "take over answers that were exported",
        DAMAGED,
        [option("bundles", metavar="FILE", nargs="+", help="what export wrote"), *STORE],
        run="store:move_answers",
    ),
)

STORE_COMMAND = Command(
    "store",
    "look at a store of results, make it smaller, fill it from a shared one",
    DAMAGED,
    commands=_STORE_ACTIONS,
)


_PROBLEM = (
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked"
)

_OUT = option("--out", metavar="DIR", default=".cepbench/studies", help=DEFAULT)


def _trial_options(model: Option, seeds: int, suite: Option = SUITE) -> list[Option]:
    """Of a model that is measured with several seeds and judged by the suite's cases."""
    instead = "in the place of the suite's, for what is printed"
    about = f"how many seeds, from the suite's own on; {DEFAULT}"
    return [
        suite,
        model,
        *MODELS.values(),
        *ROLE_AND_DATA,
        option("--seeds", metavar="N", default=seeds, help=about),
        *shared("tolerance", metavar="X", help=f"tolerated drop of every case, {instead}"),
        *shared("alpha", metavar="X", help=f"error that the cases share, {instead}"),
        *STORE,
        *BASELINES,
    ]


_CALIBRATED = option(
    "--model", metavar="SPEC", required=True, help="the model that is measured against itself"
)

_SUITE_OR_NONE = option(
    "suite",
    metavar="SUITE",
    nargs="?",
    help="folder with a suite.toml, or such a file; none with --report",
)

_REPORTED = option(
    "--report",
    metavar="REPORT",
    type=str,  # argparse would check the empty text of the bare option too
    nargs="?",
    const="",
    help="for a bug report: print versions, settings and, of a JSON report, what became of its "
    "cases, without keys, prompts or images; nothing is measured",
)

_EXAMINED = option(
    "--model", metavar="SPEC", help="the model that would be gated; default: the suite's describer"
)

_SEVERAL_SEEDS = number_from(
    2, "a spread shows between at least 2 measurements; for a single fresh one leave --seeds out"
)

_REMEASURE = OptionGroup(
    "a checkpoint that was chosen as the best of several",
    [
        option(
            "--remeasure",
            metavar="SUITE",
            help="measure it again, on held-out samples or under a fresh seed, and accept that",
        ),
        option(
            "--seeds",
            metavar="K",
            type=_SEVERAL_SEEDS,
            help="measure it under so many seeds, at least 2, and accept the means; the gate then "
            "allows for the spread between them; take 5 or more",
        ),
        option("--model", metavar="SPEC", help="default: as in the results"),
        *MODELS.values(),
        *ROLE_AND_DATA,
        *STORE,
    ],
)

_ACCEPT = [
    RESULTS,
    option(
        "--reason", metavar="TEXT", required=True, help="why, in a sentence; kept in each baseline"
    ),
    CASES,
    *BASELINES,
    flag(
        "--move-anchor", "make what is accepted the anchor too: the steps until here are forgotten"
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

_INIT = [
    option(
        "--images",
        metavar="DIR",
        type=image_folder,
        required=True,
        help="sub-folders are categories",
    ),
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
        "--samples",
        metavar="N",
        default=8,
        help=f"most images of each category that the noise is measured on; {DEFAULT}",
    ),
    option("--seeds", metavar="N", default=3, help=f"under how many seeds; {DEFAULT}"),
    flag("--no-measure", "ask no model, and write the default tolerance"),
    flag("--accept", "measure the model on the whole suite, and accept its numbers as baselines"),
    *STORE,
]

CEPBENCH = Command(
    "cepbench",
    "set up suites, accept baselines, look at results, ask judges and people, keep stores",
    UNMEASURED,
    choice="command",
    description="Set up suites, accept baselines, look at results, ask judges and people, keep "
    "stores. A gate itself is a run of pytest: pytest SUITES --model=CHECKPOINT.",
    groups={
        "set up": (
            Command(
                "init",
                "write a suite for your own images, its test and a workflow, with measured "
                "tolerances",
                UNWRITTEN,
                _INIT,
                run="init",
            ),
            Command(
                "suites",
                "list the suites that come with the package, and what each of them needs",
                EXIT_CODES.format("a suite's file cannot be read"),
                [option("name", metavar="NAME", nargs="?", help="show this suite in full")],
                run="suites",
            ),
            Command(
                "doctor",
                "check whether a suite as it is set up can see anything, without gating",
                _PROBLEM,
                [*_trial_options(_EXAMINED, seeds=2, suite=_SUITE_OR_NONE), _OUT, _REPORTED],
                run="doctor",
            ),
            Command(
                "calibrate",
                "measure the noise of a model against itself over seeds, and keep it with the "
                "baselines",
                UNMEASURED,
                [*_trial_options(_CALIBRATED, seeds=5), DRY_RUN],
                run="calibrate",
                recovers=True,
            ),
        ),
        "baselines": (
            Command(
                "accept",
                "accept the results of a run as baselines",
                REFUSED,
                [*_ACCEPT, _REMEASURE],
                run="accept",
                recovers=True,
            ),
            Command(
                "prune",
                "find baselines that no case has any more, and delete them",
                REFUSED,
                _PRUNE,
                run="prune",
                recovers=True,
            ),
        ),
        "results": (COMPARE, HISTORY, VIEW, EXPORT),
        "models and people": (STUDY, ARENA, AGREE, RATE, DATASET),
        "store": (STORE_COMMAND,),
    },
)
"""The command itself, with all its commands."""
