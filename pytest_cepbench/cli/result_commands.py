"""The commands that show and export results of runs, with their options. Standard library only."""

from __future__ import annotations

from pytest_cepbench.cli.arguments import (
    BASELINES,
    CASES,
    DATA,
    DEFAULT,
    MODELS,
    RESULTS,
    UNWRITTEN,
    Command,
    number_from,
    option,
    run_of,
    several,
    shared,
    suite_file,
)

_HISTORY_FOLDER = shared(
    "history", metavar="DIR", default=".cepbench/history", help=f"folder of the history; {DEFAULT}"
)

_CASES = [
    several("--suite", metavar="NAME", help="cases of this suite only (several allowed)"),
    CASES,
]

_HISTORY = [
    option("--html", metavar="FILE", help="draw the cases on a page, in this file"),
    *_CASES,
    several(
        "--model",
        metavar="PATTERN",
        help="runs of models whose spec is like this, such as 'runs/a/*' (several allowed)",
    ),
    option("--last", metavar="N", help="the latest N runs only"),
    option(
        "--series",
        metavar="NAME",
        help="what a series (--cep-series NAME) looked at, and how soon it finds a drop",
    ),
    *BASELINES,
    *_HISTORY_FOLDER,
]

_VIEW = [
    option("project", metavar="DIR", nargs="?", default=".", help=f"the project; {DEFAULT}"),
    option("--port", metavar="PORT", default=8765, help=f"of 127.0.0.1; {DEFAULT}, 0: any free"),
    option("--out", metavar="DIR", help="write the pages into this new folder, and serve none"),
    *shared(
        "history",
        metavar="DIR",
        help="folder of the history; default: .cepbench/history of the project",
    ),
]

_COMPARE = [
    option(
        "runs",
        metavar="[NAME=]REPORT|SPEC",
        type=run_of,
        nargs="+",
        help="two or more runs, the first one being compared with: a JSON report (--cep-report), "
        "or the spec of a model, whose latest report the history knows",
    ),
    option("--html", metavar="FILE", help="write a page with plots and chains as well"),
    option("--out", metavar="DIR", help="write the ranks there, as JSON, Markdown and SVG"),
    *_CASES,
    *shared(
        "alpha",
        metavar="X",
        default=0.05,
        help=f"error of all bounds together, in each direction; {DEFAULT}",
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
        type=suite_file,
        help="a suite of the page's chains (several allowed); default: beside the tests of the "
        "reports",
    ),
    *MODELS.values(),
    *DATA,
    *_HISTORY_FOLDER,
]

_STEP = number_from(0, "no step of a training; give a number from 0 on")

_FORMATS = ("csv", "parquet", "lm-eval", "hf-eval-results", "wandb", "mlflow", "tensorboard")

_EXPORT = [
    RESULTS,
    option(
        "--to",
        metavar="FORMAT",
        choices=_FORMATS,
        required=True,
        help=f"{', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}",
    ),
    option(
        "--rows",
        choices=("cases", "samples"),
        default="cases",
        help=f"what a row of csv and parquet is; {DEFAULT}",
    ),
    option(
        "--out", metavar="PATH", help="file or folder to write; default: below .cepbench/exports"
    ),
    option("--name", metavar="NAME", help="of the run; default: the report's file name"),
    option("--step", metavar="N", type=_STEP, default=0, help=f"of the training; {DEFAULT}"),
    option("--dataset", metavar="ORG/NAME", help="benchmark on the Hub, for hf-eval-results"),
]

EXPORT = Command(
    "export",
    "write the report of a run in the format of another tool",
    UNWRITTEN,
    _EXPORT,
    run="export",
)

HISTORY = Command(
    "history",
    "show each case over the runs of a project, with its bounds and baselines",
    UNWRITTEN,
    _HISTORY,
    run="history",
)

VIEW = Command(
    "view",
    "show the history and the reports of a project in a browser, or write them as a site",
    UNWRITTEN,
    _VIEW,
    run="view",
)

COMPARE = Command(
    "compare",
    "compare and rank two or more runs, case by case over the same samples",
    UNWRITTEN,
    _COMPARE,
    run="compare",
)
