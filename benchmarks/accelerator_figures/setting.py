"""What the measurements of an accelerator work with: checkpoints, device, time and figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_cepbench.chains import ChainPlan, RoleRunner
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.model_pool import ModelPool

REAL: Mapping[str, str] = {
    "describer": "max_new_tokens=64",
    "generator": "num_inference_steps=20&height=512&width=512",
    "encoder": "",
    "sdxl": "num_inference_steps=8&height=1024&width=1024",
    "dinov2": "",
}

TOY: Mapping[str, str] = {
    "describer": "max_new_tokens=8",
    "generator": "num_inference_steps=2&height=16&width=16",
    "encoder": "",
    "sdxl": "num_inference_steps=2&height=16&width=16",
    "dinov2": "",
}

ROLES: Mapping[str, RoleName] = {
    "describer": "describer",
    "generator": "generator",
    "encoder": "encoder",
    "sdxl": "generator",
    "dinov2": "encoder",
}
"""The role of each checkpoint, by the name of its folder."""

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

    def spec(self, checkpoint: str, *params: str) -> str:
        """The spec of a checkpoint on the device, with its own parameters and others."""
        own = (TOY if self.toy else REAL)[checkpoint]
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
        return f"{self.folder / checkpoint}?{text}"

    def runner(self, pool: ModelPool, checkpoint: str, *params: str) -> RoleRunner:
        """The runner of a checkpoint."""
        spec = parse_spec(self.spec(checkpoint, *params))
        return pool.runner(RoleAssignment(ROLES[checkpoint], spec, "benchmark"))

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
