"""Tiny diffusers pipelines with random weights, saved as diffusers saves them.

They draw 64 x 64 pixels in two steps; DRAW holds the spec parameters with which each does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny.common import (
    CENTER,
    LAYERS,
    SPECIAL,
    VISION,
    built_once,
    edit_tensors,
    pil,
    skip_before,
    token_ids,
    word_tokenizer,
)
from tests.tiny.describers import TEXT
from tests.tiny.encoders import WORDS, clip_tokenizer

TEXT_LENGTH = 32

DRAW = {
    "stable-diffusion": "num_inference_steps=2&height=64&width=64",
    "sdxl": "num_inference_steps=2&height=64&width=64",
    "pixart": (
        "num_inference_steps=2&height=64&width=64&max_sequence_length=16"
        "&use_resolution_binning=false&clean_caption=false"
    ),
    "sd3": "num_inference_steps=2&height=64&width=64&max_sequence_length=16",
    "flux": "num_inference_steps=2&height=64&width=64&max_sequence_length=16",
}


def t5_tokenizer() -> Any:
    """A T5Tokenizer in which every word of WORDS is one piece and any other text is letters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import T5Tokenizer, T5TokenizerFast

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -6.0)]
    pieces += [(letter, -6.0) for letter in letters]
    pieces += [(f"▁{word}", -2.0) for word in WORDS]
    if T5Tokenizer is T5TokenizerFast:
        return T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=TEXT_LENGTH)
    made = Tokenizer(models.Unigram(pieces, 2))  # before transformers 5
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    ends = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    made.post_processor = ends
    return T5TokenizerFast(tokenizer_object=made, extra_ids=0, model_max_length=TEXT_LENGTH)


_DDIM = {
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "set_alpha_to_one": False,
    "steps_offset": 1,
}


def _save_stable_diffusion(
    folder: Path, kind: str, scheduler: Any, *, safety_checker: bool = False, **unet: Any
) -> None:
    """A pipeline of this class with the parts of Stable Diffusion; unet: options of its UNet."""
    import diffusers
    import torch
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor

    tokenizer = clip_tokenizer(TEXT_LENGTH)
    checker, extractor = None, None
    if safety_checker:
        vision = VISION | {"num_hidden_layers": 1}
        checker = StableDiffusionSafetyChecker(CLIPConfig(vision_config=vision, projection_dim=32))
        for thresholds in (checker.concept_embeds_weights, checker.special_care_embeds_weights):
            torch.nn.init.constant_(thresholds, 2.0)  # above any cosine
        extractor = CLIPImageProcessor(**CENTER)
    getattr(diffusers, kind)(
        vae=_vae(),
        text_encoder=_clip_text(tokenizer),
        tokenizer=tokenizer,
        unet=_unet(32, attention_head_dim=4, **unet),
        scheduler=scheduler,
        safety_checker=checker,
        feature_extractor=extractor,
        requires_safety_checker=safety_checker,
    ).save_pretrained(folder)


@built_once(seed=21)
def build_stable_diffusion(folder: Path, *, safety_checker: bool = False, seed: int = 21) -> None:
    """A StableDiffusionPipeline with DDIM; `safety_checker` adds one that flags next to nothing.

    seed: of `built_once`.
    """
    from diffusers import DDIMScheduler

    kind, scheduler = "StableDiffusionPipeline", DDIMScheduler(**_DDIM)
    _save_stable_diffusion(folder, kind, scheduler, safety_checker=safety_checker)


@built_once(seed=27)
def build_lcm(folder: Path) -> None:
    """A LatentConsistencyModelPipeline: guidance is an input of the network."""
    from diffusers import LCMScheduler

    kind = "LatentConsistencyModelPipeline"
    _save_stable_diffusion(folder, kind, LCMScheduler(), time_cond_proj_dim=16)


@built_once(seed=26)
def build_pix2pix(folder: Path) -> None:
    """A StableDiffusionInstructPix2PixPipeline: the image goes beside the noise."""
    from diffusers import DDIMScheduler

    kind = "StableDiffusionInstructPix2PixPipeline"
    _save_stable_diffusion(folder, kind, DDIMScheduler(**_DDIM), in_channels=8)


