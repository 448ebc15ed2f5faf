"""Which device of a process each model gets, and how many devices the models of a process need.

Weights are counted in the precision in which they are loaded. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.registry import weights_bytes
from pytest_cepbench.models.system_limits import Device, visible_devices

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
    return [
        Footprint(spec.text, weights, _given(spec, "device_map"))
        for spec in specs
        if device == "cpu" or _lies_on_device(spec)
        if (weights := weights_bytes(spec, device))
    ]


def _lies_on_device(spec: ModelSpec) -> bool:
    waits = _given(spec, "offload") and not _given(spec, "device_map")
    return spec.params.get("device") != "cpu" and not waits


def _given(spec: ModelSpec, parameter: str) -> bool:
    return spec.params.get(parameter, "").lower() not in ("", "none")


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
