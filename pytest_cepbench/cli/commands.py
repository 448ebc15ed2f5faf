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
    STORE,
    SUITE,
    UNMEASURED,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    image_folder,
    number_from,
    option,
    options,
    run_of,
    suite_file,
)
from pytest_cepbench.cli.model_commands import AGREE, ARENA, DATASET, RATE, STUDY

_DAMAGED = EXIT_CODES.format("something is damaged, was refused or could not be written")

_DELETE = option("--delete", "delete what is listed")

# -- set up ----------------------------------------------------------------------------------------


def _trial_options(model: Option, seeds: int, suite: Option = SUITE) -> list[Option]:
    """Of a model that is measured with several seeds and judged by the suite's cases."""
    own = options(
        f"""
        --seeds N = {seeds}       how many seeds, from the suite's own on
        --[cep-]tolerance X  tolerated drop of every case, in the place of the suite's, for what is
                             printed
        --[cep-]alpha X      error that the cases share, in the place of the suite's, for what is
                             printed
        """
    )
    return [suite, model, *MODELS.values(), *ROLE_AND_DATA, *own, STORE, BASELINES]


_INIT = Command(
    "init",
    "write a suite for your own images, its test and a workflow, with measured tolerances",
    UNWRITTEN,
    "init",
    [
        *options(
            """
            --images DIR required  sub-folders are categories
            --model SPEC required  the model that will be gated
            --describer SPEC       the describer of the suite, the same for all models
            --generator SPEC       the generator of the suite, the same for all models
            --encoder SPEC         the encoder of the suite, the same for all models
            --[cep-]role {describer,generator,encoder,unified}
                                   what the model under test plays
            --name NAME            of the suite; default: that of the folder of images
            --samples N = 8        most images of each category that the noise is measured on
            --seeds N = 3          under how many seeds
            --no-measure           ask no model, and write the default tolerance
            --accept               measure the model on the whole suite, and accept its numbers as
                                   baselines
            --out DIR = .cepbench/studies  of the report of what was measured
            """,
            images={"type": image_folder},
        ),
        STORE,
    ],
)

_SUITES = Command(
    "suites",
    "list the suites that come with the package, and what each of them needs",
    EXIT_CODES.format("a suite's file cannot be read"),
    "suites",
    [option("name NAME ?", "show this suite in full")],
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
                "suite SUITE ?", "folder with a suite.toml, or such a file; none with --report"
            ),
        ),
        *options(
            """
            --out DIR = .cepbench/studies
            --report REPORT ?  for a bug report: print versions, settings and, of a JSON report,
                               what became of its cases, without keys, prompts or images; nothing
                               is measured
            """,
            # argparse would check the empty text of the bare option too
            report={"type": str, "const": ""},
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
            option("--model SPEC required", "the model that is measured against itself"), seeds=5
        ),
        DRY_RUN,
    ],
    recovers=True,
)

# -- baselines -------------------------------------------------------------------------------------

_SEVERAL_SEEDS = number_from(
    2,
    "a spread shows between at least 2 measurements; for a single fresh one leave --seeds out",
)

