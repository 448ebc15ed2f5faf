"""What crosses between processes: exact built-in types, with the values they had."""

from __future__ import annotations

import enum
from decimal import Decimal
from pathlib import Path, PurePosixPath
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


SPY = """\
import pathlib

def inexact(value, where):
    if type(value) is dict:
        for key, item in value.items():
            yield from inexact(key, where)
            yield from inexact(item, f"{where}.{key}")
    elif type(value) in (list, tuple):
        for item in value:
            yield from inexact(item, where)
    elif value is not None and type(value) not in (str, int, float, bool):
        yield f"{where}: {type(value).__name__}"

def pytest_runtest_logreport(report):
    if report.when == "call":
        sent = {"cepbench": report.cepbench, "user_properties": report.user_properties}
        with pathlib.Path("sent").open("a") as log:
            log.write("".join(f"{line}\\n" for line in [report.nodeid, *inexact(sent, "")]))
"""
"""A conftest.py that writes down every report, and what on it is not of a built-in type exactly."""


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


def test_every_field_of_a_verdict_is_built_in(accepted: ScoredProject, tmp_path: Path) -> None:
    """Bounds, looks, anchor, hops, chains and measurement: before they are sent, not after."""
    project = accepted.copy(tmp_path / "spied")
    project.accept(model(drop=0.001, spread=0.001), "-k", "called")
    (project.path / "conftest.py").write_text(SPY)
    worse = model(drop=0.5, spread=0.01)
    ended = project.run(worse, "-k", "called", "--cep-inconclusive=more")
    filled = ("low", "high", "alpha", "visible", "looks", "anchor", "hops", "chains", "measured")
    assert all(case[name] for case in ended.report["cases"] for name in filled)
    assert (project.path / "sent").read_text().splitlines() == [
        f"test_scored.py::test_called[{part}-gc]" for part in ("a", "b", "overall")
    ]


@pytest.mark.parametrize("value", ["-1", "'0.1'"])
def test_a_tolerance_that_is_none_is_one_message(
    accepted: ScoredProject, value: str, tmp_path: Path
) -> None:
    """In the call as in the marker: what is expected, and no traceback into the plugin."""
    project = accepted.copy(tmp_path / "called")
    (project.path / "test_scored.py").write_text(
        "import numpy as np\n\ndef test_drift(cep_case, cep_gate):\n"
        f"    cep_gate(cep_case, tolerance={value})\n"
    )
    ended = project.run("-k", "overall")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert "tolerance is a number of at least 0, got" in ended.output
    assert "judging.py" not in ended.output
