"""Train the judge: a Qwen2-VL of 2.5 million parameters that says which of two answers is better.

    python reference/train_judge.py --out runs/judge            # see, then judge
    python reference/train_judge.py --out runs/judge --resume   # go on where it was stopped

It learns to see and to write first: captions of scenes and right answers to questions of the arena.
Then it marks single answers: what should be where, and what is wrong. At last it judges battles,
each in both orders, of answers with six kinds of faults; three other kinds are held out, to measure
it with. The state is saved every few minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from queue import Full
from typing import Any

import numpy as np
import torch
from battles import SEEN_FAULTS, UNSEEN_FAULTS, Battle, draw_answers, draw_battles, read_people
from judge_losses import JudgeHeads, LossWeights, Read, order_loss, ranking_loss
from judge_rows import IGNORED, RowBuilder, Rows
from lessons import Lesson, draw_lesson
from qwen import LAYERS, VERDICTS, WIDTH, build_model, build_processor, look
from training import Log, Optimizer, arguments, half_precision, save_half, settle
from world import draw_scenes

from pytest_cepbench.datasets.shapes.arena import TASKS
from pytest_cepbench.errors import CepError

STEPS, BATCH = 6000, 8
SIGHT_STEPS, SIGHT_BATCH = 1100, 24
MARK_STEPS, MARK_BATCH = 700, 32

_SIGHT_PEAK, _PEAK, _DECAY = 1.2e-3, 8e-4, 0.02
_EASY_UNTIL = 0.25  # of the steps, from where on differences of truth are drawn evenly
_HELD_OUT = 200  # battles of each kind to measure quality with
_PEOPLE_PART = 4  # of the battles of a step, where people have judged any
_SAVE_EVERY = 150.0  # seconds
_AHEAD = 6  # batches that wait for their step


class Trainer:
    """The model with what is needed to teach it and to ask it.

    layers, width, depth: of the model, as of `build_model`.
    """

    def __init__(
        self,
        weights: LossWeights,
        device: str = "cpu",
        *,
        width: int = WIDTH,
        layers: int = LAYERS,
        **sizes: int,
    ) -> None:
        self.weights = weights
        self.device = device
        self.builder = RowBuilder()
        self.model = build_model(self.builder.tokenizer, width=width, layers=layers, **sizes)
        # Plain products here, too; what is saved does not say so.
        self.model.set_attn_implementation("eager")
        self.model.to(device)
        self.heads = JudgeHeads(width, layers).to(device)
        verdicts = self.builder.tokenizer.convert_tokens_to_ids(list(VERDICTS))
        self._verdicts = torch.tensor(verdicts, device=device)

    @property
    def taught(self) -> list[torch.nn.Parameter]:
        """The parameters that training changes."""
        return [*self.model.parameters(), *self.heads.parameters()]

    def start_from(self, state: Path) -> str:
        """Take over weights from the state of another training; returns the part that follows.

        Layers that it has not begin by passing on what they get, heads on inner layers anew.
        """
        known = torch.load(state, weights_only=True)
        self.model.load_state_dict(known["model"], strict=False)
        prefix = "model.language_model.layers."
        for number, layer in enumerate(self.model.model.language_model.layers):
            if f"{prefix}{number}.self_attn.o_proj.weight" not in known["model"]:
                torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
                torch.nn.init.zeros_(layer.mlp.down_proj.weight)
        # Of the heads those that read the tower or the last layer, which are where they were.
        kept = ("look.", "score.", "truth.")
        heads = {name: own for name, own in known["heads"].items() if name.startswith(kept)}
        self.heads.load_state_dict(heads, strict=False)
        return "mark"

    def read(self, rows: Rows, *, tower: bool = True) -> Read:
        """What the model makes of rows. tower: whether the tower is taught, too."""
        model = self.model.model
        with torch.set_grad_enabled(tower and torch.is_grad_enabled()):
            seen = look(self.model, rows.patches)
        embedded = model.get_input_embeddings()(rows.ids)
        taken = rows.slots >= 0
        embedded = embedded.to(seen.dtype)
        embedded[taken] = seen.flatten(0, 1)[rows.slots[taken]]
        output = model.language_model(
            inputs_embeds=embedded,
            attention_mask=rows.mask,
            position_ids=rows.places,
            output_hidden_states=True,
            use_cache=False,
        )
        return Read(seen, output.hidden_states, output.last_hidden_state)

    def sight_losses(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Losses of what is to be written, and of what the tower and an early layer see."""
        with half_precision(self.device):
            read = self.read(rows)
            known = rows.words != IGNORED
            words = self.model.lm_head(read.last[known])
            return {
                "words": torch.nn.functional.cross_entropy(words.float(), rows.words[known]),
                "look": self.heads.look_loss(read, rows) * 0.3,
                "cell": self.heads.cell_loss(read, rows) * 0.3,
            }

    def judge_losses(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Weighted losses of battles, by name."""
        weights, heads = self.weights, self.heads
        with half_precision(self.device):
            read = self.read(rows)
            logits = self._verdict_logits(read, rows)
            index = (rows.verdicts[:, None] == self._verdicts).float().argmax(1)
            losses = {
                "verdict": weights.verdict * torch.nn.functional.cross_entropy(logits, index),
                "order": weights.order * order_loss(_log_odds(logits)),
            }
            if weights.ranking:
                lead = 1.5 - index.float()
                ranked = ranking_loss(heads.scores(read, rows), lead)
                losses["ranking"] = weights.ranking * ranked
            if weights.contrast:
                losses["contrast"] = weights.contrast * heads.contrast_loss(read, rows)
            if weights.features:
                losses["features"] = weights.features * heads.features_loss(read, rows)
            if weights.helpers:
                helped = self._helper_losses(read, rows)
                losses |= {name: weights.helpers * loss for name, loss in helped.items()}
        return losses

    def mark_losses(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Losses of helpers on single answers."""
        with half_precision(self.device):
            return self._helper_losses(self.read(rows), rows)

    def _helper_losses(self, read: Read, rows: Rows) -> dict[str, torch.Tensor]:
        heads = self.heads
        return {
            "due": 0.5 * heads.due_loss(read, rows),
            "right": heads.right_loss(read, rows),
            "steps": 4.0 * heads.step_loss(read, rows),
            "truth": 4.0 * heads.truth_loss(read, rows),
            "cell": 0.1 * heads.cell_loss(read, rows),
        }

    @torch.no_grad()
    def log_probabilities(self, rows: Rows) -> torch.Tensor:
        """(n, 4) of the verdicts, in their order."""
        with half_precision(self.device):
            read = self.read(rows)
            return self._verdict_logits(read, rows).log_softmax(-1)

    def _verdict_logits(self, read: Read, rows: Rows) -> torch.Tensor:
        last = read.last[torch.arange(len(rows.ids)), rows.places_of_verdict]
        logits: torch.Tensor = self.model.lm_head(last)[:, self._verdicts].float()
        return logits


def _log_odds(logits: torch.Tensor) -> torch.Tensor:
    """(n,) of the first answer against the second, ties counted on the side that they lean to."""
    return logits[:, :2].logsumexp(1) - logits[:, 2:].logsumexp(1)


def sight_rows(builder: RowBuilder, seed: int, step: int, batch: int) -> Rows:
    """The rows of a step of the first part: three quarters questions, one quarter captions."""
    rng = np.random.default_rng((seed, 1, step))
    lessons: list[Lesson] = []
    while len(lessons) < batch - batch // 4:
        lesson = draw_lesson(rng, TASKS[int(rng.integers(len(TASKS)))])
        lessons += [lesson] if lesson.is_new else []
    return builder.of_solutions(lessons, rng, draw_scenes(rng, batch // 4))


def mark_rows(builder: RowBuilder, seed: int, step: int, batch: int) -> Rows:
    """The rows of a step of the second part: single answers, as many as battles have rows."""
    return builder.of_answers(draw_answers(np.random.default_rng((seed, 5, step)), batch))


def judge_rows(
    builder: RowBuilder,
    seed: int,
    step: int,
    batch: int,
    steps: int,
    people: Sequence[Battle] = (),
) -> Rows:
    """The rows of a step of the third part; the first of them have larger differences.

    people: their battles, of which some are in every step.
    """
    rng = np.random.default_rng((seed, 2, step))
    ease = max(0.0, 1.0 - step / max(1.0, _EASY_UNTIL * steps))
    places = rng.integers(len(people), size=batch // _PEOPLE_PART) if people else ()
    chosen = [people[int(place)] for place in places]
    return builder.of_battles([*chosen, *draw_battles(rng, batch - len(chosen), ease=ease)])


class Supply:
    """Rows for the steps of a part, made by a process beside this one, always in the same order."""

    def __init__(self, make: Any, steps: Sequence[int], *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._queue: Any = context.Queue(_AHEAD)
        self._process = context.Process(
            target=_make_all, args=(self._queue, make, steps, arguments), daemon=True
        )
        self._process.start()

    def __iter__(self) -> Iterator[Rows]:
        try:
            while (arrays := self._queue.get()) is not None:
                yield Rows(*map(torch.from_numpy, arrays))
        finally:
            self._process.terminate()
            self._process.join()


def _make_all(queue: Any, make: Any, steps: Sequence[int], arguments: Sequence[Any]) -> None:
    builder = RowBuilder()
    seed, *others = arguments
    for step in steps:
        # As arrays: tensors would be handed over as open files, which run out.
        _put(queue, [part.numpy() for part in make(builder, seed, step, *others)])
    _put(queue, None)


def _put(queue: Any, rows: Any) -> None:
    """Hand rows over, and end with the training, however that ends."""
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():
        with suppress(Full):
            queue.put(rows, timeout=10.0)
            return
    sys.exit()


def quality(trainer: Trainer, battles: Sequence[Battle]) -> dict[str, float]:
    """Agreement with the truth, ties forced, and the mean order effect in logits."""
    odds = []
    for start in range(0, len(battles), 16):
        rows = trainer.builder.of_battles(battles[start : start + 16])
        odds.append(_log_odds(trainer.log_probabilities(rows)))
    log_odds = torch.cat(odds)
    first = torch.tensor([battle.place < 2 for battle in battles]).repeat_interleave(2)
    first[1::2] = ~first[1::2]
    agreed = ((log_odds > 0) == first).float().mean()
    order = (log_odds[0::2] + log_odds[1::2]).mean() / 2
    return {"agreement": agreed.item(), "order": order.item()}


def _unseen(seed: int) -> dict[str, list[Battle]]:
    rng = np.random.default_rng((seed, 3))
    return {
        name: draw_battles(rng, _HELD_OUT, faults, reference_share=0.0)
        for name, faults in (("seen", SEEN_FAULTS), ("unseen", UNSEEN_FAULTS))
    }


class _State:
    """What is needed to go on: weights, heads, optimizer, part and step."""

    def __init__(self, path: Path, trainer: Trainer) -> None:
        self._path = path
        self._trainer = trainer
        self._saved = time.monotonic()

    def save(self, part: str, step: int, optimizer: Optimizer, *, now: bool = False) -> None:
        """Save it where some minutes have passed."""
        if not now and time.monotonic() - self._saved < _SAVE_EVERY:
            return
        state = {
            "part": part,
            "step": step,
            "model": self._trainer.model.state_dict(),
            "heads": self._trainer.heads.state_dict(),
            "optimizer": optimizer.state,
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._path)
        self._saved = time.monotonic()

    def load(self) -> tuple[str, int, Any]:
        """Part and step to go on from, and the state of the optimizer."""
        state = torch.load(self._path, weights_only=True)
        self._trainer.model.load_state_dict(state["model"])
        self._trainer.heads.load_state_dict(state["heads"])
        return state["part"], state["step"], state["optimizer"]


def _state(text: str) -> Path:
    """The file of a state to start from. Raises ArgumentTypeError for what is none."""
    try:
        known = torch.load(text, weights_only=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error.strerror}") from error
    except Exception as error:  # torch raises what it likes for a file that is none of its own
        raise argparse.ArgumentTypeError(
            f"{text!r} is no file of torch's: the judge-state.pt of another training is expected"
        ) from error
    if not (isinstance(known, dict) and {"model", "heads"} <= known.keys()):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no weights of a judge: judge-state.pt of another training is expected"
        )
    return Path(text)


def _people(text: str) -> list[Battle]:
    """The battles of a study. Raises ArgumentTypeError where it holds none."""
    try:
        return read_people(Path(text))
    except CepError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def options_of(about: str) -> argparse.Namespace:
    """What the command line asks for."""
    parser = arguments(about, steps=STEPS, batch=BATCH, save=())
    parser.add_argument("--sight-steps", type=int, default=SIGHT_STEPS, help="of the first part")
    parser.add_argument("--sight-batch", type=int, default=SIGHT_BATCH, help="rows of its steps")
    parser.add_argument("--mark-steps", type=int, default=MARK_STEPS, help="of the second part")
    parser.add_argument("--mark-batch", type=int, default=MARK_BATCH, help="answers of its steps")
    parser.add_argument("--from", dest="start", type=_state, help="state to take weights from")
    parser.add_argument(
        "--people", type=_people, help="ratings/NAME, a study of pairs to learn from"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the state in --out")
    parser.add_argument("--minutes", type=float, help="end the third part after so many")
    for field in fields(LossWeights):
        parser.add_argument(
            f"--{field.name}", type=float, default=field.default, help=f"weight of {field.name}"
        )
    options = parser.parse_args()
    if options.resume and not (options.out / "judge-state.pt").is_file():
        parser.error(f"--resume: {options.out} has no judge-state.pt; leave --resume out to begin")
    return options


def main() -> None:
    """Train, and save what comes out as `judge`."""
    options = options_of(__doc__.splitlines()[0])
    settle(options.seed)
    weights = LossWeights(
        **{field.name: getattr(options, field.name) for field in fields(LossWeights)}
    )
    trainer = Trainer(weights, options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    state = _State(options.out / "judge-state.pt", trainer)
    part, done, remembered = "sight", 0, None
    if options.resume:
        part, done, remembered = state.load()
    elif options.start:
        part = trainer.start_from(options.start)
    log = Log(options.out / "judge.jsonl", append=options.resume)
    if part == "sight":
        _learn_to_see(trainer, options, log, state, done, remembered)
        part, done, remembered = "mark", 0, None
    if part == "mark":
        _learn_to_mark(trainer, options, log, state, done, remembered)
        done, remembered = 0, None
    _learn_to_judge(trainer, options, log, state, done, remembered)
    save_half(options.out / "judge", trainer.model, build_processor(trainer.builder.tokenizer))


def _learn_to_see(
    trainer: Trainer, options: argparse.Namespace, log: Log, state: _State, done: int, known: Any
) -> None:
    steps = options.sight_steps
    optimizer = Optimizer((trainer.taught, _SIGHT_PEAK), steps=steps, decay=_DECAY, state=known)
    supply = Supply(sight_rows, range(done + 1, steps + 1), options.seed, options.sight_batch)
    for step, rows in enumerate(supply, done + 1):
        losses = trainer.sight_losses(rows)
        optimizer.step(step, torch.stack(list(losses.values())).sum())
        if step % 50 == 0:
            log("sight", step, **{name: loss.item() for name, loss in losses.items()})
        state.save("sight", step, optimizer, now=step == steps)


def _learn_to_mark(
    trainer: Trainer, options: argparse.Namespace, log: Log, state: _State, done: int, known: Any
) -> None:
    steps = options.mark_steps
    optimizer = Optimizer((trainer.taught, _PEAK), steps=steps, decay=_DECAY, state=known)
    supply = Supply(mark_rows, range(done + 1, steps + 1), options.seed, options.mark_batch)
    for step, rows in enumerate(supply, done + 1):
        losses = trainer.mark_losses(rows)
        optimizer.step(step, torch.stack(list(losses.values())).sum())
        if step % 50 == 0:
            log("mark", step, **{name: loss.item() for name, loss in losses.items()})
        state.save("mark", step, optimizer, now=step == steps)


def _learn_to_judge(
    trainer: Trainer, options: argparse.Namespace, log: Log, state: _State, done: int, known: Any
) -> None:
    steps, begun = options.steps, time.monotonic()
    optimizer = Optimizer((trainer.taught, _PEAK), steps=steps, decay=_DECAY, state=known)
    held_out = _unseen(options.seed)
    people = options.people or []
    supply = Supply(
        judge_rows, range(done + 1, steps + 1), options.seed, options.batch, steps, people
    )
    for step, rows in enumerate(supply, done + 1):
        losses = trainer.judge_losses(rows)
        optimizer.step(step, torch.stack(list(losses.values())).sum())
        if step % 50 == 0:
            log("loss", step, **{name: loss.item() for name, loss in losses.items()})
        if step % 500 == 0 or step == steps:
            for name, battles in held_out.items():
                log(name, step, **quality(trainer, battles))
        state.save("judge", step, optimizer, now=step == steps)
        if options.minutes and time.monotonic() - begun > 60 * options.minutes:
            state.save("judge", step, optimizer, now=True)
            break


if __name__ == "__main__":
    main()
