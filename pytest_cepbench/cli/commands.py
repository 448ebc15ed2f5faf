"""The commands of `cepbench`, with their options.

Apart from what runs them, since help and mistakes are answered without its imports: standard
library only.
"""

from __future__ import annotations

from pytest_cepbench.cli.arguments import (
    BASELINES,
    CASES,
    DATA,
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
    run_of,
    several,
    shared,
    suite_file,
)
from pytest_cepbench.cli.model_commands import AGREE, ARENA, DATASET, RATE, STUDY

_DAMAGED = EXIT_CODES.format("something is damaged, was refused or could not be written")

_DELETE = flag("--delete", "delete what is listed")

# -- set up ----------------------------------------------------------------------------------------


def _trial_options(model: Option, seeds: int, suite: Option = SUITE) -> list[Option]:
    """Of a model that is measured with several seeds and judged by the suite's cases."""
    instead = "in the place of the suite's, for what is printed"
    return [
        suite,
        model,
        *MODELS.values(),
        *ROLE_AND_DATA,
        option("--seeds N", "how many seeds, from the suite's own on", default=seeds),
        shared("--tolerance X", f"tolerated drop of every case, {instead}"),
        shared("--alpha X", f"error that the cases share, {instead}"),
        STORE,
        BASELINES,
    ]


_INIT = Command(
    "init",
    "write a suite for your own images, its test and a workflow, with measured tolerances",
    UNWRITTEN,
    "init",
    [
        option("--images DIR", "sub-folders are categories", type=image_folder, required=True),
        option("--model SPEC", "the model that will be gated", required=True),
        *(
            option(f"--{role} SPEC", f"the {role} of the suite, the same for all models")
            for role in ROLES[:3]
        ),
        shared("--role", "what the model under test plays", choices=(*ROLES[:3], "unified")),
        option("--name NAME", "of the suite; default: that of the folder of images"),
        option(
            "--samples N", "most images of each category that the noise is measured on", default=8
        ),
        option("--seeds N", "under how many seeds", default=3),
        flag("--no-measure", "ask no model, and write the default tolerance"),
        flag(
            "--accept", "measure the model on the whole suite, and accept its numbers as baselines"
        ),
        option("--out DIR", "of the report of what was measured", default=".cepbench/studies"),
        STORE,
    ],
)

_SUITES = Command(
    "suites",
    "list the suites that come with the package, and what each of them needs",
    EXIT_CODES.format("a suite's file cannot be read"),
    "suites",
    [option("name NAME", "show this suite in full", nargs="?")],
)

_DOCTOR = Command(
    "doctor",
    "check whether a suite as it is set up can see anything, without gating",
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked",
    "doctor",
    [
        *_trial_options(
            option(
                "--model SPEC",
                "the model that would be gated; default: the suite's describer, or the one "
                "that was accepted",
            ),
            seeds=2,
            suite=option(
                "suite SUITE",
                "folder with a suite.toml, or such a file; none with --report",
                nargs="?",
            ),
        ),
        option("--out DIR", default=".cepbench/studies"),
        option(
            "--report REPORT",
            "for a bug report: print versions, settings and, of a JSON report, what became of its "
            "cases, without keys, prompts or images; nothing is measured",
            type=str,  # argparse would check the empty text of the bare option too
            nargs="?",
            const="",
        ),
    ],
)

_CALIBRATE = Command(
    "calibrate",
    "measure the noise of a model against itself over seeds, and keep it with the baselines",
    UNMEASURED,
    "calibrate",
    [
        *_trial_options(
            option("--model SPEC", "the model that is measured against itself", required=True),
            seeds=5,
        ),
        DRY_RUN,
    ],
    recovers=True,
)

# -- baselines -------------------------------------------------------------------------------------

