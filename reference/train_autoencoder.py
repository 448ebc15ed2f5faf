"""Train the autoencoder whose latents the generator draws: 64 x 64 x 3 to 8 x 8 x 8 and back.

    python reference/train_autoencoder.py           # the shipped one, before train_generator.py

The loss weighs pixels of objects ten times as much as those of the background.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from training import Log, Optimizer, arguments, half_precision, settle
from world import FloatArray, draw_pictures, draw_scenes, exact_share

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, parse_image
from pytest_cepbench.datasets.shapes.scene import BACKGROUND, SIDE

STEPS, BATCH = 1200, 32

CHANNELS = 8
"""Of the latents."""

_PEAK, _DECAY = 1.8e-3, 1e-4
_OBJECTS = 9.0  # how much more a pixel of an object weighs
_VISIBLE = 0.05
_DIVERGENCE = 8e-4  # weight of the latents' distance from a normal distribution
_HELD_OUT = 256


def build_model() -> AutoencoderKL:
    """A new autoencoder."""
    return AutoencoderKL(
        block_out_channels=(16, 32, 64, 64),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=CHANNELS,
        norm_num_groups=8,
        sample_size=SIDE,
        mid_block_add_attention=False,
    )


def folder_of(out: Path) -> Path:
    """Where the autoencoder lies among the checkpoints; in full precision, to be built upon."""
    return out / "autoencoder"


def perceived(pictures: torch.Tensor) -> list[Scene]:
    """What the world's own parser sees in pictures in [0, 1], (n, 3, 64, 64)."""
    pixels = (pictures.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    return [parse_image(ImageArtifact(each)) for each in pixels]


def main() -> None:
    """Train, and save the last step."""
    options = arguments(__doc__.splitlines()[0], steps=STEPS, batch=BATCH, save=()).parse_args()
    settle(options.seed)
    model = build_model().to(options.device)
    optimizer = Optimizer((model.parameters(), _PEAK), steps=options.steps, decay=_DECAY)
    log = Log(options.out / "autoencoder.jsonl")
    rng = np.random.default_rng((options.seed, 4))
    unseen = draw_scenes(np.random.default_rng((options.seed, 2)), _HELD_OUT)
    shown = draw_pictures(unseen, np.random.default_rng((options.seed, 3)))
    for step in range(1, options.steps + 1):
        pictures = _signed(draw_pictures(draw_scenes(rng, options.batch), rng), options.device)
        with half_precision(options.device):
            latents = model.encode(pictures).latent_dist
            again = model.decode(latents.sample()).sample
        error = again.float() - pictures
        weight = 1 + _OBJECTS * (
            (pictures - (BACKGROUND * 2 - 1)).abs().amax(1, keepdim=True) > _VISIBLE
        )
        pixels = (weight * (error.abs() * 0.5 + error**2)).mean()
        divergence = latents.kl().mean() / latents.mean[0].numel()
        optimizer.step(step, pixels + _DIVERGENCE * divergence)
        if step % 25 == 0:
            log("loss", step, pixels=pixels.item(), divergence=divergence.item())
    model.eval()
    with torch.no_grad():
        means = model.encode(_signed(shown, options.device)).latent_dist.mean
        again = model.decode(means).sample / 2 + 0.5
    squared = ((again.cpu() - torch.from_numpy(shown)) ** 2).mean(dim=(1, 2, 3))
    log(
        "quality",
        options.steps,
        exact=exact_share(unseen, perceived(again)),
        psnr=float((-10 * squared.log10()).mean()),
    )
    model.register_to_config(scaling_factor=float(1 / means.std()))
    model.cpu().save_pretrained(folder_of(options.out))


def _signed(pictures: FloatArray, device: str) -> torch.Tensor:
    return (torch.from_numpy(pictures) * 2 - 1).to(device)


if __name__ == "__main__":
    main()
