"""The shape of the judge: a Qwen2-VL of 2.5 million parameters for the words of the arena.

A whole object ("small red circle top left"), the count before a list of objects and each verdict
are one token, so that a battle of six images has some 120 tokens. Images come down to 48 x 48
pixels, of which each token covers one cell of the world's grid.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import torch
from PIL import Image
from portable import pil
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLProcessor,
)
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from vocabulary import BEGIN, END, NUMBERS, PAD, UNKNOWN
from world import LOOKS, PROMPT, FloatArray

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.datasets.shapes.arena import VOCABULARY
from pytest_cepbench.datasets.shapes.scene import CELLS, GRID, SceneObject, phrase
from pytest_cepbench.models.text_model.judge_prompts import DEFAULT_PROMPT, JUDGE_PROMPTS

WIDTH, LAYERS, DEPTH = 128, 8, 2
"""Of both parts, layers of the language model, and those of the vision tower."""

SEEN_SIDE, SEEN_PATCH, MERGED = 48, 8, 2
"""Pixels along each side of an image as the tower sees it, of a patch, and patches of a token."""

LENGTH = 512
"""The most tokens of a battle; four steps on both sides with four objects each have 190."""

START, STOP, IMAGE_PAD, VIDEO_PAD = (
    *("<|vision_start|>", "<|vision_end|>"), *("<|image_pad|>", "<|video_pad|>"),
)  # fmt: skip

PROMPT_OF_JUDGE = JUDGE_PROMPTS[DEFAULT_PROMPT]

VERDICTS = tuple(PROMPT_OF_JUDGE.phrases[winner] for winner in WINNERS)
"""In the order of `WINNERS`; each is one token."""

OBJECTS = tuple(phrase(SceneObject(cell, *look)) for cell, look in product(range(CELLS), LOOKS))
"""Every object that there can be, those of a cell together."""

_COUNTS = tuple(f"{number} shape{'s' * (number != 'one')} :" for number in NUMBERS)
_SENTENCES = (*VERDICTS, PROMPT_OF_JUDGE.closing, *PROMPT_OF_JUDGE.headings, PROMPT)
_NEW_TOKENS = 16

_TEMPLATE = (
    f"{BEGIN} {{% for message in messages if message['role'] != 'system' %}}"
    "{{ message['role'] }} :"
    "{% if message['content'] is string %} {{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    f"{{% if part['type'] == 'image' %}} {START} {IMAGE_PAD} {STOP}"
    "{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)
"""Without the system prompt: the model was taught by examples, and none of its words are known."""

_GRID = {"patch_size": SEEN_PATCH, "merge_size": MERGED, "temporal_patch_size": 2}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each whole phrase, else for each word of the arena."""
    phrases = (*_SENTENCES, *OBJECTS, *_COUNTS)
    control = (PAD, BEGIN, END, UNKNOWN, START, STOP, IMAGE_PAD, VIDEO_PAD)
    known = dict.fromkeys((*control, *phrases, *VOCABULARY, "user", "assistant"))
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(known)}, unk_token=UNKNOWN)
    )
    # The longest phrase that fits comes first; what is no phrase is cut at spaces.
    longest = sorted(phrases, key=len, reverse=True)
    pattern = "|".join([*(rf"{re.escape(text)}(?!\S)" for text in longest), r"\S+"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=LENGTH,
        additional_special_tokens=[START, STOP],
        extra_special_tokens={"image_token": IMAGE_PAD, "video_token": VIDEO_PAD},
    )


def build_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLProcessor:
    """Images to 48 x 48 pixels in [-1, 1], chats to tokens."""
    return Qwen2VLProcessor(
        image_processor=pil("Qwen2VLImageProcessor")(
            size={"shortest_edge": SEEN_SIDE**2, "longest_edge": SEEN_SIDE**2},
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            **_GRID,
        ),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**_GRID),
        chat_template=_TEMPLATE,
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    width: int = WIDTH,
    layers: int = LAYERS,
    depth: int = DEPTH,
) -> Qwen2VLForConditionalGeneration:
    """A new Qwen2-VL; objects begin as the sums of their size, color, shape and place.

    width: of both parts. layers, depth: of the language model and of the vision tower.
    """
    start, stop, image, video = tokenizer.convert_tokens_to_ids([START, STOP, IMAGE_PAD, VIDEO_PAD])
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 3 * width,
            "max_position_embeddings": LENGTH,
            # Battles are short: with the usual base, the angles of a grid of 3 x 3 are all alike.
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 30.0,
                "mrope_section": [width // 32, 3 * width // 64, 3 * width // 64],
            },
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": depth,
            "embed_dim": width,
            "hidden_size": width,
            "mlp_ratio": 3,
            "num_heads": 4,
            "patch_size": SEEN_PATCH,
            "spatial_merge_size": MERGED,
            "temporal_patch_size": 2,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=stop,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2VLForConditionalGeneration(config)
    _compose_objects(model, tokenizer)
    model.generation_config = GenerationConfig(
        bos_token_id=1, eos_token_id=2, pad_token_id=0, max_new_tokens=_NEW_TOKENS, do_sample=False
    )
    return model


