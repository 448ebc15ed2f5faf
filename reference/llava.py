"""The shape that describer and planner share: a LLaVA of 1.5 million parameters."""

from __future__ import annotations

from portable import pil
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from vocabulary import CHAT_TEMPLATE, IMAGE
from world import PATCH, PATCHES

from pytest_cepbench.datasets.shapes.scene import SIDE

WIDTH = 128


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, new_tokens: int
) -> LlavaForConditionalGeneration:
    """A new LLaVA: a CLIP tower of four layers over 64 patches, and a Llama of three.

    tokenizer: of its words; its `model_max_length` is the most positions of the Llama.
    new_tokens: how many the model writes at most, greedily.
    """
    vision = CLIPVisionConfig(
        image_size=SIDE,
        patch_size=PATCH,
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        hidden_act="gelu",
        projection_dim=WIDTH,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=3 * WIDTH,
        max_position_embeddings=tokenizer.model_max_length,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    model = LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=vision,
            text_config=text,
            image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
            image_seq_length=PATCHES,
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
            tie_word_embeddings=True,
        )
    )
    model.generation_config = GenerationConfig(
        bos_token_id=1, eos_token_id=2, pad_token_id=0, max_new_tokens=new_tokens, do_sample=False
    )
    return model


def build_processor(tokenizer: PreTrainedTokenizerFast) -> LlavaProcessor:
    """Pictures to 64 x 64 pixels in [-1, 1], chats to tokens."""
    # Pillow's own resizing: torchvision's differs from it by one level, and is not always there.
    images = pil("CLIPImageProcessor")(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        chat_template=CHAT_TEMPLATE,
        num_additional_image_tokens=1,
    )
