"""Spans of days and sizes as users write them, and sizes and days as tables show them."""

from __future__ import annotations

import re
import time

from pytest_cepbench.errors import SpecError

_DAYS = {"d": 1, "w": 7}

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def read_days(text: str, source: str) -> int:
    """Days of `30d` or `2w`. source: who said it. Raises SpecError."""
    match = re.fullmatch(r"([0-9]{1,6})([dw])", text.strip())
    if match is None or int(match[1]) == 0:
        msg = f"{source} {text!r}: days or weeks are expected, such as 30d or 2w"
        raise SpecError(msg)
    return int(match[1]) * _DAYS[match[2]]


def read_size(text: str, source: str) -> int:
    """Bytes of `20G` or `1.5T`, powers of 1000. source: who said it. Raises SpecError."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGT]?)B?", text.strip().upper())
    if match is None:
        msg = f"{source} {text!r}: a size is expected, such as 500M or 20G"
        raise SpecError(msg)
    return int(float(match[1]) * _UNITS[match[2]])


def show_size(count: int) -> str:
    """Bytes with a unit, three digits or so."""
    unit = next((u for u in ("T", "G", "M", "K") if count >= _UNITS[u]), "")
    if not unit:
        return f"{count} B"
    return f"{count / _UNITS[unit]:.3g} {unit.replace('K', 'k')}B"


def show_day(seconds: float) -> str:
    """The day of a moment given in seconds since the epoch, in UTC."""
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):  # a damaged number may be any
        return "?"
