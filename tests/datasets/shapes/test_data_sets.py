"""What the generated data sets share: they are the same everywhere, and larger ones add samples."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.datasets.shapes.samples import load_shapes_tasks
from pytest_cepbench.errors import DatasetError
from tests.datasets.shapes.arena.strategies import gold_steps, question_pieces

Load = Callable[..., Dataset]


def scene_content(sample: Sample) -> list[Any]:
    """Id, text and image digest."""
    return [sample.id, sample.text, load_seed_image(sample).digest]


def task_content(sample: Sample) -> list[Any]:
    """Everything of a sample, the image by its digest."""
    image = load_seed_image(sample).digest
    return [sample.id, sample.categories, sample.text, dict(sample.metadata), image]


def arena_content(sample: Sample) -> list[Any]:
    """Id, question and reference answer, with digests in the place of images."""
    pieces = question_pieces(sample)
    asked = [piece if isinstance(piece, str) else piece.digest for piece in pieces]
    return [sample.id, asked, [[t, image and image.digest] for t, image in gold_steps(sample)]]


CONTENTS: dict[str, Callable[[Sample], list[Any]]] = {
    "shapes": scene_content,
    "shapes-tasks": task_content,
    "shapes-arena": arena_content,
}

LOADERS: dict[str, Load] = {
    "shapes": load_shapes,
    "shapes-tasks": load_shapes_tasks,
    "shapes-arena": load_shapes_arena,
}

DIGESTS = {
    "shapes": "67204febf5783f6fe9173dcb9b9fddfc9111f13c9552adceb75d6180b3b40083",
    "shapes-tasks": "c8050e29b42ec65a7fd4bf2d6a8b6980a377cfd712fa1a984398aa3d3b4359a9",
    "shapes-arena": "f193fff99dc02dee8a4fbe0c0b51a4d69595af646665696ceeb0f79239ede91c",
}
"""Of all samples of each data set as it is by default."""

EACH = pytest.mark.parametrize("name", list(LOADERS))


def content(name: str, number: int = 24, seed: int = 0) -> list[list[Any]]:
    """What the samples of a data set are."""
    return [CONTENTS[name](sample) for sample in LOADERS[name](number, seed).samples]


@EACH
def test_a_smaller_data_set_is_a_prefix_of_a_larger_one(name: str) -> None:
    """Raising the number of samples only adds samples."""
    small, large = content(name, 3), content(name, 5)
    assert small == [item for item in large if int(item[0].split("/")[1]) < 3]


@EACH
def test_the_default_data_set_never_changes(name: str) -> None:
    """Texts, clauses and pixels: where this fails, the version of its world has to be raised."""
    assert digest_json(content(name)) == DIGESTS[name]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_other_processes_make_the_same_data_sets(hash_seed: str) -> None:
    """Nothing depends on the process, its hash seed included."""
    script = (
        "from tests.datasets.shapes.test_data_sets import LOADERS, content, digest_json\n"
        "print(*(digest_json(content(name, 3)) for name in LOADERS))\n"
    )
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [digest_json(content(name, 3)) for name in LOADERS]


@EACH
@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_impossible_numbers_are_refused(name: str, number: int) -> None:
    """The message says what is possible."""
    with pytest.raises(DatasetError, match=rf"1\.\.10,000, got {number}"):
        LOADERS[name](number)
