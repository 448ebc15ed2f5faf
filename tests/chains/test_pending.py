"""Chains as far as the store has them, and the steps that they still need, without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_cepbench.chains import ChainModels, ChainPlan, RoleRunner
from pytest_cepbench.chains.growth import ChainGroup, PendingChain, look_ahead
from pytest_cepbench.models.protocols import Model
from pytest_cepbench.store import Store
from tests.chains.roles import PLAN, TEXT_PLAN, SmallDescriber, SmallGenerator, bound, samples

COUNT = 3

PLANS = pytest.mark.parametrize("plan", [PLAN, TEXT_PLAN], ids=["image-first", "text-first"])


def _refuse() -> Model:
    pytest.fail("a model is loaded")


def _models(store: Store, describe: Callable[..., Any] | None = None) -> ChainModels:
    describer = (
        SmallDescriber(seeded=True) if describe is None else SmallDescriber(describe, seeded=True)
    )
    return ChainModels(
        RoleRunner(bound("describer", describer), store),
        RoleRunner(bound("generator", SmallGenerator()), store),
        store,
    )


def _unloadable(store: Store) -> ChainModels:
    """The same models, which may not be loaded."""
    return ChainModels(
        RoleRunner(bound("describer", SmallDescriber(seeded=True), load=_refuse), store),
        RoleRunner(bound("generator", SmallGenerator(), load=_refuse), store),
        store,
    )


def _grow(plan: ChainPlan, generations: int, count: int, models: ChainModels) -> None:
    """Have so many generations in the store."""
    chains = ChainGroup(replace(plan, generations=generations), samples(count), models).chains
    assert len(chains) == count


def _keys(pending: PendingChain) -> tuple[list[str], list[str]]:
    return [key for _, key in pending.stored], [key for _, key in pending.missing]


@PLANS
@pytest.mark.parametrize("grown", range(5))
def test_steps_in_the_store_are_found_to_the_last_generation(
    plan: ChainPlan, grown: int, store: Store
) -> None:
    """Neither more nor fewer, wherever the run before stopped; their runners are their roles'."""
    _grow(plan, grown, COUNT, _models(store))
    models = _unloadable(store)

    pending = look_ahead(plan, samples(COUNT), models, None)

    actual = [(link.digest, link.key) for p in pending for link in p.chain.links]
    for chain in pending:
        stored, missing = _keys(chain)
        assert (len(stored), len(missing)) == (grown, plan.generations - grown)
        assert stored == [link.key for link in chain.chain.links[1:]]
        assert len(chain.digests) == plan.generations + 1
        assert list(chain.digests[: grown + 1]) == [link.digest for link in chain.chain.links]
        roles = [runner for runner, _ in (*chain.stored, *chain.missing)]
        assert roles == [models.runner(plan, g) for g in range(1, plan.generations + 1)]
    assert len(actual) == COUNT * (grown + 1)
    whole = ChainGroup(plan, samples(COUNT), _models(store)).chains
    kept = [(link.digest, link.key) for chain in whole for link in chain.links[: grown + 1]]
    assert actual == kept
    if grown < plan.generations:  # the next step starts from what is there: its key is known
        nexts = [chain.missing[0][1] for chain in pending]
        assert nexts == [chain.links[grown + 1].key for chain in whole]


@PLANS
def test_steps_from_what_is_not_made_have_names_of_their_own(plan: ChainPlan, store: Store) -> None:
    """The keys that will be are not known yet; no result is ever stored under a name like that."""
    pending = look_ahead(plan, samples(COUNT), _unloadable(store), None)
    whole = ChainGroup(plan, samples(COUNT), _models(store)).chains
    made = {link.key for chain in whole for link in chain.links}
    later = {key for chain in pending for _, key in chain.missing[1:]}

    assert len(later) == COUNT * (plan.generations - 1)
    assert not later & made


def test_samples_that_start_alike_need_the_same_steps(store: Store) -> None:
    """Where no seed enters: what is sure to be the same is made once."""
    models = ChainModels(
        RoleRunner(bound("describer", SmallDescriber(), load=_refuse), store),
        RoleRunner(bound("generator", SmallGenerator(seeded=False), load=_refuse), store),
        store,
    )
    (first,) = samples(1)
    twin = replace(first, id="twin")

    pending, twin_pending = look_ahead(PLAN, [first, twin], models, None)

    assert _keys(pending) == _keys(twin_pending)
    assert pending.digests == twin_pending.digests


def test_a_failed_chain_needs_no_more(store: Store) -> None:
    """Its failure is in the store; the others go on."""

    def describe(image: Any, prompt: str, seed: int | None) -> str:
        return "" if image.getpixel((0, 0)) == bad else f"{prompt} {seed}"

    # The sample has an image.
    bad = samples(COUNT)[1].image.load().to_pil().getpixel((0, 0))  # type: ignore[union-attr]
    _grow(PLAN, 2, COUNT, _models(store, describe))

    pending = look_ahead(PLAN, samples(COUNT), _unloadable(store), None)

    assert [len(chain.missing) for chain in pending] == [2, 0, 2]
    assert [chain.chain.failed_at for chain in pending] == [None, 1, None]
    assert [len(chain.stored) for chain in pending] == [2, 0, 2]
