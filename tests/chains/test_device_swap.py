"""Models that are swapped on a device, and models that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains import ChainModels, RoleRunner, total
from pytest_cepbench.chains.growth import ChainGroup, grow_together
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import DeviceMemoryError, ModelError
from pytest_cepbench.store import Store
from tests.chains.roles import PLAN, SmallDescriber, SmallGenerator, bound, make_runners, samples


@dataclass
class Device:
    """What lies on a device, and what came and went."""

    here: set[str] = field(default_factory=set)
    most: int = 0
    full: bool = False
    broken: bool = False
    moves: list[str] = field(default_factory=list)

    def put(self, name: str, *, there: bool) -> None:
        """A model comes or goes."""
        if there and self.full:
            raise MemoryError
        if self.broken:
            raise ZeroDivisionError
        self.moves.append(f"{'+' if there else '-'}{name}")
        (self.here.add if there else self.here.discard)(name)
        self.most = max(self.most, len(self.here))


@dataclass
class Moving:
    """A model whose weights can wait in host memory. name: of its role."""

    on: Device = field(default_factory=Device)
    name = ""

    def move(self, device: str) -> None:
        """Come or go."""
        self.on.put(self.name, there=device != "cpu")


@dataclass
class MovingDescriber(Moving, SmallDescriber):
    """A describer."""

    name = "describer"


@dataclass
class MovingGenerator(Moving, SmallGenerator):
    """A generator."""

    name = "generator"


def runner_on(
    device: Device,
    store: Store,
    residency: DeviceSwap,
    role: Any,
    model: Any,
    where: str = "cuda",
) -> RoleRunner:
    """A model bound to an accelerator, or elsewhere; loading puts it there."""

    def load() -> Any:
        device.put(role, there=True)
        return model

    own = bound(role, model, load=load, provenance={"device": where})
    return RoleRunner(own, store, ModelHandle(own, residency))


def models_on(device: Device, store: Store, *, swap: bool) -> ChainModels:
    """A describer and a generator on one device."""
    residency = DeviceSwap(swap=swap)
    return ChainModels(
        runner_on(device, store, residency, "describer", MovingDescriber(on=device)),
        runner_on(device, store, residency, "generator", MovingGenerator(on=device)),
        store,
    )


@pytest.mark.parametrize("swap", [False, True], ids=["all", "swap"])
def test_models_stay_together_or_take_turns(tmp_path: Path, *, swap: bool) -> None:
    """Either way the chains are the same; each model is loaded once. Describe all, swap, draw all:
    groups that grow in step swap no more than one.
    """
    device = Device()
    with Store(tmp_path) as store:
        runners = models_on(device, store, swap=swap)
        groups = [ChainGroup(PLAN, samples(12)[low : low + 3], runners) for low in (0, 3, 6, 9)]
        grow_together(groups)
        chains = [chain for group in groups for chain in group.chains]
        assert [own.tally.loads for own in (runners.describer, runners.generator) if own] == [1, 1]
    with Store(tmp_path / "other") as store:
        expected = ChainGroup(PLAN, samples(12), make_runners(store).models()).chains
    made, wanted = (
        [[link.digest for link in chain.links] for chain in own] for own in (chains, expected)
    )
    assert made == wanted
    assert device.most == (1 if swap else 2)
    assert len(device.moves) == (7 if swap else 2)


@pytest.mark.parametrize(("where", "loads"), [("cuda", 2), ("cpu", 1)])
def test_a_model_that_cannot_move_is_loaded_again(tmp_path: Path, where: str, loads: int) -> None:
    """Letting go of it is the only way to give its memory back; on the CPU it takes none of the
    device, and stays.
    """
    device = Device()
    residency = DeviceSwap(swap=True)
    with Store(tmp_path) as store:
        runners = ChainModels(
            runner_on(device, store, residency, "describer", SmallDescriber(), where),
            runner_on(device, store, residency, "generator", SmallGenerator()),
            store,
        )
        ChainGroup(PLAN, samples(3), runners).chains  # noqa: B018 - growing is the point
        assert runners.describer is not None
        assert runners.describer.tally.loads == loads
        assert runners.describer.loaded == (where == "cpu")
    assert device.moves == ["+describer", "+generator"] * loads


def test_a_model_that_finds_its_place_taken_is_short_of_memory(tmp_path: Path) -> None:
    """The caller may unload other models, and try again."""
    device = Device()
    with Store(tmp_path) as store:
        describer = models_on(device, store, swap=False).describer
        assert describer is not None
        assert isinstance(describer.model, MovingDescriber)
        describer.handle.unload()
        device.full = True
        with pytest.raises(DeviceMemoryError, match="has no room on cuda any more"):
            describer.model  # noqa: B018 - asking for it brings it back
        device.full, device.broken = False, True
        with pytest.raises(ZeroDivisionError):  # a bug is no lack of memory
            describer.model  # noqa: B018 - as above
        device.broken = False
        describer.handle.unload()  # it is in host memory: nothing to do
        assert describer.model
        assert device.here == {"describer"}


def test_roles_that_share_a_model_load_and_move_it_as_one(tmp_path: Path) -> None:
    """A unified model takes no turns with itself."""
    device, residency = Device(), DeviceSwap(swap=True)

    class Unified(MovingDescriber):
        """Describes, draws, and moves as one."""

        def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
            """As a generator does."""
            return SmallGenerator().generate(texts, seeds)

    with Store(tmp_path) as store:
        describer = runner_on(device, store, residency, "describer", Unified(on=device))
        other = bound("generator", SmallGenerator(), load=describer.bound.load)
        generator = RoleRunner(other, store, describer.handle)
        runners = ChainModels(describer, generator, store)
        chains = ChainGroup(PLAN, samples(3), runners).chains
    assert all(chain.failure is None for chain in chains)
    assert device.moves == ["+describer"]
    assert total(own.tally for own in (describer, generator)).loads == 1


def test_a_model_is_not_loaded_again_where_that_changes_nothing(store: Store) -> None:
    """The object of a user's model stays: to load it anew would give the same. Of one that cannot
    be loaded every case would wait for the same fault; only memory may be there another time.
    """
    tries: list[str] = []

    def load() -> Any:
        tries.append("load")
        if fault:
            raise fault
        return SmallDescriber()

    for fault, expected in (
        (None, 1),
        (ModelError("no server"), 1),
        (DeviceMemoryError("full"), 2),
    ):
        tries.clear()
        runner = RoleRunner(bound("describer", SmallDescriber(), load=load, lasting=True), store)
        for _ in range(2):
            if fault:
                with pytest.raises(ModelError, match=str(fault)):
                    runner.model  # noqa: B018 - asking for it loads it
            else:
                assert runner.model
                runner.handle.unload()
        assert len(tries) == expected
