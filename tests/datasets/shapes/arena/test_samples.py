"""The arena data set: its samples are whole, different, and the same everywhere."""

from __future__ import annotations

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.shapes import parse_caption, parse_image
from pytest_cepbench.datasets.shapes.arena import TASKS, load_shapes_arena, sample_scenes
from tests.datasets.shapes.arena.strategies import gold_steps, question_pieces


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
