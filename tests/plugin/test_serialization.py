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


SENT = [
    (np.int64(2**40), 2**40), (np.float64(0.5), 0.5), (np.float32(0.5), 0.5),
    (np.bool_(True), True), (True, True), (None, None), (Text("é"), "é"), (Word.HELD, "held"),
    (Level.HIGH, 3), (PurePosixPath("a/b"), "a/b"), (np.array([1, 2], np.int64), [1, 2]),
    (MappingProxyType({Text("k"): (np.int64(1), [Word.HELD])}), {"k": [1, ["held"]]}),
    # Some tokenizers emit half characters, which execnet cannot send; the rest of the text can.
    ({"caption \ud83d": ["half \udc00", Text("\ud800")]},
     {"caption \\ud83d": ["half \\udc00", "\\ud800"]}),
]  # fmt: skip


def test_everything_sent_is_built_in_and_keeps_its_value() -> None:
    """NumPy values, enums, paths and subclasses become what they stand for, at any depth."""
    for before, after in SENT:
        sent = to_wire(before)
        assert repr(sent) == repr(after)  # in type as well: True is not 1, and 1 is not 1.0
        assert repr(execnet.loads(execnet.dumps(sent))) == repr(after)


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


def test_no_case_vanishes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With NumPy's tolerances every case arrives, workers or not, in JUnit's old family too."""
    suite = scored_suite(n=12, categories=("a", "b"))
    project = ScoredProject.make(tmp_path_factory.mktemp("wire"), suite, MODULE)
    project.accept()
    junit = ("--junitxml=j.xml", "-o", "junit_family=xunit1")
    ended = project.run(*MODES["n2"], *junit, model(drop=0.05, spread=0.01))
    assert ended.code == pytest.ExitCode.OK
    assert ended.report["problems"] == []
    assert [case["tolerance"] for case in ended.report["cases"]] == [0.25] * 6