_REMEASURE = OptionGroup(
    "a checkpoint that was chosen as the best of several",
    [
        option(
            "--remeasure SUITE",
            "measure it again, on held-out samples or under a fresh seed, and accept that",
        ),
        option(
            "--seeds K",
            "measure it under so many seeds, at least 2, and accept the means; the gate then "
            "allows for the spread between them; take 5 or more",
            type=number_from(
                2,
                "a spread shows between at least 2 measurements; for a single fresh one leave "
                "--seeds out",
            ),
        ),
        option("--model SPEC", "default: as in the results"),
        *MODELS.values(),
        *ROLE_AND_DATA,
        STORE,
    ],
)

_ACCEPT = Command(
    "accept",
    "accept the results of a run as baselines",
    REFUSED,
    "accept",
    [
        RESULTS,
        option("--reason TEXT", "why, in a sentence; kept in each baseline", required=True),
        CASES,
        BASELINES,
        flag(
            "--move-anchor",
            "make what is accepted the anchor too: the steps until here are forgotten",
        ),
        Option(
            ("--accept-insensitive", "--cep-accept-insensitive"),
            {
                "action": "store_true",
                "help": "accept also what lies at the floor by chance, where a regression could "
                "not be seen",
            },
        ),
        DRY_RUN,
        _REMEASURE,
    ],
    recovers=True,
)

_PRUNE = Command(
    "prune",
    "find baselines that no case has any more, and delete them",
    REFUSED,
    "prune",
    [
        RESULTS,
        _DELETE,
        several(
            "--suite NAME", "also all baselines of this suite, which is gone (several allowed)"
        ),
        BASELINES,
    ],
    recovers=True,
)

# -- results ---------------------------------------------------------------------------------------

_HISTORY_FOLDER = shared("--history DIR", "folder of the history", default=".cepbench/history")

_CASES = [several("--suite NAME", "cases of this suite only (several allowed)"), CASES]

_COMPARE = Command(
    "compare",
    "compare and rank two or more runs, case by case over the same samples",
    UNWRITTEN,
    "compare",
    [
        option(
            "runs [NAME=]REPORT|SPEC",
            "two or more runs, the first one being compared with: a JSON report (--cep-report), "
            "or the spec of a model, whose latest report the history knows",
            type=run_of,
            nargs="+",
        ),
        option("--html FILE", "write a page with plots and chains as well"),
        option("--out DIR", "write the ranks there, as JSON, Markdown and SVG"),
        *_CASES,
        shared("--alpha X", "error of all bounds together, in each direction", default=0.05),
        shared(
            "--store DIR|URL",
            "where the page's chains are read (several allowed); default: .cepbench/store",
            action="append",
            default=[],
        ),
        several(
            "--suite-file FILE",
            "a suite of the page's chains (several allowed); default: beside the tests of the "
            "reports",
            type=suite_file,
        ),
        *MODELS.values(),
        DATA,
        _HISTORY_FOLDER,
    ],
)

_HISTORY = Command(
    "history",
    "show each case over the runs of a project, with its bounds and baselines",
    UNWRITTEN,
    "history",
    [
        option("--html FILE", "draw the cases on a page, in this file"),
        *_CASES,
        several(
            "--model PATTERN",
            "runs of models whose spec is like this, such as 'runs/a/*' (several allowed)",
        ),
        option("--last N", "the latest N runs only"),
        option(
            "--series NAME",
            "what a series (--cep-series NAME) looked at, and how soon it finds a drop",
        ),
        BASELINES,
        _HISTORY_FOLDER,
    ],
)

_VIEW = Command(
    "view",
    "show the history and the reports of a project in a browser, or write them as a site",
    UNWRITTEN,
    "history:view",
    [
        option("project DIR", "the project", nargs="?", default="."),
        option("--port PORT", "of 127.0.0.1; default: %(default)s, 0: any free", default=8765),
        option("--out DIR", "write the pages into this new folder, and serve none"),
        shared("--history DIR", "folder of the history; default: .cepbench/history of the project"),
    ],
)

_FORMATS = ("csv", "parquet", "lm-eval", "hf-eval-results", "wandb", "mlflow", "tensorboard")

