"""The benchmark of calls to a verdict in small: counting of calls, and its page."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calls_to_verdict import PAGE, main
from benchmarks.error_rates.look_ways import WAYS, Drawn, look_again_by
from pytest_cepbench.gate import Verdict


def _drawn(values: np.ndarray) -> Drawn:
    """A case in eight categories."""
    return Drawn(values, np.tile(np.arange(8), len(values) // 8))


def test_calls_are_those_of_a_run_with_an_empty_store() -> None:
    """A clear drop: six calls a sample, of 32 or of 16; nothing moved: all 192 of them."""
    clear = _drawn(np.random.default_rng(0).normal(-0.2, 0.02, 192).round(6))
    ends = {way.name: look_again_by(way, clear, 0.05, 0.01) for way in WAYS}
    assert {end.verdict for end in ends.values()} == {Verdict.REGRESSED}
    for name in ("former bounds", "bounds"):
        assert (ends[name].calls, ends[name].drawings) == (6 * 32, 3 * 32)
    assert ends["sequential"].calls == 6 * 16
    still = look_again_by(WAYS[0], _drawn(np.zeros(192)), 0.05, 0.001)
    assert (still.verdict, still.calls) == (Verdict.INCONCLUSIVE, 6 * 192)


def test_the_former_bounds_took_more_where_most_samples_tie() -> None:
    """One sample in eight loses a fifth, all others tie: seven such losses are evidence now."""
    values = np.where(np.arange(192) // 8 % 8 == np.arange(192) % 8, -0.2, 0.0)
    former, now = (look_again_by(way, _drawn(values), 0.05, 0.01) for way in WAYS[:2])
    assert former.verdict is now.verdict is Verdict.REGRESSED
    assert (former.calls, now.calls) == (6 * 104, 6 * 56)


def test_the_page_is_made_of_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The tables that the JSON file gives are those that stand in the page."""
    assert main(["--read"]) == 0
    assert capsys.readouterr().out.strip() in PAGE.read_text(encoding="utf-8")