def _compose_objects(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Objects that share a word begin alike in so far, as they would if words were tokens."""
    embeddings = model.get_input_embeddings().weight
    words = sorted({word for text in OBJECTS for word in text.split()})
    parts = {word: torch.randn(embeddings.shape[1]) * 0.02 for word in words}
    with torch.no_grad():
        for text in OBJECTS:
            sum_of_words = torch.stack([parts[word] for word in text.split()]).sum(0)
            embeddings[tokenizer.convert_tokens_to_ids(text)] = sum_of_words


def see_image(image: Image.Image) -> FloatArray:
    """(36, 384) patches of an RGB image, as the processor makes them; see `tower_patches`."""
    size = (SEEN_SIDE, SEEN_SIDE)
    small = image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)
    pixels = np.asarray(small, np.float32).transpose(2, 0, 1) / 127.5 - 1
    side, step = SEEN_SIDE // SEEN_PATCH // MERGED, SEEN_PATCH
    blocks = pixels.reshape(3, side, MERGED, step, side, MERGED, step)
    # Rows of merged patches, columns of them, then the patches of each, as the processor goes.
    patches = blocks.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    doubled = np.repeat(patches, 2, axis=5)  # an image is a film of two frames that are the same
    return doubled.reshape(side * side * MERGED**2, -1)


def look(model: Qwen2VLForConditionalGeneration, patches: torch.Tensor) -> torch.Tensor:
    """(images, 9, width) what the tower makes of images of one size, all in one go.

    The tower's own `forward` goes image by image. patches: (images, 36, 384).
    """
    tower = model.model.visual
    count, number, _ = patches.shape
    grid = torch.tensor([[1, SEEN_SIDE // SEEN_PATCH, SEEN_SIDE // SEEN_PATCH]])
    cos, sin = _angles(tower, grid)
    hidden = tower.patch_embed(patches.flatten(0, 1)).view(count, number, -1)
    for block in tower.blocks:
        attention = block.attn
        heads = attention.qkv(block.norm1(hidden)).view(
            count, number, 3, attention.num_heads, attention.head_dim
        )
        query, key, value = heads.unbind(2)
        query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        # Plain products: the fused kernel's way back is several times slower at these sizes.
        alike = query @ key.transpose(-1, -2) / attention.head_dim**0.5
        mixed = alike.softmax(-1) @ value
        hidden = hidden + attention.proj(mixed.transpose(1, 2).flatten(2))
        hidden = hidden + block.mlp(block.norm2(hidden))
    seen: torch.Tensor = tower.merger(hidden.flatten(0, 1)).view(count, GRID * GRID, -1)
    return seen


def _angles(tower: Any, grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from transformers.models.qwen2_vl.modeling_qwen2_vl import get_vision_position_ids

    places = get_vision_position_ids(grid, MERGED, kwargs={})
    cos, sin = tower.rotary_pos_emb(torch.zeros(1), places)
    return cos, sin
