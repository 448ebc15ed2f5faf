"""The generated data sets: the same everywhere, families, tasks of GenEval, patterns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json
from pytest_cepbench.construction.patterns import pattern_schema, read_pattern_reply, summary_schema
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.arena import WriterDegradation, load_shapes_arena
from pytest_cepbench.datasets.shapes.samples import (
    _TASK_FAMILIES,
    LOOKS,
    PATTERN_NAMES,
    load_shapes_tasks,
    scene_patterns,
)
from pytest_cepbench.datasets.shapes.scene import CELLS
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval_prompts import TASKS
from pytest_cepbench.models.rule_based.arena_models import ShapesWriter
from pytest_cepbench.models.rule_based.scene_models import (
    DescriberKnobs,
    ShapesDescriber,
    labelled_patterns,
)
from tests.datasets.shapes.strategies import gold_steps, question_pieces


def test_scenes_of_a_category_are_unique_until_the_family_is_used_up() -> None:
    """There are 432 single objects: all come once before any comes again."""
    samples = load_shapes(433).samples
    texts = [sample.text for sample in samples if sample.categories == ("existence",)]
    assert len(set(texts[:432])) == 432
    assert texts[432] in texts[:432]
    for category in {sample.categories[0] for sample in samples} - {"existence"}:
        others = [sample.text for sample in samples if sample.categories == (category,)]
        assert len(set(others)) == 433


def test_families_have_as_many_scenes_as_their_rules_allow() -> None:
    """No scene comes twice before all have come, so the number of all must be right."""
    looks = list(product(LOOKS, repeat=2))
    shapes_differ = sum(a[2] != b[2] for a, b in looks)
    colors_differ = sum(a[2] != b[2] and a[1] != b[1] for a, b in looks)
    cells = list(combinations(range(CELLS), 2))
    in_line = sum(a // 3 == b // 3 or a % 3 == b % 3 for a, b in cells)
    equal = sum(comb(CELLS, number) for number in (2, 3, 4))
    assert {task: family.size for task, family in _TASK_FAMILIES.items()} == {
        "single_object": CELLS * len(LOOKS),
        "two_object": len(cells) * shapes_differ,
        "counting": equal * len(LOOKS),
        "colors": CELLS * len(LOOKS),
        "position": in_line * shapes_differ,
        "color_attr": len(cells) * colors_differ,
    }


def test_scenes_of_a_task_are_unique_until_they_are_used_up() -> None:
    """There are 432 single objects."""
    dataset = load_shapes_tasks(433)
    for task in TASKS:
        texts = [sample.text for sample in dataset.in_category(task)]
        assert len(set(texts)) == (432 if task in ("single_object", "colors") else 433)


DATA = load_shapes(12, 5)

IMAGES = [sample.image.load().to_pil() for sample in DATA.samples if sample.image]

TRUTH = [scene_patterns(sample_scene(sample)) for sample in DATA.samples]


def thing(cell: int, size: str = "small", color: str = "red", shape: str = "circle") -> SceneObject:
    """An object."""
    return SceneObject(cell, size, color, shape)  # type: ignore[arg-type] # words of the world


@pytest.mark.parametrize(
    ("objects", "patterns"),
    [
        ((), ()),
        ((thing(0),), ()),
        ((thing(1),), ("Symmetry",)),
        ((thing(0), thing(2)), ("Position", "Symmetry")),
        ((thing(0), thing(2, color="blue")), ("Position",)),
        ((thing(0), thing(6, "large")), ("Position", "Size")),
        ((thing(0), thing(4), thing(5)), ("Count",)),
        (
            (thing(0), thing(4, color="blue"), thing(5, color="green"), thing(8, "large")),
            ("Count", "Color", "Size", "Crowd"),
        ),
    ],
)
def test_rules(objects: tuple[SceneObject, ...], patterns: tuple[str, ...]) -> None:
    """Each pattern by hand."""
    assert scene_patterns(Scene(objects)) == patterns


def describe(names: tuple[str, ...] | None, **knobs: float) -> list[str]:
    """The replies of the describer on all images."""
    model = ShapesDescriber(DescriberKnobs(**knobs))
    schema = pattern_schema(names)
    seeds = list(range(len(IMAGES)))
    return model.describe_json(IMAGES, ["?"] * len(IMAGES), schema, seeds)


@pytest.mark.parametrize("names", [None, ("count", "Size", "Beauty")])
def test_the_describer_names_what_is_true(names: tuple[str, ...] | None) -> None:
    """In the form of the schema; of a closed list only its names, spelled as there."""
    replies = [read_pattern_reply(text) for text in describe(names)]

    for reply, image, patterns in zip(replies, IMAGES, TRUTH, strict=True):
        expected = set(patterns)
        if names is not None:
            expected = {n for n in names if n.title() in patterns}
        assert {pattern.name for pattern in reply.patterns} == expected
        assert reply.description == caption(parse_image(ImageArtifact.from_pil(image)))


def test_mislabel_is_the_share_of_wrong_labels() -> None:
    """Each pattern of each image is wrong with that probability, whether it is there or not."""
    scenes = [sample_scene(sample) for sample in DATA.samples]
    wrong = [
        (name in labelled_patterns(scene, 0.2, seed)) != (name in scene_patterns(scene))
        for draw in range(20)
        for number, scene in enumerate(scenes)
        for seed in [draw * 1000 + number]
        for name in PATTERN_NAMES
    ]

    assert np.mean(wrong) == pytest.approx(0.2, abs=0.01)


def test_the_writer_summarizes_by_frequency() -> None:
    """The most frequent names, at most so many; any other question is refused."""
    question = f"Summarize: {json.dumps({'frequencies': {'a': 1, 'Count': 3, 'b': 2}, 'most': 2})}"
    (reply,) = ShapesWriter(WriterDegradation()).write_json([[question]], "", summary_schema(), [0])
    (refused,) = ShapesWriter(WriterDegradation()).write_json(
        [["hello"]], "", summary_schema(), [0]
    )

    assert [p.name for p in read_pattern_reply(str(reply)).patterns] == ["Count", "b"]
    assert isinstance(refused, Failure)
    assert refused.kind == "refused"


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


def test_other_processes_make_the_same_data_sets() -> None:
    """Nothing depends on the process, its hash seed included."""
    script = (
        "from tests.datasets.shapes.test_samples import LOADERS, content, digest_json\n"
        "print(*(digest_json(content(name, 3)) for name in LOADERS))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
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
