"""Processor cores, memory and accelerators of a process, and which of them each model gets.

All is found out without torch. Cores and memory are those of its control groups. NVIDIA's
accelerators are asked of nvidia-smi, else counted by their device files; AMD's are counted. Beside
a torch that was built for CPUs there are none. The caller's CUDA_VISIBLE_DEVICES or
HIP_VISIBLE_DEVICES is obeyed. Weights are counted in the precision in which they are loaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path

from pytest_cepbench.models.binding import weights_bytes
from pytest_cepbench.models.spec import ModelSpec

ROOT = Path("/")

CUDA, HIP = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"

THREADS = "OMP_NUM_THREADS"
"""What numpy, torch and tokenizers' libraries all take their number of threads from."""

DEVICE_VARIABLES = (CUDA, HIP)
"""The environment variables that restrict a process to some devices."""

_PATIENCE = 60.0  # seconds; with many sleeping devices nvidia-smi wakes them one by one

_PARENT = re.compile(r"GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-\S+)\)")
_SLICE = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-\S+)\)")


def usable_cores(root: Path = ROOT) -> int:
    """Processor cores that this process may keep busy, at least 1.

    root: where the system's own files lie.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    allowed = [cores or 1]
    for group in _groups(root):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdecimal():
            allowed.append(max(1, int(quota) // int(period)))
    return min(allowed)


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes of memory that this process could still fill, None where the system does not say.

    root: as above.
    """
    known = [
        int(line.split()[1]) * 1024
        for line in _text(root / "proc/meminfo").splitlines()
        if line.startswith("MemAvailable:")
    ]
    for group in _groups(root):
        limit, used = (_text(group / f"memory.{name}").strip() for name in ("max", "current"))
        if limit.isdecimal() and used.isdecimal():
            lines = (line.split() for line in _text(group / "memory.stat").splitlines())
            # Cached files, which the kernel gives up when memory is needed.
            cached = next((int(words[1]) for words in lines if words[0] == "inactive_file"), 0)
            known.append(max(0, int(limit) - int(used) + cached))
    return min(known, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folder of this process's control group (version 2), and those of the groups around it."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            own = mounted / line.removeprefix("0::/")
            yield from (group for group in (own, *own.parents) if group.is_relative_to(mounted))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class Device:
    """An accelerator.

    token: its name in `variable`.
    name: for people.
    free, total: bytes of its memory; None where unknown.
    variable: the environment variable that restricts a process to it.
    """

    token: str
    name: str
    free: int | None = None
    total: int | None = None
    variable: str = CUDA


def visible_devices(root: Path = ROOT) -> tuple[Device, ...]:
    """The accelerators that torch can use and the caller leaves to this process, in its order.

    Everything that asks whether there is an accelerator asks this. A device that the caller named
    keeps the caller's token (an index, a UUID, a MIG instance); others are named by UUID, which
    does not depend on CUDA's order. Memory is as of the first call.
    root: as above.
    """
    if any(os.environ.get(name, "all").strip() in ("", "-1") for name in (CUDA, HIP)):
        return ()
    with suppress(metadata.PackageNotFoundError):
        file = metadata.distribution("torch").locate_file("torch/version.py")
        lines = _text(Path(str(file))).splitlines()
        kinds = [line for line in lines if line.startswith(("cuda:", "hip:"))]
        if kinds and all(line.endswith("None") for line in kinds):  # a build without accelerators
            return ()
    devices = _nvidia(shutil.which("nvidia-smi"))
    if not devices:
        # A container may be given /dev/nvidia3 alone, which CUDA then counts as 0.
        count = len(list((root / "dev").glob("nvidia[0-9]*")))
        devices = tuple(Device(str(index), f"NVIDIA device {index}") for index in range(count))
    if not devices:
        nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
        count = sum(_text(node).strip() not in ("", "0") for node in nodes)  # 0: of a processor
        devices = tuple(Device(str(i), f"AMD device {i}", variable=HIP) for i in range(count))
    named = HIP if devices and devices[0].variable == HIP and HIP in os.environ else CUDA
    if not devices or named not in os.environ:
        return devices
    return tuple(_chosen(os.environ[named].split(","), devices, named))


def _chosen(tokens: Sequence[str], devices: Sequence[Device], variable: str) -> Iterator[Device]:
    """The devices of a list of tokens; as CUDA does, it ends before the first that is none."""
    # On a mixed machine an index means another device to CUDA than to nvidia-smi.
    same_model = len({device.name for device in devices}) == 1
    ordered = same_model or variable == HIP or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    for token in (token.strip() for token in tokens):
        if token.isdecimal():
            if int(token) >= len(devices):
                return
            device = devices[int(token)] if ordered else Device(token, f"device {token}")
        elif token.startswith(("GPU-", "MIG-")):  # may be shortened
            matches = (device for device in devices if device.token.startswith(token))
            device = next(matches, Device(token, "device"))
        else:
            return
        yield replace(device, token=token, variable=variable)


@cache
def _nvidia(tool: str | None) -> tuple[Device, ...]:
    """The devices of nvidia-smi, MIG instances in place of their device.

    None where it is missing or fails, as without a driver.
    """

    def ask(*arguments: str) -> list[str]:
        if tool is None:
            return []
        try:
            done = subprocess.run(  # noqa: S603 # found on PATH, its arguments are ours
                [tool, *arguments], capture_output=True, text=True, timeout=_PATIENCE, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return []
        return done.stdout.splitlines()

    devices: list[Device] = []
    fields = "uuid,memory.free,memory.total,mig.mode.current,name"
    for line in ask(f"--query-gpu={fields}", "--format=csv,noheader,nounits"):
        values = [value.strip() for value in line.split(",", 4)]
        if len(values) != 5:
            continue
        uuid, free, total, mig, name = values
        if mig != "Enabled":
            sizes = [int(size) << 20 if size.isdecimal() else None for size in (free, total)]
            devices.append(Device(uuid, name, sizes[0], sizes[1]))
            continue
        parent = None
        for listed in ask("-L"):
            if match := _PARENT.match(listed):
                parent = match["name"] if match["uuid"] == uuid else None
            match = _SLICE.match(listed)
            if match and parent is not None:
                devices.append(Device(match["uuid"], f"{parent} MIG {match['profile']}"))
    return tuple(devices)


SPARE = 1.2
"""Memory that a model needs as a share of its weights: what it works on lies beside them."""


@dataclass(frozen=True)
class Footprint:
    """The memory of a model's weights.

    spec: its text.
    weights: bytes.
    divided: whether a device map divides them among all devices of the process.
    """

    spec: str
    weights: int
    divided: bool = False


def measure_footprints(specs: Iterable[ModelSpec], device: str = "cuda") -> list[Footprint]:
    """The footprints of models; left out are those whose weights are unknown, and for an
    accelerator those that work on the CPU or wait in host memory.

    device: what the weights are counted for, cuda or cpu.
    """

    def given(spec: ModelSpec, parameter: str) -> bool:
        return spec.params.get(parameter, "").lower() not in ("", "none")

    return [
        Footprint(spec.text, weights, given(spec, "device_map"))
        for spec in specs
        if device == "cpu" or (spec.params.get("device") != "cpu" and not given(spec, "offload"))
        if (weights := weights_bytes(spec, device))
    ]


def needed_memory(models: Sequence[Footprint], *, swap: bool) -> int:
    """Bytes that models need together, or one after the other; 0 where nothing is known of any."""
    sizes = [model.weights for model in models]
    return int(SPARE * (max(sizes, default=0) if swap else sum(sizes)))


def fits(models: Sequence[Footprint], devices: Sequence[Device], *, swap: bool) -> bool:
    """Whether devices have room for models, those that no map divides on one device each.

    swap: whether one model at a time is on a device. A device whose free memory is unknown counts
    as one with room for all.
    """
    if swap:
        return all(fits([model], devices, swap=False) for model in models)
    if any(device.free is None for device in devices):
        return True
    free = [float(device.free or 0) for device in devices]
    whole = [model for model in models if not model.divided]
    numbers = spread(whole, [0] * len(devices))
    for model in whole:
        free[numbers[model.spec]] -= SPARE * model.weights
    divided = sum(SPARE * model.weights for model in models if model.divided)
    return min(free) >= 0 and sum(free) >= divided


def spread(models: Iterable[Footprint], loads: list[int]) -> dict[str, int]:
    """The number of the device for each model that no map divides: the largest model first, each
    where least lies.

    loads: bytes of weights on each device so far; those of the models are added.
    """
    numbers: dict[str, int] = {}
    order = sorted(models, key=lambda model: (not model.divided, -model.weights, model.spec))
    for model in order:
        if model.divided:
            loads[:] = [load + model.weights // len(loads) for load in loads]
            continue
        number = numbers.setdefault(model.spec, loads.index(min(loads)))
        loads[number] += model.weights
    return numbers


def usable_together(devices: Sequence[Device]) -> int:
    """How many of some devices a process can use: of MIG instances CUDA shows it one alone."""
    divided = any(device.token.startswith("MIG-") for device in devices)
    return min(1, len(devices)) if divided else len(devices)


@dataclass
class DeviceAssignment:
    """The devices of this process's models whose spec names none; on one device there is no choice.

    count: devices that the process can use.
    devices: by the text of a spec, as torch names it.
    """

    count: int
    devices: dict[str, str] = field(default_factory=dict)
    _loads: list[int] = field(init=False, repr=False)
    _known: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self._loads = [0] * self.count

    @classmethod
    def of_process(cls) -> DeviceAssignment:
        """For the accelerators that this process sees."""
        return cls(usable_together(visible_devices()))

    def assign(self, specs: Iterable[ModelSpec]) -> None:
        """Give those of the models that have none a device, in the same way in every process."""
        if self.count < 2:
            return
        new = [
            spec
            for spec in specs
            if spec.text not in self._known and spec.params.get("device", "auto") == "auto"
        ]
        self._known.update(spec.text for spec in new)
        numbers = spread(measure_footprints(new), self._loads)
        self.devices.update({text: f"cuda:{number}" for text, number in numbers.items()})
