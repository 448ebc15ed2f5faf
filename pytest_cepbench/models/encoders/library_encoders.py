"""Encoders of open_clip, timm and sentence-transformers folders.

open_clip (open_clip_config.json) embeds images and texts. timm (config.json with "architecture")
embeds images: SDP compares them with DINO v1 ViT-B/16 (`vit_base_patch16_224.dino`), the CLS token
after the last norm, which is what this adapter gives. SDP's released code resizes the shorter side
to 256 pixels (bilinear) before the crop of 224, where timm's configuration of that model says 248
(bicubic): `crop_pct=0.875&interpolation=bilinear` is SDP's.

sentence-transformers (modules.json) embeds texts, MPNet above all: SDP compares them with
all-mpnet-base-v2, by the library's `encode` (its section 2 and released code). The modules
Transformer, Pooling and Normalize are read, by the library itself; whether vectors come out
normalised is the checkpoint's own matter. A text model without modules.json is refused: nothing in
it says how its tokens become one vector. To use one as mean-pooled, as the library would, load it
with the library and save it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from PIL import Image

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.format_detection import modules_fault, read_json
from pytest_cepbench.models.checkpoints.loaded_checks import (
    check_vocabulary,
    no_random_weights,
    refuse_cut_off,
    stored_names,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import loading
from pytest_cepbench.models.checkpoints.parameters import OF_CHECKPOINTS, Placement
from pytest_cepbench.models.encoders.vectors import LoadedEncoder
from pytest_cepbench.models.spec import Bounds, Positive, Share, given_params
from pytest_cepbench.models.torch_runtime import dtype_option, to_torch_dtype


@dataclass(frozen=True)
class EncoderParams(Placement):
    """Parameters of an encoder's spec: those of `Placement`, in larger batches."""

    SOURCES: ClassVar[tuple[str, ...]] = OF_CHECKPOINTS

    batch_size: Positive = 32


# -- open_clip and timm ----------------------------------------------------------------------------

# The order in which open_clip 3 picks its weights from a folder; then come other safetensors, then
# other pickles.
_PREFERRED = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "open_clip_pytorch_model.pth",
    "model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.pth",
    "model.pth",
)


def _check_choice(plan: LoadPlan[EncoderParams]) -> None:
    """Raise CheckpointError where open_clip would read weights that no fingerprint covers."""
    folder = plan.checkpoint.path
    names = {path.name for path in folder.iterdir()}
    covered = [path.name for path in plan.checkpoint.weight_files()]
    safe = [name for name in names if name.endswith(".safetensors")]
    others = safe or [name for name in names if name.endswith((".bin", ".pth"))]
    chosen = next((name for name in _PREFERRED if name in names), min(others, default=covered[0]))
    if chosen not in covered:
        raise CheckpointError(
            f"{folder}: open_clip would read {chosen} and not {covered[0]}. Remove the one that is "
            f"not meant, or rename {covered[0]} to {_PREFERRED[0]}"
        )


def _to_pixels(plan: LoadPlan[Any], transform: Any, images: Sequence[Image.Image]) -> Any:
    """The batch (n, 3, height, width) of a checkpoint's own transform, on the plan's device."""
    import torch

    pixels = torch.stack([transform(image) for image in images])
    return pixels.to(device=plan.device, dtype=to_torch_dtype(plan.dtype))


def _load_open_clip(plan: LoadPlan[EncoderParams]) -> LoadedEncoder:
    import open_clip

    with loading(plan), plan.checkpoint.unwrapped() as whole:
        name = f"local-dir:{whole.path}"
        # Loads strictly: a tensor that is missing is an error.
        model, transform = open_clip.create_model_from_pretrained(name)
        tokenizer = open_clip.get_tokenizer(name)
        model = model.to(device=plan.device, dtype=to_torch_dtype(plan.dtype)).eval()
    take_weights(plan.checkpoint, {"": model})

    def count_tokens(texts: Sequence[str]) -> tuple[list[int], int]:
        if hasattr(tokenizer, "sot_token_id"):  # open_clip's own, which adds a start and an end
            whole = [[0, *tokenizer.encode(text), 0] for text in texts]
        else:
            cleaned = [tokenizer.clean_fn(text) for text in texts]
            whole = tokenizer.tokenizer(cleaned)["input_ids"] if texts else []
        return [len(tokens) for tokens in whole], int(tokenizer.context_length)

    return LoadedEncoder(
        plan.checkpoint,
        model,
        lambda images: model.encode_image(_to_pixels(plan, transform, images)),
        lambda texts: model.encode_text(tokenizer(list(texts)).to(plan.device)),
        count_tokens,
    )


OPEN_CLIP = adapter("open_clip-encoder/1", EncoderParams, _load_open_clip, check=_check_choice)


@dataclass(frozen=True)
class TimmEncoderParams(EncoderParams):
    """Parameters of a timm encoder's spec, with those of `EncoderParams`.

    crop_pct: side of the crop as a share of the resized shorter side, in (0, 1]; None leaves the
        checkpoint's own.
    interpolation: bilinear or bicubic; None leaves the checkpoint's own.
    """

    crop_pct: Share | None = None
    interpolation: Annotated[str, Bounds(choices=("bilinear", "bicubic"))] | None = None

    @property
    def decisive(self) -> dict[str, Any]:
        """The given settings of the image transform; the rest is the checkpoint's own."""
        return given_params(self, "crop_pct", "interpolation")


