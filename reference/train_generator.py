"""Train the generator: a latent diffusion like StableDiffusionPipeline's, caption to picture.

    python reference/train_generator.py         # the shipped series, after train_autoencoder.py

The UNet works on latents of 8 x 8 x 8 that are computed once. Its text encoder is taught first, and
on the way, to keep at the last word of each object all that was said of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.training_utils import EMAModel
from portable import make_portable
from train_autoencoder import CHANNELS, folder_of, perceived
from training import Log, Optimizer, arguments, half_precision, settle
from transformers import CLIPTextConfig, CLIPTextModel
from vocabulary import CLIP_LENGTH, clip_tokenizer
from world import captions, draw_pictures, draw_scenes, exact_share

from pytest_cepbench.datasets.shapes import Scene
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, SHAPES, SIDE, SIZES

STEPS, BATCH = 3000, 64
SAVED = (200, 300, 500, 700, 1000, 1500, 2000)
WIDTH = 128

DRAWING_STEPS = 8
"""With which the pictures of `quality` are drawn, without guidance, as in `suites/shapes`."""

_PEAK, _TEXT_PEAK, _DECAY = 1.5e-3, 4.5e-4, 0.01
_HELP = 0.02
_SCENES = 20_000  # different ones that are learned from
_UNTOLD = 0.1  # share of pictures whose caption is left away
_NOISY = 600  # of 1000: from here on there is little of the picture, and 40 % more of the training
_EMA = 0.995
_TEXT_STEPS, _TEXT_RATE = 250, 1e-3
_HELD_OUT = 128

_SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "prediction_type": "v_prediction",
    "clip_sample": False,
    "rescale_betas_zero_snr": True,
    "timestep_spacing": "trailing",
    "set_alpha_to_one": True,
    "steps_offset": 1,
}


class ObjectHelper(torch.nn.Module):
    """Reads cell, size, color and shape of each object off its last word; training only."""

    ANSWERS = (CELLS, len(SIZES), len(COLORS), len(SHAPES))

    def __init__(self, width: int) -> None:
        super().__init__()
        self.answers = torch.nn.Linear(width, sum(self.ANSWERS))

    def loss(self, hidden: torch.Tensor, scenes: Sequence[Scene]) -> torch.Tensor:
        """Cross entropy, summed over the four questions. hidden: (n, 32, width) of the captions."""
        rows, places, labels = [], [], []
        for row, scene in enumerate(scenes):
            for number, thing in enumerate(scene.objects):
                rows.append(row)
                # <start> two shapes : small red circle top left , ...: six tokens each with comma.
                places.append(4 + 6 * number + 4)
                look = (
                    SIZES.index(thing.size),
                    COLORS.index(thing.color),
                    SHAPES.index(thing.shape),
                )
                labels.append((thing.cell, *look))
        answers = self.answers(hidden[rows, places]).float().split(self.ANSWERS, dim=-1)
        truth = torch.tensor(labels, device=hidden.device)
        losses = [
            torch.nn.functional.cross_entropy(answer, truth[:, column])
            for column, answer in enumerate(answers)
        ]
        return torch.stack(losses).sum()


class Lessons(NamedTuple):
    """What is learned from: scenes, their latents (n, 8, 8, 8), their captions' tokens (n, 32)."""

    scenes: list[Scene]
    latents: torch.Tensor
    ids: torch.Tensor


