"""Detectors: a checkpoint is handed to the adapter of its kind of queries and boxes."""

from __future__ import annotations

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.classes_detector import bind_boxes
from pytest_cepbench.models.detectors.mask2former_detector import bind_mask2former
from pytest_cepbench.models.detectors.owl_detector import bind_owl
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole

_ADAPTERS = {
    "owlv2": bind_owl,
    "owlvit": bind_owl,
    "mask2former": bind_mask2former,
}


def bind_detector(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a checkpoint as a detector, without importing torch.

    The parameter "queries" of the bound role says what it may be asked: "free-text", or "classes"
    (the plain names of its own). Raises SpecError for unknown or wrong parameters, RoleError for
    what is no transformers checkpoint, CheckpointError for files that cannot be used,
    MissingDependencyError where a library is not installed.
    """
    if checkpoint.kind != "transformers":
        msg = (
            f"{spec.text!r} is a {checkpoint.what}: a {checkpoint.kind} checkpoint finds no boxes. "
            "Give a detector of transformers (OWLv2, Mask2Former, DETR)"
        )
        raise RoleError(msg)
    bind = _ADAPTERS.get(str(checkpoint.config.get("model_type")), bind_boxes)
    return bind(spec, checkpoint, context)
