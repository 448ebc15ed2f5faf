"""The shipped checkpoints: small, safe to load, and as good as their training log says."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import (
    Scene,
    load_shapes,
    parse_caption,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena, read_question
from pytest_cepbench.models.protocols import Describer, Encoder, Generator, Writer
from tests.models.binding import bind_text

pytest.importorskip("torch", reason="the reference models need the [models] extra")
pytest.importorskip("diffusers", reason="the reference models need the [models] extra")

from lessons import HELD_OUT, right_steps
from train_planner import EARLY, STEPS

pytestmark = [pytest.mark.models, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

CHECKPOINTS = ROOT / "reference" / "checkpoints"

MOST_BYTES = 50_000_000

_DRAW = "num_inference_steps=8&guidance_scale=1&height=64&width=64&batch_size=32"

PLANNERS = {EARLY: CHECKPOINTS / "planner-early", STEPS: CHECKPOINTS / "planner-final"}
"""The shipped writers, by the step of their training."""

_STEP = re.compile(r"(describer|generator)-step(\d+)")


def _series(role: str) -> list[Path]:
    """The checkpoints of a role, in the order of their training."""
    steps = {
        int(match[2]): folder
        for folder in CHECKPOINTS.iterdir()
        if (match := _STEP.fullmatch(folder.name)) and match[1] == role
    }
    return [steps[step] for step in sorted(steps)]


@cache
def _samples() -> tuple[Sample, ...]:
    """64 of the suite's, eight of each category."""
    return load_shapes(8, seed=0).samples


@cache
def _scenes() -> tuple[Scene, ...]:
    return tuple(map(sample_scene, _samples()))


def _images() -> list[Image.Image]:
    return [sample.image.load().to_pil() for sample in _samples() if sample.image]


def _captions() -> list[str]:
    return [str(sample.text) for sample in _samples()]


def _exact(described: list[Scene]) -> float:
    return float(np.mean([a == b for a, b in zip(_scenes(), described, strict=True)]))


def _logged(role: str, share: str = "exact") -> dict[str, float]:
    """Checkpoint -> share of exact scenes, or another, as the training wrote it down."""
    lines = (CHECKPOINTS / f"{role}.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return {
        f"{role}-step{event['step']}": event[share]
        for event in events
        if event["event"] == "quality"
    }


