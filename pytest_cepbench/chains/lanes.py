"""Growth in lanes: while one role works on a part of the chains, other devices work on other parts.

A lane is a part of a group's chains, and passes through the models of its generations as a stage on
each model's device. Features are made as soon as their artifacts are stored. Which samples share a
batch does not depend on what is done at the same time: lanes are cut where batches end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import lcm
from threading import Lock

from pytest_cepbench.chains.batching import LARGEST
from pytest_cepbench.chains.chain import Chain
from pytest_cepbench.chains.chain_group import ChainGroup
from pytest_cepbench.chains.chain_plan import ChainPlan
from pytest_cepbench.chains.growth import ChainModels, grow_generation, load_images
from pytest_cepbench.chains.preparation import LoadedImages
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.stages import Stage, run_stages

_ONE_DEVICE = re.compile(r"cpu|cuda:\d+|mps|xpu:\d+")

_GROWING, _READING = 0, 1
"""What comes first on a device: growing, since other devices wait for it."""


@dataclass(frozen=True)
class Reading:
    """Features of chains that are made as soon as the artifacts of a generation are stored.

    runner: of the model that makes them.
    generations: rising, 0 for the start.
    read: makes those of chains at a generation; on the thread of the model's device, for the chains
        of a lane by rising generation.
    """

    runner: RoleRunner
    generations: tuple[int, ...]
    read: Callable[[Sequence[Chain], int], None]


@dataclass(frozen=True)
class LaneGroup:
    """A group of chains that is grown in lanes, and what is read of it meanwhile."""

    group: ChainGroup
    readings: Sequence[Reading]


def device_of(runner: RoleRunner) -> str | None:
    """The device that a role's calls wait for, one call after the other.

    A model behind a server has the server to itself, as far as this process knows. None where the
    device has no plain name: the model may lie on several.
    """
    name = runner.handle.device
    if name == "server":
        return f"server {id(runner.handle)}"
    name = f"{name}:0" if name in ("cuda", "xpu") else name
    return name if _ONE_DEVICE.fullmatch(name) else None


def can_overlap(runners: Iterable[RoleRunner]) -> bool:
    """Whether roles lie on different devices, so that they can work at the same time."""
    devices = {device_of(runner) for runner in runners}
    return len(devices) > 1 and None not in devices


def count_lanes(plan: ChainPlan, models: ChainModels, samples: int) -> int:
    """How many lanes the chains of so many samples of one group make."""
    size = lane_size(plan, models)
    return sum(-(-len(chunk) // size) for chunk in models.chunks(range(samples)))


def lane_size(plan: ChainPlan, models: ChainModels) -> int:
    """Chains of a lane: as few as fill the batches of every model that grows them.

    It may exceed a chunk of chains that are grown together, which is one lane then.
    """
    generations = range(1, plan.generations + 1)
    return lcm(*{_batch_size(models.runner(plan, generation)) for generation in generations})


def _batch_size(runner: RoleRunner) -> int:
    """Inputs of a call; the most that there may be, where larger batches are tried."""
    size = runner.caller.size
    return max(size, LARGEST) if runner.bound.grows else size


def grow_in_lanes(groups: Sequence[LaneGroup]) -> None:
    """Grow the chains of groups, and make their features, each model on its device's thread.

    Raises what growing chains and reading them raises, when no model is called any more; groups
    begin anew then, with what the store has. Damaged images are not made again: DamagedChainsError
    comes too, and `ChainGroup.read` repairs them.
    """
    try:
        run_stages(stages for lane_group in groups for stages in _first_stages(lane_group))
    except BaseException:
        for lane_group in groups:
            lane_group.group.abandon()
        raise
    for lane_group in groups:
        lane_group.group.complete()


def _first_stages(lane_group: LaneGroup) -> Iterator[list[Stage]]:
    """The first stages of each lane of a group, which is begun when the first is taken."""
    group = lane_group.group
    chunks = group.begin()
    size = lane_size(group.plan, group.models)
    parts = [chunk[low : low + size] for chunk in chunks for low in range(0, len(chunk), size)]
    lanes = [_Lane(group, number, chains) for number, chains in enumerate(parts)]
    for reading in lane_group.readings:
        for neighbors in _fill_batches(lanes, _batch_size(reading.runner)):
            waiting = _WaitingReading(reading, neighbors)
            for lane in neighbors:
                lane.readings.append(waiting)
    for lane in lanes:
        yield lane.first_stages()


def _fill_batches(lanes: Sequence[_Lane], size: int) -> Iterator[list[_Lane]]:
    """The lanes in parts of neighbors whose chains fill batches of a size."""
    part: list[_Lane] = []
    chains = 0
    for lane in lanes:
        part.append(lane)
        chains += len(lane.chains)
        if chains % size == 0:
            yield part
            part = []
    if part:
        yield part


class _Lane:
    """Neighboring chains of a group. readings: which wait for its artifacts."""

    def __init__(self, group: ChainGroup, number: int, chains: Sequence[Chain]) -> None:
        self.chains = chains
        self.number = number
        self.readings: list[_WaitingReading] = []
        self._group = group

    def first_stages(self) -> list[Stage]:
        """The stages that can begin at once."""
        reached = self._group.reached
        readable = [stage for at in range(reached) for stage in self._read(at)]
        return readable + self._continue(reached)

    def _continue(self, reached: int) -> list[Stage]:
        """The stages that can begin when the artifacts of a generation are there."""
        stages = self._read(reached)
        plan, models = self._group.plan, self._group.models
        if reached < plan.generations:
            generation = reached + 1
            order = (_GROWING, generation, self.number)
            device = _named_device(models.runner(plan, generation))
            if plan.describes(generation):
                load = partial(self._load, generation, device, order)
                stages.append(Stage(f"inputs of {device}", order, load))
            else:
                stages.append(Stage(device, order, partial(self._grow, generation, device)))
        return stages

    def _load(self, generation: int, device: str, order: tuple[int, ...]) -> list[Stage]:
        loaded = load_images(self._group.plan, generation, self.chains, self._group.models)
        grow = partial(self._grow, generation, device, loaded)
        return [Stage(device, order, grow, bounded=True)]

    def _grow(
        self, generation: int, device: str, loaded: LoadedImages | None = None
    ) -> list[Stage]:
        group = self._group
        add = grow_generation(group.plan, generation, self.chains, group.models, loaded)

        def settle() -> list[Stage]:
            add()
            return self._continue(generation)

        return [Stage(f"results of {device}", (), settle, bounded=True, stores=True)]

    def _read(self, generation: int) -> list[Stage]:
        return [stage for reading in self.readings for stage in reading.reached(generation)]


class _WaitingReading:
    """A reading of neighboring lanes, which waits for all of them to read in whole batches."""

    def __init__(self, reading: Reading, lanes: Sequence[_Lane]) -> None:
        self._reading = reading
        self._lanes = lanes
        self._missing = dict.fromkeys(reading.generations, len(lanes))
        self._lock = Lock()

    def reached(self, generation: int) -> list[Stage]:
        """A lane has its artifacts of a generation: the stage that can begin now, if any."""
        with self._lock:
            missing = self._missing.get(generation, 0) - 1
            self._missing[generation] = missing
        if missing:
            return []
        order = (_READING, generation, self._lanes[0].number)
        device = _named_device(self._reading.runner)
        return [Stage(device, order, partial(self._read, generation))]

    def _read(self, generation: int) -> list[Stage]:
        chains = [chain for lane in self._lanes for chain in lane.chains]
        with self._reading.runner.ahead():
            self._reading.read(chains, generation)
        return []


def _named_device(runner: RoleRunner) -> str:
    device = device_of(runner)
    assert device is not None  # as `can_overlap` said
    return device
