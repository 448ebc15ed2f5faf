"""The arena of shapes: questions that ask for texts and images step by step, with known truth.

A question is read (`read_question`), solved (`solve`) and an answer to it scored (`score_answer`)
without looking at the data set's own reference answer. `docs/suites.md` explains the world.
"""

from pytest_cepbench.datasets.shapes.arena.samples import (
    ARENA_VERSION,
    load_shapes_arena,
    sample_scenes,
    solve_sample,
)
from pytest_cepbench.datasets.shapes.arena.solver import (
    TASKS,
    VOCABULARY,
    ArenaQuestion,
    Solution,
    read_question,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.truth import (
    CRITERIA,
    TRUTH_VERSION,
    WEIGHTS,
    AnswerDegradation,
    ArenaStep,
    Truth,
    WriterDegradation,
    degraded_answer,
    score_answer,
)

__all__ = [
    "ARENA_VERSION",
    "CRITERIA",
    "TASKS",
    "TRUTH_VERSION",
    "VOCABULARY",
    "WEIGHTS",
    "AnswerDegradation",
    "ArenaQuestion",
    "ArenaStep",
    "Solution",
    "Truth",
    "WriterDegradation",
    "degraded_answer",
    "load_shapes_arena",
    "read_question",
    "sample_scenes",
    "score_answer",
    "solve",
    "solve_sample",
]
