"""Suites over the embedded world, measured in this process: real files, chains, models and stores.

The data sets here have samples in several categories; the models are a user's `python:` ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import features as scene_features
from pytest_cepbench.datasets.shapes import load_shapes, parse_caption, parse_image
from pytest_cepbench.datasets.shapes.samples import load_shapes_tasks
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    Case,
    ChainRun,
    ModelPool,
    RoleChoices,
    Suite,
    load_data,
    load_suite,
    prepare_suite,
)
from pytest_cepbench.suites.suite_run import CaseMeasurement

SETS = """\
[metrics.gc_fid]
[metrics.fid]
[metrics.last]
kind = "fid"
at = 2
[metrics.kid]
[metrics.pooled]
kind = "gc_fid"
pool = "samples"
"""
"""Metrics of sets."""

LOSSY = "shapes:?miss=0.3&recolor=0.2"

SUITE = f"""\
name = "world"
version = 1
[data]
loader = "python:tests.suites.world:overlapping"
[chain]
start = "image"
iterations = 2
[prompts]
describe = "describe"
[roles]
describer = "{LOSSY}"
generator = "shapes:"
encoder = "shapes:"
"""
"""A suite without metrics: twelve samples in the categories a and b, some of them in both."""


@dataclass(frozen=True)
class Staged:
    """A suite that is ready to be measured, and its cases by id."""

    run: ChainRun
    cases: Mapping[str, Case]

    def measure(self, case_id: str) -> CaseMeasurement:
        """What is measured of a case."""
        return self.run.measure(self.cases[case_id])


def read_suite(folder: Path, text: str) -> Suite:
    """The suite of a file with this text in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return load_suite(path)


def stage(
    folder: Path,
    text: str,
    store: Store,
    choices: RoleChoices | None = None,
    most: int | None = None,
) -> Staged:
    """Read a suite's text and assign its models. most: samples of each category."""
    suite = read_suite(folder, text)
    prepared = prepare_suite(suite, load_data(suite, {}, most), choices or RoleChoices())
    run = prepared.run(ModelPool(store))
    assert isinstance(run, ChainRun)
    return Staged(run, {case.id: case for case in prepared.cases})


def overlapping() -> Dataset:
    """Twelve scenes: four in a, two in b, six in both."""
    chosen = load_shapes(samples_per_category=2, seed=3).samples[:12]
    own = [("a",), ("a", "b"), ("b", "a")] * 2 + [("a",), ("b",), ("a", "b")] * 2
    samples = [
        replace(sample, categories=categories)
        for sample, categories in zip(chosen, own, strict=True)
    ]
    return Dataset("overlapping", {}, tuple(samples))


TASKS = f"""\
name = "tasks"
version = 1
[data]
loader = "python:tests.suites.world:uneven_tasks"
[chain]
start = "text"
generations = 5
[prompts]
describe = "describe"
[roles]
describer = "{LOSSY}"
generator = "shapes:?move=0.2"
encoder = "python:tests.suites.world:Namer"
detector = "shapes:"
"""
"""Text-first chains of GenEval's tasks, by models that lose something; without metrics."""


def uneven_tasks() -> Dataset:
    """Two to seven prompts of each of the six tasks."""
    whole = load_shapes_tasks(samples_per_category=7, seed=1)
    chosen = [
        sample
        for number, task in enumerate(whole.categories)
        for sample in whole.in_category(task)[: number + 2]
    ]
    return Dataset("uneven tasks", {}, tuple(sorted(chosen, key=lambda sample: sample.id)))


def vector(value: Image.Image | str) -> Any:
    """What the embedded encoder makes of an image or a text."""
    scene = (
        parse_caption(value)
        if isinstance(value, str)
        else parse_image(ImageArtifact.from_pil(value))
    )
    return scene_features(scene)


class Namer:
    """A dual encoder that tells colors of cut-outs and of the texts that name them."""

    fingerprint = "namer/1"
    what = "a color namer"

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 3): the mean color of the brighter half of the pixels."""
        return np.array([_bright(np.asarray(image, float).reshape(-1, 3)) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, 3): the color that a text names."""
        return np.array([_named(text) for text in texts])


_RGB = {
    "red": (235, 41, 41), "orange": (255, 140, 0), "yellow": (245, 224, 46),
    "green": (41, 191, 56), "blue": (51, 82, 242), "purple": (184, 64, 217),
    "pink": (255, 160, 190), "brown": (110, 60, 20), "black": (10, 10, 12),
    "white": (250, 250, 250),
}  # fmt: skip


def _bright(pixels: Any) -> Any:
    return pixels[pixels.max(axis=1) >= np.median(pixels.max(axis=1))].mean(axis=0)


def _named(text: str) -> tuple[int, int, int]:
    words = text.replace("-", " ").split()
    return next((_RGB[color] for color in COLORS if color in words), (1, 1, 1))