@built_once(seed=22)
def build_sdxl(folder: Path) -> None:
    """A StableDiffusionXLPipeline: two text encoders and size conditioning."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    tokenizer = clip_tokenizer(TEXT_LENGTH)
    unet = _unet(
        64,
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 1),
        projection_class_embeddings_input_dim=32 + 6 * 8,
    )
    StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=_clip_text(tokenizer),
        text_encoder_2=_clip_text(tokenizer, projection=True),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler(timestep_spacing="leading", steps_offset=1),
        add_watermarker=False,
    ).save_pretrained(folder)


@built_once(seed=23)
def build_pixart(folder: Path) -> None:
    """A PixArtSigmaPipeline: a diffusion transformer reading T5."""
    import diffusers

    transformer = diffusers.PixArtTransformer2DModel(
        sample_size=16,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_channels=32,
        in_channels=4,
        out_channels=8,
        cross_attention_dim=32,
        use_additional_conditions=False,
    )
    tokenizer = t5_tokenizer()
    diffusers.PixArtSigmaPipeline(
        transformer=transformer,
        scheduler=diffusers.DPMSolverMultistepScheduler(),
        vae=_vae(),
        text_encoder=_t5(tokenizer),
        tokenizer=tokenizer,
    ).save_pretrained(folder)


@built_once()
def build_pixart_lcm(folder: Path) -> None:
    """A PixArtAlphaPipeline with the scheduler of a latent consistency model."""
    from diffusers import LCMScheduler, PixArtAlphaPipeline, PixArtSigmaPipeline

    sigma = PixArtSigmaPipeline.from_pretrained(build_pixart(folder.with_name("pixart-sigma")))
    parts = {**sigma.components, "scheduler": LCMScheduler()}
    PixArtAlphaPipeline(**parts).save_pretrained(folder)


@built_once(seed=28)
def build_sana_sprint(folder: Path) -> None:
    """A SanaSprintPipeline: linear attention over a deep autoencoder's latents, reading Gemma 2."""
    from diffusers import AutoencoderDC, SanaSprintPipeline, SanaTransformer2DModel, SCMScheduler
    from transformers import Gemma2Config, Gemma2Model

    tokenizer = t5_tokenizer()
    gemma = Gemma2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=1,
    )
    widths = (8, 8)
    SanaSprintPipeline(
        tokenizer=tokenizer,
        text_encoder=Gemma2Model(gemma),
        vae=AutoencoderDC(
            latent_channels=4,
            attention_head_dim=2,
            encoder_block_types="ResBlock",
            decoder_block_types="ResBlock",
            encoder_block_out_channels=widths,
            decoder_block_out_channels=widths,
            encoder_layers_per_block=(1, 1),
            decoder_layers_per_block=(1, 1),
            encoder_qkv_multiscales=((), ()),
            decoder_qkv_multiscales=((), ()),
        ),
        transformer=SanaTransformer2DModel(
            in_channels=4,
            out_channels=4,
            num_layers=1,
            num_attention_heads=2,
            attention_head_dim=8,
            num_cross_attention_heads=2,
            cross_attention_head_dim=8,
            cross_attention_dim=16,
            caption_channels=32,
            sample_size=32,
            guidance_embeds=True,
            qk_norm="rms_norm_across_heads",
        ),
        scheduler=SCMScheduler(),
    ).save_pretrained(folder)


@built_once(seed=25)
def build_sd3(folder: Path) -> None:
    """A StableDiffusion3Pipeline: flow matching, two CLIP towers with projections, and T5."""
    import diffusers

    tokenizer, pieces = clip_tokenizer(TEXT_LENGTH), t5_tokenizer()
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=32,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=64,
        caption_projection_dim=32,
        pooled_projection_dim=64,
    )
    diffusers.StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06),
        text_encoder=_clip_text(tokenizer, projection=True),
        tokenizer=tokenizer,
        text_encoder_2=_clip_text(tokenizer, projection=True),
        tokenizer_2=tokenizer,
        text_encoder_3=_t5(pieces, width=64),
        tokenizer_3=pieces,
    ).save_pretrained(folder)


