"""A suite over the embedded world, its studies run without a command line, and encoders for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.store import Store
from pytest_cepbench.studies.study import (
    FinishedStudy,
    Named,
    StudyName,
    StudySpec,
    prepare_study,
    run_study,
)
from pytest_cepbench.suites import ModelPool
from tests.plugin.project import SHAPES

TOY = SHAPES
"""16 samples in 8 categories, chains of two iterations."""

A = Named("a", "shapes:?miss=0.1")
B = Named("b", "shapes:?miss=0.3")
C = Named("c", "shapes:?recolor=0.5")

COLORS = "python:tests.studies.toy:ColorEncoder"


@dataclass
class ColorEncoder:
    """Compares images by their mean color, and texts by their length."""

    fingerprint: str = "color-encoder/1"

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 3) float64, no row zero: the world's ground is not black."""
        return np.array([np.asarray(image).reshape(-1, 3).mean(axis=0) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n, 1) float64."""
        return np.array([[float(len(text))] for text in texts])


class MuteDescriber:
    """Cannot be asked: a model that loads and then never answers."""

    fingerprint = "mute/1"

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """Raise."""
        raise ArithmeticError("no voice")


def write_suite(folder: Path, text: str = TOY) -> Path:
    """A suite's file in the folder."""
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return path


def study(
    folder: Path,
    name: StudyName,
    models: Sequence[Named],
    variants: Sequence[Named] = (),
    text: str = TOY,
    **settings: Any,
) -> FinishedStudy:
    """The study of a suite, on a store in the folder."""
    suite = write_suite(folder, text)
    spec = StudySpec(name, suite, tuple(models), tuple(variants), **settings)
    with Store(folder / "store") as store:
        pool = ModelPool(store)
        return run_study(prepare_study(spec, pool), pool, lambda _: None)


def seeds(*numbers: int) -> list[Named]:
    """Variants of a study of seeds."""
    return [Named(str(number), str(number)) for number in numbers]


def values(
    result: FinishedStudy, metric: str = "gc", part: str = "overall"
) -> Mapping[str, list[float]]:
    """Model -> its values over the variants, all of which must be there."""
    (grid,) = [g for g in result.grids if (g.metric, g.part) == (metric, part)]
    rows: dict[str, list[float]] = {}
    for cell in grid.cells:
        assert cell.value is not None
        rows.setdefault(cell.model, []).append(cell.value)
    return rows