_REMEASURE = OptionGroup(
    "a checkpoint that was chosen as the best of several",
    [
        *options(
            """
            --remeasure SUITE  measure it again, on held-out samples or under a fresh seed, and
                               accept that
            --seeds K          measure it under so many seeds, at least 2, and accept the means; the
                               gate then allows for the spread between them; take 5 or more
            --model SPEC       default: as in the results
            """,
            seeds={"type": _SEVERAL_SEEDS},
        ),
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
        option("--reason TEXT required", "why, in a sentence; kept in each baseline"),
        CASES,
        BASELINES,
        option(
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
        option(
            "--suite NAME several",
            "also all baselines of this suite, which is gone (several allowed)",
        ),
        BASELINES,
    ],
    recovers=True,
)

# -- results ---------------------------------------------------------------------------------------

_HISTORY_FOLDER = option("--[cep-]history DIR = .cepbench/history", "folder of the history")

_CASES = [option("--suite NAME several", "cases of this suite only (several allowed)"), CASES]

_COMPARE = Command(
    "compare",
    "compare and rank two or more runs, case by case over the same samples",
    UNWRITTEN,
    "compare",
    [
        *options(
            """
            runs [NAME=]REPORT|SPEC +
                          two or more runs, the first one being compared with: a JSON report
                          (--cep-report), or the spec of a model, whose latest report the history
                          knows
            --html FILE   write a page with plots and chains as well
            --out DIR     write the ranks there, as JSON, Markdown and SVG
            """,
            runs={"type": run_of},
        ),
        *_CASES,
        *options(
            """
            --[cep-]alpha X = 0.05  error of all bounds together, in each direction
            --[cep-]store DIR|URL several
                          where the page's chains are read (several allowed); default:
                          .cepbench/store
            --suite-file FILE several
                          a suite of the page's chains (several allowed); default: beside the tests
                          of the reports
            """,
            suite_file={"type": suite_file},
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
        *options(
            """
            --model PATTERN several  runs of models whose spec is like this, such as 'runs/a/*'
                                     (several allowed)
            --last N                 the latest N runs only
            --series NAME            what a series (--cep-series NAME) looked at, and how soon it
                                     finds a drop
            """
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
    options(
        """
        project DIR ?        the project
        --port PORT = 8765   of 127.0.0.1; default: %(default)s, 0: any free
        --out DIR            write the pages into this new folder, and serve none
        --[cep-]history DIR  folder of the history; default: .cepbench/history of the project
        """,
        project={"default": "."},
    ),
)

_FORMATS = ("csv", "parquet", "lm-eval", "hf-eval-results", "wandb", "mlflow", "tensorboard")

_EXPORT = Command(
    "export",
    "write the report of a run in the format of another tool",
    UNWRITTEN,
    "export",
    [
        RESULTS,
        *options(
            f"""
            --to FORMAT required  {", ".join(_FORMATS[:-1])} or {_FORMATS[-1]}
            --rows {{cases,samples}} = cases
                                  what a row of csv and parquet is
            --out PATH            file or folder to write; default: below .cepbench/exports
            --name NAME           of the run; default: the report's file name
            --step N = 0          of the training
            --dataset ORG/NAME    benchmark on the Hub, for hf-eval-results
            """,
            to={"choices": _FORMATS},
            step={"type": number_from(0, "no step of a training; give a number from 0 on")},
        ),
    ],
)

# -- store -----------------------------------------------------------------------------------------


def _store_command(name: str, about: str, run: str, own: list[Option | OptionGroup]) -> Command:
    return Command(name, about, _DAMAGED, f"store:{run}", own, finds=True)


_STORE = Command(
    "store",
    "look at a store of results, make it smaller, fill it from a shared one",
    _DAMAGED,
    commands=(
        _store_command(
            "stats", "what a store holds", "stats", [option("--json", "print JSON"), OWN_STORE]
        ),
        _store_command(
            "verify",
            "read all of a store, and say what is damaged",
            "verify",
            [
                *options(
                    """
                    url URL ?  a shared store of objects, in the place of a local one
                    --repair   drop what is damaged; it is computed again
                    """
                ),
                STORE,
            ],
        ),
        _store_command(
            "gc",
            "find what is old, too much, or needed by no baseline, and delete it",
            "gc",
            [
                *options(
                    """
                    --unused-for 30d  results that no run has used for so many days (d) or weeks (w)
                    --max-size 20G    the least recently used results, until no more than this is
                                      left
                    """
                ),
                OptionGroup(
                    None,
                    options(
                        """
                        --baselines DIR several
                            keep all that the models of these baselines made (several allowed)
                        --without-baselines
                            delete also what is kept for the project's baselines
                        """
                    ),
                ),
                _DELETE,
                OWN_STORE,
            ],
        ),
        _store_command(
            "pull",
            "take over what a shared store of objects has more",
            "pull_results",
            [
                option(
                    "url URL|DIR", "s3://BUCKET/PREFIX, gs://..., or a folder that machines mount"
                ),
                STORE,
            ],
        ),
        _store_command(
            "export",
            "write a suite's accepted answers into one file beside its baselines, for others to "
            "battle",
            "export_answers",
            [
                *options(
                    """
                    --answers SUITE required  folder with a suite.toml, or such a file
                    --out FILE   the file; default: answers.zip beside the suite's baselines. Of the
                                 layout opening a folder; default: .cepbench/answers
                    --layout {bundle,opening} = bundle
                                 one file, or a folder as OpenING's scripts read it
                    --name MODEL = accepted  name of the model, of the layout opening
                    """,
                    answers={"dest": "suite"},
                ),
                DATA,
                BASELINES,
                STORE,
            ],
        ),
        _store_command(
            "import",
            "take over answers that were exported",
            "import_answers",
            [option("bundles FILE +", "what export wrote"), STORE],
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
