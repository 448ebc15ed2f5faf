"""Devices and cores of each worker: its accelerators, or a share of the processor's cores.

A worker gets as many accelerators as its models need, or as `--cep-devices-per-worker` says.

A lease is part of what xdist starts a worker with, so the worker that replaces a crashed one has
the same. Numbers of workers are no numbers of devices: the replacement of gw2 is gw4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.plugin.cases import SUITE_FILE, walk
from pytest_cepbench.plugin.options import worker_specs

if TYPE_CHECKING:
    from pytest_cepbench.models.devices import Device
    from pytest_cepbench.models.spec import ModelSpec

_GATES = pytest.StashKey[bool]()


class Leases(NamedTuple):
    """The devices and cores of workers.

    variables: of each worker's environment, in the order of workers.
    lines: for the header.
    """

    variables: tuple[Mapping[str, str], ...] = ()
    lines: tuple[str, ...] = ()


def concerns(config: pytest.Config, settings: RunSettings) -> bool:
    """Whether a run gates models, as far as can be known before anything is collected.

    Workers get their environment, and xdist its scheduler, before collection. Where models are
    named that is plain; else a suite.toml where pytest will look tells.
    """
    if _GATES not in config.stash:  # three hooks ask, and a large tree is looked through once
        config.stash[_GATES] = settings.names_models or any(
            SUITE_FILE in names for place in places(config) for _, names in walk(config, place)
        )
    return config.stash[_GATES]


def places(config: pytest.Config) -> Iterator[Path]:
    """The folders of the arguments: themselves, or those that they lie in."""
    for argument in config.args:
        place = config.invocation_params.dir / argument.partition("::")[0]
        yield place if place.is_dir() else place.parent


# -- leases ----------------------------------------------------------------------------------------


def plan_leases(config: pytest.Config, settings: RunSettings) -> Leases:
    """What each of the workers that are about to start may use; nothing where none are.

    Raises SpecError where there are fewer devices than a worker is to have.
    """
    tx = config.getoption("tx", None)
    if config.option.collectonly or not tx or config.getoption("dist") == "no":
        return Leases()
    from execnet import XSpec

    specs = [XSpec(text) for text in worker_specs(config)]
    local = [spec for spec in specs if spec.popen and not spec.via]
    if not local or not concerns(config, settings):
        return Leases()
    own: list[dict[str, str]] = [{} for _ in specs]
    lines = list(_lease_devices(specs, own, settings))
    # Several workers with as many threads as there are cores make all of them slower.
    from pytest_cepbench.models.devices import THREADS, usable_cores

    if THREADS not in os.environ and len(specs) > 1:
        share = str(max(1, usable_cores() // len(specs)))
        for spec, variables in zip(specs, own, strict=True):
            if spec.popen and THREADS not in spec.env:
                variables[THREADS] = share
    return Leases(tuple(own), tuple(lines))


def _lease_devices(
    specs: Sequence[Any], own: Sequence[dict[str, str]], settings: RunSettings
) -> Iterator[str]:
    """A group of devices for each worker, the freest first, in turn where there are more workers.

    Raises SpecError where there are fewer devices than a worker is to have.
    """
    from pytest_cepbench.models.devices import visible_devices

    placed = _placed(settings)
    pinned = [text for text, device in placed.items() if device.startswith("cuda:")]
    if pinned and settings.devices_per_worker is None:
        yield f"workers share all devices, since {pinned[0]} names its own"
        return
    if placed and set(placed.values()) == {"cpu"}:
        yield "workers share all devices, since every model named is on the cpu"
        return
    devices = visible_devices()
    groups = group_devices(settings, devices)
    for text in pinned:
        if int(placed[text].removeprefix("cuda:")) >= groups.size:
            raise SpecError(
                f"model spec {text!r}: {placed[text]} is not among the {groups.size} device(s) of "
                "a worker, which count from cuda:0. Give a larger --cep-devices-per-worker, or "
                "leave device out"
            )
    leased = []
    for index, (spec, variables) in enumerate(zip(specs, own, strict=True)):
        if groups.members and spec.popen and not spec.via and devices[0].variable not in spec.env:
            group = groups.members[index % len(groups.members)]
            variables[devices[0].variable] = ",".join(device.token for device in group)
            names = " and ".join(f"{device.name} ({device.token})" for device in group)
            leased.append(f"{spec.id or f'gw{index}'} on {names}")
    if leased:
        yield ", ".join(leased)
        yield from filter(None, [groups.why])


def _placed(settings: RunSettings) -> dict[str, str]:
    """The device that each named model's spec asks for, "auto" where it asks for none."""
    return {spec.text: spec.params.get("device", "auto") for spec in _named(settings)}


