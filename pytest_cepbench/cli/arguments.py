"""Commands and options as data, and the parser of a command line made of them.

Standard library only: help is shown at once.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pytest_cepbench._version import __version__
from pytest_cepbench.errors import SuiteError, did_you_mean
from pytest_cepbench.escapes import one_line as printable

_COMPLETING = "_ARGCOMPLETE"
"""Set in the environment by a shell that asks for completions."""

_SUITE = "suite.toml"

DEFAULT = "default: %(default)s"


class CommandOption(NamedTuple):
    """Flags and settings of `argparse.ArgumentParser.add_argument`.

    shared: whether pytest has it as `--cep-NAME`, a spelling that works here too.
    """

    flags: tuple[str, ...]
    settings: dict[str, Any]
    shared: bool = False


class OptionGroup(NamedTuple):
    """Options that belong together.

    title: in the help; None for options of which one at most can be given.
    """

    title: str | None
    options: Sequence[CommandOption | OptionGroup]


@dataclass(frozen=True)
class Command:
    """A command with its options, or with commands of its own.

    about: what it does, for the list of commands.
    exit_codes: the sentence below its options in its help.
    run: the module in this package that does it, and its function, as `store:verify`.
    choice: what its own commands are called, in usage lines and in the parsed arguments.
    description: the sentence above its options in its help; what it does where empty.
    recovers: whether half-written baselines are made whole before it runs.
    finds: whether exit code 1 is also for files that are wrong, which it was to find out.
    groups: its own commands under headings, in the place of one list.
    """

    name: str
    about: str
    exit_codes: str | None = None
    run: str = ""
    options: Sequence[CommandOption | OptionGroup] = ()
    commands: Sequence[Command] = ()
    choice: str = "action"
    description: str = ""
    recovers: bool = False
    finds: bool = False
    groups: Mapping[str, Sequence[Command]] = field(default_factory=dict)


# -- types of values -------------------------------------------------------------------------------
#
# They answer before any command is imported. What argparse shows is the option and the sentence.


def number_from(least: int, expected: str = "") -> Callable[[str], int]:
    """The type of whole numbers from a least one on. expected: what the answer to others says."""
    expected = expected or f"a number of at least {least} is expected"

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r}: {expected}")
        return int(text)

    return read


def _real_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a number is expected") from None


def comma_names(text: str) -> tuple[str, ...]:
    """The type of names with commas between them, each of them once."""
    names = tuple(part.strip() for part in text.split(","))
    if "" in names:
        raise argparse.ArgumentTypeError(f"{text!r}: names separated by commas are expected")
    return tuple(dict.fromkeys(names))


def people_names(text: str) -> tuple[str, ...]:
    """The type of people: names with commas between them, or a number for a1, a2, ..."""
    if text.isascii() and text.isdecimal():
        return tuple(f"a{number + 1}" for number in range(int(text)))
    return tuple(name.strip() for name in text.split(","))


def _data_place(text: str) -> tuple[str, Path | str]:
    """The type of `NAME=PATH`: the name of a data set, and the path or URL at which it lies."""
    from pytest_cepbench.option_values import is_url  # which imports sockets

    name, equals, place = text.partition("=")
    if not (name and equals and place):
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=PATH is expected, such as folder=photos")
    return name, place if is_url(place) else Path(place).absolute()


def _days(text: str) -> int:
    """The type of days and weeks: `30d` or `2w`."""
    match = re.fullmatch(r"([0-9]{1,6})([dw])", text.strip())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: days or weeks are expected, such as 30d or 2w")
    return int(match[1]) * (7 if match[2] == "w" else 1)


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
"""Of sizes in bytes."""


def _size(text: str) -> int:
    """The type of sizes in bytes: `20G` or `1.5T`, powers of 1000."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a size is expected, such as 500M or 20G")
    return int(float(match[1]) * UNITS[match[2]])


def _existing(what: str) -> Callable[[str], Path]:
    """The type of paths at which something is. what: it is, for the answer to others."""

    def read(text: str) -> Path:
        path = Path(text)
        try:
            path.stat()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise argparse.ArgumentTypeError(f"{what} {text!r} cannot be read: {why}") from None
        return path

    return read


_report_file = _existing("results")

verdict_file = _existing("file")


def _holding(name: str, answer: str) -> Callable[[str], Path]:
    """The type of folders that hold a file; looking at one that is not there creates none."""

    def read(text: str) -> Path:
        if not (Path(text) / name).is_file():
            raise argparse.ArgumentTypeError(answer.format(text))
        return Path(text)

    return read


def run_of(text: str) -> str:
    """The type of `[NAME=]REPORT` or a model's spec, as it is; a report has to be there."""
    if text.endswith(".json"):
        _, _, path = text.rpartition("=")
        _report_file(text if Path(text).exists() else path)
    return text


