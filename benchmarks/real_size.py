r"""Checkpoints of real architecture and size with random weights, for measuring on an accelerator.

A describer of the 2B class (LLaVA: CLIP ViT-L/14 at 336 pixels before a Llama of 1.5 billion
weights), Stable Diffusion 1.5 (860 million in its UNet) and CLIP ViT-L/14. What they say and draw
is noise; how long they take is not, since nothing of a step's cost depends on the values.
Vocabularies are small.

    python -m benchmarks.real_size FOLDER               # about 7 GB, some minutes
    python -m benchmarks.chain_throughput --images 64 \
        --describer "FOLDER/describer?max_new_tokens=64" \
        --generator "FOLDER/generator?num_inference_steps=20&height=512&width=512" \
        --encoder FOLDER/encoder
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.tiny.common import CHAT_TEMPLATE, SPECIAL, word_tokenizer
from tests.tiny.encoders import clip_tokenizer

_TOKENS = 77


def build_describer(folder: Path) -> None:
    """LLaVA of the 2B class."""
    from transformers import (
        CLIPImageProcessor,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    tokenizer = word_tokenizer((*SPECIAL, "<image>"), image_token="<image>")
    vision = CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=4096,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=576,
    )
    model = LlavaForConditionalGeneration(config)
    # Never a special token, which would end a text early or leave it empty.
    model.lm_head.weight.data[: len(SPECIAL) + 1] = 0
    model.save_pretrained(folder)
    LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
        ),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE.replace("IMAGE", "<image>"),
    ).save_pretrained(folder)


def build_generator(folder: Path) -> None:
    """Stable Diffusion 1.5, without its safety checker."""
    import torch
    from diffusers import (
        AutoencoderKL,
        PNDMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextModel

    tokenizer = clip_tokenizer(_TOKENS)
    with torch.device("cpu"):  # schedulers hand their tensors to numpy
        scheduler = PNDMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            skip_prk_steps=True,
            steps_offset=1,
        )
    StableDiffusionPipeline(
        vae=AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        ),
        text_encoder=CLIPTextModel(_clip_text(tokenizer)),
        tokenizer=tokenizer,
        unet=UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)


def build_encoder(folder: Path) -> None:
    """CLIP ViT-L/14."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    tokenizer = clip_tokenizer(_TOKENS)
    vision = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "patch_size": 14,
    }
    config = CLIPConfig(
        text_config=_clip_text(tokenizer).to_dict(), vision_config=vision, projection_dim=768
    )
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(image_processor=CLIPImageProcessor(), tokenizer=tokenizer).save_pretrained(folder)


def _clip_text(tokenizer: Any) -> Any:
    """The configuration of CLIP ViT-L/14's text tower."""
    from transformers import CLIPTextConfig

    return CLIPTextConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        vocab_size=len(tokenizer),
        max_position_embeddings=_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


BUILDERS: Mapping[str, Callable[[Path], object]] = {
    "describer": build_describer,
    "generator": build_generator,
    "encoder": build_encoder,
}
"""What builds each checkpoint, by the name of its folder."""


def build(name: str, folder: Path, device: str = "cpu") -> int:
    """Build a checkpoint in bfloat16 with random weights, made on a device; returns its bytes."""
    import torch

    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            BUILDERS[name](folder)
    finally:
        torch.set_default_dtype(before)
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def main() -> None:
    """Build all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(BUILDERS))
    parser.add_argument("--device", default="cpu", help="where the random numbers are drawn")
    options = parser.parse_args()
    for name in options.names:
        size = build(name, options.folder / name, options.device)
        print(f"{options.folder / name}: {size / 1e9:.2f} GB of weights")


if __name__ == "__main__":
    main()
