"""Tiny describer checkpoints with random weights, saved as their libraries save them.

Each builder writes a folder that loads like a published checkpoint of its architecture. The seed
decides the weights; two seeds give two checkpoints that differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.tiny.common import (
    CENTER,
    CHAT_TEMPLATE,
    LAYERS,
    SPECIAL,
    SQUARE,
    VISION,
    WORDS,
    built_once,
    pil,
    skip_before,
    tokenizer_of,
    word_tokenizer,
)

TEXT: dict[str, Any] = {
    **LAYERS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # At the default spread of 0.02 every image ends in the same words; a test could not tell
    # one image from another.
    "initializer_range": 0.3,
}


@built_once()
def build_llava(
    path: Path,
    *,
    chat: bool = True,
    words: Sequence[str] = WORDS,
    width: int = 32,
    seed: int = 0,
) -> None:
    """LlavaForConditionalGeneration: CLIP tower, Llama, chat template unless told otherwise.

    width: of all layers. seed: of `built_once`.
    """
    import transformers

    tokenizer = word_tokenizer((*SPECIAL, "<image>"), words, image_token="<image>")
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**{**VISION, "hidden_size": width}),
        text_config=transformers.LlamaConfig(
            vocab_size=len(tokenizer), **{**TEXT, "hidden_size": width}
        ),
        image_token_id=image_token,
        image_seq_length=16,
    )
    transformers.LlavaForConditionalGeneration(config).save_pretrained(path)
    transformers.LlavaProcessor(
        image_processor=pil("CLIPImageProcessor")(**CENTER),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<image>") if chat else None,
    ).save_pretrained(path)


@built_once()
def build_qwen2_vl(path: Path, *, words: Sequence[str] = WORDS) -> None:
    """Qwen2VLForConditionalGeneration: images keep their shape, so rows differ in length."""
    skip_before("Qwen2-VL as it is built here", "transformers", "5.0")
    import transformers
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    extra = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer = word_tokenizer(
        (*SPECIAL, *extra), words, image_token="<|image_pad|>", video_token="<|video_pad|>"
    )
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(extra))
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    config = transformers.Qwen2VLConfig(
        text_config={"vocab_size": len(tokenizer), "rope_parameters": rope, **TEXT},
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 32,
            "mlp_ratio": 2,
            "num_heads": 2,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(path)
    patches = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
    transformers.Qwen2VLProcessor(
        image_processor=pil("Qwen2VLImageProcessor")(
            size={"shortest_edge": 16 * 16, "longest_edge": 64 * 64}, **patches
        ),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**patches),
        chat_template=CHAT_TEMPLATE.replace(
            "IMAGE", "<|vision_start|> <|image_pad|> <|vision_end|>"
        ),
    ).save_pretrained(path)


@built_once()
def build_idefics3(path: Path, *, words: Sequence[str] = WORDS) -> None:
    """Idefics3ForConditionalGeneration: SigLIP-like tower with pixel shuffle."""
    import transformers

    named = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    tokenizer = word_tokenizer((*SPECIAL, *named.values()), words, **named)
    config = transformers.Idefics3Config(
        vision_config=VISION,
        text_config=transformers.LlamaConfig(vocab_size=len(tokenizer), **TEXT),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    transformers.Idefics3ForConditionalGeneration(config).save_pretrained(path)
    transformers.Idefics3Processor(
        image_processor=pil("Idefics3ImageProcessor")(
            size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False
        ),
        tokenizer=tokenizer,
        image_seq_len=4,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<image>"),
    ).save_pretrained(path)


@built_once()
def build_blip(path: Path) -> None:
    """BlipForConditionalGeneration: a captioner, no chat template."""
    import transformers

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]")
    vocabulary = {word: index for index, word in enumerate([*special, *WORDS])}
    tokenizer = tokenizer_of("BertTokenizer", vocabulary, bos_token="[DEC]")
    text = {
        "vocab_size": len(vocabulary),
        **LAYERS,
        "encoder_hidden_size": 32,
        "max_position_embeddings": 24,
        "bos_token_id": vocabulary["[DEC]"],
        "eos_token_id": vocabulary["[SEP]"],
        "sep_token_id": vocabulary["[SEP]"],
        "pad_token_id": 0,
        "is_decoder": True,
        "initializer_range": 0.3,
    }
    config = transformers.BlipConfig(
        vision_config={**VISION, "initializer_range": 0.3}, text_config=text
    )
    transformers.BlipForConditionalGeneration(config).save_pretrained(path)
    transformers.BlipProcessor(
        image_processor=pil("BlipImageProcessor")(size=SQUARE),
        tokenizer=tokenizer,
    ).save_pretrained(path)


@built_once()
def build_vit_gpt2(path: Path) -> None:
    """VisionEncoderDecoderModel of ViT and GPT-2: tokenizer and image processor, no processor."""
    import transformers

    tokenizer = word_tokenizer()
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**VISION, initializer_range=0.3),
        transformers.GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=24,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=1,
            eos_token_id=2,
            is_decoder=True,
            add_cross_attention=True,
            initializer_range=0.3,
        ),
    )
    model = transformers.VisionEncoderDecoderModel(config)
    for settings in (model.config, model.generation_config):
        settings.decoder_start_token_id = 1
        settings.pad_token_id = 0
        settings.eos_token_id = 2
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    pil("ViTImageProcessor")(size=SQUARE).save_pretrained(path)


@built_once()
def build_gemma3(path: Path) -> None:
    """Gemma3ForConditionalGeneration: the processor has a marker of its own for an image."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3Processor

    named = {"boi_token": "<boi>", "eoi_token": "<eoi>", "image_token": "<soft>"}
    tokenizer = word_tokenizer((*SPECIAL, *named.values()), **named)
    start, end, image = tokenizer.convert_tokens_to_ids(list(named.values()))
    config = Gemma3Config(
        text_config={"vocab_size": len(tokenizer), "head_dim": 8, **TEXT},
        vision_config={**VISION, "vision_use_head": False},
        mm_tokens_per_image=4,
        boi_token_index=start,
        eoi_token_index=end,
        image_token_index=image,
    )
    model = Gemma3ForConditionalGeneration(config)
    parameters = dict(model.named_parameters())
    # It begins with zeros.
    next(p for n, p in parameters.items() if n.endswith("input_projection_weight")).data.normal_()
    model.save_pretrained(path)
    Gemma3Processor(
        image_processor=pil("Gemma3ImageProcessor")(size=SQUARE),
        tokenizer=tokenizer,
        image_seq_length=4,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<boi>"),
    ).save_pretrained(path)


