"""Encoder of transformers checkpoints: towers of images or sounds, and dual encoders with texts.

A dual encoder gives its joint-space features. A tower gives its pooled output, or where the
checkpoint has no pooler the CLS token of its last layer, of sounds the mean over it. A sound that
is longer than the model reads is the mean over as few windows of equal length as it can read.
Features are float32 and not normalised.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.format_detection import architecture_of
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_tokens,
    check_vocabulary,
    refuse_cut_off,
    refuse_missing,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import (
    explained,
    from_pretrained,
    input_device,
    loading,
)
from pytest_cepbench.models.checkpoints.parameters import TransformersParams
from pytest_cepbench.models.encoders.vectors import LoadedEncoder
from pytest_cepbench.models.sounds.feature_extractor import (
    Wave,
    check_extractor,
    load_reader,
)
from pytest_cepbench.models.spec import Bounds, Positive
from pytest_cepbench.models.torch_runtime import backend_option, quiet

if TYPE_CHECKING:
    import torch

POOLINGS = ("auto", "cls", "pooler", "mean")

_CLS_PARAMETERS = ("cls_token", "class_embedding")


@dataclass(frozen=True)
class TransformersEncoderParams(TransformersParams):
    """Parameters of a transformers encoder's spec, with those of `TransformersParams`.

    pooling: "auto" (joint features of a dual encoder, else pooler, else CLS, else mean of a sound),
        "cls" (first token of the last hidden state, GenCeption's choice for ViT), "pooler" (the
        model's own pooled output), "mean" (over all tokens or places of the last hidden state).
    """

    batch_size: Positive = 32
    pooling: Annotated[str, Bounds(choices=POOLINGS)] = "auto"

    @property
    def decisive(self) -> dict[str, Any]:
        """With the pooling as it is given; what "auto" comes to follows from the checkpoint."""
        return {"pooling": self.pooling, **super().decisive}


def _load(plan: LoadPlan[TransformersEncoderParams]) -> LoadedEncoder:
    import transformers

    checkpoint, params = plan.checkpoint, plan.params
    # The auto class would drop the projection into the joint space that these were saved with.
    name = architecture_of(checkpoint.config)
    projects = name.endswith("VisionModelWithProjection") and hasattr(transformers, name)
    model_class = getattr(transformers, name) if projects else transformers.AutoModel
    sees = "image" in checkpoint.reads
    with loading(plan):
        with checkpoint.preparation_folder() as folder:
            if sees:
                processor = transformers.AutoImageProcessor.from_pretrained(
                    folder, **backend_option(params.backend), **checkpoint.options.code
                )
            model, info = from_pretrained(model_class, plan)
            refuse_cut_off(checkpoint, model, info["unexpected_keys"])
            reader = None if sees else load_reader(checkpoint, folder, model)
        if getattr(model.config, "mask_ratio", 0):
            # Masked autoencoders hide a random share of the patches, in evaluation too.
            model.config.mask_ratio = 0.0
    # wav2vec 2.0 and its like put it in the place of frames while they are trained.
    missing = {name for name in info["missing_keys"] if not name.endswith("masked_spec_embed")}
    pooling = settle_pooling(checkpoint, model, missing, params.pooling)
    take_weights(checkpoint, {"": model}, made_up=info["missing_keys"])

    def features(inputs: Any, method: str) -> torch.Tensor:
        inputs = inputs.to(input_device(model), dtype=model.dtype)
        return pool(checkpoint, model, getattr(model, method, model)(**inputs), pooling)

    def embed_images(images: Sequence[Image.Image]) -> torch.Tensor:
        inputs = processor(images=list(images), return_tensors="pt")
        return features(inputs, "get_image_features")

    def embed_waves(waves: Sequence[Wave]) -> torch.Tensor:
        assert reader is not None
        return features(reader.features(waves), "get_audio_features")

    embed_texts, count_tokens = (
        _text_tower(plan, model) if hasattr(model, "get_text_features") else (None, None)
    )
    of_images = embed_images if sees else None
    return LoadedEncoder(
        checkpoint, model, of_images, embed_texts, count_tokens, reader, embed_waves
    )


def _text_tower(plan: LoadPlan[TransformersEncoderParams], model: Any) -> tuple[Any, Any]:
    """The text side of a dual encoder, whose tokenizer is loaded when texts are first read: what
    embeds texts and what counts their tokens, as of `LoadedEncoder`.
    """
    checkpoint = plan.checkpoint

    @cache
    def read_tokenizer() -> tuple[Any, int]:
        """The tokenizer, and the tokens that are read: the least of what it and the model say."""
        from transformers import AutoTokenizer

        # Only what reads texts needs it, so it is loaded late, when a trainer may have been here.
        with (
            plan.files.unchanged("the tokenizer was loaded"),
            explained(checkpoint),
            quiet(),
            checkpoint.preparation_folder() as files,
        ):
            tokenizer = AutoTokenizer.from_pretrained(files, **checkpoint.options.code)
        folder = checkpoint.tokenizer_folder
        check_vocabulary(folder, type(tokenizer).__name__)
        check_tokens(folder, tokenizer, getattr(model, "text_model", model))
        if tokenizer.pad_token_id is None:
            raise CheckpointError(
                f"{checkpoint.path}: the tokenizer has no pad token, so texts form no batch"
            )
        config = getattr(model.config, "text_config", model.config)
        positions = getattr(config, "max_position_embeddings", None)
        # A tokenizer that states none has a huge number.
        return tokenizer, min(int(n) for n in (tokenizer.model_max_length, positions) if n)

    def embed(texts: Sequence[str]) -> torch.Tensor:
        tokenizer, length = read_tokenizer()
        # Always padded to the full length: SigLIP is trained so, and a text's features do not
        # depend on its neighbours.
        options = {"padding": "max_length", "truncation": True, "max_length": length}
        inputs = tokenizer(list(texts), return_tensors="pt", **options).to(input_device(model))
        accepted = inspect.signature(model.get_text_features).parameters
        features: torch.Tensor = pooled_output(
            model.get_text_features(**{n: value for n, value in inputs.items() if n in accepted})
        )
        return features

    def count_tokens(texts: Sequence[str]) -> tuple[list[int], int]:
        tokenizer, length = read_tokenizer()
        whole = tokenizer(list(texts))["input_ids"] if texts else []
        return [len(tokens) for tokens in whole], length

    return embed, count_tokens


def settle_pooling(checkpoint: Checkpoint, model: Any, missing: set[str], wanted: str) -> str:
    """The pooling to use, so that no tensor that is missing from the files takes part.

    A ViT that was saved from a classifier has no pooler, and transformers makes a random one.
    """
    pooler = {name for name in missing if "pooler" in name.split(".")}
    joint = hasattr(model, "get_image_features") or hasattr(model, "get_audio_features")
    uses_pooler = joint or wanted == "pooler"
    refuse_missing(checkpoint, missing if uses_pooler else missing - pooler)
    pooling = "cls" if wanted == "auto" and pooler else wanted
    if pooling == "cls" and not _has_cls_token(model):
        raise SpecError(
            f"{checkpoint.path}: {checkpoint.what} has no CLS token to take. Give pooling=mean"
            f"{'' if pooler else ' or pooling=pooler'}"
        )
    return pooling


def _has_cls_token(model: Any) -> bool:
    names = (name.rpartition(".")[2] for name, _ in model.named_parameters())
    return any(name in _CLS_PARAMETERS for name in names)


def pool(checkpoint: Checkpoint, model: Any, output: Any, pooling: str) -> torch.Tensor:
    """(n, dimension) features out of what a model returned, by one of POOLINGS.

    Raises SpecError where the model gives nothing to pool that way.
    """
    if pooling in ("auto", "pooler"):
        pooled = pooled_output(output)
        if pooled is not None:
            return pooled
    hidden = getattr(output, "last_hidden_state", None)
    if hidden is None or pooling == "pooler":
        lacking = "pooled output" if pooling == "pooler" else "token states"
        raise SpecError(
            f"{checkpoint.path}: {checkpoint.what} gives no {lacking}, so pooling={pooling} cannot "
            "be had from it"
        )
    if pooling == "mean" or (pooling == "auto" and "image" not in checkpoint.reads):
        # Transformers give (n, tokens, dimension), convolutions (n, dimension, rows, columns).
        mean: torch.Tensor = hidden.mean(dim=1 if hidden.ndim == 3 else (2, 3))
        return mean
    if not _has_cls_token(model):
        raise SpecError(
            f"{checkpoint.path}: {checkpoint.what} has neither a pooled output nor a CLS token. "
            "Give pooling=mean"
        )
    first: torch.Tensor = hidden[:, 0]
    return first


def pooled_output(output: Any) -> Any:
    """The features in what a model returned: older models give a tensor, newer ones an object."""
    if hasattr(output, "detach"):
        return output
    for name in ("image_embeds", "pooler_output"):
        value = getattr(output, name, None)
        if value is not None:
            return value
    return None


ADAPTER = adapter("transformers-encoder/1", TransformersEncoderParams, _load, check=check_extractor)
