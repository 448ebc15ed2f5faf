"""Edits of scenes and of any image, and the samples that they make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.edits import (
    EDITS,
    PIXEL_EDITS,
    SCENE_EDITS,
    SceneEdit,
    check_edits,
    choose_edit,
    mirrored,
    scene_facts,
    swap_sides,
    with_edits,
)
from pytest_cepbench.datasets.folder import load_folder
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    parse_image,
    sample_scene,
)
from pytest_cepbench.errors import DatasetError
from tests.datasets.shapes.strategies import drawn_scenes, scenes

SHAPES = load_shapes(samples_per_category=3)

WORDS = st.lists(
    st.sampled_from(["left", "Right", "LEFT", "rightmost", "a", "dog", "clockwise", "left-hand,"])
).map(" ".join)


@pytest.fixture(scope="module")
def edited() -> Dataset:
    """Scenes with every edit that they take."""
    return with_edits(SHAPES, SCENE_EDITS)


@pytest.fixture
def photos(tmp_path: Path) -> Dataset:
    """Two photographs: one of random pixels, one of a single color."""
    pixels = np.random.default_rng(0).integers(30, 220, (6, 8, 3), dtype=np.uint8)
    (tmp_path / "cat").mkdir()
    Image.fromarray(pixels).save(tmp_path / "cat/noise.png")
    Image.new("RGB", (8, 6), (120, 60, 60)).save(tmp_path / "cat/plain.png")
    return load_folder(tmp_path)


def test_images_and_captions_of_edited_scenes_agree(edited: Dataset) -> None:
    """What an edited image shows is what its caption says and its metadata holds."""
    changed = [sample for sample in edited.samples if sample.edit is not None]
    assert len(changed) > 3 * len(SHAPES.samples)
    for sample in changed:
        scene = sample_scene(sample)
        assert parse_image(load_seed_image(sample)) == scene
        assert sample.text == caption(scene)


def test_what_an_edit_leaves_alone_keeps_its_pixels(edited: Dataset) -> None:
    """Outside of the cells of the edit the image is the same, to the last bit."""
    for sample in edited.samples:
        if sample.edit is None or sample.edit.name != "recolor":
            continue
        other = edited.with_id(sample.edit.of)
        assert other is not None
        differs = (load_seed_image(sample).pixels != load_seed_image(other).pixels).any(axis=2)
        rows, columns = np.nonzero(differs)
        cell = sample.edit.target["object"]["cell"]
        assert {int((row + 0.5) // (64 / 3)) for row in rows[:: len(rows) // 3 or 1]} <= {
            cell // 3 - 1,
            cell // 3,
            cell // 3 + 1,
        }
        assert np.ptp(rows) < 25
        assert np.ptp(columns) < 25


def test_samples_of_a_pair_belong_together(edited: Dataset) -> None:
    """They share categories and unit, and the data set says what was left out."""
    for sample in edited.samples:
        other = edited.with_id(sample.origin)
        assert other is not None
        assert (sample.unit, sample.categories) == (other.id, other.categories)
    taken = dict.fromkeys(SCENE_EDITS, 0)
    for sample in edited.samples:
        if sample.edit is not None:
            taken[sample.edit.name] += 1
    assert taken["mirror"] < len(SHAPES.samples) == taken["move"]
    left = len(SHAPES.samples) - taken["mirror"]
    assert edited.notes[0].startswith(f"edit mirror: left out {left} of {len(SHAPES.samples)}")
    assert len(edited.notes) == 2
    assert edited.identity["edits"] == "edits/1 mirror move recolor remove redraw"


@pytest.mark.parametrize("times", [1, 2])
@given(most=st.integers(1, 14))
def test_fewer_samples_hold_no_half_pairs(edited: Dataset, times: int, most: int) -> None:
    """Of a part of the samples each edited one has its other one, also of further seeds."""
    whole = edited.repeated(times)
    part = whole.limited(most)
    assert all(part.with_id(sample.origin) is not None for sample in part.samples)
    assert max(len(part.in_category(name)) for name in part.categories) <= most
    rest = whole.without(most)
    if rest is not None:
        assert all(rest.with_id(sample.origin) is not None for sample in rest.samples)
        assert not {s.id for s in rest.samples} & {s.id for s in part.samples}


def test_pixels_of_photographs(photos: Dataset) -> None:
    """Each edit does to the pixels what its name says, and the files stay as they are."""
    changed = with_edits(photos, tuple(PIXEL_EDITS))
    pixels = load_seed_image(photos.samples[0]).pixels.astype(float)

    def of(name: str) -> np.ndarray:
        sample = changed.with_id(f"{photos.samples[0].id} {name}")
        assert sample is not None
        return load_seed_image(sample).pixels.astype(float)

    assert (of("mirror") == pixels[:, ::-1]).all()
    assert of("brightness") == pytest.approx(0.7 * pixels, abs=0.5)
    assert of("contrast").std() == pytest.approx(0.6 * pixels.std(), rel=0.01)
    assert of("contrast").mean() == pytest.approx(pixels.mean(), abs=0.5)
    value = pixels.max(axis=2)
    assert of("hue").max(axis=2) == pytest.approx(value, abs=3)
    assert np.abs(of("hue") - pixels).max() > 20


def test_a_hue_is_turned_towards_yellow() -> None:
    """Fifteen degrees of 360 from red."""
    red = np.full((1, 1, 3), (240, 0, 0), np.uint8)
    assert PIXEL_EDITS["hue"](red)[0, 0].tolist() == pytest.approx([240, 60, 0], abs=3)


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_mirrored_twice_is_the_image(red: int, green: int, blue: int) -> None:
    """To the last bit."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + np.uint8(red % 200)
    pixels[0, 0] = (red, green, blue)
    mirror = PIXEL_EDITS["mirror"]
    assert (mirror(mirror(pixels)) == pixels).all()


