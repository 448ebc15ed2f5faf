r"""What a gate costs: arithmetic of real architectures, counted, and the minutes that it comes to.

    python -m benchmarks.gate_cost            # tables for docs/clusters.md, some minutes of CPU

Nothing is run: models are built on torch's meta device, whose tensors have shapes and no values,
and `torch.utils.flop_counter` counts the multiplications and additions of their matrix products,
convolutions and attention. Minutes follow from them at a stated speed of arithmetic, so they are
estimates; `benchmarks.accelerator` measures some of them. Architectures are those of the released
configurations; text encoders count once for each prompt, the decoder once for each image.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.pages import table
from pytest_cepbench.gate.statistics.power import Design, smallest_visible

TERA = 1e12

_SPEED = 250.0
"""TFLOP/s that a mature pipeline comes to on an H100 in bfloat16, about a quarter of its peak."""

_TOKENS = 256
"""Of a description: what detailed captions take."""


class Drawing(NamedTuple):
    """A way to draw, as the model's card states it.

    side: pixels. evaluations: of the denoiser in a step, 2 with classifier-free guidance, else 1.
    step: TFLOP of one evaluation. once: TFLOP of text encoders and decoder.
    """

    name: str
    side: int
    steps: int
    evaluations: int
    step: float
    once: float

    @property
    def total(self) -> float:
        """TFLOP of an image."""
        return self.steps * self.evaluations * self.step + self.once


def meta(*shape: int, dtype: Any = None) -> Any:
    """A tensor without values."""
    import torch

    return torch.empty(*shape, dtype=dtype, device="meta")


# -- denoisers and decoders of the released configurations -----------------------------------------


def unet_step(side: int, kind: str) -> float:
    """TFLOP of one evaluation of a Stable Diffusion UNet: "1.5", "2.1" or "xl"."""
    from diffusers import UNet2DConditionModel

    kinds: Mapping[str, dict[str, Any]] = {
        "1.5": {"cross_attention_dim": 768, "attention_head_dim": 8},
        "2.1": {
            "cross_attention_dim": 1024,
            "attention_head_dim": (5, 10, 20, 20),
            "use_linear_projection": True,
        },
        "xl": {
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "block_out_channels": (320, 640, 1280),
            "transformer_layers_per_block": (1, 2, 10),
            "attention_head_dim": (5, 10, 20),
            "cross_attention_dim": 2048,
            "use_linear_projection": True,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816,
        },
    }
    settings = kinds[kind]
    more = {}
    if kind == "xl":
        more["added_cond_kwargs"] = {"text_embeds": meta(1, 1280), "time_ids": meta(1, 6)}
    return _on_meta(
        lambda: UNet2DConditionModel(**settings),
        sample=meta(1, 4, side // 8, side // 8),
        timestep=1,
        encoder_hidden_states=meta(1, 77, settings["cross_attention_dim"]),
        **more,
    )


def sd3_step(side: int, layers: int = 38) -> float:
    """TFLOP of one evaluation of Stable Diffusion 3.5 Large."""
    from diffusers import SD3Transformer2DModel

    return _on_meta(
        lambda: SD3Transformer2DModel(
            sample_size=128,
            in_channels=16,
            out_channels=16,
            num_layers=layers,
            num_attention_heads=layers,
            attention_head_dim=64,
            caption_projection_dim=64 * layers,
            joint_attention_dim=4096,
            pooled_projection_dim=2048,
            pos_embed_max_size=192,
        ),
        hidden_states=meta(1, 16, side // 8, side // 8),
        encoder_hidden_states=meta(1, 77 + _TOKENS, 4096),
        pooled_projections=meta(1, 2048),
        timestep=meta(1),
    )


def flux_step(side: int) -> float:
    """TFLOP of one evaluation of FLUX.1."""
    from diffusers import FluxTransformer2DModel

    patches = (side // 16) ** 2
    return _on_meta(
        FluxTransformer2DModel,
        hidden_states=meta(1, patches, 64),
        encoder_hidden_states=meta(1, _TOKENS, 4096),
        pooled_projections=meta(1, 768),
        timestep=meta(1),
        img_ids=meta(patches, 3),
        txt_ids=meta(_TOKENS, 3),
    )


def sana_step(side: int) -> float:
    """TFLOP of one evaluation of Sana 1.6B, which Sana-Sprint shares."""
    from diffusers import SanaTransformer2DModel

    return _on_meta(
        SanaTransformer2DModel,
        hidden_states=meta(1, 32, side // 32, side // 32),
        encoder_hidden_states=meta(1, 300, 2304),
        timestep=meta(1),
    )


def decode(side: int, channels: int = 4) -> float:
    """TFLOP of decoding the latents of an image by the autoencoder of Stable Diffusion."""
    from diffusers import AutoencoderKL

    def build() -> Any:
        return AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            latent_channels=channels,
        ).decoder

    return _on_meta(build, sample=meta(1, channels, side // 8, side // 8))


def _on_meta(build: Callable[[], Any], **inputs: Any) -> float:
    """TFLOP of one call of a model that is built on the meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model = build().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs)
    return float(counter.get_total_flops()) / TERA


