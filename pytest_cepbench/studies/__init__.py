"""Studies: how far a suite's numbers move with seed, generator, encoder or length."""

from pytest_cepbench.studies.grids import run_study
from pytest_cepbench.studies.prepared_study import PreparedStudy, prepare_study
from pytest_cepbench.studies.study_data import (
    Column,
    Grid,
    ModelSpread,
    Named,
    Study,
    StudyCell,
    StudyName,
    StudySpec,
    VariantAgreement,
    Weighting,
)

__all__ = [
    "Column",
    "Grid",
    "ModelSpread",
    "Named",
    "PreparedStudy",
    "Study",
    "StudyCell",
    "StudyName",
    "StudySpec",
    "VariantAgreement",
    "Weighting",
    "prepare_study",
    "run_study",
]
