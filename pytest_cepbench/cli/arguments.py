"""The parser of the command line, made from the table of commands, and the types of its values.

Standard library only: help and mistakes are answered at once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_cepbench._version import __version__
from pytest_cepbench.cli.commands import COMMANDS, SHARED
from pytest_cepbench.errors import SuiteError, did_you_mean
from pytest_cepbench.escapes import one_line as printable

_SUITE = "suite.toml"

_MOST_PEOPLE = 1000

_ABOUT = (
    "Set up suites, accept baselines, look at results, ask judges and people, keep stores. A gate "
    "itself is a run of pytest: pytest SUITES --model=CHECKPOINT."
)

_EXIT_CODES = (
    "exit code: 0; 1 where something could not be measured, accepted or written, or a problem was "
    "found; 2 for a mistake in what was asked; 130 when interrupted"
)

# -- types of values -------------------------------------------------------------------------------
#
# They answer before any command is imported. What argparse shows is the option and the sentence.


def whole_number(text: str) -> int | None:
    """The number of a text of 1 to 99 ASCII digits; None of any other. Thousands of digits Python
    refuses in words of its own.
    """
    return int(text) if re.fullmatch("[0-9]{1,99}", text) else None


def _number_from(least: int, expected: str = "") -> Callable[[str], int]:
    """The type of whole numbers from a least one on. expected: what the answer to others says."""
    expected = expected or f"a whole number of at least {least} is expected"

    def read(text: str) -> int:
        number = whole_number(text)
        if number is None or number < least:
            raise argparse.ArgumentTypeError(f"{text!r:.60}: {expected}")
        return number

    return read


def _real_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a number is expected") from None


def _names(text: str) -> tuple[str, ...]:
    """The type of names with commas between them, each of them once."""
    names = tuple(part.strip() for part in text.split(","))
    if "" in names:
        raise argparse.ArgumentTypeError(f"{text!r}: names separated by commas are expected")
    return tuple(dict.fromkeys(names))


def _seeds(text: str) -> tuple[int, ...]:
    one = _number_from(0, "no seed; whole numbers from 0 on are expected, as in --seeds=0,1,2")
    return tuple(map(one, _names(text)))


def people_names(text: str) -> tuple[str, ...]:
    """The type of people: names with commas between them, or a number for a1, a2, ..."""
    if (number := whole_number(text)) is not None:
        if number > _MOST_PEOPLE:
            raise argparse.ArgumentTypeError(f"{text!r:.60}: at most {_MOST_PEOPLE} people vote")
        return tuple(f"a{person + 1}" for person in range(number))
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


def _holding(name: str, answer: str) -> Callable[[str], Path]:
    """The type of folders that hold a file; looking at one that is not there creates none."""

    def read(text: str) -> Path:
        if not (Path(text) / name).is_file():
            raise argparse.ArgumentTypeError(answer.format(text))
        return Path(text)

    return read


def _named_report(text: str) -> str:
    """The type of `[NAME=]REPORT`, as it is; the report has to be there."""
    _existing("results")(text if Path(text).exists() else text.rpartition("=")[2])
    return text


def _image_folder(text: str) -> Path:
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


TYPES: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("DIR", "FILE", "FOLDER", "PATH", "SUITE|FILE|FOLDER"), Path),
    **dict.fromkeys(("N", "K"), _number_from(1)),
    "SEED": _number_from(0, "a whole number from 0 on is expected"),
    "STEP": _number_from(0, "no step of a training; give a number from 0 on"),
    "PORT": _number_from(0, "a number is expected, 0 for any free port"),
    "X": _real_number,
    "N,N,...": _seeds,
    "NAME,...": _names,
    "N|NAME,...": people_names,
    "NAME=PATH": _data_place,
    "30d": _days,
    "20G": _size,
    "IMAGES": _image_folder,
    "REPORT": _existing("results"),
    "[NAME=]REPORT": _named_report,
    **dict.fromkeys(("BUNDLE", "VERDICTS", "FILE|RATINGS"), _existing("file")),
    "RATINGS": _holding("study.json", "{!r} is no ratings folder: it has no study.json"),
    # A default that is text is checked too.
    "STORE": _holding("index.sqlite", "no store at {!r}: give its folder with --store DIR"),
    "SUITE": suite_file,
}
"""What stands for a value in the table -> its type."""


# -- the parser ------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, choice or option."""

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong, with a question where a name is like a known one.

        Raises SystemExit.
        """
        hint = ""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            hint = did_you_mean(match[1], re.findall(r"[^',\s]+", match[2]))
        elif match := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            hint = did_you_mean(match[1], self._flags())
        elif match := re.match(r"argument ([^:/]+)\S*: (.*: .*)", message, re.DOTALL):
            # Of a type above: a value in quotes, or a sentence of its own.
            valued = match[1].startswith("-") and match[2][0] in "'\""
            message = f"{match[1]} {match[2]}" if valued else match[2]
        message = f"{message}.{hint}" if hint else message
        self.exit(2, f"cepbench: {printable(message, 2000)}\n")

    def _flags(self) -> Iterator[str]:
        """Of this parser and of its commands, which leave what they do not know to it."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - has no other name
                for command in action.choices.values():
                    yield from command._flags()  # noqa: SLF001 - of its own class
            else:
                yield from (name for name in action.option_strings if name.startswith("--"))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, of the types of the table; `command`, and `action` of those that have some.

    Raises SystemExit for what argparse refuses, and after help and version; SuiteError.
    """
    parser = _Parser(prog="cepbench", description=_ABOUT, epilog=_EXIT_CODES)
    version = f"cepbench {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print it, and exit")
    parser.set_defaults(action=None)
    groups = {"": parser.add_subparsers(dest="command", metavar="COMMAND", required=True)}
    shared = {entry.split()[0].removeprefix("--"): entry for entry in _entries(SHARED)}
    named = next((word for word in argv if not word.startswith("-")), "")
    for block in re.split(r"\n(?! )", COMMANDS.strip()):
        title, _, table = block.partition("\n")
        words, about = title.split(": ", 1)
        group, _, name = words.rpartition(" ")
        description = f"{about[:1].upper()}{about[1:]}."
        own = groups[group].add_parser(
            name, help=about, description=description, epilog=_EXIT_CODES
        )
        if not table:
            groups[name] = own.add_subparsers(dest="action", metavar="ACTION", required=True)
        # Options of the other commands would take more time than most commands.
        for entry in _entries(table if words.split()[0] == named else ""):
            inserted = entry.removeprefix("@").split() if entry.startswith("@") else []
            for option in [shared[key] for key in inserted] or [entry]:
                head, *text = re.split(r" {2,}|\n", option, maxsplit=1)
                _add(own, head.split(), " ".join(" ".join(text).split()))
    return parser.parse_args(argv)


def _entries(table: str) -> list[str]:
    """The entries of a table, each from its head on."""
    return re.split(r"\n {4}(?! )", f"\n{table.rstrip()}")[1:] if table else []


def _add(parser: argparse.ArgumentParser, head: list[str], about: str) -> None:
    """Add an option or an argument. head: its name, what stands for its value, and marks."""
    name, *marks = head
    flag = name.startswith("--")
    own: dict[str, Any] = {}
    if marks and marks[0].startswith("{"):
        own["choices"] = tuple(marks.pop(0).strip("{}").split(","))
    elif marks:
        own |= {"metavar": marks[0], "type": TYPES.get(marks.pop(0), str)}
    else:
        own["action"] = "store_true"
    while marks:
        mark = marks.pop(0)
        if mark == "several" or (mark == "+" and flag):
            own |= {"action": "append" if mark == "several" else "extend", "default": []}
        if mark == "required":
            own["required"] = True
        elif mark == "=":
            own["default"] = marks.pop(0)
            about = f"{about}; default: %(default)s" if about else "default: %(default)s"
        elif mark in {"?", "*", "+"}:
            own["nargs"] = mark
    parser.add_argument(name, help=about, **own)
