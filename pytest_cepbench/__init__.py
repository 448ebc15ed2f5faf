"""Gate checkpoints of multimodal models in pytest.

What users import is named here and loaded when it is first asked for: the package itself costs a
plain pytest run nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cepbench._version import __version__ as __version__
    from pytest_cepbench.artifacts import Detection as Detection
    from pytest_cepbench.artifacts import Detections as Detections
    from pytest_cepbench.artifacts import Failure as Failure
    from pytest_cepbench.artifacts import ImageArtifact as ImageArtifact
    from pytest_cepbench.artifacts import Sound as Sound
    from pytest_cepbench.artifacts.outcome import CriteriaScores as CriteriaScores
    from pytest_cepbench.artifacts.outcome import CriterionScore as CriterionScore
    from pytest_cepbench.datasets.sample import Dataset as Dataset
    from pytest_cepbench.datasets.sample import DrawnImage as DrawnImage
    from pytest_cepbench.datasets.sample import FileImage as FileImage
    from pytest_cepbench.datasets.sample import GoldStep as GoldStep
    from pytest_cepbench.datasets.sample import Sample as Sample
    from pytest_cepbench.errors import CepError as CepError
    from pytest_cepbench.errors import InconclusiveWarning as InconclusiveWarning
    from pytest_cepbench.evaluation.python_api import GateResult as GateResult
    from pytest_cepbench.evaluation.python_api import gate_checkpoint as gate_checkpoint
    from pytest_cepbench.gate import Judgement as Judgement
    from pytest_cepbench.gate import Measurement as Measurement
    from pytest_cepbench.gate import Verdict as Verdict
    from pytest_cepbench.measures.cases import Case as Case
    from pytest_cepbench.metrics.gc import cosine_to_start as cosine_to_start
    from pytest_cepbench.metrics.gc import gc_at_t as gc_at_t
    from pytest_cepbench.metrics.gc import mean_similarity as mean_similarity
    from pytest_cepbench.models.protocols import AnsweredQuestion as AnsweredQuestion
    from pytest_cepbench.models.protocols import AnswerScorer as AnswerScorer
    from pytest_cepbench.models.protocols import AnswerStep as AnswerStep
    from pytest_cepbench.models.protocols import Battle as Battle
    from pytest_cepbench.models.protocols import Describer as Describer
    from pytest_cepbench.models.protocols import Detector as Detector
    from pytest_cepbench.models.protocols import Editor as Editor
    from pytest_cepbench.models.protocols import Encoder as Encoder
    from pytest_cepbench.models.protocols import Generator as Generator
    from pytest_cepbench.models.protocols import Interleaver as Interleaver
    from pytest_cepbench.models.protocols import JsonDescriber as JsonDescriber
    from pytest_cepbench.models.protocols import JsonWriter as JsonWriter
    from pytest_cepbench.models.protocols import Judge as Judge
    from pytest_cepbench.models.protocols import Reply as Reply
    from pytest_cepbench.models.protocols import StepLimit as StepLimit
    from pytest_cepbench.models.protocols import Usage as Usage
    from pytest_cepbench.models.protocols import Vqa as Vqa
    from pytest_cepbench.models.protocols import VqaQuestion as VqaQuestion
    from pytest_cepbench.models.protocols import Writer as Writer
    from pytest_cepbench.report.result import CaseResult as CaseResult


_EXPORTS = {
    "_version": ("__version__",),
    "artifacts": ("Detection", "Detections", "Failure", "ImageArtifact", "Sound"),
    "artifacts.outcome": ("CriteriaScores", "CriterionScore"),
    "datasets.sample": ("Dataset", "DrawnImage", "FileImage", "GoldStep", "Sample"),
    "errors": ("CepError", "InconclusiveWarning"),
    "evaluation.python_api": ("GateResult", "gate_checkpoint"),
    "gate": ("Judgement", "Measurement", "Verdict"),
    "metrics.gc": ("cosine_to_start", "gc_at_t", "mean_similarity"),
    "measures.cases": ("Case",),
    "models.protocols": (
        "AnswerScorer", "AnswerStep", "AnsweredQuestion", "Battle", "Describer", "Detector",
        "Editor", "Encoder", "Generator", "Interleaver", "JsonDescriber", "JsonWriter", "Judge",
        "Reply", "StepLimit", "Usage", "Vqa", "VqaQuestion", "Writer",
    ),
    "report.result": ("CaseResult",),
}  # fmt: skip
"""Module -> the names that it exports to users."""

_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 - made of the table above


def __getattr__(name: str) -> Any:
    """Load a public name from its home (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
