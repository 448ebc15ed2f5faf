"""Encoder of transformers checkpoints: vision towers (images) and dual encoders (images and texts).

A dual encoder gives its joint-space features. A vision tower gives its pooled output, or the CLS
token of its last layer where the checkpoint has no pooler. Features are float32 and not normalised.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import BindContext
from pytest_cepbench.models.checkpoint import Checkpoint
from pytest_cepbench.models.fingerprint import fingerprint
from pytest_cepbench.models.loading import (
    check_placement,
    check_vocabulary,
    explained,
)
from pytest_cepbench.models.pooling import POOLINGS, pool, pooled_output, settle_pooling
from pytest_cepbench.models.roles import BoundRole, FloatArray
from pytest_cepbench.models.spec import ModelSpec, parse_params
from pytest_cepbench.models.torch_runtime import (
    check_device,
    library_versions,
    quiet,
    require,
    resolve_device,
    resolve_dtype,
    set_threads,
    to_torch_dtype,
)
from pytest_cepbench.models.truncation import TruncationNotice

ADAPTER = "transformers-encoder/1"

BACKENDS = ("pil", "torchvision")


@dataclass(frozen=True)
class TransformersEncoderParams:
    """Parameters of a transformers encoder's spec.

    device: auto, cpu, cuda, cuda:N or mps. dtype: auto, float32, float16 or bfloat16.
    batch_size: most inputs in one call.
    revision: commit, tag or branch of a hub id.
    attn_implementation: eager, sdpa, ...; None leaves the library's choice.
    trust_remote_code, allow_pickle: run the checkpoint's Python files, read pickled weights.
    pooling: "auto" (joint features of a dual encoder, else pooler, else CLS), "cls" (first token of
        the last hidden state, GenCeption's choice for ViT), "pooler" (the model's own pooled
        output), "mean" (over all tokens or places of the last hidden state).
    backend: the image processor's implementation; the two differ by one grey level here and there,
        so it is pinned ("pil") instead of following what is installed.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32
    revision: str | None = None
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    pooling: str = "auto"
    backend: str = "pil"

    def __post_init__(self) -> None:
        check_placement(self.device, self.dtype, self.batch_size)
        for name, value, known in (
            ("pooling", self.pooling, POOLINGS),
            ("backend", self.backend, BACKENDS),
        ):
            if value not in known:
                msg = f"{name} must be {', '.join(known)}, got {value!r}"
                raise ValueError(msg)


