"""Encoders: a checkpoint is handed to the adapter of its library.

The providers of `unicom:` and `cleanfid:`, single files of weights without a configuration, are in
`unicom_encoder` and `inception_encoder`.
"""

from __future__ import annotations

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.encoders.open_clip_encoder import bind_open_clip
from pytest_cepbench.models.encoders.sentence_transformers_encoder import (
    bind_sentence_transformers,
)
from pytest_cepbench.models.encoders.timm_encoder import bind_timm
from pytest_cepbench.models.encoders.transformers_encoder import bind_transformers
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole

_ADAPTERS = {
    "transformers": bind_transformers,
    "open_clip": bind_open_clip,
    "timm": bind_timm,
    "sentence_transformers": bind_sentence_transformers,
}


def bind_encoder(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a checkpoint as an encoder, without importing torch.

    Raises SpecError for unknown or wrong parameters, RoleError for a pipeline, CheckpointError for
    files that cannot be used, MissingDependencyError where a library is not installed.
    """
    if checkpoint.kind not in _ADAPTERS:
        msg = (
            f"{spec.text!r} is a {checkpoint.what}: a {checkpoint.kind} checkpoint gives no "
            "vectors. Give a vision model of transformers, timm or open_clip, or a "
            "sentence-transformers model"
        )
        raise RoleError(msg)
    return _ADAPTERS[checkpoint.kind](spec, checkpoint, context)
