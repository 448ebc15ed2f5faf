"""The arena data set: its samples are whole, different, and the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import parse_caption, parse_image
from pytest_cepbench.datasets.shapes.arena import TASKS, load_shapes_arena, sample_scenes
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.suites.data import named_loader
from tests.datasets.shapes.arena.strategies import gold_steps, question_pieces

DEFAULT_DIGEST = "f193fff99dc02dee8a4fbe0c0b51a4d69595af646665696ceeb0f79239ede91c"


def content(dataset: Dataset) -> list[Any]:
    """Id, question and reference answer of every sample, with digests in the place of images."""
    return [
        [
            sample.id,
            [
                piece if isinstance(piece, str) else piece.digest
                for piece in question_pieces(sample)
            ],
            [[text, image and image.digest] for text, image in gold_steps(sample)],
        ]
        for sample in dataset.samples
    ]


def test_suites_find_it_by_name() -> None:
    """`[data] loader = "shapes-arena"` loads it."""
    assert named_loader("shapes-arena") is load_shapes_arena


def test_every_task_is_a_category_of_as_many_samples() -> None:
    """Ids are category/number with four digits, and metadata names the task."""
    dataset = load_shapes_arena(3)
    assert set(dataset.categories) == set(TASKS)
    for task in TASKS:
        samples = dataset.in_category(task)
        assert [sample.id for sample in samples] == [f"{task}/{n:04d}" for n in range(3)]
        assert {sample.metadata["task"] for sample in samples} == {task}


def test_gold_steps_have_the_caption_of_their_drawing() -> None:
    """Text and image of each step have one scene, which the metadata lists after the question's."""
    for sample in load_shapes_arena(6).samples:
        images = [piece for piece in question_pieces(sample) if not isinstance(piece, str)]
        shown = [parse_image(image) for image in images]
        for text, image in gold_steps(sample):
            assert image is not None
            assert parse_image(image) == parse_caption(text)
            shown.append(parse_image(image))
        assert sample_scenes(sample) == tuple(shown)
        assert sample.metadata["steps"] == len(sample.gold)
        digest_json(dict(sample.metadata))  # built-in types only, or this raises


def test_no_scene_has_more_objects_than_the_world_draws() -> None:
    """Trained models of the world know four, and so does the vocabulary."""
    sizes = {
        len(scene.objects)
        for sample in load_shapes_arena(100).samples
        for scene in sample_scenes(sample)
    }
    assert sizes == {0, 1, 2, 3, 4}


def test_numbers_of_steps_are_those_of_the_tasks() -> None:
    """As the documentation lists them."""
    dataset = load_shapes_arena(100)
    numbers = {task: {len(sample.gold) for sample in dataset.in_category(task)} for task in TASKS}
    assert numbers == {
        "build": {2, 3, 4},
        "add": {1, 2},
        "remove": {1, 2, 3},
        "move": {2},
        "recolor": {1},
        "swap": {1},
        "continue": {1},
        "count": {2, 3, 4},
        "own": {2},
        "restore": {3, 4},
    }


def test_questions_of_a_category_are_different_until_they_are_used_up() -> None:
    """`own` has 126 questions: all come once before any comes again."""
    dataset = load_shapes_arena(127)
    for task in TASKS:
        asked = [
            digest_json([sample.question[-1], sample.metadata["scenes"]])
            for sample in dataset.in_category(task)
        ]
        assert len(set(asked)) == (126 if task == "own" else 127)
        assert len(set(asked[:126])) == 126


def test_a_smaller_data_set_is_a_prefix_of_a_larger_one() -> None:
    """Raising the number of samples only adds samples."""
    small, large = content(load_shapes_arena(2)), content(load_shapes_arena(5))
    assert small == [item for item in large if int(item[0].split("/")[1]) < 2]


def test_seeds_give_other_questions() -> None:
    """The seed decides the questions, and is part of the identity."""
    first, second = load_shapes_arena(4, seed=0), load_shapes_arena(4, seed=1)
    assert not [a for a, b in zip(content(first), content(second), strict=True) if a == b]
    assert first.identity != second.identity


def test_the_default_data_set_never_changes() -> None:
    """Texts and pixels of all samples: where this fails, `ARENA_VERSION` has to be raised."""
    assert digest_json(content(load_shapes_arena())) == DEFAULT_DIGEST


def test_other_processes_make_the_same_data_set() -> None:
    """Nothing depends on the process, its hash seed included."""
    script = (
        "from pytest_cepbench.artifacts import digest_json\n"
        "from tests.datasets.shapes.arena.test_samples import content\n"
        "from pytest_cepbench.datasets.shapes.arena import load_shapes_arena\n"
        "print(digest_json(content(load_shapes_arena(3))))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest_json(content(load_shapes_arena(3)))


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_impossible_numbers_are_refused(number: int) -> None:
    """The message says what is possible."""
    with pytest.raises(DatasetError, match=rf"1\.\.10,000, got {number}"):
        load_shapes_arena(number)


def test_a_negative_seed_is_refused() -> None:
    """The message says what was given."""
    with pytest.raises(DatasetError, match="must not be negative, got -3"):
        load_shapes_arena(seed=-3)
