"""What crosses between processes: exact built-in types, with the values they had."""

from __future__ import annotations

import enum
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import execnet
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.plugin.records import to_wire
from tests.plugin.project import MODES
from tests.plugin.scored_project import ScoredProject, model, scored_suite


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
    """NumPy values, enums, paths and subclasses become what they stand for, at any depth.

    execnet's own serializer takes it, and so would drop no report.
    """
    before, after = pair
    sent = to_wire(before)
    assert _exact(sent)
    assert _same(sent, after)
    assert _same(execnet.loads(execnet.dumps(sent)), sent)


def test_lone_surrogates_are_sent_as_their_escapes() -> None:
    """Some tokenizers emit half characters, which execnet cannot send; the rest of the text can."""
    sent = to_wire({"caption \ud83d": ["half \udc00", Text("\ud800")]})
    assert sent == {"caption \\ud83d": ["half \\udc00", "\\ud800"]}
    assert execnet.loads(execnet.dumps(sent)) == sent


@pytest.mark.parametrize(
    "value",
    [object(), b"bytes", 1j, Decimal(1), np.complex64(1j), {"deep": [{"down": {1j: 2}}]}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_everything_else_is_refused_by_its_type(value: Any) -> None:
    """What has no built-in form raises TypeError instead of being dropped on the way."""
    with pytest.raises(TypeError, match="cannot be sent between processes"):
        to_wire(value)


MODULE = """\
import numpy as np
import pytest

@pytest.mark.cep(tolerance=np.float64(0.25))
def test_marked(cep_case, cep_gate):
    assert cep_gate(cep_case).tolerance == 0.25

def test_called(cep_case, cep_gate):
    assert cep_gate(cep_case, tolerance=np.float64(0.25)).tolerance == 0.25
"""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """A project whose tests say their tolerances in NumPy's numbers."""
    suite = scored_suite(n=12, categories=("a", "b"))
    project = ScoredProject.make(tmp_path_factory.mktemp("wire"), suite, MODULE)
    project.accept()
    return project


@pytest.mark.parametrize("mode", ["n2"])
def test_no_case_vanishes(accepted: ScoredProject, mode: str) -> None:
    """With NumPy's tolerances every case arrives, workers or not, in JUnit's old family too."""
    ended = accepted.run(
        *MODES[mode], "--junitxml=j.xml", "-o", "junit_family=xunit1", model(drop=0.05, spread=0.01)
    )
    assert ended.code == pytest.ExitCode.OK
    assert ended.report["problems"] == []
    assert [case["tolerance"] for case in ended.report["cases"]] == [0.25] * 6
