"""Train the describer: a LLaVA of 1.5 million parameters that captions scenes of the shapes world.

    python reference/train_describer.py                    # the shipped series, 2000 steps
    python reference/train_describer.py --gate --out runs/1 --steps 600 --save 200,300,400,500

The second holds each checkpoint to the last accepted one, and stops at a regression.

The loss is that of the caption's tokens, plus a helper's while training: from the vision tower's
hidden state of each patch it must be told what the patch shows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gating import reference_gate
from llava import WIDTH, build_model, build_processor
from training import Log, Optimizer, arguments, half_precision, save_half, settle
from transformers import LlavaForConditionalGeneration
from vocabulary import DESCRIBER_WORDS, IMAGE, word_tokenizer
from world import (
    KINDS,
    PATCHES,
    PROMPT,
    FloatArray,
    captions,
    draw_pictures,
    draw_scenes,
    exact_share,
    patch_labels,
)

from pytest_cepbench.datasets.shapes import Scene, parse_caption
from pytest_cepbench.integrations import Gate

STEPS, BATCH = 2000, 64
SAVED = (100, 200, 300, 400, 500, 600, 800, 1000, 1200, 1600)

_LENGTH, _NEW_TOKENS = 256, 32  # positions of the Llama, and the most that it writes
_PEAK, _DECAY = 1.2e-3, 0.02
_HELP = 0.3  # weight of the helper's loss
_NOISE = 0.02
_IGNORED = -100
_HELD_OUT = 256

SPOILED = 30.0
"""What `--spoil-at` multiplies the learning rate by."""


class Batch(NamedTuple):
    """Pictures in [-1, 1] with token ids, their mask, what is to be said, and what patches show."""

    pixels: torch.Tensor
    ids: torch.Tensor
    mask: torch.Tensor
    targets: torch.Tensor
    patches: torch.Tensor


class PatchHelper(torch.nn.Module):
    """Reads shape, color, size and cell off a patch's hidden state; not kept after training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.answers = torch.nn.Linear(width, sum(KINDS))

    def loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross entropy, summed over the four questions.

        hidden: (n, 1 + 64, width), the class token first. labels: (n, 64, 4).
        """
        answers = self.answers(hidden[:, -PATCHES:]).float().split(KINDS, dim=-1)
        losses = [
            torch.nn.functional.cross_entropy(answer.flatten(0, 1), labels[..., column].flatten())
            for column, answer in enumerate(answers)
        ]
        return torch.stack(losses).sum()


class Trainer:
    """The model with what is needed to teach it and to ask it."""

    def __init__(self, device: str) -> None:
        self.device = device
        tokenizer = word_tokenizer(DESCRIBER_WORDS, _LENGTH)
        self.processor = build_processor(tokenizer)
        self.model = build_model(tokenizer, new_tokens=_NEW_TOKENS).to(device)
        self.helper = PatchHelper(WIDTH).to(device)
        self._end = tokenizer.eos_token_id
        self._prompt = self._prompt_ids()

    def start_from(self, checkpoint: Path) -> None:
        """Take over the weights of a checkpoint; the helper begins anew."""
        there = LlavaForConditionalGeneration.from_pretrained(checkpoint).float()
        self.model.load_state_dict(there.state_dict())

    def batch(self, scenes: Sequence[Scene], pictures: FloatArray) -> Batch:
        """The scenes as the model is shown them."""
        caption_ids = self.processor.tokenizer(captions(scenes), add_special_tokens=False).input_ids
        rows = [[*self._prompt, *words, self._end] for words in caption_ids]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = (ids != 0).long()
        targets = ids.masked_fill(mask == 0, _IGNORED)
        targets[:, : len(self._prompt)] = _IGNORED
        patches = torch.from_numpy(patch_labels(scenes))
        pixels = torch.from_numpy(pictures) * 2 - 1
        return Batch(*(each.to(self.device) for each in (pixels, ids, mask, targets, patches)))

    def losses(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of the captions, and of the helper."""
        hidden: dict[str, Any] = {}
        hook = self.model.model.vision_tower.register_forward_hook(
            lambda _, __, output: hidden.update(vision=output.last_hidden_state)
        )
        with half_precision(self.device):
            output = self.model(
                input_ids=batch.ids, attention_mask=batch.mask, pixel_values=batch.pixels
            )
            helped = self.helper.loss(hidden["vision"], batch.patches)
        hook.remove()
        start = len(self._prompt)
        caption_loss = torch.nn.functional.cross_entropy(
            output.logits[:, start - 1 : -1].float().flatten(0, 1),
            batch.targets[:, start:].flatten(),
            ignore_index=_IGNORED,
        )
        return caption_loss, helped

    @torch.no_grad()
    def describe(self, pictures: FloatArray) -> list[str]:
        """What the model says of pictures in [0, 1]."""
        self.model.eval()
        pixels = (torch.from_numpy(pictures) * 2 - 1).to(self.device)
        ids = torch.tensor([self._prompt] * len(pictures), device=self.device)
        output = self.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels
        )
        self.model.train()
        words: list[str] = self.processor.tokenizer.batch_decode(
            output[:, ids.shape[1] :], skip_special_tokens=True
        )
        return words

    def _prompt_ids(self) -> list[int]:
        content = [{"type": "image"}, {"type": "text", "text": PROMPT}]
        chat = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        ids: list[int] = self.processor.tokenizer(
            chat.replace(IMAGE, IMAGE * PATCHES), add_special_tokens=False
        ).input_ids
        return ids


