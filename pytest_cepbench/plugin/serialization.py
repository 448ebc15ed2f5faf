"""Values that cross between processes, as exact built-in types.

A NumPy scalar, an enum or a path in a test report makes execnet drop the report, and with it the
test, from the run; so everything is turned into built-in types here, or refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

_EXACT = frozenset({int, float, bool, type(None)})


def _text(value: str) -> str:
    """Lone surrogates, which some tokenizers emit, as their escapes: execnet sends UTF-8."""
    return value.encode("utf-8", "backslashreplace").decode()


_NEAREST: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, _text),
    (PurePath, lambda path: _text(str(path))),
    (Integral, int),
    (Real, float),
)


def to_wire(value: Any) -> Any:
    """The same value of exact types str (UTF-8), int, float, bool, None, list and dict.

    Raises TypeError for what has no such form.
    """
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is str and value.isascii():  # most texts by far, and a case can have thousands
        return value
    if isinstance(value, enum.Enum):
        value = value.value
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # NumPy's arrays and scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {to_wire(key): to_wire(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_wire(item) for item in value]
    if type(value) in _EXACT:  # of an enum or an array
        return value
    for near, exact in _NEAREST:
        if isinstance(value, near):
            return exact(value)
    msg = f"{type(value).__name__} cannot be sent between processes"
    raise TypeError(msg)
