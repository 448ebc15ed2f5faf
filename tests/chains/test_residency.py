"""Models that take turns on a device, and models that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains import Chain, Crew, Game, RoleRunner, grow_together
from pytest_cepbench.chains.residency import Residency
from pytest_cepbench.errors import DeviceMemoryError
from pytest_cepbench.models.roles import BoundRole
from pytest_cepbench.store import Store
from tests.chains.roles import PLAN, Painter, Teller, bound, samples


@dataclass
class Device:
    """What lies on a device, and what came and went."""

    here: set[str] = field(default_factory=set)
    most: int = 0
    full: bool = False
    moves: list[str] = field(default_factory=list)

    def put(self, name: str, *, there: bool) -> None:
        """A model comes or goes."""
        if there and self.full:
            raise MemoryError
        self.moves.append(f"{'+' if there else '-'}{name}")
        (self.here.add if there else self.here.discard)(name)
        self.most = max(self.most, len(self.here))


@dataclass
class MovingTeller(Teller):
    """A describer whose weights can wait in host memory."""

    on: Device = field(default_factory=Device)

    def move(self, device: str) -> None:
        """Come or go."""
        self.on.put("describer", there=device != "cpu")


@dataclass
class MovingPainter(Painter):
    """A generator of the same kind."""

    on: Device = field(default_factory=Device)

    def move(self, device: str) -> None:
        """Come or go."""
        self.on.put("generator", there=device != "cpu")


def loaded_on(device: Device, role: Any, model: Any, where: str = "cuda") -> BoundRole:
    """A model bound to an accelerator, or elsewhere; loading puts it there."""

    def load() -> Any:
        device.put(role, there=True)
        return model

    return bound(role, model, load=load, provenance={"device": where})


def _artifacts(chains: Sequence[Chain]) -> list[list[str]]:
    """What came of each sample."""
    return [[link.digest for link in chain.links] for chain in chains]


def team_on(device: Device, store: Store, *, swap: bool) -> Crew:
    """A describer and a generator on one device."""
    residency = Residency(swap=swap)
    describer = loaded_on(device, "describer", MovingTeller(on=device))
    generator = loaded_on(device, "generator", MovingPainter(on=device))
    return Crew(
        RoleRunner(describer, store, residency), RoleRunner(generator, store, residency), store
    )


@pytest.mark.parametrize("swap", [False, True], ids=["all", "swap"])
def test_models_stay_together_or_take_turns(tmp_path: Path, *, swap: bool) -> None:
    """Either way the chains are the same; each model is loaded once."""
    device = Device()
    with Store(tmp_path) as store:
        team = team_on(device, store, swap=swap)
        chains = Game(PLAN, samples(5), team).chains
        assert [runner.tally.loads for runner in (team.describer, team.generator) if runner] == [
            1,
            1,
        ]
    with Store(tmp_path / "other") as store:
        plain = Crew(
            RoleRunner(bound("describer", Teller()), store),
            RoleRunner(bound("generator", Painter()), store),
            store,
        )
        expected = Game(PLAN, samples(5), plain).chains
        assert _artifacts(chains) == _artifacts(expected)
    assert device.most == (1 if swap else 2)
    assert len(device.moves) == (7 if swap else 2)


def test_games_in_step_need_no_more_turns_than_one(tmp_path: Path) -> None:
    """Describe all, swap, draw all: the number of games does not enter."""
    device = Device()
    with Store(tmp_path) as store:
        team = team_on(device, store, swap=True)
        games = [Game(PLAN, samples(12)[low : low + 3], team) for low in (0, 3, 6, 9)]
        grow_together(games)
        assert sum(len(game.chains) for game in games) == 12
    assert len(device.moves) == 7


def test_a_model_that_cannot_move_is_loaded_again(tmp_path: Path) -> None:
    """Letting go of it is the only way to give its memory back."""
    device = Device()
    residency = Residency(swap=True)
    with Store(tmp_path) as store:
        team = Crew(
            RoleRunner(loaded_on(device, "describer", Teller()), store, residency),
            RoleRunner(loaded_on(device, "generator", Painter()), store, residency),
            store,
        )
        Game(PLAN, samples(3), team).chains  # noqa: B018 - growing is the point
        assert team.describer is not None
        assert team.describer.tally.loads == 2
        assert not team.describer.loaded


def test_a_model_that_finds_its_place_taken_is_short_of_memory(tmp_path: Path) -> None:
    """Whoever caught that may have others leave, and try again."""
    device = Device()
    with Store(tmp_path) as store:
        describer = team_on(device, store, swap=False).describer
        assert describer is not None
        assert isinstance(describer.model, MovingTeller)
        describer.leave()
        device.full = True
        with pytest.raises(DeviceMemoryError, match="has no room on cuda any more"):
            describer.model  # noqa: B018 - asking for it brings it back
        device.full = False
        assert describer.model
        assert device.here == {"describer"}


def test_models_on_several_devices_leave_each_other_alone(tmp_path: Path) -> None:
    """A describer on the CPU is in nobody's way."""
    device = Device()
    residency = Residency(swap=True)
    with Store(tmp_path) as store:
        team = Crew(
            RoleRunner(loaded_on(device, "describer", Teller(), "cpu"), store, residency),
            RoleRunner(loaded_on(device, "generator", Painter()), store, residency),
            store,
        )
        Game(PLAN, samples(3), team).chains  # noqa: B018 - growing is the point
    assert device.moves == ["+describer", "+generator"]


def test_what_lives_as_long_as_the_process_is_not_loaded_again(tmp_path: Path) -> None:
    """The object of a user's model stays: to load it anew would give the same."""
    calls: list[str] = []

    def load() -> Any:
        calls.append("load")
        return Teller()

    with Store(tmp_path) as store:
        runner = RoleRunner(bound("describer", Teller(), load=load, lasting=True), store)
        for _ in range(2):
            assert runner.model
            runner.leave()
    assert calls == ["load"]


def test_everybody_leaves_where_memory_is_wanted(tmp_path: Path) -> None:
    """And comes back when it is asked again."""
    device = Device()
    with Store(tmp_path) as store:
        team = team_on(device, store, swap=False)
        assert team.describer is not None
        Game(PLAN, samples(2), team).chains  # noqa: B018 - growing is the point
        team.describer.residency.clear()
        assert not device.here
        Game(PLAN, samples(4), team).chains  # noqa: B018 - growing is the point
        assert device.here == {"describer", "generator"}
