"""What several encoders say together, and the error of it whatever they have to do with another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.agreement import agreed_verdict, upper_share

R, H, BETTER, U = Verdict.REGRESSED, Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE

COMPARED = st.sampled_from([R, H, BETTER, U])


@pytest.mark.parametrize(
    ("verdicts", "needed", "expected"),
    [
        ([R, R, H], 2, R),
        ([R, R, BETTER], 2, R),
        ([R, H, H], 2, U),
        ([R, H, H], 1, R),
        ([R, R, H], 3, U),
        ([R, R, R], 3, R),
        ([H, H, H], 2, H),
        ([H, H, U], 2, U),
        ([H, BETTER, H], 2, H),
        ([BETTER, BETTER, BETTER], 2, BETTER),
        ([H, H, Verdict.NO_BASELINE], 2, Verdict.NO_BASELINE),
        ([R, R, Verdict.INCOMPARABLE], 2, Verdict.INCOMPARABLE),
        ([R, R, Verdict.ERROR], 1, Verdict.ERROR),
    ],
)
def test_what_they_say_together(
    verdicts: Sequence[Verdict], needed: int, expected: Verdict
) -> None:
    """Regressed where enough say so, held where all do, and nothing that was not compared."""
    assert agreed_verdict(verdicts, needed) is expected


@given(st.lists(COMPARED, min_size=2, max_size=5), st.data())
def test_it_passes_only_what_every_encoder_passes(
    verdicts: list[Verdict], data: st.DataObject
) -> None:
    """The order has no say; another encoder that regressed never turns the verdict to good."""
    needed = data.draw(st.integers(1, len(verdicts)))
    verdict_of_all = agreed_verdict(verdicts, needed)
    assert agreed_verdict(data.draw(st.permutations(verdicts)), needed) is verdict_of_all
    assert (verdict_of_all in (H, BETTER)) == all(verdict in (H, BETTER) for verdict in verdicts)
    worse = [R, *verdicts[1:]]
    assert agreed_verdict(worse, needed) in (R, U)


@pytest.mark.parametrize(("needed", "encoders"), [(0, 3), (4, 3), (1, 0)])
def test_more_votes_than_encoders_are_refused(needed: int, encoders: int) -> None:
    """Nobody could regress, or everybody would."""
    with pytest.raises(ValueError, match=f"{encoders} encoders"):
        upper_share(needed, encoders)


@pytest.mark.parametrize(("needed", "encoders"), [(1, 2), (2, 2), (2, 3), (3, 3), (2, 4), (3, 5)])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_no_dependence_makes_the_case_err_more_often(
    needed: int, encoders: int, alpha: float
) -> None:
    """The worst that dependence can do, for every number of encoders that have truly dropped.

    Errors come in the largest groups that still need each other: any `needed - dropped` encoders
    of those that have not dropped err together, one group at a time, each encoder as often as its
    level allows. That attains Markov's bound, and stays within alpha.
    """
    level = alpha * upper_share(needed, encoders)
    for dropped in range(needed):
        unchanged = encoders - dropped
        groups = list(combinations(range(unchanged), needed - dropped))
        own = sum(0 in group for group in groups)  # of the groups, those with one encoder
        errs = len(groups) * (level / own)
        assert errs <= alpha * (1 + 1e-12)
    assert errs == pytest.approx(alpha)


def test_upper_bounds_at_the_whole_alpha_would_err_more_often() -> None:
    """The reason for the division: two of three err at once in up to 1.5 alpha, by such groups."""
    draws = np.random.default_rng(0).random(200_000)
    alpha = 0.05
    pairs = [(0, 1), (0, 2), (1, 2)]
    group = np.floor(draws / (alpha / 2)).astype(int)
    errs = [np.isin(group, [n for n, pair in enumerate(pairs) if who in pair]) for who in range(3)]
    assert [float(err.mean()) for err in errs] == pytest.approx([alpha] * 3, abs=0.002)
    together = (np.sum(errs, axis=0) >= 2).mean()
    assert together == pytest.approx(1.5 * alpha, abs=0.002)