def image_folder(text: str) -> Path:
    """The type of folders of images."""
    path = Path(text)
    if not path.is_dir():
        from pytest_cepbench.files import names_beside

        near = did_you_mean(path.name, names_beside(path, folders=True))
        raise argparse.ArgumentTypeError(f"{text!r}: a folder of images is expected.{near}")
    return path


def suite_file(text: str | Path) -> Path:
    """The type of suites: a file, its folder, or as `--pyargs` names a shipped one; the file.

    Raises SuiteError where there is none.
    """
    path = Path(text)
    if str(text).startswith("pytest_cepbench.suites."):
        from pytest_cepbench.suites.definition import find_shipped

        path = find_shipped(str(text)) or path
    file = path / _SUITE if path.is_dir() else path
    if not file.is_file():
        from pytest_cepbench.files import names_beside

        near = did_you_mean(path.name, names_beside(path))
        raise SuiteError(
            f"no suite at {str(text)!r}: a folder with a {_SUITE}, or such a file, is expected."
            f"{near}"
        )
    return file


_TYPES: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("DIR", "FILE", "FOLDER", "PATH"), Path),
    **dict.fromkeys(("N", "K"), number_from(1)),
    "SEED": number_from(0, "a whole number from 0 on is expected"),
    "PORT": number_from(0, "a number is expected, 0 for any free port"),
    "X": _real_number,
    "NAME,...": comma_names,
    "N|NAME,...": people_names,
    "NAME=PATH": _data_place,
    "30d": _days,
    "20G": _size,
    "IMAGES": image_folder,
    "REPORT": _report_file,
    "VERDICTS": verdict_file,
    "RATINGS": _holding("study.json", "{!r} is no ratings folder: it has no study.json"),
    "SUITE": suite_file,
    "[NAME=]REPORT|SPEC": run_of,
}
"""What stands for a value in help -> its type, where an option has none of its own."""


_HEAD = re.compile(
    r"(?P<flag>\S+?)(?: (?P<value>[^\s=]\S*?))?(?: (?P<how>[?*+]|several|required|= \S+))?"
)


def option(head: str, about: str = "", **settings: Any) -> CommandOption:
    """An option, or an argument without a flag.

    head: its name; what stands for its value, which says of which type values are, or the values
    themselves in braces; and how often it is given, that it is required, or its default: `--plan`,
    `suite SUITE`, `verdicts VERDICTS +`, `--seen MODEL several`, `--order {both,balanced} = both`.
    `--[cep-]NAME` is an option that pytest has as `--cep-NAME`, a spelling that works here too.
    about: for the help, which shows the default below it.
    settings: of `add_argument`, beside those or in their place.
    """
    match = _HEAD.fullmatch(head)
    assert match is not None
    name, value, how = match["flag"], match["value"], match["how"]
    own: dict[str, Any] = {}
    if value is None:
        own = {} if settings else {"action": "store_true"}
    elif value.startswith("{"):
        own["choices"] = tuple(value.strip("{}").split(","))
    else:
        own["metavar"] = value
        own |= {"type": _TYPES[value]} if value in _TYPES else {}
    if how == "several":
        own |= {"action": "append", "default": []}
    elif how == "required":
        own["required"] = True
    elif how is not None:
        own |= {"default": how[2:]} if how.startswith("=") else {"nargs": how}
    own |= settings
    if own.get("default") not in (None, [], ()) and DEFAULT not in about:
        about = f"{about}; {DEFAULT}" if about else DEFAULT
    return CommandOption((name.replace("[cep-]", ""),), {"help": about, **own}, "[cep-]" in name)


SHARED: dict[str, Sequence[CommandOption | OptionGroup]] = {}
"""Options of several commands, by the name under which tables insert them."""


def options(text: str, **settings: Mapping[str, Any]) -> list[CommandOption | OptionGroup]:
    """The options of a table: the head of each, two spaces or more, and what it is about.

    What goes on below a line is indented. `@NAME ...` inserts those of `SHARED`. `[TITLE]` begins
    a group, `[one of]` one of whose options one at most can be given, and `[]` ends it.
    settings: more of an option, by its name.
    """
    made: list[CommandOption | OptionGroup] = []
    group = made
    for entry in re.split(r"\n(?! )", textwrap.dedent(text).strip()):
        if entry.startswith("@"):
            for name in entry[1:].split():
                group += SHARED[name]
        elif entry.startswith("["):
            title, group = entry.strip("[]"), made
            if title:
                group = []
                made.append(OptionGroup(None if title == "one of" else title, group))
        else:
            head, *about = re.split(r" {2,}|\n", entry, maxsplit=1)
            name = head.partition(" ")[0].removeprefix("--").replace("[cep-]", "")
            own = settings.pop(name.replace("-", "_"), {})
            group.append(option(head, " ".join(" ".join(about).split()), **own))
    assert not settings  # each is of an option of the table
    return made


