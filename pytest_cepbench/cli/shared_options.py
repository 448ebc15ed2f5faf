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
