"""One number in a suite's file, changed in place: all else, comments and layout, stays as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.files import parse_toml, read_text
from pytest_cepbench.suites.definition import Suite, SuiteTable


@dataclass(frozen=True)
class SuiteNumber:
    """A number of a suite. table, key: where it stands in the file."""

    table: Literal["chain", "data"]
    key: str
    value: int

    def __str__(self) -> str:
        return f"[{self.table}] {self.key} = {self.value}"


def amended(suite: Suite, setting: SuiteNumber) -> Suite:
    """The suite with another value of a setting."""
    part = getattr(suite.table, setting.table)
    changed = msgspec.structs.replace(part, **{setting.key: setting.value})
    table = msgspec.structs.replace(suite.table, **{setting.table: changed})
    return msgspec.structs.replace(suite, table=table)


def amended_text(suite: Suite, setting: SuiteNumber) -> str:
    """The text of the suite's file with another value of a setting.

    Raises SuiteError where the file is not what the suite was read from any more, or is written in
    a way in which the number cannot be set without touching more.
    """
    try:
        text = read_text(suite.file)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"suite file {str(suite.file)!r} cannot be read: {error}"
        raise SuiteError(msg) from error
    made = _with_number(text, setting)
    try:
        changed = msgspec.convert(parse_toml(made), SuiteTable)
    except (msgspec.MsgspecError, ValueError):
        changed = None
    if changed != amended(suite, setting).table:
        msg = (
            f"{str(suite.file)!r} is written in a way that cannot be changed here: set {setting} "
            "in it by hand, run it, and accept the results of that run"
        )
        raise SuiteError(msg)
    return made


def _with_number(text: str, setting: SuiteNumber) -> str:
    head = re.compile(rf"^[ \t]*\[[ \t]*{setting.table}[ \t]*\][ \t]*(#.*)?\r?$", re.MULTILINE)
    line = f"{setting.key} = {setting.value}"
    header = head.search(text)
    if header is None:
        return f"{text.rstrip()}\n\n[{setting.table}]\n{line}\n"
    end = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, header.end())
    body = text[header.end() : end.start() if end else len(text)]
    number = re.compile(rf"^([ \t]*{setting.key}[ \t]*=[ \t]*)[-+\d_]+", re.MULTILINE)
    changed, count = number.subn(rf"\g<1>{setting.value}", body, count=1)
    if not count:
        changed = f"\n{line}{body}"
    return text[: header.end()] + changed + (text[end.start() :] if end else "")