def bind_transformers(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a transformers checkpoint as an encoder, without importing torch.

    Errors as `bind_encoder`.
    """
    require("torch", "transformers")
    params = parse_params(spec, TransformersEncoderParams, f"the encoder {checkpoint.what}")
    device = resolve_device(params.device)
    dtype = resolve_dtype(params.dtype, device, checkpoint.config)
    decisive = {"dtype": dtype, "pooling": params.pooling, "backend": params.backend}
    if params.attn_implementation is not None:
        decisive["attn_implementation"] = params.attn_implementation
    return BoundRole(
        role="encoder",
        spec=spec.text,
        what=checkpoint.what,
        fingerprint=fingerprint(
            checkpoint,
            context.hash_file,
            allow_pickle=params.allow_pickle,
            trust_remote_code=params.trust_remote_code,
        ),
        adapter=ADAPTER,
        load=lambda: _load(checkpoint, params, device, dtype, context.threads),
        params=decisive,
        batch_size=params.batch_size,
        provenance={"device": device, **library_versions()},
    )


def _load(
    checkpoint: Checkpoint,
    params: TransformersEncoderParams,
    device: str,
    dtype: str,
    threads: int | None,
) -> TransformersEncoder:
    import transformers

    set_threads(threads)
    check_device(device)
    options: dict[str, Any] = {"trust_remote_code": params.trust_remote_code}
    weights = {"use_safetensors": None if params.allow_pickle else True}
    if params.attn_implementation is not None:
        weights["attn_implementation"] = params.attn_implementation  # type: ignore[assignment]  # one mapping of keyword arguments
    with explained(checkpoint), quiet():
        processor = transformers.AutoImageProcessor.from_pretrained(
            checkpoint.path, backend=params.backend, **options
        )
        model, info = _model_class(checkpoint).from_pretrained(
            checkpoint.path,
            dtype=to_torch_dtype(dtype),
            output_loading_info=True,
            **weights,
            **options,
        )
        if getattr(model.config, "mask_ratio", 0):
            # Masked autoencoders hide a random share of the patches, in evaluation too.
            model.config.mask_ratio = 0.0
        model = model.to(device).eval()
    pooling = settle_pooling(checkpoint, model, set(info["missing_keys"]), params.pooling)
    return TransformersEncoder(checkpoint, model, processor, pooling, params)


def _model_class(checkpoint: Checkpoint) -> Any:
    import transformers

    # The auto class would drop the projection into the joint space that these were saved with.
    name = str((checkpoint.config.get("architectures") or [""])[0])
    if name.endswith("VisionModelWithProjection") and hasattr(transformers, name):
        return getattr(transformers, name)
    return transformers.AutoModel


class TransformersEncoder:
    """A loaded transformers encoder; satisfies the Encoder Protocol."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: Any,
        processor: Any,
        pooling: str,
        params: TransformersEncoderParams,
    ) -> None:
        self._checkpoint = checkpoint
        self._model = model
        self._processor = processor
        self._pooling = pooling
        self._params = params
        self._notice = TruncationNotice(checkpoint.what)

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float32 features of RGB images, not normalised."""
        import torch

        with quiet(), torch.inference_mode():
            inputs = self._processor(images=list(images), return_tensors="pt")
            inputs = inputs.to(self._model.device, dtype=self._model.dtype)
            if hasattr(self._model, "get_image_features"):
                output = self._model.get_image_features(**inputs)
            else:
                output = self._model(**inputs)
            return _to_numpy(
                self._checkpoint, pool(self._checkpoint, self._model, output, self._pooling)
            )

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float32 features of texts, in the space of the images, not normalised.

        Texts longer than the model reads are cut, which is said once in a warning. Raises RoleError
        where the model reads no texts.
        """
        import torch

        if not hasattr(self._model, "get_text_features"):
            msg = (
                f"{self._checkpoint.path}: {self._checkpoint.what} embeds images only and reads no "
                "texts. Give a dual encoder (CLIP, SigLIP, open_clip) for this comparison"
            )
            raise RoleError(msg)
        longest = self._text_length
        with quiet(), torch.inference_mode():
            whole = self._tokenizer(list(texts))["input_ids"]
            # Always padded to the full length: SigLIP is trained so, and a text's features do not
            # depend on its neighbours.
            inputs = self._tokenizer(
                list(texts),
                padding="max_length",
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            ).to(self._model.device)
            accepted = inspect.signature(self._model.get_text_features).parameters
            output = self._model.get_text_features(
                **{name: value for name, value in inputs.items() if name in accepted}
            )
            features = _to_numpy(self._checkpoint, pooled_output(output))
        self._notice.report(sum(len(tokens) > longest for tokens in whole), longest)
        return features

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        with explained(self._checkpoint), quiet():
            tokenizer = AutoTokenizer.from_pretrained(
                self._checkpoint.path, trust_remote_code=self._params.trust_remote_code
            )
        check_vocabulary(self._checkpoint.path, type(tokenizer).__name__)
        if tokenizer.pad_token_id is None:
            msg = f"{self._checkpoint.path}: the tokenizer has no pad token, so texts form no batch"
            raise CheckpointError(msg)
        return tokenizer

    @cached_property
    def _text_length(self) -> int:
        """Tokens that the text tower reads: the least of what tokenizer and model say."""
        config = getattr(self._model.config, "text_config", self._model.config)
        stated = (
            self._tokenizer.model_max_length,  # a huge number where the tokenizer states none
            getattr(config, "max_position_embeddings", None),
        )
        return min(int(length) for length in stated if length)


def _to_numpy(checkpoint: Checkpoint, features: Any) -> FloatArray:
    if features.ndim > 2 and set(features.shape[2:]) == {1}:
        features = features.flatten(1)  # convolutional poolers keep height and width of 1
    array = features.float().cpu().numpy()
    if array.ndim != 2:
        msg = (
            f"{checkpoint.path}: {checkpoint.what} gives features of shape {array.shape}; an encoder "
            "gives one vector per input"
        )
        raise RoleError(msg)
    result: FloatArray = np.asarray(array, dtype=np.float32)
    return result
