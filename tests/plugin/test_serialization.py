"""What crosses between processes: exact built-in types, with the values they had."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import execnet
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.plugin.records import to_wire


class Word(enum.StrEnum):
    """A text that is an enum."""

    HELD = "held"


class Level(enum.IntEnum):
    """A number that is an enum."""

    HIGH = 3


class Text(str):
    """A subclass of a built-in type, which execnet refuses."""

    __slots__ = ()


INT64 = st.integers(-(2**31), 2**63 - 1)
"""NumPy's integers, as far as execnet takes them: it breaks on those below -2**31."""

PLAIN = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | st.text()

# (what is put in, what must come out), so that a wrong value is seen as well as a wrong type.
LEAVES = st.one_of(
    PLAIN.map(lambda value: (value, value)),
    INT64.map(lambda value: (np.int64(value), value)),
    st.floats(allow_nan=False).map(lambda value: (np.float64(value), value)),
    st.floats(allow_nan=False, width=32).map(lambda value: (np.float32(value), value)),
    st.booleans().map(lambda value: (np.bool_(value), value)),
    st.text().map(lambda value: (Text(value), value)),
    st.just((Word.HELD, "held")),
    st.just((Level.HIGH, 3)),
    st.just((PurePosixPath("a/b"), "a/b")),
    st.lists(INT64, max_size=3).map(lambda value: (np.array(value, np.int64), value)),
)


def _list(items: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    return [before for before, _ in items], [after for _, after in items]


def _tuple(items: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    return tuple(before for before, _ in items), [after for _, after in items]


def _mapping(items: dict[str, tuple[Any, Any]]) -> tuple[Any, Any]:
    before = {Text(key): value for key, (value, _) in items.items()}
    return MappingProxyType(before), {key: value for key, (_, value) in items.items()}


VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4).map(_list)
        | st.lists(inner, max_size=4).map(_tuple)
        | st.dictionaries(st.text(), inner, max_size=4).map(_mapping)
    ),
    max_leaves=12,
)


def _exact(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and _exact(item) for key, item in value.items())
    if type(value) is list:
        return all(_exact(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def _same(first: Any, second: Any) -> bool:
    """Equal in value and type all the way down (True is not 1, and 1 is not 1.0)."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            _same(first[key], second[key]) for key in first
        )
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


@given(VALUES)
def test_everything_sent_is_built_in_and_keeps_its_value(pair: tuple[Any, Any]) -> None:
    """NumPy values, enums, paths and subclasses become what they stand for, at any depth."""
    before, after = pair
    sent = to_wire(before)
    assert _exact(sent)
    assert _same(sent, after)


@given(VALUES)
def test_what_is_sent_is_what_execnet_takes(pair: tuple[Any, Any]) -> None:
    """The real serializer takes it, and so would drop no report."""
    sent = to_wire(pair[0])
    assert _same(execnet.loads(execnet.dumps(sent)), sent)


def test_lone_surrogates_are_sent_as_their_escapes() -> None:
    """Some tokenizers emit half characters, which execnet cannot send; the rest of the text can."""
    sent = to_wire({"caption \ud83d": ["half \udc00", Text("\ud800")]})
    assert sent == {"caption \\ud83d": ["half \\udc00", "\\ud800"]}
    assert execnet.loads(execnet.dumps(sent)) == sent


def test_numbers_that_are_no_numbers_stay() -> None:
    """NaN and infinities are sent as they are."""
    sent = to_wire([np.float32("nan"), np.float64("inf"), -math.inf])
    assert math.isnan(sent[0])
    assert sent[1:] == [math.inf, -math.inf]
    assert {type(value) for value in sent} == {float}


def test_other_kinds_of_mappings_and_numbers() -> None:
    """Ordered mappings keep their order; fractions become floats; real paths their text."""
    assert list(to_wire(OrderedDict(b=1, a=2))) == ["b", "a"]
    assert to_wire([Fraction(1, 2), Path("x")]) == [0.5, "x"]


@pytest.mark.parametrize(
    "value",
    [object(), b"bytes", 1j, Decimal(1), date(2026, 1, 1), int, lambda: None, np.complex64(1j),
     np.datetime64("2026-01-01"), np.array([object()]), {"deep": [{"down": {1j: 2}}]}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_everything_else_is_refused_by_its_type(value: Any) -> None:
    """What has no built-in form raises TypeError instead of being dropped on the way."""
    with pytest.raises(TypeError, match="cannot be sent between processes"):
        to_wire(value)