_EXPORT = Command(
    "export",
    "write the report of a run in the format of another tool",
    UNWRITTEN,
    "export",
    [
        RESULTS,
        option(
            "--to FORMAT",
            f"{', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}",
            choices=_FORMATS,
            required=True,
        ),
        option(
            "--rows",
            "what a row of csv and parquet is",
            choices=("cases", "samples"),
            default="cases",
        ),
        option("--out PATH", "file or folder to write; default: below .cepbench/exports"),
        option("--name NAME", "of the run; default: the report's file name"),
        option(
            "--step N",
            "of the training",
            type=number_from(0, "no step of a training; give a number from 0 on"),
            default=0,
        ),
        option("--dataset ORG/NAME", "benchmark on the Hub, for hf-eval-results"),
    ],
)

# -- store -----------------------------------------------------------------------------------------

_STORE = Command(
    "store",
    "look at a store of results, make it smaller, fill it from a shared one",
    _DAMAGED,
    commands=(
        Command(
            "stats",
            "what a store holds",
            _DAMAGED,
            "store:stats",
            [flag("--json", "print JSON"), OWN_STORE],
            finds=True,
        ),
        Command(
            "verify",
            "read all of a store, and say what is damaged",
            _DAMAGED,
            "store:verify",
            [
                option(
                    "url URL", "a shared store of objects, in the place of a local one", nargs="?"
                ),
                flag("--repair", "drop what is damaged; it is computed again"),
                STORE,
            ],
            finds=True,
        ),
        Command(
            "gc",
            "find what is old, too much, or needed by no baseline, and delete it",
            _DAMAGED,
            "store:gc",
            [
                option(
                    "--unused-for 30d",
                    "results that no run has used for so many days (d) or weeks (w)",
                ),
                option(
                    "--max-size 20G",
                    "the least recently used results, until no more than this is left",
                ),
                OptionGroup(
                    None,
                    [
                        several(
                            "--baselines DIR",
                            "keep all that the models of these baselines made (several allowed)",
                        ),
                        flag(
                            "--without-baselines",
                            "delete also what is kept for the project's baselines",
                        ),
                    ],
                ),
                _DELETE,
                OWN_STORE,
            ],
            finds=True,
        ),
        Command(
            "pull",
            "take over what a shared store of objects has more",
            _DAMAGED,
            "store:pull_results",
            [
                option(
                    "url URL|DIR", "s3://BUCKET/PREFIX, gs://..., or a folder that machines mount"
                ),
                STORE,
            ],
            finds=True,
        ),
        Command(
            "export",
            "write a suite's accepted answers into one file beside its baselines, for others to "
            "battle",
            _DAMAGED,
            "store:export_answers",
            [
                option(
                    "--answers SUITE",
                    "folder with a suite.toml, or such a file",
                    required=True,
                    dest="suite",
                ),
                option(
                    "--out FILE",
                    "the file; default: answers.zip beside the suite's baselines. Of the layout "
                    "opening a folder; default: .cepbench/answers",
                ),
                option(
                    "--layout",
                    "one file, or a folder as OpenING's scripts read it",
                    choices=("bundle", "opening"),
                    default="bundle",
                ),
                option(
                    "--name MODEL", "name of the model, of the layout opening", default="accepted"
                ),
                DATA,
                BASELINES,
                STORE,
            ],
            finds=True,
        ),
        Command(
            "import",
            "take over answers that were exported",
            _DAMAGED,
            "store:import_answers",
            [option("bundles FILE", "what export wrote", nargs="+"), STORE],
            finds=True,
        ),
    ),
)

CEPBENCH = Command(
    "cepbench",
    "set up suites, accept baselines, look at results, ask judges and people, keep stores",
    UNMEASURED,
    choice="command",
    description="Set up suites, accept baselines, look at results, ask judges and people, keep "
    "stores. A gate itself is a run of pytest: pytest SUITES --model=CHECKPOINT.",
    groups={
        "set up": (_INIT, _SUITES, _DOCTOR, _CALIBRATE),
        "baselines": (_ACCEPT, _PRUNE),
        "results": (_COMPARE, _HISTORY, _VIEW, _EXPORT),
        "models and people": (STUDY, ARENA, AGREE, RATE, DATASET),
        "store": (_STORE,),
    },
)
"""The command itself, with all its commands."""
