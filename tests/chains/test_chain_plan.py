"""The shape of a chain and the seeds of its steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.chains.chain import derive_seed

IDS = st.text(st.characters(codec=None), max_size=10)
STEPS = st.tuples(st.integers(0, 2**40), IDS, st.integers(1, 99))


@pytest.mark.parametrize(("start", "turns"), [("image", "DGDGDG"), ("text", "GDGDGD")])
def test_describing_and_drawing_take_turns(start: str, turns: str) -> None:
    """An image is described first, a text is drawn first; T iterations are 2T generations."""
    plan = ChainPlan(start, 6, "", "")  # type: ignore[arg-type] # one of the two words
    assert plan.iterations == 3
    assert "".join("DG"[not plan.describes(g)] for g in range(1, 7)) == turns


@given(STEPS)
def test_seeds_fit_everywhere(step: tuple[int, str, int]) -> None:
    """Below 2**32, for any sample id, and the same at every call."""
    assert 0 <= derive_seed(*step) < 2**32
    assert derive_seed(*step) == derive_seed(*step)


@given(STEPS, STEPS)
def test_every_step_has_a_seed_of_its_own(
    first: tuple[int, str, int], second: tuple[int, str, int]
) -> None:
    """Another run seed, sample or generation is another seed (one chance in four billion aside)."""
    assert (derive_seed(*first) == derive_seed(*second)) == (first == second)


def test_seeds_never_change() -> None:
    """Stored results are found by them, over versions and machines."""
    assert [derive_seed(0, "a.png", 1), derive_seed(7, "cats/é.png", 6)] == [3655646949, 1571072722]