_T5 = 2 * 4.76e9 * _TOKENS / TERA  # 2 operations for each weight and token
_CLIP = 2 * 0.8e9 * 77 / TERA


def drawings() -> list[Drawing]:
    """The set-ups: steps, guidance and size as the models' cards state them."""
    return [
        Drawing("SD-Turbo", 512, 1, 1, unet_step(512, "2.1"), decode(512)),
        Drawing("SDXL-Turbo", 512, 1, 1, unet_step(512, "xl"), decode(512) + _CLIP),
        Drawing("SD 1.5", 512, 50, 2, unet_step(512, "1.5"), decode(512)),
        Drawing("Sana-Sprint 1.6B", 1024, 2, 1, sana_step(1024), decode(1024)),
        Drawing("SDXL-Lightning", 1024, 4, 1, unet_step(1024, "xl"), decode(1024) + _CLIP),
        Drawing("SDXL", 1024, 50, 2, unet_step(1024, "xl"), decode(1024) + _CLIP),
        Drawing("FLUX.1-schnell", 1024, 4, 1, flux_step(1024), decode(1024, 16) + _T5),
        Drawing("SD 3.5 Large", 1024, 28, 2, sd3_step(1024), decode(1024, 16) + _T5),
        Drawing("FLUX.1-dev", 1024, 50, 1, flux_step(1024), decode(1024, 16) + _T5),
    ]


# -- describers ------------------------------------------------------------------------------------

_BANDWIDTH = 2.0  # TB/s of weights that a decoder reads on an H100, of 3.35

_DESCRIBERS: Mapping[str, tuple[float, int]] = {
    "2B (Qwen2-VL-2B class)": (2.2e9, 1300),
    "7B (LLaVA-1.5-7B class)": (7.1e9, 640),
}
"""Weights, and tokens of image and prompt."""

_BATCH = 16


def describing_seconds(weights: float, prompt: int, speed: float) -> float:
    """Seconds of one description in a batch of 16: reading the image, then a token at a time.

    Reading is bound by arithmetic (2 operations for each weight and token), writing by the
    bandwidth of the memory (two bytes for each weight, once for the batch and token).
    """
    reading = 2 * weights * prompt / (speed * TERA)
    return reading + 2 * weights / (_BANDWIDTH * TERA) * _TOKENS / _BATCH


# -- tables ----------------------------------------------------------------------------------------


def drawing_table(speed: float) -> str:
    """Arithmetic and seconds of an image by each set-up, and minutes of a gate."""
    weights, prompt = _DESCRIBERS["7B (LLaVA-1.5-7B class)"]
    describe = describing_seconds(weights, prompt, speed)
    gates = ((96, 1), (192, 3))
    rows = []
    for own in drawings():
        draw = own.total / speed
        minutes = [f"{n * each * (draw + describe) / 60:.1f} min" for n, each in gates]
        calls = f"{own.steps} x {own.evaluations}"
        figures = (f"{own.total:.1f}", f"{draw:.2f}", *minutes)
        rows.append((own.name, str(own.side), calls, *figures))
    head = ["generator", "pixels", "steps x evaluations", "TFLOP an image", "s an image"]
    return table([*head, *(f"{n} images, T = {each}" for n, each in gates)], rows)


def describer_table(speed: float) -> str:
    """Seconds of a description."""
    rows = [
        (name, str(prompt), f"{describing_seconds(weights, prompt, speed):.2f}")
        for name, (weights, prompt) in _DESCRIBERS.items()
    ]
    return table(("describer", "tokens of image and prompt", "s a description"), rows)


def visible_table(alpha: float = 0.05) -> str:
    """The drop that fails in 80 % of runs, by samples and by the spread of their differences."""
    counts = (48, 96, 192, 384, 768)
    rows = [
        (f"{sd:g}", *(f"{smallest_visible(Design.plain(sd, n), alpha):.4f}" for n in counts))
        for sd in (0.02, 0.05, 0.1, 0.2)
    ]
    return table(("spread (sd) of a sample's change", *(f"{n} samples" for n in counts)), rows)


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--speed", type=float, default=_SPEED, help="TFLOP/s of the accelerator")
    options = parser.parse_args()
    speed: float = options.speed
    print(f"{drawing_table(speed)}\n\n{describer_table(speed)}\n\n{visible_table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
