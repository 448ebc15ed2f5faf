"""Encoder of transformers checkpoints: vision towers (images) and dual encoders (images and texts).

A dual encoder gives its joint-space features. A vision tower gives its pooled output, or the CLS
token of its last layer where the checkpoint has no pooler. Features are float32 and not normalised.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.encoders.encoder_params import TransformersEncoderParams
from pytest_cepbench.models.encoders.pooling import pool, pooled_output, settle_pooling
from pytest_cepbench.models.encoders.vectors import reads_no_texts, to_vectors
from pytest_cepbench.models.load_plan import LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.protocols import BindContext, BoundRole, FloatArray
from pytest_cepbench.models.safe_loading import explained, from_pretrained, loading
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.tokenizer_checks import check_tokens, check_vocabulary
from pytest_cepbench.models.torch_runtime import quiet, require, to_torch_dtype
from pytest_cepbench.models.truncation import TruncationNotice
from pytest_cepbench.models.weight_checks import take_weights

ADAPTER = "transformers-encoder/1"


def bind_transformers(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a transformers checkpoint as an encoder, without importing torch.

    Errors as `bind_encoder`.
    """
    require("torch", "transformers")
    plan = make_plan("encoder", TransformersEncoderParams, spec, checkpoint, context)
    params = plan.params
    decisive = {"dtype": plan.dtype, "pooling": params.pooling, "backend": params.backend}
    if params.attn_implementation is not None:
        decisive["attn_implementation"] = params.attn_implementation
    return bind_plan(plan, adapter=ADAPTER, load=lambda: _load(plan), params=decisive)


def _load(plan: LoadPlan[TransformersEncoderParams]) -> TransformersEncoder:
    import transformers

    checkpoint, params = plan.checkpoint, plan.params
    options: dict[str, Any] = {"trust_remote_code": params.trust_remote_code}
    weights: dict[str, Any] = {"use_safetensors": None if params.allow_pickle else True}
    if params.attn_implementation is not None:
        weights["attn_implementation"] = params.attn_implementation
    with loading(plan):
        processor = transformers.AutoImageProcessor.from_pretrained(
            checkpoint.path, backend=params.backend, **options
        )
        model, info = from_pretrained(
            _model_class(checkpoint),
            checkpoint,
            dtype=to_torch_dtype(plan.dtype),
            **weights,
            **options,
        )
        if getattr(model.config, "mask_ratio", 0):
            # Masked autoencoders hide a random share of the patches, in evaluation too.
            model.config.mask_ratio = 0.0
        model = model.to(plan.device).eval()
    pooling = settle_pooling(checkpoint, model, set(info["missing_keys"]), params.pooling)
    take_weights(checkpoint, {"": model})
    return TransformersEncoder(plan, model, processor, pooling)


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
        plan: LoadPlan[TransformersEncoderParams],
        model: Any,
        processor: Any,
        pooling: str,
    ) -> None:
        self._checkpoint = plan.checkpoint
        self._files = plan.files
        self._model = model
        self._processor = processor
        self._pooling = pooling
        self._params = plan.params
        self._notice = TruncationNotice(plan.checkpoint.what)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._model.to(device)

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
            features = pool(self._checkpoint, self._model, output, self._pooling)
            return to_vectors(self._checkpoint, features)

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float32 features of texts, in the space of the images, not normalised.

        Texts longer than the model reads are cut, which is said once in a warning. Raises RoleError
        where the model reads no texts.
        """
        import torch

        lengths, longest = self.text_lengths(texts)
        self._notice.check(lengths, longest)
        with quiet(), torch.inference_mode():
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
            return to_vectors(self._checkpoint, pooled_output(output))

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, special ones included, and the most that the model reads.

        Runs the tokenizer only. Raises RoleError where the model reads no texts.
        """
        if not hasattr(self._model, "get_text_features"):
            raise reads_no_texts(self._checkpoint)
        with quiet():
            whole = self._tokenizer(list(texts))["input_ids"] if texts else []
        return [len(tokens) for tokens in whole], self._text_length

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        # Only what reads texts needs it, so it is loaded late, when a trainer may have been here.
        with (
            self._files.unchanged("the tokenizer was loaded"),
            explained(self._checkpoint),
            quiet(),
        ):
            tokenizer = AutoTokenizer.from_pretrained(
                self._checkpoint.path, trust_remote_code=self._params.trust_remote_code
            )
        check_vocabulary(self._checkpoint.path, type(tokenizer).__name__)
        check_tokens(
            self._checkpoint.path, tokenizer, getattr(self._model, "text_model", self._model)
        )
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
