"""Totals of a run: counts, promises on errors, judges, and the work done."""

from __future__ import annotations

import json

import pytest

from pytest_cepbench.measures.cases import POOLED
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.report.ci_reports import markdown_summary
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.result import UsageTotals
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
from tests.report.results import FULL, REGRESSED, replace

_PART, _METRIC = POOLED


def test_the_error_of_a_run_is_the_sum_over_what_could_fail_it() -> None:
    """Shares of 0.05 add up to 0.05 again; the suite's own verdict, what only informs, what was
    accepted and what knows no statistics add nothing.
    """
    shares = [replace(FULL, alpha=0.05 / 14) for _ in range(14)]
    others = [
        replace(FULL, part=_PART, metric=_METRIC, alpha=0.05),
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
    pooled = replace(case, part=_PART, metric=_METRIC)
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


def test_every_report_counts_what_was_done_beside_cases() -> None:
    """A worker that helped did a part of the run's work, and loaded models for it."""
    run = RunOutcome(
        "passed",
        infrastructure=["worker gw1 <died>"],
        usage=[BESIDE],
        results=[replace(REGRESSED, effort=CASE)],
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
