"""The ledger's entries, attempts at a test and who judged which case; what crosses to it."""

from __future__ import annotations

import enum
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import execnet
import msgspec
import numpy as np
import pytest

from pytest_cepbench.evaluation.run_result import run_verdict
from pytest_cepbench.plugin.ledger import Ledger
from pytest_cepbench.plugin.records import to_wire
from pytest_cepbench.report.result import CaseResult
from tests.plugin.project import Project
from tests.report.results import case_of

NODEID = "test_toy.py::test_drift[color-gc]"

CASE = "toy/color/gc"


def _result(verdict: str, part: str = "color", **fields: Any) -> CaseResult:
    of = {"suite": "toy", "part": part, "metric": "gc", "label": "GC@2", "tolerance": 0.01}
    return case_of(nodeid=NODEID, verdict=verdict, **of, **fields)


def _report(
    *results: tuple[str, CaseResult],
    when: str = "teardown",
    outcome: str = "passed",
    digest: str = "a",
) -> pytest.TestReport:
    """The report of a test with results, each with its attempt."""
    report = pytest.TestReport(
        NODEID,
        ("", 0, ""),
        {},
        outcome,  # type: ignore[arg-type] # "rerun" too
        None,
        when,  # type: ignore[arg-type]
    )
    sent = msgspec.to_builtins(results)
    report.cepbench = {  # type: ignore[attr-defined]
        "case": CASE,
        "stands_for": "case",
        "skipped": None,
        "cut_short": False,
        "inputs": {"/suites/toy/suite.toml": digest},
        "results": sent,
    }
    return report


def _ledger(*verdicts: str) -> Ledger:
    """One test that was tried so many times."""
    ledger = Ledger()
    ledger.expect({NODEID: CASE})
    for number, verdict in enumerate(verdicts):
        result = _result(verdict, reasons=["the server was away"] if verdict == "error" else [])
        ledger.note_report(_report((f"7.{number}", result)))
    ledger.close()
    return ledger


@pytest.mark.parametrize(
    ("attempts", "counts", "verdict"),
    [
        (("error", "held"), "held", "passed"),
        (("error", "regressed"), "regressed", "failed"),
        (("error", "error"), "error", "failed"),
        (("held", "error"), "error", "failed"),
        (("held", "regressed"), "regressed", "failed"),
        (("regressed", "held"), "regressed", "failed"),
        (("regressed", "error", "held"), "regressed", "failed"),
        (("no-baseline", "held"), "no-baseline", "failed"),
        (("error", "regressed", "held"), "regressed", "failed"),
    ],
    ids="-".join,
)
def test_an_error_is_replaced_and_a_verdict_stands(
    attempts: tuple[str, ...], counts: str, verdict: str
) -> None:
    """The last attempt counts after an error; no attempt turns a verdict that fails into a pass."""
    ledger = _ledger(*attempts)
    assert [result.verdict for result in ledger.results] == [counts]
    assert run_verdict(ledger.results, ledger.problems()) == verdict
    assert not ledger.problems()


def test_what_became_of_earlier_attempts_is_told() -> None:
    """An error that passed is infrastructure; a verdict before another is a note of its case."""
    assert _ledger("error", "held").repeated == [
        f"{NODEID} ran again after an error (the server was away)"
    ]
    contradicted = _ledger("regressed", "held")
    note = "regressed, then held when the test ran again: the first verdict counts"
    assert contradicted.results[0].notes == [note]
    assert contradicted.remarks == [f"{CASE}: {note}"]
    # In one attempt every result counts: a second call with a wide tolerance excuses nothing.
    twice = Ledger()
    twice.expect({NODEID: CASE})
    twice.note_report(_report(("7.1", _result("regressed")), ("7.1", _result("held"))))
    assert run_verdict(twice.results, twice.problems()) == "failed"
    twice.close()
    assert set(twice.remarks) == {f"{CASE}: judged more than once: by {NODEID}, {NODEID}"}


def test_a_case_of_which_nothing_is_known_makes_the_run_incomplete() -> None:
    """A report that says `rerun` is not the last word, whichever phase it is of; one without a
    result, or with that of another case, is none for its test.

    A case outside of its suite's folder is known by its report alone, which may be lost.
    """
    ledger, empty, other = Ledger(), Ledger(), Ledger()
    for each in (ledger, empty, other):
        each.expect({NODEID: CASE})
    ledger.note_report(_report(outcome="rerun"))
    assert ledger.problems() == [f"1 tests did not report: {NODEID}"]
    ledger.note_report(_report(("7.2", _result("held"))))
    assert ledger.problems() == []
    assert run_verdict(ledger.results, ledger.problems()) == "passed"
    ledger.expect_collected([NODEID, "elsewhere/test_b.py::test_b"])
    assert ledger.problems() == ["1 tests did not report: elsewhere/test_b.py::test_b"]

    empty.note_report(_report())
    assert empty.problems() == [f"1 tests passed without calling cep_gate: {NODEID}"]
    other.note_report(_report(("7.1", _result("held", "count"))))
    assert other.problems() == [
        f"1 tests judged another case than their own: {NODEID} (judged toy/count/gc)"
    ]
    assert run_verdict(other.results, other.problems()) == "incomplete"


def test_a_file_that_processes_read_differently_makes_the_run_incomplete() -> None:
    """Two workers, or a worker and the controller: the file and who read what are named."""
    ledger = Ledger(Path("/suites"))
    ledger.expect({NODEID: CASE})
    ledger.note_inputs({"/suites/toy/suite.toml": "a", "/suites/more.toml": "c"}, "the controller")
    ledger.note_report(_report(("7.1", _result("held"))))
    assert ledger.problems() == []
    ledger.note_report(_report(("8.1", _result("held")), digest="b"))
    (problem,) = ledger.problems()
    assert problem.startswith("toy/suite.toml changed while the run went on")
    assert f"a for {NODEID}, the controller; b for {NODEID}" in problem
    # Processes list the data by themselves: what its identity says is the same in all cases.
    ledger = Ledger()
    for part, content in (("color", "x"), ("shape", "x"), ("count", "y")):
        case = _result("held", part, identity={"data": f"loader=folder questions={content}"})
        ledger.results.append(case)
    (problem,) = ledger.problems()
    assert problem.startswith("the data of suite toy was not the same in all cases: loader=folder ")
    assert "questions=y in" in problem


# -- between processes: exact built-in types, with the values they had -----------------------------


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


def test_no_case_vanishes(accepted: Project) -> None:
    """With NumPy's tolerances every case arrives, workers or not, in JUnit's old family too."""
    accepted.write("test_toy.py", MODULE)
    junit = ("--junitxml=j.xml", "-o", "junit_family=xunit1")
    result = accepted.run("-n", "2", *junit, "-k", "color or crowded")
    assert result.ret == pytest.ExitCode.OK
    assert accepted.report()["problems"] == []
    assert [case["tolerance"] for case in accepted.report()["cases"]] == [0.25] * 4