@built_once(seed=24)
def build_flux(folder: Path) -> None:
    """A FluxPipeline: flow matching, CLIP and T5 together."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    tokenizer, pieces = clip_tokenizer(TEXT_LENGTH), t5_tokenizer()
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    )
    FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(latents=1, use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06),
        text_encoder=_clip_text(tokenizer),
        tokenizer=tokenizer,
        text_encoder_2=_t5(pieces),
        tokenizer_2=pieces,
        transformer=transformer,
    ).save_pretrained(folder)


def _chat_tokenizer(template: str | None, **named: str) -> Any:
    """Whole words and marks of a prompt, in a chat template as pipelines call it."""
    from tokenizers import pre_tokenizers

    tokenizer = word_tokenizer((*SPECIAL, *named.values()), WORDS, **named)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.chat_template, tokenizer.model_max_length = template, 512
    return tokenizer


@built_once(seed=27)
def build_qwen_image(folder: Path) -> None:
    """A QwenImagePipeline: its autoencoder is one of videos, with convolutions of three axes."""
    skip_before("Qwen-Image as it is built here", "diffusers", "0.36")
    import diffusers
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = _chat_tokenizer(None)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2}
    config = Qwen2_5_VLConfig(
        text_config={"vocab_size": len(tokenizer), "rope_parameters": rope, **TEXT},
        vision_config={"out_hidden_size": 32, **vision},
    )
    diffusers.QwenImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKLQwenImage(
            base_dim=24,
            z_dim=4,
            dim_mult=[1, 2, 4],
            num_res_blocks=1,
            temperal_downsample=[False, True],
            latents_mean=[0.0] * 4,
            latents_std=[1.0] * 4,
        ),
        text_encoder=Qwen2_5_VLForConditionalGeneration(config),
        tokenizer=tokenizer,
        transformer=diffusers.QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            axes_dims_rope=(8, 4, 4),
        ),
    ).save_pretrained(folder)


@built_once(seed=28)
def build_flux2(folder: Path) -> None:
    """A Flux2Pipeline: what it calls its tokenizer is a processor of images and texts."""
    skip_before("FLUX.2 as it is built here", "diffusers", "0.36")
    import diffusers
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration, PixtralProcessor

    named = {"image_token": "[IMG]", "image_break_token": "[BREAK]", "image_end_token": "[END]"}
    template = "{% for turn in messages %}{{ turn['content'][0]['text'] }} {% endfor %}"
    tokenizer = _chat_tokenizer(template, **named)
    config = Mistral3Config(
        # The pipeline reads layers 10, 20 and 30.
        text_config={
            "model_type": "mistral", "vocab_size": len(tokenizer), "head_dim": 8,
            **TEXT, "num_hidden_layers": 31,
        },
        vision_config={
            "model_type": "pixtral", "hidden_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 4, "intermediate_size": 32, "image_size": 32, "patch_size": 8,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
    )  # fmt: skip
    diffusers.Flux2Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKLFlux2(
            down_block_types=("DownEncoderBlock2D",),
            up_block_types=("UpDecoderBlock2D",),
            block_out_channels=(8,),
            layers_per_block=1,
            latent_channels=1,
            norm_num_groups=1,
        ),
        text_encoder=Mistral3ForConditionalGeneration(config),
        tokenizer=PixtralProcessor(
            image_processor=pil("PixtralImageProcessor")(size={"longest_edge": 32}, patch_size=8),
            tokenizer=tokenizer,
            chat_template=template,
            **named,
        ),
        transformer=diffusers.Flux2Transformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=96,
            axes_dims_rope=[4, 4, 4, 4],
        ),
    ).save_pretrained(folder)


@built_once()
def build_kontext(folder: Path) -> None:
    """A FluxKontextPipeline of the components of `build_flux`."""
    from diffusers import FluxKontextPipeline, FluxPipeline

    drawing = FluxPipeline.from_pretrained(build_flux(folder.with_name(f"{folder.name}-flux")))
    # As drawn, the image moves hardly a pixel of the result.
    for tensor in drawing.transformer.parameters():
        tensor.data *= 3
    FluxKontextPipeline(**drawing.components).save_pretrained(folder)


def flag_everything(folder: Path) -> None:
    """Make a saved pipeline's safety checker flag all images: thresholds go below any cosine."""
    file = folder / "safety_checker" / "model.safetensors"
    edit_tensors(file, lambda tensors: tensors["concept_embeds_weights"].fill_(-2.0))


def poison_decoder(folder: Path) -> None:
    """Make a saved pipeline draw NaN from finite weights: what they are multiplied by is NaN."""
    file = folder / "vae" / "diffusion_pytorch_model.safetensors"
    edit_tensors(file, lambda tensors: tensors["decoder.conv_norm_out.weight"].fill_(3e38))


def _clip_text(tokenizer: Any, *, projection: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        **LAYERS,
        **token_ids(tokenizer),
        max_position_embeddings=TEXT_LENGTH,
        projection_dim=32,
    )
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config)


def _t5(tokenizer: Any, width: int = 32) -> Any:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=len(tokenizer), d_model=width, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    )
    return T5EncoderModel(config)


def _vae(latents: int = 4, **options: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(32, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=latents,
        norm_num_groups=8,
        sample_size=64,
        **options,
    )


def _unet(cross_attention: int, **options: Any) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        out_channels=4,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=cross_attention,
        norm_num_groups=8,
        **{"in_channels": 4, **options},
    )
