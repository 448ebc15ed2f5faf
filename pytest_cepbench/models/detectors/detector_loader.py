"""Loading a detector of transformers: its model, none of it made up, and its image processor."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.models.detectors.detector_params import ClassesParams, OwlParams
from pytest_cepbench.models.load_plan import LoadPlan
from pytest_cepbench.models.safe_loading import from_pretrained, loading, refuse_missing
from pytest_cepbench.models.torch_runtime import to_torch_dtype
from pytest_cepbench.models.weight_checks import take_weights


def load_parts(
    plan: LoadPlan[OwlParams] | LoadPlan[ClassesParams], auto_class: str
) -> tuple[Any, Any]:
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