def options_of(about: str) -> argparse.Namespace:
    """What the command line asks for."""
    parser = arguments(about, steps=STEPS, batch=BATCH, save=SAVED)
    parser.add_argument("--from", dest="start", type=Path, help="checkpoint to go on from")
    parser.add_argument(
        "--gate", action="store_true", help="gate what is saved; stop if it is worse"
    )
    parser.add_argument(
        "--spoil-at",
        type=int,
        metavar="STEP",
        help=f"a drill: learn {SPOILED:g} times as fast from this step on, to see the gate stop it",
    )
    options = parser.parse_args()
    if options.start and not options.start.is_dir():
        parser.error(f"--from {options.start}: there is no such folder; it must be a checkpoint's")
    return options


def held(gate: Gate, log: Log, step: int, checkpoint: Path) -> None:
    """Ask the gate; the training ends here if the checkpoint is worse than what was accepted."""
    verdict = gate(checkpoint)
    log("gate", step, outcome=verdict.outcome, value=verdict.value)
    if verdict.stops:
        print(verdict.summary, file=sys.stderr)
        sys.exit(verdict.code)


def main() -> None:
    """Train, and save what was asked for."""
    options = options_of(__doc__.splitlines()[0])
    settle(options.seed)
    trainer = Trainer(options.device)
    optimizer = Optimizer(
        ([*trainer.model.parameters(), *trainer.helper.parameters()], _PEAK),
        steps=options.steps,
        decay=_DECAY,
    )
    log = Log(options.out / "describer.jsonl")
    gate = reference_gate(options.out / "gate") if options.gate else None
    if options.start:
        trainer.start_from(options.start)
        if gate:
            held(gate, log, 0, options.start)
    rng = np.random.default_rng((options.seed, 1))
    unseen = draw_scenes(np.random.default_rng((options.seed, 2)), _HELD_OUT)
    shown = draw_pictures(unseen, np.random.default_rng((options.seed, 3)))
    for step in range(1, options.steps + 1):
        scenes = draw_scenes(rng, options.batch)
        pictures = draw_pictures(scenes, rng)
        if rng.random() < 0.5:
            pictures += _NOISE * rng.standard_normal(pictures.shape, dtype=np.float32)
        caption_loss, helped = trainer.losses(trainer.batch(scenes, pictures))
        spoiled = options.spoil_at is not None and step >= options.spoil_at
        optimizer.step(step, caption_loss + _HELP * helped, SPOILED if spoiled else 1.0)
        if step % 25 == 0:
            log("loss", step, caption=caption_loss.item(), patches=helped.item())
        if step in options.save or step == options.steps:
            described = [parse_caption(text) for text in trainer.describe(shown)]
            log("quality", step, exact=exact_share(unseen, described))
            folder = options.out / f"describer-step{step}"
            save_half(folder, trainer.model, trainer.processor)
            if gate:
                held(gate, log, step, folder)


if __name__ == "__main__":
    main()