@given(WORDS)
def test_sides_swapped_twice_are_the_text(text: str) -> None:
    """An English text of the mirror image, mirrored, is the text."""
    assert swap_sides(swap_sides(text)) == text
    assert len(swap_sides(text).split()) == len(text.split())


@pytest.mark.parametrize(
    ("text", "mirrored"),
    [
        ("A dog left of a cat.", "A dog right of a cat."),
        ("On the Right, a RIGHT-hand glove", "On the Left, a LEFT-hand glove"),
        ("the leftmost of two, facing rightwards", "the rightmost of two, facing leftwards"),
        ("turns clockwise", "turns counterclockwise"),
        ("turns anti-clockwise", "turns clockwise"),
        ("It is right now at a right angle", "It is right now at a right angle"),
        ("nothing is left", "nothing is left"),
        ("it is left of the door", "it is right of the door"),
        ("a bright cleft, copyright", "a bright cleft, copyright"),
        ("", ""),
    ],
)
def test_sides_in_english(text: str, mirrored: str) -> None:
    """Words that are sides change places, in their capitals; others stay."""
    assert swap_sides(text) == mirrored


def test_a_text_is_mirrored_with_its_image() -> None:
    """Where the data has both; what is only a matter of light leaves the text as it is."""
    image = DrawnImage(lambda: ImageArtifact(np.zeros((2, 2, 3), np.uint8)))
    samples = (Sample("a", ("c",), image, text="a cat on the left", metadata={"tag": "x"}),)
    changed = with_edits(Dataset("pairs", {}, samples), ["mirror", "contrast"])
    texts = {sample.id: (sample.text, sample.metadata) for sample in changed.samples[1:]}
    assert texts == {
        "a contrast": ("a cat on the left", {}),
        "a mirror": ("a cat on the right", {}),
    }


PROMPTS = Dataset("prompts", {}, (Sample("a", ("c",), text="a cat"),))

ALONE = Dataset("alone", {}, SHAPES.in_category("existence"))


@pytest.mark.parametrize(
    ("dataset", "name", "words"),
    [
        *(
            (None, name, f"take the edit '{name}': it has images .* take mirror, bright")
            for name in ("move", "recolor", "remove", "redraw")
        ),
        (SHAPES, "hue", "cannot take the edit 'hue': it has generated scenes, which take mir"),
        (PROMPTS, "mirror", "'prompts' has no images, and cannot take the edit 'mirror'"),
        (ALONE, "remove", "edit 'remove' would change no sample of data set 'alone'"),
    ],
)
def test_what_no_sample_can_take_is_refused(
    photos: Dataset, dataset: Dataset | None, name: str, words: str
) -> None:
    """Photographs take no edits of scenes, nor these those of light; the message says which do."""
    with pytest.raises(DatasetError, match=words):
        with_edits(dataset or photos, [name])


