"""The parameters that a detector's spec can carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pytest_cepbench.models.load_plan import LoadPlan, check_placement
from pytest_cepbench.models.torch_runtime import IMAGE_BACKENDS

Queries = Literal["free-text", "classes"]


@dataclass(frozen=True)
class OwlParams:
    """Parameters of a detector that is asked in free text.

    device: auto, cpu, cuda, cuda:N or mps. dtype: auto, float32, float16 or bfloat16.
    batch_size: most images in one call.
    revision: commit, tag or branch of a hub id. allow_pickle: read pickled weights where there are
        no others. attn_implementation: eager, sdpa, ...; None leaves the library's choice.
    backend: the image processor's implementation, pinned as for encoders.
    threshold: a box is kept when its score is above it (0.1: Semantic Drift's `mgg.py`).
    nms: of two boxes for one query that overlap by more than this (intersection over union, in
        (0, 1]) the less confident is dropped; None, as in `mgg.py`, drops none.
    max_detections: most boxes of an image; None keeps all.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 8
    revision: str | None = None
    allow_pickle: bool = False
    attn_implementation: str | None = None
    backend: str = "pil"
    threshold: float = 0.1
    nms: float | None = None
    max_detections: int | None = None

    def __post_init__(self) -> None:
        _check(self)
        _check_count("max_detections", self.max_detections)

    @property
    def decisive(self) -> dict[str, Any]:
        """Those that decide which boxes are kept."""
        kept = {"threshold": self.threshold, "nms": self.nms, "most": self.max_detections}
        return {"queries": "free-text", **kept}


@dataclass(frozen=True)
class ClassesParams:
    """Parameters of a detector of a fixed set of classes; those of `OwlParams` with these differences.

    threshold: 0.3, the least score that GenEval's evaluator looks at. What is below it is not even
        stored, so a rule with a lower threshold needs a lower one here.
    max_per_class: most objects of a class in an image; None keeps all (16: GenEval's evaluator).
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 8
    revision: str | None = None
    allow_pickle: bool = False
    attn_implementation: str | None = None
    backend: str = "pil"
    threshold: float = 0.3
    nms: float | None = None
    max_per_class: int | None = 16

    def __post_init__(self) -> None:
        _check(self)
        _check_count("max_per_class", self.max_per_class)

    @property
    def decisive(self) -> dict[str, Any]:
        """Those that decide which boxes are kept."""
        kept = {"threshold": self.threshold, "nms": self.nms, "most_per_class": self.max_per_class}
        return {"queries": "classes", **kept}


def identity_params(plan: LoadPlan[OwlParams] | LoadPlan[ClassesParams]) -> dict[str, Any]:
    """What of a plan's parameters can change the detections."""
    params = plan.params
    decisive = {"dtype": plan.dtype, "backend": params.backend, **params.decisive}
    if params.attn_implementation is not None:
        decisive["attn_implementation"] = params.attn_implementation
    return decisive


def _check(params: OwlParams | ClassesParams) -> None:
    check_placement(params.device, params.dtype, params.batch_size)
    if params.backend not in IMAGE_BACKENDS:
        msg = f"backend must be {', '.join(IMAGE_BACKENDS)}, got {params.backend!r}"
        raise ValueError(msg)
    if not 0.0 <= params.threshold <= 1.0:
        msg = f"threshold must lie in [0, 1], got {params.threshold}"
        raise ValueError(msg)
    if params.nms is not None and not 0.0 < params.nms <= 1.0:
        msg = f"nms must lie in (0, 1], or be none, got {params.nms}"
        raise ValueError(msg)


def _check_count(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        msg = f"{name} must be at least 1, or none, got {value}"
        raise ValueError(msg)
