"""What the cases of a run come to together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.measures.cases import POOLED
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.text import promise_lines
from pytest_cepbench.report.totals import count_verdicts, counts_line, error_lines, run_alpha
from tests.report.results import FULL, RESULTS, replace

_PART, _METRIC = POOLED


@pytest.mark.slow
@given(st.lists(RESULTS, max_size=6))
def test_every_case_is_counted_once(results: list[CaseResult]) -> None:
    """The counts add up to the number of cases, and name nothing that is not there."""
    counts = count_verdicts(results)
    assert sum(counts.values()) == len(results)
    assert all(counts.values())
    failing = sum(not result.passes for result in results)
    harmless = ("held", "improved", "inconclusive", "accepted", "informational")
    judged = [r for r in results if not r.refused]
    strict = sum(r.verdict == "inconclusive" and not r.passes for r in judged)
    # An incomplete run fails also by a case that cannot fail it otherwise.
    lost = sum(r.verdict == "incomplete" and not r.primary and not r.passes for r in judged)
    remarkable = sum(count for name, count in counts.items() if name not in harmless)
    assert remarkable + strict + lost == failing


def test_counts_stand_in_a_fixed_order() -> None:
    """Good news first, whatever the order of the cases; text and not an enum in the keys."""
    verdicts = ["regressed", "inconclusive", "held", "improved", "held"]
    results = [replace(FULL, verdict=verdict) for verdict in verdicts]
    results += [replace(FULL, primary=False), replace(FULL, accepted=True)]
    assert counts_line(results) == (
        "1 accepted, 2 held, 1 improved, 1 inconclusive, 1 regressed, 1 informational"
    )
    assert {type(name) for name in count_verdicts(results)} == {str}


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
    """A false failure and a false pass are different errors, and a threshold knows neither."""
    assert error_lines([replace(FULL, **fields)] * 2) == [line]


@pytest.mark.parametrize("gate", ["regression", "noninferiority", "threshold"])
@pytest.mark.parametrize("verdict", ["no-baseline", "incomparable"])
def test_what_was_not_compared_has_no_promise(gate: str, verdict: str) -> None:
    """A first run decides nothing, so it cannot err; beside compared cases only those count."""
    alone = replace(FULL, gate=gate, alpha=None if gate == "threshold" else 0.0125)
    uncompared = replace(alone, verdict=verdict)
    assert error_lines([uncompared] * 5) == []
    assert error_lines([uncompared, alone]) == error_lines([alone])


def test_promises_of_several_gates_stand_apart() -> None:
    """Their alphas are not added up: they bound different errors."""
    first, second = error_lines([FULL, replace(FULL, gate="noninferiority", alpha=0.02)])
    assert first.endswith("per run of checkpoints exchangeable with the baseline, over 1 case")
    assert second.endswith("over 1 case")


def test_improvements_offer_to_raise_the_baseline() -> None:
    """The last line names the option; what was accepted has been raised already."""
    better = replace(FULL, verdict="improved")
    assert promise_lines([FULL, better])[-1].startswith("1 case improved: --snapshot-update raises")
    accepted = replace(better, accepted=True)
    assert not any("raises" in line for line in promise_lines([FULL, accepted]))
