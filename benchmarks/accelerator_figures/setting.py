"""What the measurements of an accelerator work with: checkpoints, time, figures, the device."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.pages import table
from pytest_cepbench.chains import ChainPlan, RoleRunner
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.model_pool import ModelPool
from pytest_cepbench.suites.role_assignment import RoleAssignment

REAL: Mapping[RoleName, str] = {
    "describer": "max_new_tokens=64",
    "generator": "num_inference_steps=20&height=512&width=512",
    "encoder": "",
}

TOY: Mapping[RoleName, str] = {
    "describer": "max_new_tokens=8",
    "generator": "num_inference_steps=2&height=16&width=16",
    "encoder": "",
}

_CHECKPOINTS = Path(__file__).parents[2] / "reference" / "checkpoints"

TRAINED: Mapping[RoleName, str] = {
    "describer": f"{_CHECKPOINTS / 'describer-step2000'}?",
    "generator": f"{_CHECKPOINTS / 'generator-step3000'}"
    "?num_inference_steps=8&guidance_scale=1&height=64&width=64&batch_size=24&",
    "encoder": f"{_CHECKPOINTS / 'clip'}?",
}
"""Specs of trained checkpoints, without device and precision."""


@dataclass(frozen=True)
class Figure:
    """One measured number.

    part: of the benchmark that measured it. name: what it is, for people; a later figure of the
        same part and name replaces an earlier one.
    value: the number; None where it could not be measured, which `note` explains.
    unit: of the value: "x" for ratios, "%", "s", "GiB", ...
    goal: of the number, as people write it; empty where there is none.
    note: how it was measured.
    """

    part: str
    name: str
    value: float | None
    unit: str = ""
    goal: str = ""
    note: str = ""


def read_figures(file: Path) -> list[Figure]:
    """The figures of a file, the last of each part and name; none where there is no file."""
    if not file.exists():
        return []
    latest: dict[tuple[str, str], Figure] = {}
    for line in file.read_text().splitlines():
        figure = Figure(**json.loads(line))
        latest[figure.part, figure.name] = figure
    return list(latest.values())


@dataclass(frozen=True)
class Setting:
    """What one part of the benchmark works with.

    part: its name.
    folder: of the checkpoints.
    file: that figures are appended to, as they come.
    device: as torch names it.
    toy: whether the checkpoints are tiny.
    deadline: of `time.monotonic`, when the part has to be done.
    """

    part: str
    folder: Path
    file: Path
    device: str
    toy: bool
    deadline: float

    @property
    def accelerated(self) -> bool:
        """Whether the device is an accelerator."""
        return self.device != "cpu"

    @property
    def seconds_left(self) -> float:
        """Until the deadline."""
        return self.deadline - time.monotonic()

    def record(
        self, name: str, value: float | None, unit: str = "", *, goal: str = "", note: str = ""
    ) -> None:
        """Write a figure down."""
        figure = Figure(self.part, name, value, unit, goal, note)
        with self.file.open("a") as stream:
            stream.write(json.dumps(asdict(figure)) + "\n")

    def spec(self, role: RoleName, *params: str) -> str:
        """The spec of a role's checkpoint on the device, with its own parameters and others."""
        own = (TOY if self.toy else REAL)[role]
        precision = "float32" if self.device == "cpu" else "bfloat16"
        given = dict(
            param.split("=", 1)
            for param in (
                f"device={self.device}",
                f"dtype={precision}",
                *filter(None, own.split("&")),
                *params,
            )
        )
        text = "&".join(f"{name}={value}" for name, value in given.items())
        return f"{self.folder / role}?{text}"

    def runner(self, pool: ModelPool, role: RoleName, *params: str) -> RoleRunner:
        """The runner of a role's checkpoint."""
        return pool.runner(RoleAssignment(role, parse_spec(self.spec(role, *params)), "benchmark"))

    def store(self, name: str) -> Store:
        """A store of its own, beside the checkpoints."""
        return Store(self.folder / "stores" / self.part / name)


def plan_of(iterations: int) -> ChainPlan:
    """Chains from images, described and drawn so many times."""
    return ChainPlan("image", 2 * iterations, "describe the image", "{description}")


TEXTS: Sequence[str] = (
    "a small red circle on the left and a large blue square on the right",
    "two green circles and a yellow square on top",
    "a large yellow circle on the bottom",
    "a red square and a green square",
)
"""Texts to draw."""


def markdown_table(figures: Sequence[Figure], machine: str) -> str:
    """A table with a row for each figure, under the machine's name."""
    rows = [(own.part, own.name, own.goal, _value(own), own.note) for own in figures]
    return f"{machine}\n\n{table(('part', 'figure', 'goal', 'measured', ''), rows)}\n"


def _value(figure: Figure) -> str:
    if figure.value is None:
        return "not measured"
    if float(figure.value).is_integer() or abs(figure.value) >= 100:
        number = f"{figure.value:.0f}"
    else:
        number = f"{figure.value:.3g}"
    return f"{number} {figure.unit}".replace(" x", "").strip()


# -- memory and load of the device: zero or nothing on a CPU ---------------------------------------


def synchronize(device: str) -> None:
    """Wait until the device has done what it was given."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def allocated_bytes(device: str) -> int:
    """Bytes of tensors on the device."""
    import torch

    return 0 if device == "cpu" else torch.cuda.memory_allocated(device)


def total_bytes(device: str) -> int:
    """Bytes of the device's memory."""
    import torch

    return 0 if device == "cpu" else torch.cuda.get_device_properties(device).total_memory


def reset_peak(device: str) -> None:
    """Begin to look for the most memory anew."""
    import torch

    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: str) -> int:
    """The most bytes of tensors since `reset_peak`."""
    import torch

    return 0 if device == "cpu" else torch.cuda.max_memory_allocated(device)


@contextmanager
def limited_memory(device: str, most: int) -> Iterator[None]:
    """Allow this process so many bytes of the device: more is a real error of its allocator."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(most / total_bytes(device), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


@contextmanager
def utilization(device: str, period: float = 0.2) -> Iterator[list[float]]:
    """The driver's own readings of how busy the device is, in per cent, while inside.

    Empty on a CPU and where the driver's library (nvidia-ml-py) is not installed.
    """
    import torch

    readings: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(period):
            try:
                readings.append(float(torch.cuda.utilization(device)))
            except (ModuleNotFoundError, RuntimeError):
                return

    watcher = threading.Thread(target=watch, daemon=True)
    if device != "cpu":
        watcher.start()
    try:
        yield readings
    finally:
        stop.set()
        if watcher.is_alive():
            watcher.join()
