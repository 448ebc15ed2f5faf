"""Patterns of scenes, and models that name them: the truth of constructed data sets."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.construction.patterns import (
    STYLES,
    Style,
    pattern_schema,
    read_pattern_reply,
    summary_schema,
)
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.arena import WriterDegradation
from pytest_cepbench.datasets.shapes.samples import PATTERN_NAMES, scene_patterns
from pytest_cepbench.models.rule_based import DescriberKnobs, ShapesDescriber, ShapesWriter
from pytest_cepbench.models.rule_based.scene_models import labelled_patterns

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


def describe(style: Style, names: tuple[str, ...] | None, **knobs: float) -> list[str]:
    """The replies of the describer on all images."""
    model = ShapesDescriber(DescriberKnobs(**knobs))
    schema = pattern_schema(style, names)
    seeds = list(range(len(IMAGES)))
    return model.describe_json(IMAGES, ["?"] * len(IMAGES), schema, seeds)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("names", [None, ("count", "Size", "Beauty")])
def test_the_describer_names_what_is_true(style: Style, names: tuple[str, ...] | None) -> None:
    """In the form of the schema; of a closed list only its names, spelled as there."""
    replies = [read_pattern_reply(text) for text in describe(style, names)]

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


def test_mislabel_leaves_captions_alone() -> None:
    """It is a knob of labels."""
    seeds = [0] * len(IMAGES)
    plain, mislabelling = (
        ShapesDescriber(DescriberKnobs(mislabel=share)).describe(IMAGES, "", seeds)
        for share in (0.0, 0.9)
    )

    assert plain == mislabelling


def test_lost_objects_are_lost_in_labels() -> None:
    """The knobs of scenes act before patterns are named."""
    labels = [read_pattern_reply(text).patterns for text in describe("neutral", None, miss=1.0)]

    assert set(labels) == {()}
    assert set(describe("neutral", None, blank=1.0)) == {""}


@pytest.mark.parametrize("style", STYLES)
def test_the_writer_summarizes_by_frequency(style: Style) -> None:
    """The most frequent names, at most so many; any other question is refused."""
    question = f"Summarize: {json.dumps({'frequencies': {'a': 1, 'Count': 3, 'b': 2}, 'most': 2})}"
    (reply,) = ShapesWriter(WriterDegradation()).write_json(
        [[question]], "", summary_schema(style), [0]
    )
    (refused,) = ShapesWriter(WriterDegradation()).write_json(
        [["hello"]], "", summary_schema(style), [0]
    )

    assert [p.name for p in read_pattern_reply(str(reply)).patterns] == ["Count", "b"]
    assert isinstance(refused, Failure)
    assert refused.kind == "refused"
