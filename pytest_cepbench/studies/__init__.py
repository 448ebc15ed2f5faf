"""Studies: how far a suite's numbers move with the seed, the generator, the encoder or the length."""

from pytest_cepbench.studies.preparation import Prepared, prepare
from pytest_cepbench.studies.runner import run_study
from pytest_cepbench.studies.spec import Named, Question, StudyName
from pytest_cepbench.studies.study_result import (
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