def test_there_is_a_history_of_each_and_all_fit_into_50_megabytes() -> None:
    """Five describers, three generators and two planners at least, an encoder, a judge; in the
    repository as they are.
    """
    assert len(_series("describer")) >= 5
    assert len(_series("generator")) >= 3
    assert (CHECKPOINTS / "clip").is_dir()
    assert (CHECKPOINTS / "judge").is_dir()
    assert all(folder.is_dir() for folder in PLANNERS.values())
    files = [path for path in CHECKPOINTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert {path.suffix for path in files} == {".safetensors", ".json", ".jinja", ".jsonl", ".txt"}


@pytest.mark.parametrize(
    "file",
    sorted(CHECKPOINTS.rglob("*.safetensors")),
    ids=lambda path: path.relative_to(CHECKPOINTS).as_posix(),
)
def test_weights_are_half_precision_and_finite(file: Path) -> None:
    """Every floating tensor is float16; none holds NaN or infinity, no matrix only zeros."""
    import torch
    from safetensors.torch import load_file

    tensors = load_file(file)
    assert tensors
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            assert tensor.dtype is torch.float16, name
            assert torch.isfinite(tensor).all(), name
            # One-dimensional ones may be: LLaVA makes a last norm of its tower that it never uses.
            assert tensor.ndim < 2 or tensor.abs().max() > 0, name


def test_the_readme_has_the_figures_of_the_logs() -> None:
    """Every logged quality is in a table, and those of shipped checkpoints are in bold; of planners
    the share of right steps, with the held-out category.
    """
    page = (CHECKPOINTS.parent / "README.md").read_text(encoding="utf-8")
    others, title, planners = page.partition("Right steps: ")
    assert title
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \| ([^|]*) \|$", others, flags=re.MULTILINE)
    for column, role in enumerate(("describer", "generator"), 1):
        cells = {f"{role}-step{row[0]}": row[column] for row in rows if row[column].strip()}
        assert {name: float(cell.strip(" *")) for name, cell in cells.items()} == _logged(role)
        bold = {name for name, cell in cells.items() if "**" in cell}
        assert bold == {folder.name for folder in _series(role)}

    share_cell = r"\| (\*\*)?(\d\.\d{4})(?:\*\*)? "
    rows = re.findall(rf"^\| (\d+) {share_cell}\| (\d\.\d{{4}}) \|$", planners, flags=re.MULTILINE)
    for column, share in ((2, "steps"), (3, "held_out")):
        table = {f"planner-step{row[0]}": float(row[column]) for row in rows}
        assert table == _logged("planner", share)
    assert {int(row[0]) for row in rows if row[1]} == PLANNERS.keys()


def test_describers_speak_better_with_every_checkpoint() -> None:
    """Exact captions of scenes not in training: up with each step but for noise, as logged."""
    logged = _logged("describer")
    shares = []
    for folder in _series("describer"):
        role = bind_text(str(folder), "describer")
        model = role.load()
        assert isinstance(model, Describer)
        texts = model.describe(_images(), "describe the image", [0] * len(_images()))
        shares.append(_exact([parse_caption(str(text)) for text in texts]))
        # Of 64 scenes against 256 others: three standard errors of the difference at most.
        assert shares[-1] == pytest.approx(logged[folder.name], abs=0.21), folder.name
    assert all(later >= earlier - 0.05 for earlier, later in itertools.pairwise(shares))
    assert shares[0] < 0.1
    assert shares[-1] >= 0.95


def test_generators_draw_better_with_every_checkpoint() -> None:
    """Exact drawings of scenes that training never drew, read back by the world's own parser."""
    logged = _logged("generator")
    shares = []
    for folder in _series("generator"):
        role = bind_text(f"{folder}?{_DRAW}", "generator")
        model = role.load()
        assert isinstance(model, Generator)
        drawn = model.generate(_captions(), list(range(len(_captions()))))
        pixels = [np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8) for image in drawn]
        shares.append(_exact([parse_image(ImageArtifact(each)) for each in pixels]))
        assert shares[-1] == pytest.approx(logged[folder.name], abs=0.25), folder.name
    assert all(later > earlier for earlier, later in itertools.pairwise(shares))
    assert shares[-1] >= 0.8


def test_planners_answer_better_with_training_but_for_what_was_held_out() -> None:
    """Right steps of the suite's questions, as logged of others; few of the category left out."""
    questions = [
        [piece if isinstance(piece, str) else piece.load() for piece in sample.question]
        for sample in load_shapes_arena(6, seed=0).samples
    ]
    logged = _logged("planner", "steps")
    shares = {}
    for step, folder in PLANNERS.items():
        model = bind_text(str(folder), "writer").load()
        assert isinstance(model, Writer)
        asked = [
            [piece if isinstance(piece, str) else piece.to_pil() for piece in question]
            for question in questions
        ]
        answers = model.write(asked, "", [0] * len(asked))
        right: dict[str, list[float]] = {"taught": [], HELD_OUT: []}
        for pieces, words in zip(questions, answers, strict=True):
            question = read_question(pieces)
            kind = HELD_OUT if question.instruction.task == HELD_OUT else "taught"
            right[kind].append(right_steps(question, str(words)))
        shares[step] = {name: float(np.mean(each)) for name, each in right.items()}
        # Of 54 questions against 216 others: three standard errors of the difference at most.
        assert shares[step]["taught"] == pytest.approx(logged[f"planner-step{step}"], abs=0.21)
    early, final = shares.values()
    assert final["taught"] > early["taught"] + 0.2
    assert final["taught"] >= 0.8
    assert final[HELD_OUT] < 0.5


def test_the_encoder_tells_scenes_apart_across_modalities() -> None:
    """Each of 64 pictures is nearest to its own caption, but for a few; others are far away."""
    model = bind_text(str(CHECKPOINTS / "clip"), "encoder").load()
    assert isinstance(model, Encoder)
    seen = _unit(model.encode_images(_images()))
    captioned = _unit(model.encode_texts(_captions()))
    scores = seen @ captioned.T
    different = np.array([[a != b for b in _scenes()] for a in _scenes()])
    own = np.diag(scores)
    assert own.mean() > 0.7
    assert scores[different].mean() < 0.1
    assert np.mean((scores * different).max(axis=1) < own) >= 0.9


def _unit(vectors: Any) -> Any:
    vectors = np.asarray(vectors, dtype=np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
