"""The devices of a machine in groups, one for each worker, as large as its models need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.models.devices import (
    Device,
    Footprint,
    fits,
    measure_footprints,
    needed_memory,
    spread,
    usable_together,
)
from pytest_cepbench.models.spec import ModelSpec


@dataclass(frozen=True)
class DeviceGroups:
    """The visible devices, divided among workers.

    size: devices of each group.
    members: the groups, the freest first; devices that fill no group are in none.
    fitting: how many of the groups have room for the models that were named.
    need: bytes that these models need, of one worker.
    lines: for the header, why there are several in a group, and what is on each.
    """

    size: int
    members: tuple[tuple[Device, ...], ...]
    fitting: int
    need: int
    lines: tuple[str, ...] = ()


def group_devices(
    settings: RunSettings, named: Sequence[ModelSpec], devices: Sequence[Device]
) -> DeviceGroups:
    """Divide devices into groups, each with room for the models of a worker.

    As large as the settings say; else the smallest with which one has room, and single devices
    where more would not help.

    named: the models that the user named. Raises SpecError where there are fewer devices than the
    settings say.
    """
    models = measure_footprints(named)
    swap = settings.residency == "swap"
    asked, most = settings.devices_per_worker, usable_together(devices)
    if asked is not None and asked > most:
        raise SpecError(_too_few(settings, asked, devices))
    size = asked or _smallest_size(models, devices, most, swap=swap)
    groups = _divide(devices, size)
    return DeviceGroups(
        size,
        groups,
        fitting=sum(fits(models, group, swap=swap) for group in groups),
        need=(need := needed_memory(models, swap=swap)),
        lines=tuple(_why(models, size, need, asked)) if size > 1 else (),
    )


def _divide(devices: Sequence[Device], size: int) -> tuple[tuple[Device, ...], ...]:
    """Groups of so many devices, the freest first."""
    order = sorted(devices, key=lambda device: -(device.free or 0))
    starts = range(0, len(order) - size + 1, size)
    return tuple(tuple(order[start : start + size]) for start in starts)


def _smallest_size(
    models: Sequence[Footprint], devices: Sequence[Device], most: int, *, swap: bool
) -> int:
    """The devices of a worker: the fewest that have room for its models; at most `most`."""
    for size in range(1, most + 1):
        if any(fits(models, group, swap=swap) for group in _divide(devices, size)):
            return size
    # A model that a map divides may still put parts elsewhere than on devices; any other needs one
    # device that is large enough.
    return max(1, most) if any(model.divided for model in models) else 1


def _too_few(settings: RunSettings, asked: int, devices: Sequence[Device]) -> str:
    source = settings.sources["devices-per-worker"]
    if devices and all(device.token.startswith("MIG-") for device in devices):
        return f"{source} {asked}: a process can use one MIG instance only; give 1, or leave it out"
    visible = {0: "no device is", 1: "1 device is"}.get(len(devices), f"{len(devices)} devices are")
    return (
        f"{source} {asked}: {visible} visible here. Give at most as many, make more visible "
        "(CUDA_VISIBLE_DEVICES), or leave it out"
    )


def _why(models: Sequence[Footprint], size: int, need: int, asked: int | None) -> Iterator[str]:
    """Why a worker has several devices, and which models share one of them."""
    if asked is None:
        needed = gibibytes(need)
        yield f"{size} devices for each worker: its models need {needed}, more than one has"
    numbers = spread(models, [0] * size)
    shown = [
        f"{model.spec} on all of them"
        if model.divided
        else f"{model.spec} on its cuda:{numbers[model.spec]}"
        for model in models
    ]
    if shown:
        yield f"on each worker {', '.join(shown)}"


def gibibytes(count: int) -> str:
    """Bytes, for people."""
    return f"{count / (1 << 30):.1f} GiB"
