"""The arena of shapes: questions that ask for texts and images step by step, with known truth.

A question is read (`read_question`), solved (`solve`) and an answer to it scored (`score_answer`)
without looking at the data set's own reference answer. `docs/suites.md` explains the world.
"""

from pytest_cepbench.datasets.shapes.arena.samples import ARENA_VERSION as ARENA_VERSION
from pytest_cepbench.datasets.shapes.arena.samples import load_shapes_arena as load_shapes_arena
from pytest_cepbench.datasets.shapes.arena.samples import sample_scenes as sample_scenes
from pytest_cepbench.datasets.shapes.arena.samples import solve_sample as solve_sample
from pytest_cepbench.datasets.shapes.arena.solver import TASKS as TASKS
from pytest_cepbench.datasets.shapes.arena.solver import VOCABULARY as VOCABULARY
from pytest_cepbench.datasets.shapes.arena.solver import ArenaQuestion as ArenaQuestion
from pytest_cepbench.datasets.shapes.arena.solver import Solution as Solution
from pytest_cepbench.datasets.shapes.arena.solver import read_question as read_question
from pytest_cepbench.datasets.shapes.arena.solver import solve as solve
from pytest_cepbench.datasets.shapes.arena.truth import CRITERIA as CRITERIA
from pytest_cepbench.datasets.shapes.arena.truth import TRUTH_VERSION as TRUTH_VERSION
from pytest_cepbench.datasets.shapes.arena.truth import WEIGHTS as WEIGHTS
from pytest_cepbench.datasets.shapes.arena.truth import AnswerDegradation as AnswerDegradation
from pytest_cepbench.datasets.shapes.arena.truth import ArenaStep as ArenaStep
from pytest_cepbench.datasets.shapes.arena.truth import Truth as Truth
from pytest_cepbench.datasets.shapes.arena.truth import WriterDegradation as WriterDegradation
from pytest_cepbench.datasets.shapes.arena.truth import degraded_answer as degraded_answer
from pytest_cepbench.datasets.shapes.arena.truth import score_answer as score_answer
