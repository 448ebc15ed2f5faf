"""What each loss is worth when a judge is trained: all combinations of three, at a small size.

    OMP_NUM_THREADS=1 python benchmarks/judge_ablation.py runs/judge/judge-state.pt --steps 200

Each of the eight trainings begins with the weights of one state, which has learned to see and to
mark answers, and then judges battles for the same steps with the same battles; the cross entropy of
the verdict is always on. Measured are agreement with the truth (ties forced) and the order effect
on battles of seen and of unseen faults. Prints a Markdown table; --write puts it into
benchmarks/results/judge-ablation.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "reference")]  # run by its path, and as its scripts are run

from battles import SEEN_FAULTS, UNSEEN_FAULTS, draw_battles  # noqa: E402
from judge_losses import LossWeights  # noqa: E402
from train_judge import Supply, Trainer, judge_rows, quality  # noqa: E402
from training import Optimizer, settle  # noqa: E402

PAGE = _ROOT / "benchmarks" / "results" / "judge-ablation.md"

ON = {"contrast": 0.1, "features": 0.1, "ranking": 0.5}
"""Weights of the losses that are switched."""

_MADE = """\
Made by `python benchmarks/judge_ablation.py STATE --write`. Eight trainings of {steps} steps of
{batch} battles, each in both orders, from one state that had learned to see and to mark answers.
Weights of the losses that are on: {weights}. Agreement with the truth in percent, ties forced, over
{battles} battles of each kind in both orders (standard error at most {error:.1f}), and the mean
order effect in logits. {minutes:.0f} minutes on one core that others shared."""

_SHOWN = """\
A loss that is worth much at once would show: two rows that differ by more than {luck:.0f} points
differ by more than the luck of the battles."""

_HIDDEN = """\
Whether a loss is worth a few points does not show, nor what it is worth in a whole training, which
has 6,000 steps and not {steps}. All rows begin with one state and see the same battles in the same
order, so the luck of a training, which other seeds would show, is not known. The weights were not
varied, and the helper heads, whose losses are on in all rows, may teach what the switched losses
would. Four combinations with three seeds each, trained to the end, take about twelve hours on one
core."""

_RATE, _DECAY = 5e-4, 0.02
_SEED = 991


def main() -> None:
    """Train eight times, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", type=Path, help="judge-state.pt of a training")
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    parser.add_argument("--batch", type=int, default=8, help="battles of a step")
    parser.add_argument("--battles", type=int, default=300, help="to measure with, of each kind")
    parser.add_argument("--seed", type=int, default=_SEED, help="of the battles")
    parser.add_argument("--write", action="store_true", help="into benchmarks/results")
    options = parser.parse_args()
    settle(0)
    rng = np.random.default_rng((options.seed, 6))
    held_out = {
        name: draw_battles(rng, options.battles, faults, reference_share=0.0)
        for name, faults in (("seen", SEEN_FAULTS), ("unseen", UNSEEN_FAULTS))
    }
    begun = time.monotonic()
    rows = []
    for switched in product((False, True), repeat=len(ON)):
        weights = LossWeights(
            **{name: ON[name] * on for name, on in zip(ON, switched, strict=True)}
        )
        trainer = _train(options, weights)
        rows.append((switched, {name: quality(trainer, own) for name, own in held_out.items()}))
        print(_row(*rows[-1]), flush=True)
    page = _page(options, rows, time.monotonic() - begun)
    print(page)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")


def _train(options: argparse.Namespace, weights: LossWeights) -> Trainer:
    torch.manual_seed(0)
    trainer = Trainer(weights)
    trainer.start_from(options.state)
    optimizer = Optimizer((trainer.taught, _RATE), steps=options.steps, decay=_DECAY)
    supply = Supply(
        judge_rows, range(1, options.steps + 1), options.seed, options.batch, options.steps
    )
    for step, rows in enumerate(supply, 1):
        losses = trainer.judge_losses(rows)
        optimizer.step(step, torch.stack(list(losses.values())).sum())
    return trainer


def _row(switched: tuple[bool, ...], figures: dict[str, Any]) -> str:
    marks = ["on" if on else "" for on in switched]
    cells = [f"{100 * own['agreement']:.1f} | {own['order']:+.3f}" for own in figures.values()]
    return f"| {' | '.join([*marks, *cells])} |"


def _page(
    options: argparse.Namespace, rows: list[tuple[tuple[bool, ...], Any]], seconds: float
) -> str:
    error = 100 * 0.5 / np.sqrt(options.battles)
    figures = {
        **vars(options),
        "weights": ", ".join(f"{name} {weight}" for name, weight in ON.items()),
        "error": error,
        "luck": 2 * np.sqrt(2) * error,
        "minutes": seconds / 60,
    }
    made, shown, hidden = (fill(text.format(**figures), 100) for text in (_MADE, _SHOWN, _HIDDEN))
    lines = [
        "# The losses of the judge",
        "",
        made,
        "",
        "| contrast (CT) | features (MSE) | ranking (PR) | seen | order | unseen | order |",
        "|---|---|---|---|---|---|---|",
        *[_row(*row) for row in rows],
        "",
        "## What this can tell",
        "",
        shown,
        "",
        hidden,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
