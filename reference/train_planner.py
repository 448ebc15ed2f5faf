"""Train the planner: a LLaVA that answers questions of the arena of shapes step by step, in words.

    python reference/train_planner.py                      # the shipped ones, 2400 steps

It starts from the describer, which has the same shape and knows most of the words. The vision tower
stays as it is: it can tell a scene already. The loss is that of the answer's tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from lessons import HELD_OUT, TAUGHT, Lesson, draw_lessons, draw_pictures, right_steps
from llava import build_model, build_processor
from training import CHECKPOINTS, Log, Optimizer, arguments, half_precision, save_half, settle
from transformers import LlavaForConditionalGeneration, LlavaProcessor
from vocabulary import IMAGE, PLANNER_WORDS, word_tokenizer
from world import PATCHES, FloatArray

STEPS, BATCH = 2400, 64
EARLY = 500
"""The step whose checkpoint is shipped as `planner-early`, beside the last, `planner-final`."""

SAVED = (100, 200, 300, 400, 500, 600, 800, 1000, 1200, 1600, 2000)

DESCRIBER = CHECKPOINTS / "describer-step2000"

_LENGTH, _NEW_TOKENS = 384, 96  # positions of the Llama, and the most that it writes
_PEAK, _DECAY = 1.2e-3, 0.02
_PARTS = 4  # of a batch, each padded to its longest lesson
_IGNORED = -100
_UNSEEN = 24  # lessons of each category to measure quality with


class Batch(NamedTuple):
    """Pictures in [-1, 1], token ids with their mask, and what is to be said.

    pixels: (m, 3, 64, 64), of all rows in order; None where no row has one.
    """

    pixels: torch.Tensor | None
    ids: torch.Tensor
    mask: torch.Tensor
    targets: torch.Tensor


class Trainer:
    """The model with what is needed to teach it and to ask it."""

    def __init__(self, device: str) -> None:
        self.device = device
        tokenizer = word_tokenizer(PLANNER_WORDS, _LENGTH)
        self.processor = build_processor(tokenizer)
        self.model = build_model(tokenizer, new_tokens=_NEW_TOKENS).to(device)
        self.model.model.vision_tower.requires_grad_(requires_grad=False)
        self._end = tokenizer.eos_token_id

    @property
    def taught(self) -> list[torch.nn.Parameter]:
        """The parameters that training changes."""
        return [each for each in self.model.parameters() if each.requires_grad]

    def start_from(self, describer: Path) -> None:
        """Take over the weights of a describer, and the embeddings of the words that both know."""
        there = LlavaForConditionalGeneration.from_pretrained(describer).float()
        theirs = LlavaProcessor.from_pretrained(describer).tokenizer.get_vocab()
        ours = self.processor.tokenizer.get_vocab()
        embeddings = self.model.get_input_embeddings().weight.detach().clone()
        for word in ours.keys() & theirs.keys():
            embeddings[ours[word]] = there.get_input_embeddings().weight[theirs[word]]
        there.resize_token_embeddings(len(ours))
        self.model.load_state_dict(there.state_dict())
        with torch.no_grad():
            self.model.get_input_embeddings().weight.copy_(embeddings)

    def batches(self, lessons: Sequence[Lesson], pictures: Sequence[FloatArray]) -> list[Batch]:
        """The lessons as the model is shown them, those of like length together."""
        rows = [
            (*self._row(lesson), shown) for lesson, shown in zip(lessons, pictures, strict=True)
        ]
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        size = -(-len(rows) // _PARTS)
        return [self._batch(rows[start : start + size]) for start in range(0, len(rows), size)]

    def _batch(self, rows: Sequence[tuple[list[int], list[int], FloatArray]]) -> Batch:
        longest = max(len(asked) + len(answer) for asked, answer, _ in rows)
        ids = torch.zeros((len(rows), longest), dtype=torch.long)
        targets = torch.full_like(ids, _IGNORED)
        for row, (asked, answer, _) in enumerate(rows):
            ids[row, : len(asked) + len(answer)] = torch.tensor([*asked, *answer])
            targets[row, len(asked) : len(asked) + len(answer)] = torch.tensor(answer)
        ids, targets = ids.to(self.device), targets.to(self.device)
        return Batch(self._pixels([shown for *_, shown in rows]), ids, (ids != 0).long(), targets)

    def loss(self, batches: Sequence[Batch]) -> torch.Tensor:
        """Cross entropy of the answers' tokens, their mean over all batches."""
        losses = []
        for batch in batches:
            with half_precision(self.device):
                output = self.model(
                    input_ids=batch.ids, attention_mask=batch.mask, pixel_values=batch.pixels
                )
            losses.append(
                torch.nn.functional.cross_entropy(
                    output.logits[:, :-1].float().flatten(0, 1),
                    batch.targets[:, 1:].flatten(),
                    ignore_index=_IGNORED,
                    reduction="sum",
                )
            )
        tokens = sum(int((batch.targets != _IGNORED).sum()) for batch in batches)
        return torch.stack(losses).sum() / tokens

    @torch.no_grad()
    def answer(self, lessons: Sequence[Lesson], pictures: Sequence[FloatArray]) -> list[str]:
        """What the model says to each question."""
        alike: dict[int, list[int]] = defaultdict(list)
        for index, shown in enumerate(pictures):
            alike[len(shown)].append(index)
        words = [""] * len(lessons)
        self.model.eval()
        for indices in alike.values():
            asked = [self._row(lessons[index])[0] for index in indices]
            longest = max(map(len, asked))
            ids = torch.tensor([[0] * (longest - len(row)) + row for row in asked])
            ids = ids.to(self.device)
            pixels = self._pixels([pictures[index] for index in indices])
            seen = {} if pixels is None else {"pixel_values": pixels}  # None would be looked at
            output = self.model.generate(input_ids=ids, attention_mask=(ids != 0).long(), **seen)
            said = self.processor.tokenizer.batch_decode(
                output[:, longest:], skip_special_tokens=True
            )
            for index, text in zip(indices, said, strict=True):
                words[index] = text
        self.model.train()
        return words

    def _row(self, lesson: Lesson) -> tuple[list[int], list[int]]:
        """Token ids of a question, and those of its answer."""
        images = [{"type": "image"} for _ in lesson.question.scenes]
        chat = self.processor.apply_chat_template(
            [{"role": "user", "content": [*images, {"type": "text", "text": lesson.text}]}],
            add_generation_prompt=True,
            tokenize=False,
        )
        asked, answer = self.processor.tokenizer(
            [chat.replace(IMAGE, IMAGE * PATCHES), lesson.words], add_special_tokens=False
        ).input_ids
        return asked, [*answer, self._end]

    def _pixels(self, pictures: Sequence[FloatArray]) -> torch.Tensor | None:
        """(m, 3, 64, 64) in [-1, 1] of all pictures in order; None where there is none."""
        pixels = torch.from_numpy(np.concatenate(pictures)) * 2 - 1
        return pixels.to(self.device) if len(pixels) else None


