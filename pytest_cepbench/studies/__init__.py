"""Studies: how far a suite's numbers move with the seed, the generator, the encoder or the length."""

from pytest_cepbench.studies.preparing import Prepared, prepare
from pytest_cepbench.studies.question import Named, Question, StudyName
from pytest_cepbench.studies.result import (
    Agreement,
    Cell,
    Column,
    Grid,
    ModelSpread,
    Player,
    Study,
    Weighting,
    Words,
)
from pytest_cepbench.studies.running import run_study

__all__ = [
    "Agreement",
    "Cell",
    "Column",
    "Grid",
    "ModelSpread",
    "Named",
    "Player",
    "Prepared",
    "Question",
    "Study",
    "StudyName",
    "Weighting",
    "Words",
    "prepare",
    "run_study",
]
