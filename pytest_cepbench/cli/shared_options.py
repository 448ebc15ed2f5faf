"""Options and sentences of help that several commands of `cepbench` have. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import OptionGroup, flag, option, several, shared

DEFAULT = "default: %(default)s"

EXIT_CODES = "exit code: 0, 1 where {}, 2 for a mistake in what was asked"

UNMEASURED = EXIT_CODES.format("something could not be measured")

UNWRITTEN = EXIT_CODES.format("the files could not be written")

STORE = shared("store", metavar="DIR", type=Path, default=Path(".cepbench/store"), help=DEFAULT)

PAGES = OptionGroup(
    "the server",
    [
        option("--port", metavar="N", default="8766", help=f"{DEFAULT}, 0: any free"),
        option(
            "--host",
            metavar="ADDRESS",
            default="127.0.0.1",
            help=f"address of this machine to listen on; {DEFAULT}, this machine alone",
        ),
        several(
            "--name",
            metavar="HOST",
            help="name by which browsers may call the server (several allowed)",
        ),
        flag("--peek", "show verdicts to the operator before the study has ended"),
        flag("--only-write", "write the folder, and start no server"),
    ],
)
"""Of the commands that ask people."""

ROLES = ("describer", "generator", "encoder", "detector", "vqa")
"""The roles of chains, to which these commands can give a model."""

ANSWER_ROLES = ("interleaver", "writer", "generator", "editor", "judge")
"""The roles of answers and battles, to which these commands can give a model."""

REFUSED = EXIT_CODES.format("the results were refused or a file could not be changed")

DAMAGED = EXIT_CODES.format("something is damaged, was refused or could not be written")

RESULTS = option(
    "results", metavar="RESULTS.json", type=Path, help="what pytest --cep-report wrote"
)

SUITE = option("suite", metavar="SUITE", type=Path, help="folder with a suite.toml, or such a file")

BASELINES = shared(
    "baselines",
    metavar="DIR",
    type=Path,
    default=Path("baselines"),
    help=f"folder of accepted baselines; {DEFAULT}",
)

DRY_RUN = flag("--dry-run", "write no baseline")

DELETE = flag("--delete", "delete what is listed")

ENCODER = several(
    "--encoder",
    metavar="[NAME=]SPEC",
    help="model whose vectors are compared; with NAME= one of the suite's further encoders",
)

_TITLES = {"vqa": "VQA model"}

MODELS = {
    role: ENCODER
    if role == "encoder"
    else option(
        f"--{role}", metavar="SPEC", help=f"the {_TITLES.get(role, role)}, the same for all"
    )
    for role in ROLES
}
"""Role -> its option, where its model is the same for all."""
