"""The game of a shard: grown when it is first needed, once, and again where images were lost."""

from __future__ import annotations

import shutil

import pytest

from pytest_cepbench.chains import Chain, ChainGroup, ChainModels
from pytest_cepbench.errors import DamagedChainsError, StoreError
from pytest_cepbench.store import Store
from tests.chains.roles import PLAN, Painter, Teller, crew, inputs_of, samples


def _game(store: Store, teller: Teller, painter: Painter) -> ChainGroup:
    team = crew(store, teller, painter)
    return ChainGroup(PLAN, samples(3), ChainModels(team.describer, team.generator, store))


def test_nobody_is_asked_before_the_chains_are_needed(store: Store) -> None:
    """Then they are grown once, however often they are read."""
    teller, painter = Teller(), Painter()
    game = _game(store, teller, painter)
    assert inputs_of(teller, painter) == 0
    assert [chain.sample.id for chain in game.chains] == ["s00", "s01", "s02"]
    assert game.read(len) == 3
    assert game.chains[0] is game.chains[0]
    assert inputs_of(teller, painter) == 3 * PLAN.generations


def test_what_is_made_of_the_chains_is_handed_through(store: Store) -> None:
    """Whatever it is; errors that are not damage pass as they are."""
    game = _game(store, Teller(), Painter())
    assert game.read(lambda chains: {c.sample.id: len(c.links) for c in chains}) == {
        "s00": 5, "s01": 5, "s02": 5,
    }  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        game.read(lambda _: 1 // 0)


def test_damage_that_a_reader_meets_is_mended(store: Store) -> None:
    """Only the lost drawing is made again, and the reader sees whole chains."""
    painter = Painter()
    game = _game(store, Teller(), painter)
    before = [link for chain in game.chains for link in chain.links]
    lost = game.chains[2].links[4]
    store.image_path(lost.digest).unlink()
    seen = 0

    def use(chains: object) -> int:
        nonlocal seen
        seen += 1
        if store.get_image(lost.digest) is None:
            assert lost.key is not None
            raise DamagedChainsError([lost.key])
        return seen

    drawn = inputs_of(painter)
    assert game.read(use) == 2
    assert inputs_of(painter) == drawn + 1
    assert [link for chain in game.chains for link in chain.links] == before


def test_images_that_keep_getting_lost_end_in_an_error(store: Store) -> None:
    """A dying disk is named as such instead of being tried for ever."""
    teller, painter = Teller(), Painter()
    game = _game(store, teller, painter)
    tries = 0

    def use(chains: list[Chain]) -> None:
        nonlocal tries
        tries += 1
        shutil.rmtree(store.root / "images")
        (store.root / "images").mkdir()
        raise DamagedChainsError([str(chains[0].links[2].key)])

    with pytest.raises(StoreError, match=r"keep getting lost: is the disk failing\?"):
        game.read(use)  # type: ignore[arg-type] # a list is what it gets
    assert tries <= PLAN.generations + 4