@built_once()
def build_phi4(path: Path) -> None:
    """Phi4MultimodalForCausalLM: reads images of one size, and sounds."""
    skip_before("Phi-4 as it is built here", "transformers", "5.0")
    import transformers

    named = {"image_token": "<image>", "audio_token": "<audio>"}
    tokenizer = word_tokenizer((*SPECIAL, *named.values()), **named)
    image, audio = tokenizer.convert_tokens_to_ids(list(named.values()))
    vision = {**VISION, "image_size": 448, "patch_size": 14, "crop_size": 448}
    sizes = ("hidden_size", "ext_pw_out_channel", "depthwise_separable_out_channel")
    sounds = dict.fromkeys((*sizes, "intermediate_size", "nemo_conv_channels"), 32)
    config = transformers.Phi4MultimodalConfig(
        vocab_size=len(tokenizer),
        **{**TEXT, "max_position_embeddings": 4096},
        rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
        },
        vision_config={**vision, "image_token_id": image},
        audio_config={
            **sounds, "num_blocks": 1, "num_attention_heads": 4, "audio_token_id": audio,
        },
    )  # fmt: skip
    transformers.Phi4MultimodalForCausalLM(config).save_pretrained(path)
    transformers.Phi4MultimodalProcessor(
        transformers.Phi4MultimodalImageProcessor(dynamic_hd=1),
        transformers.Phi4MultimodalFeatureExtractor(),
        tokenizer,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<image>"),
    ).save_pretrained(path)


BUILDERS: dict[str, Callable[[Path], Path]] = {
    "llava": build_llava,
    "qwen2-vl": build_qwen2_vl,
    "idefics3": build_idefics3,
    "blip": build_blip,
    "vit-gpt2": build_vit_gpt2,
}
