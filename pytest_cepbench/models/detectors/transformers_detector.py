"""Parameters and loading that the detectors of transformers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pytest_cepbench.models.load_plan import CheckpointParams, LoadPlan
from pytest_cepbench.models.safe_loading import from_pretrained, loading, refuse_missing
from pytest_cepbench.models.torch_runtime import IMAGE_BACKENDS, to_torch_dtype
from pytest_cepbench.models.weight_checks import take_weights

Queries = Literal["free-text", "classes"]


@dataclass(frozen=True)
class DetectorParams(CheckpointParams):
    """Parameters of every detector's spec, with those of `CheckpointParams`.

    attn_implementation: eager, sdpa, ...; None leaves the library's choice.
    backend: the image processor's implementation, pinned as for encoders.
    threshold: a box is kept when its score is above it.
    nms: of two boxes for one query that overlap by more than this (intersection over union, in
        (0, 1]) the less confident is dropped; None drops none.
    Raises ValueError for a value outside these.
    """

    attn_implementation: str | None = None
    backend: str = "pil"
    threshold: float = 0.1
    nms: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend not in IMAGE_BACKENDS:
            msg = f"backend must be {', '.join(IMAGE_BACKENDS)}, got {self.backend!r}"
            raise ValueError(msg)
        if not 0.0 <= self.threshold <= 1.0:
            msg = f"threshold must lie in [0, 1], got {self.threshold}"
            raise ValueError(msg)
        if self.nms is not None and not 0.0 < self.nms <= 1.0:
            msg = f"nms must lie in (0, 1], or be none, got {self.nms}"
            raise ValueError(msg)

    @property
    def decisive(self) -> dict[str, Any]:
        """The parameters that decide which boxes are kept."""
        return {"threshold": self.threshold, "nms": self.nms}

    def _check_count(self, name: str) -> None:
        value = getattr(self, name)
        if value is not None and value < 1:
            msg = f"{name} must be at least 1, or none, got {value}"
            raise ValueError(msg)


@dataclass(frozen=True)
class OwlParams(DetectorParams):
    """Parameters of a detector that is asked in free text.

    The defaults of threshold and nms are those of Semantic Drift's `mgg.py`.
    max_detections: most boxes of an image; None keeps all.
    """

    max_detections: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count("max_detections")

    @property
    def decisive(self) -> dict[str, Any]:
        """The parameters that decide which boxes are kept."""
        return {"queries": "free-text", **super().decisive, "most": self.max_detections}


@dataclass(frozen=True)
class ClassesParams(DetectorParams):
    """Parameters of a detector of a fixed set of classes.

    threshold: 0.3, the least score that GenEval's evaluator looks at. Lower scores are not even
        stored, so a rule with a lower threshold needs a lower one here.
    max_per_class: most objects of a class in an image; None keeps all (16: GenEval's evaluator).
    """

    threshold: float = 0.3
    max_per_class: int | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count("max_per_class")

    @property
    def decisive(self) -> dict[str, Any]:
        """The parameters that decide which boxes are kept."""
        return {"queries": "classes", **super().decisive, "most_per_class": self.max_per_class}


Plan = LoadPlan[OwlParams] | LoadPlan[ClassesParams]


def identity_params(plan: Plan) -> dict[str, Any]:
    """The parameters of a plan that can change the detections."""
    params = plan.params
    decisive = {"dtype": plan.dtype, "backend": params.backend, **params.decisive}
    if params.attn_implementation is not None:
        decisive["attn_implementation"] = params.attn_implementation
    return decisive


def load_parts(plan: Plan, auto_class: str) -> tuple[Any, Any]:
    """(model, image processor) of a checkpoint, on the plan's device and in its precision.

    auto_class: the class of transformers that knows the model's. Raises CheckpointError for files
    that cannot be loaded or lack a tensor, ModelError for a device that is not there.
    """
    import transformers

    path, params = plan.checkpoint.path, plan.params
    options: dict[str, Any] = {"use_safetensors": None if params.allow_pickle else True}
    if params.attn_implementation is not None:
        options["attn_implementation"] = params.attn_implementation
    with loading(plan):
        processor = transformers.AutoImageProcessor.from_pretrained(path, backend=params.backend)
        model, info = from_pretrained(
            getattr(transformers, auto_class),
            plan.checkpoint,
            dtype=to_torch_dtype(plan.dtype),
            **options,
        )
        model = model.to(plan.device).eval()
    refuse_missing(plan.checkpoint, info["missing_keys"])
    take_weights(plan.checkpoint, {"": model})
    return model, processor