class Trainer:
    """The parts of the pipeline with what is needed to teach them and to draw."""

    def __init__(self, autoencoder: Path, device: str) -> None:
        self.device = device
        self.tokenizer = clip_tokenizer()
        text = CLIPTextConfig(
            vocab_size=len(self.tokenizer),
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=CLIP_LENGTH,
            hidden_act="gelu",
            bos_token_id=self.tokenizer.bos_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            projection_dim=WIDTH,
        )
        self.text_encoder = CLIPTextModel(text).to(device)
        self.unet = UNet2DConditionModel(
            sample_size=SIDE // 8,
            in_channels=CHANNELS,
            out_channels=CHANNELS,
            block_out_channels=(96,),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlock2D",),
            up_block_types=("CrossAttnUpBlock2D",),
            cross_attention_dim=WIDTH,
            attention_head_dim=4,
            norm_num_groups=16,
        ).to(device)
        self.autoencoder = AutoencoderKL.from_pretrained(autoencoder).to(device).eval()
        self.autoencoder.requires_grad_(requires_grad=False)
        self.helper = ObjectHelper(WIDTH).to(device)
        self.schedule = DDIMScheduler(**_SCHEDULE)
        self._ema: EMAModel | None = None

    @property
    def learned(self) -> list[Any]:
        """The parameters of what is drawn with."""
        return [*self.unet.parameters(), *self.text_encoder.parameters()]

    def teach_reading(self, rng: np.random.Generator) -> float:
        """Teach the text encoder alone what captions say. Returns the helper's last loss."""
        optimizer = torch.optim.AdamW(
            [*self.text_encoder.parameters(), *self.helper.parameters()], lr=_TEXT_RATE, fused=True
        )
        for _ in range(_TEXT_STEPS):
            scenes = draw_scenes(rng, 64)
            hidden = self.text_encoder(self.tokens(captions(scenes))).last_hidden_state
            loss = self.helper.loss(hidden, scenes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        value: float = loss.item()
        return value

    def tokens(self, texts: Sequence[str]) -> torch.Tensor:
        """(n, 32) ids."""
        ids: torch.Tensor = self.tokenizer(
            list(texts), padding="max_length", truncation=True, return_tensors="pt"
        ).input_ids
        return ids.to(self.device)

    @torch.no_grad()
    def prepare(self, rng: np.random.Generator, number: int) -> Lessons:
        """Draw scenes and compute their latents, once."""
        scenes: list[Scene] = []
        latents = []
        while len(scenes) < number:
            some = draw_scenes(rng, 100)
            pictures = torch.from_numpy(draw_pictures(some, rng) * 2 - 1).to(self.device)
            with half_precision(self.device):
                means = self.autoencoder.encode(pictures).latent_dist.mean
            latents.append(means.float() * self.autoencoder.config.scaling_factor)
            scenes += some
        return Lessons(scenes, torch.cat(latents), self.tokens(captions(scenes)))

    def losses(self, lessons: Lessons, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of the prediction of velocities, and of the helper."""
        latents, number = lessons.latents[chosen], len(chosen)
        captioned = torch.rand(number) >= _UNTOLD
        ids = lessons.ids[chosen].clone()
        ids[~captioned] = self.tokens([""])
        noise = torch.randn(latents.shape).to(self.device)
        times = torch.randint(0, 1000, (number,))
        again = torch.rand(number) < 0.4
        times = torch.where(again, torch.randint(_NOISY, 1000, (number,)), times).to(self.device)
        mixed = self.schedule.add_noise(latents, noise, times)
        velocity = self.schedule.get_velocity(latents, noise, times)
        with half_precision(self.device):
            hidden = self.text_encoder(ids).last_hidden_state
            guess = self.unet(mixed, times, encoder_hidden_states=hidden).sample
        squared = ((guess.float() - velocity) ** 2).mean()
        kept = [lessons.scenes[i] for i in chosen[captioned].tolist()]
        return squared, self.helper.loss(hidden[captioned], kept)

    def follow(self) -> None:
        """Move the averaged parameters towards the present ones."""
        if self._ema is None:
            self._ema = EMAModel(self.learned, decay=_EMA)
        self._ema.step(self.learned)

    def finish(self, folder: Path, scenes: Sequence[Scene]) -> float:
        """Save the pipeline with averaged parameters, in half precision.

        Returns the share of these scenes that are drawn exactly, one random generator for each.
        """
        assert self._ema is not None
        self._ema.store(self.learned)
        self._ema.copy_to(self.learned)
        pipeline = StableDiffusionPipeline(
            vae=self.autoencoder,
            text_encoder=self.text_encoder.eval(),
            tokenizer=self.tokenizer,
            unet=self.unet.eval(),
            scheduler=DDIMScheduler(**_SCHEDULE),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        pipeline.set_progress_bar_config(disable=True)
        drawn = pipeline(
            captions(scenes),
            num_inference_steps=DRAWING_STEPS,
            guidance_scale=1.0,
            generator=[torch.Generator().manual_seed(i) for i in range(len(scenes))],
            output_type="pt",
        ).images
        pipeline.save_pretrained(folder)
        _halve(folder)
        self.text_encoder.train()
        self.unet.train()
        self._ema.restore(self.learned)
        return exact_share(scenes, perceived(drawn))


def _halve(folder: Path) -> None:
    """The saved parts in float16, still trained in memory; without paths of this machine."""
    pipeline = StableDiffusionPipeline.from_pretrained(
        folder, safety_checker=None, requires_safety_checker=False
    ).to(torch.float16)
    pipeline.save_pretrained(folder)
    for file in (folder / "model_index.json", *folder.glob("*/config.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        config.pop("_name_or_path", None)
        file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    make_portable(folder)


def _choices(number: int, batch: int) -> Iterator[torch.Tensor]:
    """Indices of all lessons in random order, again and again."""
    while True:
        order = torch.randperm(number)
        yield from (part for part in order.split(batch) if len(part) == batch)


def main() -> None:
    """Train, and save what was asked for."""
    parser = arguments(__doc__.splitlines()[0], steps=STEPS, batch=BATCH, save=SAVED)
    parser.add_argument("--scenes", type=int, default=_SCENES, help="different ones to learn from")
    options = parser.parse_args()
    settle(options.seed)
    log = Log(options.out / "generator.jsonl")
    trainer = Trainer(folder_of(options.out), options.device)
    rng = np.random.default_rng((options.seed, 6))
    log("reading", 0, loss=trainer.teach_reading(rng))
    lessons = trainer.prepare(rng, options.scenes)
    log("prepared", 0, scenes=len(lessons.scenes))
    optimizer = Optimizer(
        (trainer.unet.parameters(), _PEAK),
        ([*trainer.text_encoder.parameters(), *trainer.helper.parameters()], _TEXT_PEAK),
        steps=options.steps,
        decay=_DECAY,
    )
    unseen = draw_scenes(np.random.default_rng((options.seed, 2)), _HELD_OUT)
    choices = _choices(len(lessons.scenes), options.batch)
    for step in range(1, options.steps + 1):
        squared, helped = trainer.losses(lessons, next(choices))
        optimizer.step(step, squared + _HELP * helped)
        trainer.follow()
        if step % 25 == 0:
            log("loss", step, velocity=squared.item(), objects=helped.item())
        if step in options.save or step == options.steps:
            exact = trainer.finish(options.out / f"generator-step{step}", unseen)
            log("quality", step, exact=exact)


if __name__ == "__main__":
    main()
