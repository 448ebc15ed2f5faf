"""The command `cepbench`: baselines, studies, stores. Heavy imports wait until they have work."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module

from pytest_cepbench.cli.arguments import parse
from pytest_cepbench.cli.output import INTERRUPTED, MISTAKE, NOT_DONE, complain, tell
from pytest_cepbench.errors import (
    CepError,
    EndedError,
    MissingDependencyError,
    SpecError,
    UnreadError,
    WriteError,
    name_errors,
)

_RECOVERING = ("calibrate", "accept", "prune", "rejudge")
"""Commands that change baselines: half-written ones are made whole before."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, the process's own when None.

    `cepbench NAME` is the function `run` of the module NAME here, `cepbench NAME ACTION` its
    function `run_ACTION`; each takes the arguments and returns the exit code.
    Returns the exit code: 0; 1 where something could not be measured, accepted or written, or where
    `doctor` found a problem; 2 for a mistake in what was asked; 130 when interrupted. Never raises
    for those.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    command = ""
    try:
        with name_errors():
            arguments = parse(words)
        command, action = arguments.command, arguments.action
        arguments.command_line = shlex.join(["cepbench", *words])
        if (action or command) in _RECOVERING:
            from pytest_cepbench.replacement import recover

            recovered = recover(arguments.baselines)
            if recovered is not None:
                tell(recovered)
        run = getattr(import_module(f"{__name__}.{command}"), f"run_{action}" if action else "run")
        with name_errors():
            return int(run(arguments))
    except SystemExit as leaving:  # argparse has printed what was wrong, or its help
        return leaving.code if isinstance(leaving.code, int) else MISTAKE
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except EndedError as failure:
        return complain(str(failure), failure.code)
    except (WriteError, UnreadError) as failure:
        return complain(str(failure), NOT_DONE)
    except (SpecError, MissingDependencyError) as mistake:
        return complain(str(mistake), MISTAKE)
    except CepError as error:
        # Of a file that was named wrongly; what is wrong in a store is what was to be found out.
        finds = command == "store"
        return complain(str(error), NOT_DONE if finds else MISTAKE)


__all__ = ["main"]