def test_edits_are_known_and_named_once() -> None:
    """A mistyped name gets the nearest one."""
    check_edits(EDITS)
    with pytest.raises(ValueError, match=r"unknown edit 'miror'\. Did you mean 'mirror'"):
        check_edits(["miror"])
    with pytest.raises(DatasetError, match="edit 'move' is there 2 times"):
        with_edits(SHAPES, ["move", "move"])


def test_ids_that_look_like_edited_ones_are_refused() -> None:
    """Two samples of one name would share one baseline score."""
    first, second, *_ = SHAPES.samples
    samples = (first, replace(second, id=f"{first.id} move"))
    with pytest.raises(DatasetError, match=f"sample id '{first.id} move' is there twice"):
        with_edits(Dataset("mine", {}, samples), ["move"])


IDS = st.text(max_size=8)

CROSS = SceneObject(0, "small", "red", "cross")
SQUARE = SceneObject(5, "large", "blue", "square")
BOTH = Scene((CROSS, SQUARE))


@given(scenes())
def test_mirrored_twice_is_the_scene(scene: Scene) -> None:
    """Left and right change places, rows stay, and nothing is lost."""
    other = mirrored(scene)
    assert mirrored(other) == scene
    assert sorted(own.look for own in other.objects) == sorted(own.look for own in scene.objects)
    assert sorted(own.row for own in other.objects) == sorted(own.row for own in scene.objects)


@pytest.mark.parametrize("name", SCENE_EDITS)
@given(scene=drawn_scenes(at_least=0), sample_id=IDS)
def test_an_edit_changes_one_thing(name: str, scene: Scene, sample_id: str) -> None:
    """The number of facts that go and come is what the name says; the same for the same sample."""
    edit = choose_edit(name, scene, sample_id)
    assert edit == choose_edit(name, scene, sample_id)
    if edit is None:
        return
    edited = edit.apply(scene)
    assert edited is not None
    before, after = scene_facts(scene), scene_facts(edited)
    gone, came = len(before - after), len(after - before)
    counts = {"move": (3, 3), "recolor": (1, 1), "remove": (3, 0), "redraw": (0, 0)}
    if name == "mirror":
        assert gone == came > 0
    else:
        assert (gone, came) == counts[name]


@given(scene=drawn_scenes(), sample_id=IDS, name=st.sampled_from(SCENE_EDITS))
def test_an_edit_is_read_back_from_its_target(scene: Scene, sample_id: str, name: str) -> None:
    """What a sample carries of its edit is all of it."""
    edit = choose_edit(name, scene, sample_id)
    assert edit is None or SceneEdit.read(name, edit.target) == edit


def test_scenes_that_an_edit_leaves_as_they_are() -> None:
    """A symmetric scene has no mirror image of its own, and a single object is not taken away."""
    middle = Scene((SceneObject(4, "small", "red", "cross"),))
    pair = Scene((CROSS, SceneObject(2, "small", "red", "cross")))
    assert choose_edit("mirror", middle, "a") is None
    assert choose_edit("mirror", pair, "a") is None
    assert choose_edit("remove", middle, "a") is None
    assert all(choose_edit(name, Scene(), "a") is None for name in SCENE_EDITS)


def test_an_object_is_meant_by_its_cell_then_by_its_look() -> None:
    """An answer that misplaces it can be edited; one with two such objects, or none, cannot."""
    edit = SceneEdit("recolor", CROSS, color="green")
    assert edit.apply(BOTH) == Scene((SceneObject(0, "small", "green", "cross"), SQUARE))
    elsewhere = SceneObject(8, "small", "red", "cross")
    assert edit.apply(Scene((elsewhere,))) == Scene((SceneObject(8, "small", "green", "cross"),))
    wrong = SceneObject(0, "large", "cyan", "circle")
    assert edit.apply(Scene((wrong, elsewhere))) == Scene(
        (SceneObject(0, "large", "green", "circle"), elsewhere)
    )
    assert edit.apply(Scene((elsewhere, SceneObject(7, "small", "red", "cross")))) is None
    assert edit.apply(Scene((SQUARE,))) is None


def test_an_object_takes_the_place_of_another() -> None:
    """Where an answer has an object in the cell to which one moves, the edited answer has one."""
    edit = SceneEdit("move", CROSS, cell=5)
    assert edit.apply(BOTH) == Scene((SceneObject(5, "small", "red", "cross"),))