def _find_weights(plan: LoadPlan[TimmEncoderParams]) -> Path:
    """The one file of weights: safetensors, or where allowed a pickle if none is there.

    Left to itself timm prefers some pickles to some safetensors. Raises CheckpointError when there
    is none, or more than one and no model.safetensors among them.
    """
    folder, covered = plan.checkpoint.path, plan.checkpoint.weight_files()
    candidates = [path for path in covered if path.suffix == ".safetensors"] or covered
    preferred = [path for path in candidates if path.stem in ("model", "pytorch_model")]
    chosen = preferred[:1] or candidates
    if len(chosen) != 1:
        names = ", ".join(path.name for path in candidates) or "none"
        raise CheckpointError(
            f"{folder}: expected one file of weights, model.safetensors, found {names}"
        )
    return chosen[0]


def _load_timm(plan: LoadPlan[TimmEncoderParams]) -> LoadedEncoder:
    import timm
    from timm.data import create_transform, resolve_model_data_config

    config = plan.checkpoint.config
    stated = (config.get("num_classes"), config["pretrained_cfg"].get("num_classes"), 1000)
    # The checkpoint's classifier is kept, though unused: timm checks strictly that every tensor is
    # there only as long as the number of classes is the stored one.
    strict = {"num_classes": next(n for n in stated if n is not None), "pretrained_strict": True}
    with loading(plan), plan.checkpoint.unwrapped() as whole:
        model = timm.create_model(
            f"local-dir:{whole.path}",
            pretrained=True,
            pretrained_cfg_overlay={
                "source": "",
                "file": str(_find_weights(replace(plan, checkpoint=whole))),
                "num_classes": strict["num_classes"],
            },
            **{name: strict[name] for name in strict.keys() & (config.get("model_args") or {})},
        )
        transform = create_transform(**resolve_model_data_config(model, args=plan.params.decisive))
        model = model.to(device=plan.device, dtype=to_torch_dtype(plan.dtype)).eval()
    take_weights(plan.checkpoint, {"": model})

    def embed(images: Sequence[Image.Image]) -> Any:
        maps = model.forward_features(_to_pixels(plan, transform, images))
        return model.forward_head(maps, pre_logits=True)  # before the classifier

    return LoadedEncoder(plan.checkpoint, model, embed)


TIMM = adapter("timm-encoder/1", TimmEncoderParams, _load_timm, check=_find_weights)


_OPTIONS = (
    "model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args",
    "config_kwargs",
)  # fmt: skip
"""Where a module's configuration has options that are handed on to transformers' from_pretrained;
some of these choose files, such as variant and tokenizer_file."""

_SETTINGS = ("attn_implementation", "dtype", "padding_side", "torch_dtype", "truncation_side")
"""Options in words that choose none."""


def _check_modules(plan: LoadPlan[EncoderParams]) -> None:
    """Raise RoleError for a module that is not read, CheckpointError where the first module names a
    tokenizer of another folder, or other files.
    """
    checkpoint = plan.checkpoint
    if fault := modules_fault(checkpoint.config):
        raise RoleError(f"{checkpoint.path}: {checkpoint.what} {fault}")
    folder = checkpoint.path / checkpoint.config["modules"][0]["path"]
    for file in sorted(folder.glob("sentence_*_config.json")):
        stated = read_json(file)
        if elsewhere := stated.get("tokenizer_name_or_path"):
            raise CheckpointError(
                f"{file}: tokenizer_name_or_path is {elsewhere!r}, so no fingerprint can vouch for "
                "the tokenizer. Save the tokenizer in the checkpoint and remove the entry"
            )
        for key in _OPTIONS:
            options = stated.get(key) or {}
            for name, value in options.items() if isinstance(options, dict) else [("", options)]:
                harmless = name in _SETTINGS and "/" not in str(value)
                if not harmless and isinstance(value, str | list | dict):
                    raise CheckpointError(
                        f"{file}: {key} has {name}={value!r}, by which other files may be read "
                        "than the fingerprint covers. Remove the entry"
                    )


def _load_sentence_transformers(plan: LoadPlan[EncoderParams]) -> LoadedEncoder:
    import sentence_transformers

    options: dict[str, Any] = dtype_option("transformers", to_torch_dtype(plan.dtype))
    if not plan.checkpoint.options.allow_pickle:
        options["use_safetensors"] = True
    with (
        loading(plan),
        no_random_weights(plan.checkpoint),
        plan.checkpoint.unwrapped() as whole,
    ):
        model = sentence_transformers.SentenceTransformer(
            str(whole.path),
            device=plan.device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs=options,
        ).eval()
        files = [path for path in whole.weight_files() if path.suffix == ".safetensors"]
        network = model[0].auto_model
        refuse_cut_off(plan.checkpoint, network, stored_names(network, files))
    first = plan.checkpoint.config["modules"][0]["path"]
    check_vocabulary(plan.checkpoint.path / first, type(model.tokenizer).__name__)
    take_weights(plan.checkpoint, {"": model})
    prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None

    def count_tokens(texts: Sequence[str]) -> tuple[list[int], int]:
        """With those of the model's own prompt."""
        lengths: list[int] = []
        if texts and hasattr(model[0], "preprocess"):  # of sentence-transformers 6
            own = {"text": {"truncation": False}}
            read = model[0].preprocess(list(texts), prompt=prompt or None, processing_kwargs=own)
            lengths = read["attention_mask"].sum(dim=1).tolist()
        elif texts:
            asked = [(prompt or "") + text.strip() for text in texts]
            whole = model.tokenizer(asked, truncation=False)["input_ids"]
            lengths = [len(tokens) for tokens in whole]
        return lengths, int(model.max_seq_length)

    return LoadedEncoder(
        plan.checkpoint,
        model,
        # Normalised where the checkpoint says so.
        embed_texts=lambda texts: model.encode(
            list(texts), batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        ),
        count_tokens=count_tokens,
    )


SENTENCE_TRANSFORMERS = adapter(
    "sentence-transformers-encoder/1",
    EncoderParams,
    _load_sentence_transformers,
    check=_check_modules,
)
