"""Studies: how far a suite's numbers move with the seed, the generator, the encoder or the length."""

from pytest_cepbench.studies.prepared_study import PreparedStudy, prepare_study
from pytest_cepbench.studies.runner import run_study
from pytest_cepbench.studies.study_result import (
    Column,
    Grid,
    LengthStatistics,
    ModelSpread,
    StudiedModel,
    Study,
    StudyCell,
    VariantAgreement,
    Weighting,
)
from pytest_cepbench.studies.study_spec import Named, StudyName, StudySpec

__all__ = [
    "Column",
    "Grid",
    "LengthStatistics",
    "ModelSpread",
    "Named",
    "PreparedStudy",
    "StudiedModel",
    "Study",
    "StudyCell",
    "StudyName",
    "StudySpec",
    "VariantAgreement",
    "Weighting",
    "prepare_study",
    "run_study",
]
