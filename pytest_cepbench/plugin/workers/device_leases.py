"""Devices and cores of each worker: one accelerator, or a share of the processor's cores.

A lease is part of what xdist starts a worker with, so the worker that replaces a crashed one has
the same. Numbers of workers are no numbers of devices: the replacement of gw2 is gw4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.models.system_limits import THREADS

if TYPE_CHECKING:
    from pytest_cepbench.models.model_spec import ModelSpec

_SUITE = "suite.toml"

_SPARE = 1.2  # of the weights: what a model works on lies beside them


@dataclass(frozen=True)
class Leases:
    """The devices and cores of workers.

    variables: of each worker's environment, in the order of workers.
    lines: for the header.
    """

    variables: tuple[Mapping[str, str], ...] = ()
    lines: tuple[str, ...] = ()


def concerns(config: pytest.Config, settings: RunSettings) -> bool:
    """Whether a run gates models, as far as can be known before anything is collected.

    Workers get their environment, and xdist its scheduler, before collection. Where models are
    named that is plain; else a suite.toml beside what is to be run, or up to two folders below it,
    tells. Where a suite lies deeper and names its own models, xdist schedules its cases in its own
    way: the numbers are the same, models may be loaded more often.
    """
    return settings.names_models or any(map(_near_suite, _places(config)))


def _places(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        place = config.invocation_params.dir / argument.partition("::")[0]
        yield place if place.is_dir() else place.parent


def _near_suite(folder: Path) -> bool:
    skipped = (".*", "node_modules", "venv")
    level = [folder]
    for _ in range(3):
        if any((place / _SUITE).is_file() for place in level):
            return True
        level = [
            Path(entry.path)
            for place in level
            for entry in _entries(place)
            if entry.is_dir() and not any(fnmatch(entry.name, name) for name in skipped)
        ]
    return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:  # collection says what is wrong with it
        return []


# -- leases ----------------------------------------------------------------------------------------


def plan_leases(config: pytest.Config, settings: RunSettings) -> Leases:
    """What each of the workers that are about to start may use; nothing where none are."""
    tx = config.getoption("tx", None)
    if config.option.collectonly or not tx or config.getoption("dist") == "no":
        return Leases()
    from execnet import XSpec
    from xdist.workermanage import parse_tx_spec_config

    specs = [XSpec(text) for text in parse_tx_spec_config(config)]
    local = [spec for spec in specs if spec.popen and not spec.via]
    if not local or not concerns(config, settings):
        return Leases()
    own: list[dict[str, str]] = [{} for _ in specs]
    lines = list(_lease_devices(specs, own, settings))
    _share_cores(specs, own)
    return Leases(tuple(own), tuple(lines))


def apply_leases(leases: Leases, specs: Sequence[Any]) -> None:
    """Put the leases into what xdist is about to start."""
    for spec, variables in zip(specs, leases.variables, strict=False):
        spec.env.update(variables)


def _lease_devices(
    specs: Sequence[Any], own: Sequence[dict[str, str]], settings: RunSettings
) -> Iterator[str]:
    """One device for each worker, the freest first, in turn where there are more workers."""
    from pytest_cepbench.models.system_limits import visible_devices

    placed = _placed(settings)
    pinned = next((text for text, device in placed.items() if device.startswith("cuda:")), None)
    if pinned is not None:
        yield f"workers share all devices, since {pinned} names its own"
        return
    if placed and set(placed.values()) == {"cpu"}:
        yield "workers share all devices, since every model named is on the cpu"
        return
    devices = sorted(visible_devices(), key=lambda device: -(device.free or 0))
    leased = []
    for index, (spec, variables) in enumerate(zip(specs, own, strict=True)):
        if devices and spec.popen and not spec.via and devices[0].variable not in spec.env:
            device = devices[index % len(devices)]
            variables[device.variable] = device.token
            leased.append(f"{spec.id or f'gw{index}'} on {device.name} ({device.token})")
    if leased:
        yield ", ".join(leased)


def _share_cores(specs: Sequence[Any], own: Sequence[dict[str, str]]) -> None:
    """Several workers with as many threads as there are cores make all of them slower."""
    from pytest_cepbench.models.system_limits import usable_cores

    if THREADS in os.environ or len(specs) < 2:
        return
    share = str(max(1, usable_cores() // len(specs)))
    for spec, variables in zip(specs, own, strict=True):
        if spec.popen and THREADS not in spec.env:
            variables[THREADS] = share


def _placed(settings: RunSettings) -> dict[str, str]:
    """The device that each named model's spec asks for, "auto" where it asks for none."""
    return {spec.text: spec.params.get("device", "auto") for spec in _named(settings)}


def _named(settings: RunSettings) -> list[ModelSpec]:
    from pytest_cepbench.models.model_spec import parse_spec

    model = [] if settings.model is None else [settings.model]
    texts = [*model, *settings.roles.values(), *settings.encoders.values()]
    return [parse_spec(text) for text in texts]


# -- how many --------------------------------------------------------------------------------------


def count_workers(settings: RunSettings) -> tuple[int, str]:
    """How many workers this machine has room for, and why, for people.

    One for each visible device whose free memory holds the weights of the models that were named
    and a fifth more; without a device one for each core, as far as they fit into free memory. At
    least one. Raises CepError for a spec that is wrong.
    """
    from pytest_cepbench.models.system_limits import visible_devices

    devices = visible_devices()
    if devices and set(_placed(settings).values()) != {"cpu"}:
        need = _need(settings, "cuda")
        free = [device for device in devices if device.free is None or device.free >= need]
        fit = f"with {_gib(need)} free for the weights" if need else "visible"
        return max(1, len(free)), f"{len(free)} of {len(devices)} devices {fit}"
    from pytest_cepbench.models.system_limits import free_memory, usable_cores

    need, cores, memory = _need(settings, "cpu"), usable_cores(), free_memory()
    if not need or memory is None or memory // need >= cores:
        return cores, f"{cores} cores"
    return max(1, memory // need), f"{_gib(memory)} free, {_gib(need)} each for the weights"


def _need(settings: RunSettings, device: str) -> int:
    """Bytes that the models of one worker need; 0 where nothing is known of any."""
    from pytest_cepbench.models.registry import weights_bytes

    sizes = [weights_bytes(spec, device) or 0 for spec in _named(settings)]
    together = max(sizes, default=0) if settings.residency == "swap" else sum(sizes)
    return int(_SPARE * together)


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
