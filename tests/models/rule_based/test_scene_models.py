"""The built-in models: perfect chains stay at 1, every knob lowers GC@3, and real ones agree."""

from __future__ import annotations

import zlib
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import (
    Degradation,
    caption,
    degrade_scene,
    features,
    load_shapes,
    parse_caption,
    render,
)
from pytest_cepbench.datasets.shapes.scene import SHAPES
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import RoleName, VqaQuestion
from pytest_cepbench.models.rule_based import bind
from pytest_cepbench.models.rule_based.scene_models import ShapesVqa, VqaKnobs
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import CONTEXT

STEPS = 3
LEVELS = (0.05, 0.1, 0.2, 0.4)
Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Some samples of each category of the default data set."""
    return load_shapes().limited(4)


def bound(text: str, role: RoleName) -> BoundRole:
    """A spec bound as a user's would be."""
    return bind(parse_spec(text), role, CONTEXT)


def load(text: str, role: RoleName) -> Any:
    """The model of a spec."""
    return bound(text, role).load()


def unit(vectors: npt.NDArray[Any]) -> Floats:
    """Vectors of length 1."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float64)


def chain(samples: tuple[Sample, ...], describer: str, generator: str = "shapes:") -> Floats:
    """(n, 3) similarities of image-first chains to their starts; 0 from a blank answer on."""
    describe = load(describer, "describer").describe
    generate = load(generator, "generator").generate
    encoder = load("shapes:", "encoder")
    images = [load_seed_image(sample).to_pil() for sample in samples]
    start = unit(encoder.encode_images(images))
    alive = np.ones(len(samples), dtype=bool)
    columns = []
    for step in range(STEPS):
        seeds = [
            [zlib.crc32(f"{sample.id} {2 * step + half}".encode()) for sample in samples]
            for half in (0, 1)
        ]
        texts = [cast("str", text) for text in describe(images, "Describe it.", seeds[0])]
        arrays = [np.asarray(image) for image in generate(texts, seeds[1])]
        alive &= [
            bool(text) and bool(array.any()) for text, array in zip(texts, arrays, strict=True)
        ]
        images = [Image.fromarray(array) for array in arrays]
        columns.append((start * unit(encoder.encode_images(images))).sum(axis=1) * alive)
    return np.stack(columns, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["miss", "recolor", "reshape", "resize", "move", "swap", "blank"])
def test_every_knob_lowers_gc_at_3(name: str, dataset: Dataset) -> None:
    """From 1 of perfect models, the mean over some samples of each category falls strictly."""
    samples = dataset.samples
    specs = ["shapes:", *(f"shapes:?{name}={level}" for level in LEVELS)]
    scores = [float((chain(samples, spec) @ [1, 2, 3]).mean() / 6) for spec in specs]
    assert scores[0] == pytest.approx(1.0, abs=1e-6)
    assert (np.diff(scores) < -0.001).all(), scores


def test_one_distortion_whichever_role_makes_it(dataset: Dataset) -> None:
    """With the same seed a describer says, and a generator draws, the same distorted scene."""
    spec = "shapes:?miss=0.2&recolor=0.3&reshape=0.3&resize=0.3&move=0.3&swap=0.5"
    describer = load(spec, "describer")
    generator = load(spec, "generator")
    encoder = load("shapes:", "encoder")
    knobs = Degradation(miss=0.2, recolor=0.3, reshape=0.3, resize=0.3, move=0.3, swap=0.5)
    seeds = list(range(len(dataset.samples)))
    texts = [sample.text or "" for sample in dataset.samples]
    images = [load_seed_image(sample).to_pil() for sample in dataset.samples]
    expected = [
        degrade_scene(parse_caption(text), knobs, seed)
        for text, seed in zip(texts, seeds, strict=True)
    ]
    assert list(describer.describe(images, "", seeds)) == [caption(scene) for scene in expected]
    drawn = [Image.fromarray(np.asarray(image)) for image in generator.generate(texts, seeds)]
    wanted = np.array([features(scene) for scene in expected])
    assert np.array_equal(encoder.encode_images(drawn), wanted)


def test_an_image_and_its_caption_have_one_vector(dataset: Dataset) -> None:
    """Text-image similarity of a matching pair is 1, and that of others is low on average."""
    encoder = load("shapes:", "encoder")
    images = unit(
        encoder.encode_images([load_seed_image(sample).to_pil() for sample in dataset.samples])
    )
    texts = unit(encoder.encode_texts([sample.text or "" for sample in dataset.samples]))
    table = images @ texts.T
    assert np.diag(table) == pytest.approx(np.ones(len(table)), abs=1e-9)
    assert (table.sum() - np.trace(table)) / (table.size - len(table)) < 0.2


def test_the_scene_of_nothing_is_no_failure() -> None:
    """Having lost all objects is an answer: said in words, drawn as a ground that is not black."""
    describer = load("shapes:?miss=1", "describer")
    generator = load("shapes:?miss=1", "generator")
    scene = parse_caption("small red circle top left")
    assert list(describer.describe([render(scene, 0).to_pil()], "", [0])) == ["no shapes"]
    (image,) = generator.generate([caption(scene)], [0])
    assert np.asarray(image).min() > 0


def test_the_detector_finds_what_was_drawn(dataset: Dataset) -> None:
    """Of every scene the shapes that are asked for, with their colors, sure of each."""
    detector = load("shapes:", "detector")
    images = [load_seed_image(sample).to_pil() for sample in dataset.samples]
    asked = [["circle", "cross"], ["triangle", "square"]]
    queries = [asked[index % 2] for index in range(len(images))]
    for sample, wanted, detections in zip(
        dataset.samples, queries, detector.detect(images, queries), strict=True
    ):
        assert isinstance(detections, Detections)
        drawn = parse_caption(sample.text or "").objects
        expected = [(thing.shape, thing.color, 1.0) for thing in drawn if thing.shape in wanted]
        assert [
            (detection.query, detection.color, detection.score) for detection in detections.found
        ] == expected


def test_the_detector_says_where_things_are(dataset: Dataset) -> None:
    """The center of each box lies in the cell that the caption names.

    A wrong question is the caller's mistake, found also where the image shows nothing.
    """
    detector = load("shapes:", "detector")
    with pytest.raises(RoleError, match=r"unknown shape .*Known: circle, cross, square, triangle"):
        detector.detect([Image.new("RGB", (64, 64))], [["cross", "red circle"]])
    for sample in dataset.samples:
        image = load_seed_image(sample).to_pil().resize((192, 192))
        (detections,) = detector.detect([image], [SHAPES])
        assert isinstance(detections, Detections)
        cells = [thing.cell for thing in parse_caption(sample.text or "").objects]
        centers = [
            ((detection.box[0] + detection.box[2]) / 2, (detection.box[1] + detection.box[3]) / 2)
            for detection in detections.found
        ]
        assert [int(y // 64) * 3 + int(x // 64) for x, y in centers] == cells


def test_what_the_world_has_not_is_refused() -> None:
    """The message says what was typed and what could be."""
    with pytest.raises(SpecError, match="nothing but knobs can follow 'shapes:', got 'large'"):
        bound("shapes:large", "describer")
    with pytest.raises(RoleError, match=r"the shapes world has no editor; it has describer, .*"):
        bound("shapes:", "editor")


CAPTION = "two shapes : large red circle top left , small blue square bottom right"

PICTURE = render(parse_caption(CAPTION), 3).to_pil()

RED = VqaQuestion("Is the circle red? Answer in one word.", ("Yes", "yes"))

BLUE = VqaQuestion("Is the circle blue?", ("Yes", "yes"))

COUNT = VqaQuestion("How many shapes are in the image?", ("two", "Two", "2"))


def test_pictures_and_texts_are_answered_alike() -> None:
    """Exactly: 1 for the answer that is right, else 0."""
    answers = ShapesVqa(VqaKnobs()).answer([PICTURE, CAPTION], [[RED, BLUE, COUNT]] * 2)
    assert answers == [[1.0, 0.0, 1.0]] * 2


@given(st.floats(0, 1), st.floats(0, 1))
def test_knobs_take_known_amounts(yes: float, doubt: float) -> None:
    """A share of every answer is yes whatever is shown, and a share of all goes to nothing."""
    (answers,) = ShapesVqa(VqaKnobs(yes, doubt)).answer([PICTURE], [[RED, BLUE, COUNT]])
    assert answers == pytest.approx(
        [1 - doubt, yes * (1 - doubt), (1 - yes) * (1 - doubt)], abs=1e-12
    )


def test_a_foreign_question_is_a_failure() -> None:
    """No answer is made up for it."""
    (answer,) = ShapesVqa(VqaKnobs()).answer([PICTURE], [[RED, VqaQuestion("Why?", ("Yes",))]])
    assert isinstance(answer, Failure)
    assert answer.kind == "refused"
