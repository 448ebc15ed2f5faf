"""Tiny unified checkpoints with random weights: each describes, draws and loads as published ones.

Both draw 32 x 32 pixels out of 16 image tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tiny.common import (
    CHAT_TEMPLATE,
    SPECIAL,
    SQUARE,
    built_once,
    pil,
    skip_before,
    word_tokenizer,
)
from tests.tiny.describers import TEXT

CODES = 32
"""Image tokens of a codebook."""

DRAW = {"janus": "", "emu3": "image_area=1024"}
"""The spec parameters with which each draws 32 x 32 pixels."""

_HALF = [0.5, 0.5, 0.5]


@built_once()
def build_janus(path: Path) -> None:
    """JanusForConditionalGeneration: a vision tower to read with, a codebook to draw with."""
    skip_before("Janus", "transformers", "5.0")
    import transformers

    named = {
        "image_token": "<image_placeholder>",
        "boi_token": "<begin_of_image>",
        "eoi_token": "<end_of_image>",
    }
    tokenizer = word_tokenizer((*SPECIAL, *named.values()), **named)
    start = tokenizer.convert_tokens_to_ids("<begin_of_image>")
    config = transformers.JanusConfig(
        text_config={"model_type": "llama", "vocab_size": len(tokenizer), **TEXT},
        vision_config={
            "image_size": 32,
            "patch_size": 8,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "mlp_ratio": 2.0,
            "projection_dim": 32,
            "depth": 2,
            "num_image_tokens": 16,
        },
        vq_config={
            "embed_dim": 8,
            "num_embeddings": CODES,
            "latent_channels": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "projection_dim": 32,
            "image_token_embed_dim": 32,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image_placeholder>"),
        initializer_range=0.3,
    )
    model = transformers.JanusForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        guidance_scale=5.0,
        generation_kwargs={"boi_token_id": start},
    )
    _spread(model.model.vqmodel)
    _spread(model.model.vision_model)
    _spread(model.model.aligner)
    _spread(model.model.generation_head)
    model.save_pretrained(path)
    transformers.JanusProcessor(
        image_processor=pil("JanusImageProcessor")(size=SQUARE, image_mean=_HALF, image_std=_HALF),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<image_placeholder>"),
        num_image_tokens=16,
    ).save_pretrained(path)


@built_once()
def build_emu3(path: Path) -> None:
    """Emu3ForConditionalGeneration: one vocabulary of words and image tokens, read and drawn."""
    skip_before("Emu3", "transformers", "5.0")
    import transformers

    named = {
        "image_token": "<image>",
        "boi_token": "<|image start|>",
        "eoi_token": "<|image end|>",
        "image_wrapper_token": "<|image token|>",
        "eof_token": "<|extra_201|>",
    }
    visual = [f"<|visual token {index:06d}|>" for index in range(CODES)]
    special = (*SPECIAL, *named.values(), "<|extra_200|>", *visual)
    tokenizer = word_tokenizer(special, **named)
    config = transformers.Emu3Config(
        vq_config={
            "codebook_size": CODES,
            "embed_dim": 4,
            "latent_channels": 4,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "attn_resolutions": [],
            "hidden_size": 32,
            "temporal_downsample_factor": 1,
        },
        text_config={"vocab_size": len(tokenizer), **TEXT},
        vocabulary_map={token: tokenizer.convert_tokens_to_ids(token) for token in special},
    )
    model = transformers.Emu3ForConditionalGeneration(config)
    # Texts of random weights would be image tokens mostly, which are left out of a description.
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        suppress_tokens=[i for i in range(len(special)) if i != 2],
    )
    _spread(model.model.vqmodel)
    model.save_pretrained(path)
    transformers.Emu3Processor(
        image_processor=transformers.Emu3ImageProcessor(
            min_pixels=32 * 32,
            max_pixels=32 * 32,
            spatial_factor=8,
            image_mean=_HALF,
            image_std=_HALF,
        ),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<image>"),
    ).save_pretrained(path)


def _spread(part: Any) -> None:
    """Larger random weights, so that other tokens are other pixels and other pixels other words."""
    for name, tensor in part.named_parameters():
        if name.endswith("weight") and tensor.dim() > 1:
            tensor.data.normal_(0.0, tensor[0].numel() ** -0.5)
        if "embedding" in name:
            tensor.data.normal_(0.0, 1.0)


BUILDERS: dict[str, Callable[[Path], Path]] = {"janus": build_janus, "emu3": build_emu3}
