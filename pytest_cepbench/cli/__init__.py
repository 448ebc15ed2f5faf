"""The command `cepbench`: baselines, studies and stores. Heavy imports wait until they have work."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from pytest_cepbench.cli.arguments import parse

_TITLED = ("arena", "doctor", "leaderboard", "study")  # their pages show the command line


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, the process's own when None.

    Returns the exit code: 0; 1 where something could not be measured, accepted or written, or where
    `doctor` found a problem; 2 for a mistake in what was asked; 130 when interrupted. Never raises
    for those.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(words)
    except SystemExit as leaving:  # argparse has said what was wrong, or shown its help
        return leaving.code if isinstance(leaving.code, int) else 2
    try:
        return _run(arguments, words) if _is_whole(arguments) else 1
    except KeyboardInterrupt:  # where the command itself has nothing more to say of it
        from pytest_cepbench.cli.output import INTERRUPTED, complain

        return complain("interrupted", INTERRUPTED)


def _is_whole(arguments: Namespace) -> bool:
    """Recover half-written baselines of the command; True where all are whole."""
    if arguments.command not in ("accept", "prune", "calibrate"):
        return True
    from pytest_cepbench.cli.output import NOT_DONE, complain, tell
    from pytest_cepbench.errors import WriteError
    from pytest_cepbench.replacement import recover

    try:
        recovered = recover(arguments.baselines)
    except WriteError as error:
        complain(str(error), NOT_DONE)
        return False
    if recovered is not None:
        tell(recovered)
    return True


def _run(arguments: Namespace, words: Sequence[str]) -> int:
    command = import_module(f"pytest_cepbench.cli.{arguments.command}")
    code: int = (
        command.run(arguments, words) if arguments.command in _TITLED else command.run(arguments)
    )
    return code


__all__ = ["main"]
