"""The sentence that every report opens with, for every way in which a run can end."""

from __future__ import annotations

import pytest

from pytest_cepbench.report.headline import headline
from pytest_cepbench.report.result import CaseResult
from tests.report.results import FULL, replace

HELD = replace(FULL, verdict="held", difference=0.001, low=-0.004, high=0.006, warnings=[])
IMPROVED = replace(HELD, verdict="improved", difference=0.04, low=0.02)
REGRESSED = replace(FULL, warnings=[])
UNDECIDED = replace(HELD, verdict="inconclusive", n=50, visible=0.03, needed=420)
NEW = replace(HELD, verdict="no-baseline", difference=None, low=None, high=None, baseline=None)
UNMEASURED = replace(NEW, verdict="error", value=None, n=0, reasons=["out of\nmemory"])
INCOMPARABLE = replace(NEW, verdict="incomparable", reasons=["encoder: baseline x, now y"])
REFUSED = replace(NEW, refused="0.2 is what chance gives")
INFORMATIONAL = replace(REGRESSED, primary=False)
POOLED = replace(
    UNDECIDED,
    part="suite",
    metric="verdict",
    label="pooled verdict",
    difference=None,
    visible=None,
    needed=None,
    n=0,
)

_DIED = "1 tests did not report: a"


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([HELD], "May ship: the one gating case held"),
        ([HELD] * 2 + [IMPROVED], "May ship: all 3 gating cases held, 1 of them improved"),
        (
            [HELD, replace(HELD, warnings=["close to chance"])],
            "May ship: all 2 gating cases held, read the warnings of 1",
        ),
        (
            [replace(HELD, gate="threshold")] * 2,
            "May ship: all 2 gating cases held by threshold alone",
        ),
        (
            [REGRESSED, HELD, UNDECIDED, INFORMATIONAL],
            ("Do not ship: 1 of 3 gating cases regressed; worst toy/color GC@2 -0.250"),
        ),
        (
            [UNDECIDED, HELD],
            "Undecided: 1 of 2 gating cases; 50 samples see drops from 0.0300; 420 would see 0.01",
        ),
        (
            [REGRESSED, HELD, replace(REGRESSED, part="suite", metric="verdict", difference=None)],
            "Do not ship: 1 of 2 gating cases regressed; worst toy/color GC@2 -0.250",
        ),
        (
            [UNDECIDED, replace(UNDECIDED, n=60, needed=900), POOLED],
            "Undecided: 2 of 2 gating cases; 60 samples see drops from 0.0300; 900 would see 0.01",
        ),
        (
            [UNDECIDED, replace(UNDECIDED, needed=None), HELD],
            "Undecided: 2 of 3 gating cases; 50 samples see drops from 0.0300; 420 would see 0.01",
        ),
        ([replace(UNDECIDED, needed=None)], "Undecided: 1 of 1 gating case"),
        (
            [replace(UNDECIDED, needed=None, reasons=["the judge cannot see"]), HELD],
            "Undecided: 1 of 2 gating cases; toy/color GC@2: the judge cannot see",
        ),
        (
            [replace(UNDECIDED, strict=True), HELD],
            (
                "Undecided, which fails this run: 1 of 2 gating cases; 50 samples see drops from "
                "0.0300; 420 would see 0.01"
            ),
        ),
        ([NEW, NEW, HELD], "No baseline: 2 of 3 gating cases have none to compare with"),
        (
            [UNMEASURED, UNMEASURED, INFORMATIONAL],
            (
                "Nothing was measured: 2 of 2 gating cases ended in an error; toy/color GC@2: "
                "out of memory"
            ),
        ),
        (
            [UNMEASURED, HELD, NEW],
            (
                "Not measured: 1 of 3 gating cases ended in an error; toy/color GC@2: out of "
                "memory; 1 held; 1 without a baseline"
            ),
        ),
        (
            [UNMEASURED, REGRESSED],
            (
                "Do not ship: 1 of 2 gating cases regressed; worst toy/color GC@2 "
                "-0.250; 1 not measured"
            ),
        ),
        (
            [INCOMPARABLE],
            (
                "Nothing to compare with: 1 of 1 gating case has a baseline of something else "
                "(encoder: baseline x, now y)"
            ),
        ),
        (
            [REFUSED, replace(NEW, accepted=True)],
            "Not accepted: 1 of 1 measurement may not become baselines; first toy/color GC@2",
        ),
        ([replace(NEW, accepted=True)], "Accepted: 1 measurement is the baseline now"),
        (
            [replace(REGRESSED, accepted=True), replace(HELD, accepted=True)],
            "Accepted: 2 measurements are baselines now, 1 of which had regressed",
        ),
        (
            [HELD, replace(NEW, accepted=True)],
            "May ship: the one gating case held; 1 measurement is the baseline now",
        ),
        (
            [INFORMATIONAL, INFORMATIONAL],
            "Nothing was gated: 2 cases, informational, which cannot fail the run",
        ),
        ([], "Nothing was measured: no case was judged"),
    ],
)
def test_a_complete_run_in_one_sentence(results: list[CaseResult], sentence: str) -> None:
    """The gravest verdict decides; only gating cases are counted."""
    assert headline(results) == sentence


def test_an_incomplete_run_never_ships() -> None:
    """The first problem and the number of the others stand before what was judged.

    A regression is what fails it; that cases are missing is not hidden behind it. A run whose
    suites were skipped in part may ship only with that remark, and none where another test failed,
    or the session was interrupted: the exit code is not 0.
    """
    for results, judged in (
        ([HELD, UNDECIDED], "1 held, 1 undecided of 2 gating cases judged; 1 skipped"),
        ([INFORMATIONAL], "nothing was judged; 1 skipped"),
    ):
        sentence = headline(results, [_DIED, "a worker died"], skipped={"b": "no data"})
        assert sentence == f"Incomplete: {_DIED}, and 1 reason more; {judged}"
    sentence = headline([REGRESSED], [_DIED])
    assert sentence.startswith("Do not ship: 1 of 1 gating case regressed; ")
    assert sentence.endswith(f"; the run is incomplete: {_DIED}")
    skipped = {"a": "no such data set", "b": "no such data set"}
    assert headline([HELD], skipped=skipped) == (
        "May ship: the one gating case held; 2 skipped (no such data set)"
    )
    assert headline([], skipped=skipped) == "Nothing was measured: no such data set"
    for results in ([HELD], [UNDECIDED], [replace(HELD, accepted=True)]):
        sentence = headline(results, other_code=2)
        assert sentence.startswith("Do not ship yet: ")
        assert sentence.endswith(", but the run failed outside of the gate (exit code 2)")


def test_the_worst_case_is_found_in_tolerances() -> None:
    """A distance moves by more than a similarity; a tolerance of 0 counts as the default one."""
    distance = replace(REGRESSED, part="fid", difference=-2.0, tolerance=1.0)
    rate = replace(REGRESSED, part="rate", difference=-0.1, tolerance=0.0)
    assert "; worst toy/color " in headline([distance, REGRESSED, rate])
    small = replace(REGRESSED, difference=-0.0138, low=-0.0255, high=-0.0058)
    assert headline([small]).endswith(" -0.0138")
    unsure = replace(small, p=None)
    assert headline([unsure]).endswith(" -0.0138 [-0.025, -0.006]")
    unbound = replace(unsure, low=-0.9)
    assert headline([unbound]).endswith(" -0.0138 <= -0.006")
