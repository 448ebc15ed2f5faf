"""`cepbench doctor` with trained models: in their own world, and in one that they cannot read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from tests.cli.conftest import Ended, Home

pytestmark = [pytest.mark.models, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

CHECKPOINTS = ROOT / "reference" / "checkpoints"

DRAWING = "num_inference_steps=8&guidance_scale=1&height=64&width=64&batch_size=24&dtype=float32"


def doctor(home: Home, suite: str, *argv: str) -> Ended:
    """The command on a shipped suite."""
    pytest.importorskip("diffusers", reason="the reference models need the [models] extra")
    return home.command("doctor", str(ROOT / "suites" / suite), *argv)


def checks(home: Home, suite: str) -> dict[str, dict[str, Any]]:
    """The checks of the file that was written, by name."""
    path = home.path / ".cepbench" / "studies" / f"doctor-{suite}.json"
    return {entry["name"]: entry for entry in json.loads(path.read_text("utf-8"))["checks"]}


def strange(number: int) -> Image.Image:
    """A picture of no world that the models know: triangles on a colored ground."""
    draw = np.random.default_rng(number)
    ground = Image.fromarray(draw.integers(0, 256, (4, 4, 3), np.uint8))
    image = ground.resize((96, 96), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    for _ in range(6):
        corners = [(int(x), int(y)) for x, y in draw.integers(0, 96, (3, 2))]
        red, green, blue = draw.integers(0, 256, 3).tolist()
        pen.polygon(corners, fill=(red, green, blue))
    return image.filter(ImageFilter.GaussianBlur(1))


def test_the_default_suite_has_no_problem(home: Home) -> None:
    """The embedded default sees its world: floors far below, every change noticed, seeds obeyed."""
    ended = doctor(home, "shapes", "--samples=2")
    by_name = checks(home, "shapes")
    assert ended.code == 0, ended.out
    assert by_name["chance floor"]["status"] == "pass"
    assert by_name["constant outputs"]["status"] == "pass"
    (figures,) = by_name["encoder on changed images"]["figures"]
    moved = {row[0]: row[3] for row in figures["rows"]}
    for name in ("strong blur", "crop", "colors exchanged", "region covered"):
        assert moved[name] > 0.1


def test_images_that_the_models_cannot_read_are_a_problem(home: Home) -> None:
    """Twenty images of another world: the score lies at what chance gives, and it is said."""
    (home.path / "strange").mkdir()
    for number in range(20):
        strange(number).save(home.path / "strange" / f"{number:02d}.png")
    ended = doctor(
        home,
        "folder",
        "--data=folder=strange",
        f"--model={CHECKPOINTS}/describer-step2000?dtype=float32",
        f"--generator={CHECKPOINTS}/generator-step3000?{DRAWING}",
        f"--encoder={CHECKPOINTS}/clip?dtype=float32",
    )
    by_name = checks(home, "folder")
    assert ended.code == 1
    assert by_name["chance floor"]["status"] == "problem"
    (figures,) = by_name["chance floor"]["figures"]
    ((_, value, chance, share),) = figures["rows"]
    assert abs(value - chance) < 0.05
    assert share < 0.05
    assert "this set-up can see" in ended.out