# -- the parser ------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, choice or option."""

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong, with a question where a name is like a known one.

        Raises SystemExit.
        """
        self.exit(2, f"cepbench: {printable(self._answer(message), 2000)}\n")

    def _answer(self, message: str) -> str:
        hint = ""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            hint = did_you_mean(match[1], re.findall(r"[^',\s]+", match[2]))
        elif match := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            hint = did_you_mean(match[1], self._flags())
        elif match := re.match(r"argument ([^:/]+)\S*: (.*: .*)", message, re.DOTALL):
            # Of a type below: a value in quotes, or a sentence of its own.
            valued = match[1].startswith("-") and match[2][0] in "'\""
            return f"{match[1]} {match[2]}" if valued else match[2]
        return f"{message}.{hint}" if hint else message

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
    parser = _Parser(**_texts(command), prog=command.name)
    version = f"{command.name} {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print it, and exit")
    _fill(parser, command)
    if _COMPLETING in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)  # answers a shell that asks how a line can go on
    return parser.parse_args(argv)


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a parser the options of its command, and a parser for each command of its own."""
    _add(parser, command.options)
    if command.run:
        parser.set_defaults(run=command.run, recovers=command.recovers, finds=command.finds)
    grouped = [own for group in command.groups.values() for own in group]
    if not (command.commands or grouped):
        return
    parsers = parser.add_subparsers(
        dest=command.choice, metavar=command.choice.upper(), required=True
    )
    for own in command.commands:
        _fill(parsers.add_parser(own.name, help=own.about, **_texts(own)), own)
    for own in grouped:  # shown by the epilog, under their headings
        _fill(parsers.add_parser(own.name, **_texts(own)), own)


def _texts(command: Command) -> dict[str, Any]:
    """What stands above and below the options of a command's help."""
    description = command.description or f"{command.about}."
    if not command.groups:
        return {"description": description, "epilog": command.exit_codes}
    width = shutil.get_terminal_size().columns - 2
    column = 2 + max(len(own.name) for group in command.groups.values() for own in group) + 2
    lines: list[str] = []
    for heading, group in command.groups.items():
        lines += ["", f"{heading}:"] if lines else [f"{heading}:"]
        for own in group:
            first = f"  {own.name}".ljust(column)
            lines += textwrap.wrap(
                own.about, max(width, 40), initial_indent=first, subsequent_indent=" " * column
            )
    return {
        "description": textwrap.fill(description, max(width, 40)),
        "epilog": "\n".join([*lines, "", *textwrap.wrap(command.exit_codes or "", max(width, 40))]),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _add(
    parser: argparse._ActionsContainer, options: Iterable[CommandOption | OptionGroup]
) -> None:
    for entry in options:
        if isinstance(entry, CommandOption):
            parser.add_argument(*entry.flags, **entry.settings)
            if entry.shared:
                name = entry.flags[0].removeprefix("--")
                dest = name.replace("-", "_")
                hidden = {**entry.settings, "dest": dest, "help": argparse.SUPPRESS}
                parser.add_argument(f"--cep-{name}", **hidden)
        elif entry.title is None:
            _add(parser.add_mutually_exclusive_group(), entry.options)
        else:
            _add(parser.add_argument_group(entry.title), entry.options)


# -- options of several commands -------------------------------------------------------------------

EXIT_CODES = "exit code: 0, 1 where {}, 2 for a mistake in what was asked"

UNMEASURED = EXIT_CODES.format("something could not be measured")

UNWRITTEN = EXIT_CODES.format("the files could not be written")

REFUSED = EXIT_CODES.format("the results were refused or a file could not be changed")

_NO_STORE = "no store at {!r}: give its folder with --store DIR"

for _option in options(
    """
    results REPORT  what pytest --cep-report wrote
    suite SUITE     folder with a suite.toml, or such a file
    --case [SUITE/]PART/METRIC several
                    these cases only, with the wildcards *, ? and [...] (several allowed); default:
                    all
    --[cep-]baselines DIR = baselines  folder of accepted baselines
    --[cep-]store DIR = .cepbench/store
    --dry-run       write no baseline
    --describer SPEC  the describer, the same for all
    --generator SPEC  the generator, the same for all
    --encoder [NAME=]SPEC several
                    model whose vectors are compared; with NAME= one of the suite's further encoders
    --detector SPEC  the detector, the same for all
    --vqa SPEC      the VQA model, the same for all
    --[cep-]role {describer,generator,encoder,detector,vqa,unified}
                    what the models under test play
    --[cep-]data NAME=PATH several
                    where a data set lies
    --[cep-]samples N  most samples of each category
    """
):
    assert isinstance(_option, CommandOption)
    SHARED[_option.flags[0].removeprefix("--")] = [_option]

SHARED["models"] = options("@describer generator encoder detector vqa")
SHARED["measured"] = options("@models role data samples")
# Of the commands that look at a store alone; a default that is text is checked too.
SHARED["own-store"] = [
    option("--[cep-]store DIR = .cepbench/store", type=_holding("index.sqlite", _NO_STORE))
]
