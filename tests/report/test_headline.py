"""The sentence that every report opens with, for every way in which a run can end; totals."""

from __future__ import annotations

import json

import pytest

from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.report.ci_reports import markdown_summary
from pytest_cepbench.report.headline import headline
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.result import CaseResult, UsageTotals
from pytest_cepbench.report.text import promise_lines
from pytest_cepbench.report.totals import (
    effort_line,
    error_lines,
    judge_lines,
    run_alpha,
    total_usage,
    usage_between,
)
from pytest_cepbench.report.writers import RunOutcome, json_document
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


# -- totals: counts, promises on errors, judges, and the work done ---------------------------------


def test_the_error_of_a_run_is_the_sum_over_what_could_fail_it() -> None:
    """Shares of 0.05 add up to 0.05 again; the suite's own verdict, what only informs, what was
    accepted and what knows no statistics add nothing.
    """
    shares = [replace(FULL, alpha=0.05 / 14) for _ in range(14)]
    others = [
        replace(FULL, part="suite", metric="verdict", alpha=0.05),
        replace(FULL, primary=False, alpha=0.05),
        replace(FULL, accepted=True, alpha=0.05),
        replace(FULL, gate="threshold", alpha=None),
    ]
    assert run_alpha([*shares, *others]) == 0.05
    assert run_alpha(others) is None


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {},
            (
                "2.5 % false failures at most per run of checkpoints exchangeable with the "
                "baseline, over 2 cases"
            ),
        ),
        (
            {"strict": True},
            (
                "2.5 % false failures at most per run of checkpoints exchangeable with the "
                "baseline, over 2 cases; inconclusive cases fail besides"
            ),
        ),
        (
            {"gate": "noninferiority", "strict": True},
            "2.5 % of runs at most pass with a drop larger than tolerated, over 2 cases",
        ),
        (
            {"gate": "threshold", "alpha": None},
            "2 cases judged by threshold alone: no promise on error",
        ),
    ],
)
def test_each_gate_promises_something_else(fields: dict[str, object], line: str) -> None:
    """A false failure and a false pass are different errors, and a threshold knows neither. A
    suite's own verdict is no case.
    """
    case = replace(FULL, **fields)
    pooled = replace(case, part="suite", metric="verdict")
    assert error_lines([case, case, pooled]) == [line]
    broken = [replace(own, verdict="error") for own in (case, pooled)]
    assert error_lines([case, *broken]) == ["1 case not measured: no promise on error"]


@pytest.mark.parametrize("gate", ["regression", "noninferiority", "threshold"])
@pytest.mark.parametrize("verdict", ["no-baseline", "incomparable"])
def test_what_was_not_compared_has_no_promise(gate: str, verdict: str) -> None:
    """A first run decides nothing, so it cannot err; beside compared cases only those count."""
    alone = replace(FULL, gate=gate, alpha=None if gate == "threshold" else 0.0125)
    uncompared = replace(alone, verdict=verdict)
    assert error_lines([uncompared] * 5) == []
    assert error_lines([uncompared, alone]) == error_lines([alone])


CASE = UsageTotals(1, 10, 5, 2.0, 1.25, {"describer": 1}, worker="gw0")
BESIDE = UsageTotals(3, 3, 7, 0.0, 0.25, {"describer": 1, "encoder": 2}, worker="gw1")


def test_a_run_is_told_in_one_sentence() -> None:
    """Loads by role and by how many workers; inputs, model time and hits of all together. Requests,
    tokens and cost of all cases; the part of one case is what was added since.

    Every report counts what was done beside cases: a worker that helped did a part of the run's
    work, and loaded models for it.
    """
    assert effort_line([CASE, BESIDE]) == (
        "4 model loads (2 describer, 2 encoder) by 2 workers, 13 model inputs (1.5 s in models), "
        "12 results from the store"
    )
    assert effort_line([replace(CASE, worker=""), replace(CASE, worker="")]).startswith(
        "2 model loads (2 describer), "
    )
    asked = replace(
        CASE, usage=Usage(requests=12, retries=2, input_tokens=900, output_tokens=80, cost=0.5)
    )
    more = replace(asked, usage=asked.usage + Usage(requests=3, images=3))
    assert effort_line([asked, BESIDE]).endswith(
        "; 12 requests (2 of them again), 900 tokens in, 80 out, cost 0.5"
    )
    assert usage_between(asked, more, 1.0, "").usage == Usage(requests=3, images=3)
    assert total_usage([asked, more]).usage == Usage(27, 4, 1800, 160, 3, 1.0)
    assert "cost" not in effort_line([CASE])
    run = RunOutcome(
        "passed",
        infrastructure=["worker gw1 <died>"],
        usage=[BESIDE],
        results=[replace(FULL, effort=CASE)],
    )
    document = json.loads(json_document(run))
    assert document["effort"]["loads"] == 4
    assert document["effort"]["roles"] == {"describer": 2, "encoder": 2}
    assert document["infrastructure"] == ["worker gw1 <died>"]
    line = "4 model loads (2 describer, 2 encoder) by 2 workers"
    markdown = markdown_summary(run)
    html = html_page(run, lambda _: None)
    assert line in html
    assert "worker gw1 &lt;died&gt;" in html
    assert line in markdown
    assert "- **infrastructure:** worker gw1 &lt;died&gt;\n" in markdown


def test_each_judge_has_one_line() -> None:
    """With the suites whose cases it judged; cases without verdicts add none."""
    cases = [
        replace(FULL, suite="a", judge="known"),
        replace(FULL, suite="a", part="other", judge="known"),
        replace(FULL, suite="b", judge="known"),
        replace(FULL, suite="c", judge="unknown"),
        replace(FULL, suite="d"),
    ]

    assert judge_lines(cases) == ["judge of a, b: known", "judge of c: unknown"]
    assert promise_lines(cases).count("judge of a, b: known") == 1
    assert "judge of" not in "\n".join(promise_lines([FULL]))
