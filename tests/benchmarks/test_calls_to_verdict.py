"""The benchmark of calls to a verdict in small: allocation, counting of calls, and its page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calls_to_verdict import PAGE, main
from benchmarks.error_rates.look_ways import WAYS, Drawn, allocated, look_again_by
from pytest_cepbench.gate import Verdict


def _drawn(values: np.ndarray) -> Drawn:
    """A case in eight categories whose proxies are the whole differences themselves."""
    categories = np.tile(np.arange(8), len(values) // 8)
    spreads = np.ones(len(values))
    return Drawn(values, categories, {"first": values, "text": values}, spreads)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0.01, 2.0)), min_size=1, max_size=4),
    st.integers(1, 80),
)
def test_an_allocation_spends_what_there_is(strata: list[tuple[int, float]], size: int) -> None:
    """At least one and at most all of each stratum, and as many in all as were asked for."""
    parts = [list(range(n)) for n, _ in strata]
    plan = allocated(size, parts, [spread for _, spread in strata])
    assert all(1 <= n <= len(part) for n, part in zip(plan, parts, strict=True))
    every = sum(map(len, parts))
    assert sum(plan) == max(min(size, every), len(parts))


def test_lively_strata_come_first() -> None:
    """Four times the spread is four times the samples, as Neyman has it."""
    assert allocated(10, [range(20), range(20)], [1.0, 4.0]) == [2, 8]


def test_calls_are_those_of_a_run_with_an_empty_store() -> None:
    """A clear drop: six calls a sample, of 32 or of 16; nothing moved: all 192 of them."""
    clear = _drawn(np.random.default_rng(0).normal(-0.2, 0.02, 192).round(6))
    ends = {way.name: look_again_by(way, clear, 0.05, 0.01) for way in WAYS}
    assert {end.verdict for end in ends.values()} == {Verdict.REGRESSED}
    for name in ("former bounds", "bounds"):
        assert (ends[name].calls, ends[name].drawings) == (6 * 32, 3 * 32)
    assert {end.calls for name, end in ends.items() if name.startswith("seq")} == {6 * 16}
    still = look_again_by(WAYS[0], _drawn(np.zeros(192)), 0.05, 0.001)
    assert (still.verdict, still.calls) == (Verdict.INCONCLUSIVE, 6 * 192)


def test_the_former_bounds_took_more_where_most_samples_tie() -> None:
    """One sample in eight loses a fifth, all others tie: seven such losses are evidence now."""
    values = np.where(np.arange(192) // 8 % 8 == np.arange(192) % 8, -0.2, 0.0)
    former, now = (look_again_by(way, _drawn(values), 0.05, 0.01) for way in WAYS[:2])
    assert former.verdict is now.verdict is Verdict.REGRESSED
    assert (former.calls, now.calls) == (6 * 104, 6 * 56)


def test_what_is_begun_and_not_ended_costs_its_beginning() -> None:
    """A drop that shows at 64 chains: two calls, or one, for each sample that was begun besides."""
    values = np.random.default_rng(1).normal(-0.03, 0.07, 192).round(6)
    ends = {way.name: look_again_by(way, _drawn(values), 0.05, 0.01) for way in WAYS}
    whole = ends["sequential"].calls
    begun = ends["sequential, first"].calls
    assert begun % 2 == 0
    assert whole % 6 == 0
    assert ends["sequential, text"].drawings <= ends["sequential, first"].drawings


def test_the_page_is_made_of_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The tables that the JSON file gives are those that stand in the page."""
    assert main(["--read"]) == 0
    assert capsys.readouterr().out.strip() in PAGE.read_text(encoding="utf-8")
