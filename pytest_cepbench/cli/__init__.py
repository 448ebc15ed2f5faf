"""The command `cepbench`: baselines, studies, stores. Heavy imports wait until they have work."""

# PYTHON_ARGCOMPLETE_OK: lets the global completion of argcomplete ask this command.

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pytest_cepbench.cli.arguments import parse
from pytest_cepbench.cli.commands import CEPBENCH
from pytest_cepbench.cli.output import INTERRUPTED, MISTAKE, NOT_DONE, complain, tell
from pytest_cepbench.errors import CepError, EndedError, UnreadError, WriteError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, the process's own when None.

    Returns the exit code: 0; 1 where something could not be measured, accepted or written, or where
    `doctor` found a problem; 2 for a mistake in what was asked; 130 when interrupted. Never raises
    for those.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(CEPBENCH, words)
        arguments.command_line = shlex.join(["cepbench", *words])
        if arguments.recovers and not _is_whole(arguments.baselines):
            return 1
        module, _, function = arguments.run.partition(":")
        run = getattr(import_module(f"{__name__}.{module}"), function or "run")
        return int(run(arguments))
    except SystemExit as leaving:  # argparse has printed what was wrong, or its help
        return leaving.code if isinstance(leaving.code, int) else MISTAKE
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except EndedError as failure:
        return complain(str(failure), failure.code)
    except CepError as error:  # where the command itself has nothing more to say of it
        return complain(
            str(error), NOT_DONE if isinstance(error, (WriteError, UnreadError)) else MISTAKE
        )


def _is_whole(baselines: Path) -> bool:
    """Recover half-written baselines; True where all are whole."""
    from pytest_cepbench.replacement import recover

    try:
        recovered = recover(baselines)
    except WriteError as error:
        complain(str(error), NOT_DONE)
        return False
    if recovered is not None:
        tell(recovered)
    return True


__all__ = ["main"]
