"""Encoders: a checkpoint is handed to the adapter of its library, a scheme to its own.

`unicom:` and `cleanfid:` name single files of weights that no configuration describes.
"""

from __future__ import annotations

from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.encoders import inception_encoder, unicom_encoder
from pytest_cepbench.models.encoders.inception_encoder import bind_inception, inception_weights
from pytest_cepbench.models.encoders.open_clip_encoder import bind_open_clip
from pytest_cepbench.models.encoders.sentence_transformers_encoder import (
    bind_sentence_transformers,
)
from pytest_cepbench.models.encoders.timm_encoder import bind_timm
from pytest_cepbench.models.encoders.transformers_encoder import bind_transformers
from pytest_cepbench.models.encoders.unicom_encoder import bind_unicom
from pytest_cepbench.models.protocols import BindContext, BoundRole, RoleName
from pytest_cepbench.models.spec import ModelSpec

_ADAPTERS = {
    "transformers": bind_transformers,
    "open_clip": bind_open_clip,
    "timm": bind_timm,
    "sentence_transformers": bind_sentence_transformers,
}

_SCHEMES = {
    "unicom": (unicom_encoder.WHAT, bind_unicom),
    "cleanfid": (inception_encoder.WHAT, bind_inception),
}

__all__ = [
    "bind_encoder",
    "bind_encoder_scheme",
    "describe_encoder_scheme",
    "inception_weights",
]


def bind_encoder(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a checkpoint as an encoder, without importing torch.

    Raises SpecError for unknown or wrong parameters, RoleError for a pipeline, CheckpointError for
    files that cannot be used, MissingDependencyError where a library is not installed.
    """
    if checkpoint.kind not in _ADAPTERS:
        msg = (
            f"{spec.text!r} is a {checkpoint.what}: a {checkpoint.kind} checkpoint gives no vectors. "
            "Give a vision model of transformers, timm or open_clip, or a sentence-transformers model"
        )
        raise RoleError(msg)
    return _ADAPTERS[checkpoint.kind](spec, checkpoint, context)


def describe_encoder_scheme(spec: ModelSpec) -> str:
    """What a spec of one of ENCODER_SCHEMES names, for people."""
    return _SCHEMES[spec.scheme][0]


def bind_encoder_scheme(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Resolve a spec of one of ENCODER_SCHEMES, without importing torch.

    Raises RoleError for another role than the encoder's, and otherwise as `bind_encoder`.
    """
    what, bind = _SCHEMES[spec.scheme]
    if role != "encoder":
        msg = f"{spec.text!r} is {what}: it embeds images, so it can be the encoder, not the {role}"
        raise RoleError(msg)
    return bind(spec, context)
