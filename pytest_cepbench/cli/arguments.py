"""Commands and options as data, and the parser of a command line made of them.

Standard library only: help is shown at once.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pytest_cepbench._version import __version__
from pytest_cepbench.errors import did_you_mean, removed

_COMPLETING = "_ARGCOMPLETE"
"""Set in the environment by a shell that asks for completions."""

Option = tuple[tuple[str, ...], dict[str, Any]]
"""Flags and settings of `argparse.ArgumentParser.add_argument`."""


@dataclass(frozen=True)
class OptionGroup:
    """Options that belong together.

    title: in the help; None for options of which one at most can be given.
    """

    title: str | None
    options: Sequence[Option]


@dataclass(frozen=True)
class Command:
    """A command with its options, or with commands of its own.

    about: what it does, for the list of commands.
    exit_codes: the sentence below its options in its help.
    choice: what its own commands are called, in usage lines and in the parsed arguments.
    description: the sentence above its options in its help; what it does where empty.
    """

    name: str
    about: str
    exit_codes: str | None
    options: Sequence[Option | OptionGroup] = ()
    commands: Sequence[Command] = ()
    choice: str = "action"
    description: str = ""


def option(*flags: str, **settings: Any) -> Option:
    """An option of these flags."""
    return flags, settings


def shared(name: str, **settings: Any) -> list[Option]:
    """An option that pytest has as `--cep-NAME`, a spelling that works here too."""
    hidden = {**settings, "dest": name, "help": argparse.SUPPRESS}
    return [((f"--{name}",), settings), ((f"--cep-{name}",), hidden)]


def several(*flags: str, **settings: Any) -> Option:
    """An option that may be given several times."""
    return flags, {"action": "append", "default": [], **settings}


def flag(name: str, about: str) -> Option:
    """An option without a value."""
    return (name,), {"action": "store_true", "help": about}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, choice or option.

    Its commands are of its class.
    """

    def error(self, message: str) -> NoReturn:
        """As argparse, with a question behind the message where a name is like a known one.

        What was removed is said to be, with what takes its place.
        """
        hint = ""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            if gone := removed(f"{self.prog.partition(' ')[2]} {match[1]}".lstrip()):
                super().error(gone)
            hint = did_you_mean(match[1], re.findall(r"[^',\s]+", match[2]))
        elif match := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            if gone := removed(match[1]):
                super().error(gone)
            hint = did_you_mean(match[1], self._flags())
        super().error(f"{message}.{hint}" if hint else message)

    def _flags(self) -> Iterator[str]:
        """Of this parser and of its commands, which leave what they do not know to it."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - has no other name
                for command in action.choices.values():
                    yield from command._flags()  # noqa: SLF001 - of its own class
            else:
                yield from (name for name in action.option_strings if name.startswith("--"))


def parse(command: Command, argv: Sequence[str]) -> argparse.Namespace:
    """The arguments as their options have them, most of them texts.

    Raises SystemExit for what argparse refuses, and after help, version and completions.
    """
    parser = _Parser(
        prog=command.name, description=_description(command), epilog=command.exit_codes
    )
    version = f"{command.name} {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print it, and exit")
    _fill(parser, command)
    if _COMPLETING in os.environ:
        _complete(parser)
    return parser.parse_args(argv)


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks how a line can go on, and exit; without argcomplete, go on."""
    with suppress(ImportError):
        import argcomplete

        argcomplete.autocomplete(parser)


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a parser the options of its command, and a parser for each command of its own."""
    _add(parser, command.options)
    if not command.commands:
        return
    parsers = parser.add_subparsers(
        dest=command.choice, metavar=command.choice.upper(), required=True
    )
    for own in command.commands:
        own_parser = parsers.add_parser(
            own.name, help=own.about, description=_description(own), epilog=own.exit_codes
        )
        _fill(own_parser, own)


def _description(command: Command) -> str:
    return command.description or f"{command.about}."


def _add(parser: argparse._ActionsContainer, options: Iterable[Option | OptionGroup]) -> None:
    for entry in options:
        if not isinstance(entry, OptionGroup):
            flags, settings = entry
            parser.add_argument(*flags, **settings)
        elif entry.title is None:
            _add(parser.add_mutually_exclusive_group(), entry.options)
        else:
            _add(parser.add_argument_group(entry.title), entry.options)


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
