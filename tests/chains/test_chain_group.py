"""The chains of a shard: grown when it is first needed, once, and again where images were lost."""

from __future__ import annotations

import shutil

import pytest

from pytest_cepbench.chains import Chain, ChainGroup, ChainModels, RoleRunner
from pytest_cepbench.errors import DamagedChainsError, StoreError
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    SmallDescriber,
    SmallGenerator,
    bound,
    inputs_of,
    make_runners,
    samples,
)


def _group(store: Store, describer: SmallDescriber, generator: SmallGenerator) -> ChainGroup:
    runners = make_runners(store, describer, generator)
    return ChainGroup(PLAN, samples(3), ChainModels(runners.describer, runners.generator, store))


def test_no_model_is_asked_before_the_chains_are_needed(store: Store) -> None:
    """Then they are grown once, however often they are read."""
    describer, generator = SmallDescriber(), SmallGenerator()
    group = _group(store, describer, generator)
    assert inputs_of(describer, generator) == 0
    assert [chain.sample.id for chain in group.chains] == ["s00", "s01", "s02"]
    assert group.read(len) == 3
    assert group.chains[0] is group.chains[0]
    assert inputs_of(describer, generator) == 3 * PLAN.generations


def test_what_is_made_of_the_chains_is_handed_through(store: Store) -> None:
    """Whatever it is; errors that are not damage pass as they are."""
    group = _group(store, SmallDescriber(), SmallGenerator())
    assert group.read(lambda chains: {c.sample.id: len(c.links) for c in chains}) == {
        "s00": 5, "s01": 5, "s02": 5,
    }  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        group.read(lambda _: 1 // 0)


def test_damage_that_a_reader_meets_is_mended(store: Store) -> None:
    """Only the lost drawing is made again, and the reader sees whole chains."""
    generator = SmallGenerator()
    group = _group(store, SmallDescriber(), generator)
    before = [link for chain in group.chains for link in chain.links]
    lost = group.chains[2].links[4]
    store.image_path(lost.digest).unlink()
    seen = 0

    def use(chains: object) -> int:
        nonlocal seen
        seen += 1
        if store.get_image(lost.digest) is None:
            assert lost.key is not None
            raise DamagedChainsError([lost.key])
        return seen

    drawn = inputs_of(generator)
    assert group.read(use) == 2
    assert inputs_of(generator) == drawn + 1
    assert [link for chain in group.chains for link in chain.links] == before


def test_images_that_keep_getting_lost_end_in_an_error(store: Store) -> None:
    """A dying disk is named as such instead of being tried for ever."""
    describer, generator = SmallDescriber(), SmallGenerator()
    group = _group(store, describer, generator)
    tries = 0

    def use(chains: list[Chain]) -> None:
        nonlocal tries
        tries += 1
        shutil.rmtree(store.root / "images")
        (store.root / "images").mkdir()
        raise DamagedChainsError([str(chains[0].links[2].key)])

    with pytest.raises(StoreError, match=r"keep getting lost: is the disk failing\?"):
        group.read(use)  # type: ignore[arg-type] # a list is what it gets
    assert tries <= PLAN.generations + 4


def test_the_largest_batch_of_any_model_sizes_the_chunks(store: Store) -> None:
    """Models that a chain lacks do not count; a group of small models on the CPU is small."""

    def runner(batch_size: int, *, small: bool) -> RoleRunner:
        return RoleRunner(
            bound("describer", SmallDescriber(), batch_size=batch_size, small=small), store
        )

    few, many = runner(4, small=True), runner(50, small=False)
    assert ChainModels(None, None, store).largest_batch == 0
    assert ChainModels(few, None, store).largest_batch == 4
    assert ChainModels(few, many, store).largest_batch == 50
    assert ChainModels(few, None, store, {("image", 1): many}).largest_batch == 50
    assert not ChainModels(None, None, store).small
    assert ChainModels(few, None, store).small
    assert not ChainModels(few, None, store, {("image", 1): many}).small
