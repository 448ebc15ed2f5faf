"""The presets of suites/folder, with tiny pipelines of the classes that they are for."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from tests.models.pipelines.conftest import BUILDERS, load
from tests.tiny import generators as tiny
from tests.tiny import loras

pytest.importorskip("torch", reason="generators need the [models] extra")
pytest.importorskip("diffusers", reason="generators need the [models] extra")
pytest.importorskip("peft", reason="diffusers loads LoRA weights with it")

pytestmark = pytest.mark.models

SUITE = Path(__file__).parents[3] / "suites" / "folder" / "suite.toml"

PRESETS: dict[str, dict[str, Any]] = tomllib.loads(SUITE.read_text(encoding="utf-8"))["presets"]

CLASSES: dict[str, Callable[[Path], Path]] = {
    "sana-sprint": tiny.build_sana_sprint,
    "flux-1-schnell": BUILDERS["flux"],
    "sd-turbo": BUILDERS["stable-diffusion"],
    "sdxl-turbo": BUILDERS["sdxl"],
    "sdxl-lightning": BUILDERS["sdxl"],
    "lcm-dreamshaper": tiny.build_lcm,
    "pixart-lcm": tiny.build_pixart_lcm,
}

# What a pipeline of 64 pixels cannot do: sizes of a thousand, and half precision on a CPU.
SMALL: dict[str, Any] = {"height": 64, "width": 64, "dtype": "float32"}


def test_every_preset_is_tried() -> None:
    """A preset that no test loads could name a parameter that its pipeline does not take."""
    assert set(PRESETS) == set(CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_a_pipeline_takes_the_settings_of_its_preset(name: str, tmp_path: Path) -> None:
    """Loaded by a pipeline of the same class and drawn with, all but the size as it is."""
    folder = CLASSES[name](tmp_path / name)
    parameters = {**PRESETS[name]["parameters"], **SMALL}
    if "lora" in parameters:
        parameters["lora"] = loras.build_lora(folder, tmp_path / "lora")
    if name in ("sana-sprint", "pixart-lcm"):
        parameters["use_resolution_binning"] = "false"  # it knows sizes around a thousand only
    model = load(f"{folder}?{urlencode(parameters)}")
    (image,) = model.generate(["two red circles"], [1])
    assert isinstance(image, np.ndarray)
    assert image.shape == (64, 64, 3)
    assert image.std() > 0


def test_a_preset_draws_in_few_steps() -> None:
    """They are there because a gate with them is cheap: eight steps at most."""
    assert all(preset["parameters"]["num_inference_steps"] <= 8 for preset in PRESETS.values())
