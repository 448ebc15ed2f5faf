"""The generated data sets: the same everywhere, families, tasks of GenEval, patterns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json
from pytest_cepbench.construction.patterns import pattern_schema, read_pattern_reply, summary_schema
from pytest_cepbench.datasets.sample import Dataset, Sample, SeedImage
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
    PATTERN_NAMES,
    load_shapes_tasks,
    scene_patterns,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.models.rule_based.arena_models import ShapesWriter
from pytest_cepbench.models.rule_based.scene_models import (
    DescriberKnobs,
    ShapesDescriber,
    labelled_patterns,
)


def test_samples_are_unique_until_their_family_is_used_up() -> None:
    """There are 432 single objects, and 126 questions of `own`: all come once before any comes
    again.
    """
    for dataset in (load_shapes(433), load_shapes_tasks(433)):
        for category in dataset.categories:
            texts = [sample.text for sample in dataset.in_category(category)]
            single = category in ("existence", "single_object", "colors")
            assert len(set(texts)) == (432 if single else 433)
            assert len(set(texts[:432])) == 432
    arena = load_shapes_arena(127)
    for task in arena.categories:
        asked = [
            digest_json([sample.question[-1], sample.metadata["scenes"]])
            for sample in arena.in_category(task)
        ]
        assert len(set(asked)) == (126 if task == "own" else 127)
        assert len(set(asked[:126])) == 126


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


@pytest.mark.parametrize("names", [None, ("count", "Size", "Beauty")])
def test_the_describer_names_what_is_true(names: tuple[str, ...] | None) -> None:
    """In the form of the schema; of a closed list only its names, spelled as there."""
    number = len(IMAGES)
    replies = ShapesDescriber(DescriberKnobs()).describe_json(
        IMAGES, ["?"] * number, pattern_schema(names), list(range(number))
    )

    for text, image, patterns in zip(replies, IMAGES, TRUTH, strict=True):
        reply = read_pattern_reply(text)
        expected = set(patterns)
        if names is not None:
            expected = {n for n in names if n.title() in patterns}
        assert {pattern.name for pattern in reply.patterns} == expected
        assert reply.description == caption(parse_image(ImageArtifact.from_pil(image)))


def test_mislabel_is_the_share_of_wrong_labels() -> None:
    """Each pattern of each image is wrong with that probability, whether it is there or not."""
    scenes = [sample_scene(sample) for sample in DATA.samples]
    wrong = [
        len({*labelled_patterns(scene, 0.2, draw * 1000 + number)} ^ {*patterns})
        for draw in range(20)
        for number, (scene, patterns) in enumerate(zip(scenes, TRUTH, strict=True))
    ]

    assert np.mean(wrong) / len(PATTERN_NAMES) == pytest.approx(0.2, abs=0.01)


def test_the_writer_summarizes_by_frequency() -> None:
    """The most frequent names, at most so many; any other question is refused."""
    question = f"Summarize: {json.dumps({'frequencies': {'a': 1, 'Count': 3, 'b': 2}, 'most': 2})}"
    reply, refused = ShapesWriter(WriterDegradation()).write_json(
        [[question], ["hello"]], "", summary_schema(), [0, 0]
    )

    assert [p.name for p in read_pattern_reply(str(reply)).patterns] == ["Count", "b"]
    assert isinstance(refused, Failure)
    assert refused.kind == "refused"


def content(sample: Sample) -> list[Any]:
    """All that a sample is, with digests in the place of images."""

    def shown(piece: str | SeedImage | None) -> str | None:
        return piece if piece is None or isinstance(piece, str) else piece.load().digest

    asked = [shown(piece) for piece in sample.question]
    gold = [[step.text, shown(step.image)] for step in sample.gold]
    own = [sample.id, sample.categories, sample.text, dict(sample.metadata), shown(sample.image)]
    return [*own, asked, gold]


@pytest.mark.parametrize(
    ("load", "digest"),
    [
        (load_shapes, "7843caced31885e3962def52e581d96c01a612cfe6f4bfab6cd1cd677de0e9d6"),
        (load_shapes_tasks, "2ce08d7621b096cca91b9aff1fe3844022f4428c679c4ee68b4ddc83112d2aac"),
        (load_shapes_arena, "74f4eb3702edb11dfbafa5ae5f116acb3060cffe2c19d71ee9f43b2b624697a8"),
    ],
)
def test_the_default_data_set_never_changes(load: Callable[..., Dataset], digest: str) -> None:
    """Texts, clauses and pixels, in every process: where this fails, the version of its world has
    to be raised. A smaller data set is a prefix of it.
    """
    whole = [content(sample) for sample in load().samples]
    assert digest_json(whole) == digest
    small = [content(sample) for sample in load(3).samples]
    assert small == [item for item in whole if int(item[0].split("/")[1]) < 3]
    for number in (0, 10_001):
        with pytest.raises(DatasetError, match=rf"1\.\.10,000, got {number}"):
            load(number)
