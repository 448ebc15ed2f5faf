"""The commands of `cepbench`, with their options.

Apart from what runs them, since help and mistakes are answered without its imports: standard
library only.
"""

from __future__ import annotations

from typing import Any

from pytest_cepbench.cli.arguments import (
    EXIT_CODES,
    REFUSED,
    SHARED,
    UNMEASURED,
    UNWRITTEN,
    Command,
    image_folder,
    number_from,
    options,
)
from pytest_cepbench.cli.model_commands import AGREE, ARENA, DATASET, RATE, STUDY

_DAMAGED = EXIT_CODES.format("something is damaged, was refused or could not be written")

SHARED["delete"] = options("--delete  delete what is listed")

# -- set up ----------------------------------------------------------------------------------------

SHARED["judged-by"] = options(
    """
    --[cep-]tolerance X  tolerated drop of every case, in the place of the suite's, for what is
                         printed
    --[cep-]alpha X      error that the cases share, in the place of the suite's, for what is
                         printed
    """
)

_INIT = Command(
    "init",
    "write a suite for your own images and its test, with measured tolerances",
    UNWRITTEN,
    "init",
    options(
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
        @store
        """,
        images={"type": image_folder},
    ),
)

_SUITES = Command(
    "suites",
    "list the suites that come with the package, and what each of them needs",
    EXIT_CODES.format("a suite's file cannot be read"),
    "suites",
    options("name NAME ?  show this suite in full"),
)

_DOCTOR = Command(
    "doctor",
    "check whether a suite as it is set up can see anything, without gating",
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked",
    "doctor",
    options(
        """
        @suite
        --model SPEC   the model that would be gated; default: the suite's describer, or the one
                       that was accepted
        @measured
        --seeds N = 2  how many seeds, from the suite's own on
        @judged-by store baselines
        --out DIR = .cepbench/studies
        """
    ),
)

_CALIBRATE = Command(
    "calibrate",
    "measure the noise of a model against itself over seeds, and keep it with the baselines",
    UNMEASURED,
    "calibrate",
    options(
        """
        @suite
        --model SPEC required  the model that is measured against itself
        @measured
        --seeds N = 5          how many seeds, from the suite's own on
        @judged-by store baselines dry-run
        """
    ),
    recovers=True,
)

# -- baselines -------------------------------------------------------------------------------------

_ACCEPT = Command(
    "accept",
    "accept the results of a run as baselines",
    REFUSED,
    "accept",
    options(
        """
        @results
        --reason TEXT required   why, in a sentence; kept in each baseline
        @case baselines
        --move-anchor            make what is accepted the anchor too: the steps until here are
                                 forgotten
        --[cep-]accept-insensitive
                                 accept also what lies at the floor by chance, where a regression
                                 could not be seen
        @dry-run store
        """
    ),
    recovers=True,
)

_PRUNE = Command(
    "prune",
    "find baselines that no case has any more, and delete them",
    REFUSED,
    "prune",
    options(
        """
        @results delete
        --suite NAME several
            also all baselines of this suite, which is gone (several allowed)
        @baselines
        """
    ),
    recovers=True,
)

# -- results ---------------------------------------------------------------------------------------

SHARED["cases"] = options(
    """
    --suite NAME several  cases of this suite only (several allowed)
    @case
    """
)

SHARED["history"] = options("--[cep-]history DIR = .cepbench/history  folder of the history")

_COMPARE = Command(
    "compare",
    "compare and rank two or more runs, case by case over the same samples",
    UNWRITTEN,
    "compare",
    options(
        """
        runs [NAME=]REPORT|SPEC +
            two or more runs, the first one being compared with: a JSON report (--cep-report), or
            the spec of a model, whose latest report the history knows
        --out DIR  write the ranks there, as JSON, Markdown and SVG
        @cases
        --[cep-]alpha X = 0.05  error of all bounds together, in each direction
        @history
        """
    ),
)

_HISTORY = Command(
    "history",
    "show each case over the runs of a project, with its bounds and baselines",
    UNWRITTEN,
    "history",
    options(
        """
        --html FILE    draw the cases on a page, in this file
        @cases
        --model PATTERN several
                       runs of models whose spec is like this, such as 'runs/a/*' (several allowed)
        --last N       the latest N runs only
        --series NAME  what a series (--cep-series NAME) looked at
        @baselines history
        """
    ),
)

_EXPORT = Command(
    "export",
    "write the cases or samples of a run as a table",
    UNWRITTEN,
    "export",
    options(
        """
        @results
        --rows {cases,samples} = cases
                      what a row of the CSV file is
        --out PATH    file or folder to write; default: below .cepbench/exports
        --name NAME   of the run; default: the report's file name
        --step N = 0  of the training
        """,
        step={"type": number_from(0, "no step of a training; give a number from 0 on")},
    ),
)

# -- store -----------------------------------------------------------------------------------------


def _of_store(name: str, run: str, about: str, table: str, **settings: Any) -> Command:
    own = options(table, **settings)
    return Command(name, about, _DAMAGED, f"store:{run}", own, finds=True)


_STORE = Command(
    "store",
    "look at a store of results, make it smaller, move accepted answers",
    _DAMAGED,
    commands=(
        _of_store(
            "stats",
            "stats",
            "what a store holds",
            """
            --json  print JSON
            @own-store
            """,
        ),
        _of_store(
            "verify",
            "verify",
            "read all of a store, and say what is damaged",
            """
            --repair  drop what is damaged; it is computed again
            @store
            """,
        ),
        _of_store(
            "gc",
            "gc",
            "find what is old, too much, or needed by no baseline, and delete it",
            """
            --unused-for 30d     results that no run has used for so many days (d) or weeks (w)
            --max-size 20G       the least recently used results, until no more than this is left
            [one of]
            --baselines DIR several
                                 keep all that the models of these baselines made (several allowed)
            --without-baselines  delete also what is kept for the project's baselines
            []
            @delete own-store
            """,
        ),
        _of_store(
            "export",
            "export_answers",
            "write a suite's accepted answers into one file beside its baselines, for others to "
            "battle",
            """
            --answers SUITE required  folder with a suite.toml, or such a file
            --out FILE  the file; default: answers.zip beside the suite's baselines
            @baselines store
            """,
            answers={"dest": "suite"},
        ),
        _of_store(
            "import",
            "import_answers",
            "take over answers that were exported",
            """
            bundles FILE +  what export wrote
            @store
            """,
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
        "results": (_COMPARE, _HISTORY, _EXPORT),
        "models and people": (STUDY, ARENA, AGREE, RATE, DATASET),
        "store": (_STORE,),
    },
)
"""The command itself, with all its commands."""
