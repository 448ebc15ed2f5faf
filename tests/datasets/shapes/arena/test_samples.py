"""The arena data set: its samples are whole, different, and the same everywhere."""

from __future__ import annotations

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.shapes.arena import TASKS, load_shapes_arena, sample_scenes


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
