"""The arena data set: questions of the shapes world that ask for texts and images step by step."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from pytest_cepbench.datasets.sample import (
    Dataset,
    DrawnImage,
    GoldStep,
    Sample,
)
from pytest_cepbench.datasets.shapes.arena.grammar import Task, phrase_instruction
from pytest_cepbench.datasets.shapes.arena.solver import (
    ArenaQuestion,
    Solution,
    read_question,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.tasks import FAMILIES
from pytest_cepbench.datasets.shapes.render import render
from pytest_cepbench.datasets.shapes.samples import check_options, derived_seed, draw_different
from pytest_cepbench.datasets.shapes.scene import WORLD_VERSION, Scene, SceneObject, caption

ARENA_VERSION = "shapes-arena/1"
"""Changes when a question or its right answer changes: part of identities and fingerprints."""


def load_shapes_arena(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """Questions of the arena's ten tasks with their right answers.

    Images of a question come before its text. A gold step has the caption of its scene and its
    drawing; all images of a sample are drawn with one jitter. No question is in a category twice
    before all of its family's are (126 in `own`, far more in the others). The samples of a number
    are also those of every larger number, the same on every machine.
    metadata: "task", as the category; "steps", how many the gold answer has; "scenes", the scenes
    of the question's images and then of the gold steps, each a list of objects as dicts with cell
    (0..8), size, color and shape.
    Raises DatasetError unless 1 <= samples_per_category <= 10,000 and seed >= 0.
    """
    check_options(samples_per_category, seed)
    samples = [
        _sample(task, index, question, seed)
        for task in sorted(FAMILIES)
        for index, question in enumerate(
            draw_different(
                FAMILIES[task], samples_per_category, derived_seed(seed, f"arena {task}")
            )
        )
    ]
    identity = {
        "loader": "shapes-arena",
        "version": ARENA_VERSION,
        "world": WORLD_VERSION,
        "samples_per_category": samples_per_category,
        "seed": seed,
    }
    return Dataset("shapes-arena", identity, tuple(samples))


def sample_scenes(sample: Sample) -> tuple[Scene, ...]:
    """Every scene of a sample of the arena, its question's first: what training leaves out."""
    return tuple(
        Scene(tuple(SceneObject(**scene_object) for scene_object in objects))
        for objects in sample.metadata["scenes"]
    )


def solve_sample(sample: Sample) -> Solution:
    """The right answer to a sample's question, from its text and images.

    Raises DatasetError where the question is none of the arena.
    """
    return solve(
        read_question(
            [piece if isinstance(piece, str) else piece.load() for piece in sample.question]
        )
    )


def _sample(task: Task, index: int, question: ArenaQuestion, seed: int) -> Sample:
    sample_id = f"{task}/{index:04d}"
    jitter = derived_seed(seed, f"arena {sample_id}")
    gold = solve(question).scenes
    return Sample(
        id=sample_id,
        categories=(task,),
        question=(
            *(_drawing(scene, jitter) for scene in question.scenes),
            phrase_instruction(question.instruction),
        ),
        gold=tuple(GoldStep(caption(scene), _drawing(scene, jitter)) for scene in gold),
        metadata={
            "task": task,
            "steps": len(gold),
            "scenes": [
                [asdict(what) for what in scene.objects] for scene in (*question.scenes, *gold)
            ],
        },
    )


def _drawing(scene: Scene, jitter: int) -> DrawnImage:
    return DrawnImage(partial(render, scene, jitter))
