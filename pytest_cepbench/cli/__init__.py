"""The command `cepbench`: what is not a test run. Nothing heavy is imported before it has work to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pytest_cepbench.cli.arguments import parse


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, the process's own when None.

    Returns the exit code: 0; 1 where something could not be measured; 2 for a mistake in what was
    asked; 130 when interrupted. Never raises for those.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(given)
    except SystemExit as leaving:  # argparse has said what was wrong, or shown its help
        return leaving.code if isinstance(leaving.code, int) else 2
    from pytest_cepbench.cli.study import run

    return run(arguments, given)


__all__ = ["main"]