def _named(settings: RunSettings) -> list[ModelSpec]:
    from pytest_cepbench.models.spec import parse_spec

    model = [] if settings.model is None else [settings.model]
    texts = [*model, *settings.roles.values(), *settings.encoders.values()]
    return [parse_spec(text) for text in texts]


# -- groups of devices -----------------------------------------------------------------------------


class DeviceGroups(NamedTuple):
    """The visible devices, divided among workers.

    size: devices of each group.
    members: the groups, the freest first; devices that fill no group are in none.
    fitting: how many of the groups have room for the models that were named.
    need: bytes that these models need, of one worker.
    why: for the header, why there are several in a group.
    """

    size: int
    members: tuple[tuple[Device, ...], ...]
    fitting: int
    need: int
    why: str = ""


def group_devices(settings: RunSettings, devices: Sequence[Device]) -> DeviceGroups:
    """Divide devices into groups, each with room for the models that were named.

    As large as the settings say; else the smallest with which one has room, and single devices
    where more would not help. Raises SpecError where there are fewer devices than the settings say.
    """
    from pytest_cepbench.models.devices import (
        fits,
        measure_footprints,
        needed_memory,
        usable_together,
    )

    models, swap = measure_footprints(_named(settings)), settings.residency == "swap"
    asked, most = settings.devices_per_worker, usable_together(devices)
    if asked is not None and asked > most:
        source = settings.sources["devices-per-worker"]
        if devices and all(device.token.startswith("MIG-") for device in devices):
            raise SpecError(
                f"{source} {asked}: a process can use one MIG instance only; give 1, or leave it "
                "out"
            )
        count = len(devices)
        visible = {0: "no device is", 1: "1 device is"}.get(count, f"{count} devices are")
        raise SpecError(
            f"{source} {asked}: {visible} visible here. Give at most as many, make more visible "
            "(CUDA_VISIBLE_DEVICES), or leave it out"
        )
    freest = sorted(devices, key=lambda device: -(device.free or 0))

    def divide(size: int) -> tuple[tuple[Device, ...], ...]:
        starts = range(0, len(freest) - size + 1, size)
        return tuple(tuple(freest[start : start + size]) for start in starts)

    # A model that a map divides may still put parts elsewhere than on devices; any other needs one
    # device that is large enough.
    fewest = max(1, most) if any(model.divided for model in models) else 1
    roomy = (n for n in range(1, most + 1) if any(fits(models, g, swap=swap) for g in divide(n)))
    size = asked or next(roomy, fewest)
    groups, need, why = divide(size), needed_memory(models, swap=swap), ""
    if size > 1 and asked is None:
        why = (
            f"{size} devices for each worker: its models need {gibibytes(need)}, more than one has"
        )
    fitting = sum(fits(models, group, swap=swap) for group in groups)
    return DeviceGroups(size, groups, fitting, need, why)


def gibibytes(count: int) -> str:
    """Bytes, for people."""
    return f"{count / (1 << 30):.1f} GiB"


# -- how many --------------------------------------------------------------------------------------


def count_workers(settings: RunSettings) -> tuple[int, str]:
    """How many workers this machine has room for, and why, for people.

    One for each group of visible devices whose free memory holds the weights of the models that
    were named and a fifth more; without a device one for each core, as far as they fit into free
    memory. At least one. Raises CepError for a spec that is wrong, and as `group_devices`.
    """
    from pytest_cepbench.models.devices import (
        free_memory,
        measure_footprints,
        needed_memory,
        usable_cores,
        visible_devices,
    )

    devices = visible_devices()
    on_devices = set(_placed(settings).values()) != {"cpu"}
    if on_devices and (devices or settings.devices_per_worker is not None):
        groups = group_devices(settings, devices)
        fit = f"with {gibibytes(groups.need)} free for the weights" if groups.need else "visible"
        of = f"{len(devices)} devices"
        if groups.size > 1:
            of = f"{len(groups.members)} groups of {groups.size} devices"
        return max(1, groups.fitting), f"{groups.fitting} of {of} {fit}"
    cores, memory = usable_cores(), free_memory()
    models = measure_footprints(_named(settings), "cpu")
    need = needed_memory(models, swap=settings.residency == "swap")
    if not need or memory is None or memory // need >= cores:
        return cores, f"{cores} cores"
    why = f"{gibibytes(memory)} free, {gibibytes(need)} each for the weights"
    return max(1, memory // need), why