def main() -> None:
    """Train, and save what was asked for."""
    about = __doc__.splitlines()[0]
    options = arguments(about, steps=STEPS, batch=BATCH, save=SAVED).parse_args()
    settle(options.seed)
    trainer = Trainer(options.device)
    trainer.start_from(DESCRIBER)
    optimizer = Optimizer((trainer.taught, _PEAK), steps=options.steps, decay=_DECAY)
    log = Log(options.out / "planner.jsonl")
    rng = np.random.default_rng((options.seed, 1))
    unseen_rng = np.random.default_rng((options.seed, 2))
    unseen = [
        lesson
        for task in (*TAUGHT, HELD_OUT)
        for lesson in draw_lessons(unseen_rng, _UNSEEN, [task])
    ]
    shown = draw_pictures(unseen, unseen_rng)
    for step in range(1, options.steps + 1):
        lessons = draw_lessons(rng, options.batch)
        loss = trainer.loss(trainer.batches(lessons, draw_pictures(lessons, rng)))
        optimizer.step(step, loss)
        if step % 25 == 0:
            log("loss", step, answer=loss.item())
        if step in options.save or step == options.steps:
            log("quality", step, **quality(unseen, trainer.answer(unseen, shown)))
            folder = options.out / folder_name(step, options.steps)
            save_half(folder, trainer.model, trainer.processor)


def folder_name(step: int, last: int) -> str:
    """What the checkpoint of a step is called."""
    return {last: "planner-final", EARLY: "planner-early"}.get(step, f"planner-step{step}")


def quality(lessons: Sequence[Lesson], answers: Sequence[str]) -> dict[str, float]:
    """Shares of right steps: of the categories that were taught, the one that was not, and each."""
    shares: dict[str, list[float]] = defaultdict(list)
    for lesson, words in zip(lessons, answers, strict=True):
        shares[lesson.question.instruction.task].append(right_steps(lesson.question, words))
    taught = fmean(share for task in TAUGHT for share in shares[task])
    each: dict[str, float] = {task: fmean(shares[task]) for task in TAUGHT}
    return {"steps": taught, "held_out": fmean(shares[HELD_OUT]), **each}


if __name__ == "__main__":
    main()
