"""Chains that one model begins and another continues."""

from __future__ import annotations

import pytest

from pytest_cepbench.chains import Chain, ChainGroup, ChainModels, Modality, RoleRunner
from pytest_cepbench.chains.steps import recall, remember
from pytest_cepbench.errors import NotInStoreError
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    TEXT_PLAN,
    RunnerSet,
    SmallDescriber,
    SmallGenerator,
    bound,
    inputs_of,
    make_runners,
    samples,
)

COUNT = 3


def _describer_named(name: str) -> SmallDescriber:
    """A describer whose texts name it."""
    return SmallDescriber(lambda image, prompt, seed: f"{name} {prompt} {image.getpixel((0, 0))}")


def _runners(store: Store, name: str) -> tuple[RunnerSet, SmallDescriber]:
    describer = _describer_named(name)
    return make_runners(store, describer, only={"describer": {"fingerprint": name}}), describer


def _grow(runners: RunnerSet, stand_ins: dict[int, RoleRunner]) -> list[Chain]:
    places = {(PLAN.start, generation): runner for generation, runner in stand_ins.items()}
    group = ChainGroup(
        PLAN,
        samples(COUNT),
        ChainModels(runners.describer, runners.generator, runners.store, places),
    )
    return group.chains


def _link_names(
    chains: list[Chain], last: int = PLAN.generations
) -> list[list[tuple[str, str | None]]]:
    """Digest and key of every link up to a generation."""
    return [[(link.digest, link.key) for link in chain.links[: last + 1]] for chain in chains]


def test_a_stand_in_plays_its_hop_and_no_other(store: Store) -> None:
    """The first description is the other's; what follows from it is the own models'."""
    (old, old_teller), (new, new_teller) = _runners(store, "old"), _runners(store, "new")
    chains = _grow(new, {1: old.describer})
    texts = [[link.text or "" for link in chain.links] for chain in chains]
    assert all(row[1].startswith("old ") and row[3].startswith("new ") for row in texts)
    assert (inputs_of(old_teller), inputs_of(new_teller)) == (COUNT, COUNT)


def test_chains_of_the_other_start_are_left_alone(store: Store) -> None:
    """A hop is named by its chain's start too: both starts have a generation 2."""
    (old, old_teller), (new, _) = _runners(store, "old"), _runners(store, "new")
    stand_ins: dict[tuple[Modality, int], RoleRunner] = {("image", 2): old.describer}
    group = ChainGroup(
        TEXT_PLAN, samples(COUNT), ChainModels(new.describer, new.generator, store, stand_ins)
    )
    assert all((chain.links[2].text or "").startswith("new ") for chain in group.chains)
    assert inputs_of(old_teller) == 0


def test_a_begun_chain_is_the_same_as_the_one_it_was_taken_from(store: Store) -> None:
    """With all hops put back, every link and every key is that of the other's own chain."""
    (old, _), (new, new_teller) = _runners(store, "old"), _runners(store, "new")
    own = _grow(old, {})
    assert _link_names(_grow(new, {1: old.describer, 3: old.describer})) == _link_names(own)
    assert inputs_of(new_teller) == 0


def test_a_remembered_model_begins_chains_without_being_there(store: Store) -> None:
    """Its steps are found by what was written down of it; the model is not asked again."""
    (old, old_teller), (new, _) = _runners(store, "old"), _runners(store, "new")
    own = _grow(old, {})
    (absent,) = recall(remember(old.describer.bound))
    asked = inputs_of(old_teller)
    begun = _grow(new, {1: RoleRunner(absent, store)})
    assert _link_names(begun, 2) == _link_names(own, 2)
    assert _link_names(begun, 3) != _link_names(own, 3)
    assert inputs_of(old_teller) == asked


def test_a_chain_that_stopped_at_the_others_hop_stops_there_too(store: Store) -> None:
    """No step starts from an artifact that is missing."""
    mute = make_runners(
        store, SmallDescriber(lambda *_: ""), only={"describer": {"fingerprint": "mute"}}
    )
    own = _grow(mute, {})
    new, new_teller = _runners(store, "new")
    (absent,) = recall(remember(mute.describer.bound))
    begun = _grow(new, {1: RoleRunner(absent, store)})
    assert [(c.failure, c.failed_at) for c in begun] == [(c.failure, c.failed_at) for c in own]
    assert {c.failed_at for c in begun} == {1}
    assert inputs_of(new_teller) == 0


def test_what_is_not_stored_is_not_made_up(store: Store) -> None:
    """A remembered model that never played here raises, and nothing is stored in its name."""
    (old, _), (new, _) = _runners(store, "old"), _runners(store, "new")
    (absent,) = recall(remember(old.describer.bound))
    before = len(store)
    with pytest.raises(NotInStoreError, match="a step of the baseline's describer is not in the"):
        _grow(new, {1: RoleRunner(absent, store)})
    assert len(store) == before


def test_a_lost_image_of_a_remembered_model_is_missed(store: Store) -> None:
    """It cannot be made again, so its step counts as not stored; a fixed role's image can."""
    generator, fresh = SmallGenerator(), SmallGenerator()
    old = make_runners(store, None, generator, every={"fingerprint": "old"})
    new = make_runners(store, _describer_named("new"), fresh, every={"fingerprint": "new"})
    described = {1: old.describer}
    lost = _grow(old, {})[0].links[2]
    store.image_path(lost.digest).unlink()
    (absent,) = recall(remember(old.generator.bound))
    with pytest.raises(NotInStoreError):
        _grow(new, described | {2: RoleRunner(absent, store)})
    assert (inputs_of(generator), inputs_of(fresh)) == (2 * COUNT, 0)


def test_a_lost_image_of_a_fixed_role_is_drawn_again(store: Store) -> None:
    """The generator is there, and draws from the remembered describer's text."""
    (old, _), (new, _) = _runners(store, "old"), _runners(store, "new")
    own = _grow(old, {})
    store.image_path(own[0].links[2].digest).unlink()
    (absent,) = recall(remember(old.describer.bound))
    begun = _grow(new, {1: RoleRunner(absent, store)})
    assert _link_names(begun, 2) == _link_names(own, 2)
    assert store.get_image(own[0].links[2].digest) is not None


def test_a_role_without_a_runner_is_noticed_at_its_hop(store: Store) -> None:
    """A stand-in is enough where the role has no model: it is not needed elsewhere."""
    describer = SmallDescriber()
    runner = RoleRunner(bound("describer", describer), store)
    assert ChainModels(None, None, store, {("image", 1): runner}).runner(PLAN, 1) is runner
    with pytest.raises(AssertionError):
        ChainModels(None, None, store).runner(PLAN, 1)
