"""Gate checkpoints of multimodal models in pytest.

What users import is named here and loaded when it is first asked for: the package itself costs a
plain pytest run nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cepbench._version import __version__
    from pytest_cepbench.artifacts import Detection, Detections, Failure, ImageArtifact
    from pytest_cepbench.datasets.sample import Dataset, DrawnImage, FileImage, Sample
    from pytest_cepbench.errors import CepError, InconclusiveWarning
    from pytest_cepbench.gate import Judgement, Measurement, Verdict
    from pytest_cepbench.metrics import cosine_to_start, gc_at_t, mean_similarity
    from pytest_cepbench.models.protocols import (
        Battle,
        Describer,
        Detector,
        Encoder,
        Generator,
        Judge,
        Reply,
        Usage,
    )


_HOMES = {
    "__version__": "_version",
    "Battle": "models.protocols",
    "CepError": "errors",
    "Dataset": "datasets.sample",
    "Describer": "models.protocols",
    "Detection": "artifacts",
    "Detections": "artifacts",
    "Detector": "models.protocols",
    "DrawnImage": "datasets.sample",
    "Encoder": "models.protocols",
    "Failure": "artifacts",
    "FileImage": "datasets.sample",
    "Generator": "models.protocols",
    "ImageArtifact": "artifacts",
    "InconclusiveWarning": "errors",
    "Judge": "models.protocols",
    "Judgement": "gate",
    "Measurement": "gate",
    "Reply": "models.protocols",
    "Sample": "datasets.sample",
    "Usage": "models.protocols",
    "Verdict": "gate",
    "cosine_to_start": "metrics",
    "gc_at_t": "metrics",
    "mean_similarity": "metrics",
}

__all__ = [
    "Battle",
    "CepError",
    "Dataset",
    "Describer",
    "Detection",
    "Detections",
    "Detector",
    "DrawnImage",
    "Encoder",
    "Failure",
    "FileImage",
    "Generator",
    "ImageArtifact",
    "InconclusiveWarning",
    "Judge",
    "Judgement",
    "Measurement",
    "Reply",
    "Sample",
    "Usage",
    "Verdict",
    "__version__",
    "cosine_to_start",
    "gc_at_t",
    "mean_similarity",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home (PEP 562)."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
