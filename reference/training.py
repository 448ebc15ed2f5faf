"""What training scripts share: repeatable start, schedule, log, half-precision checkpoints."""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from portable import make_portable

CHECKPOINTS = Path(__file__).parent / "checkpoints"

_WARMUP = 100
_FLOOR = 0.02  # of the peak, where a schedule ends


def arguments(
    about: str, *, steps: int, batch: int, save: Iterable[int]
) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    listed = ",".join(str(step) for step in save)
    parser.add_argument("--out", type=Path, default=CHECKPOINTS, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=steps, help="length of the training")
    parser.add_argument("--batch", type=int, default=batch, help="scenes of a step")
    parser.add_argument(
        "--save", type=_steps, default=listed, help="steps to save, beside the last"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights, scenes and noise")
    parser.add_argument("--device", default="cpu", help="what torch calls the device")
    return parser


def settle(seed: int) -> None:
    """One thread, so that sums have one order; no denormals, which cost time; quiet libraries."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()


def half_precision(device: str) -> AbstractContextManager[None]:
    """bfloat16 where it is safe."""
    context: AbstractContextManager[None] = torch.autocast(device.partition(":")[0], torch.bfloat16)
    return context


class Optimizer:
    """AdamW over groups of parameters, with a linear start and a cosine down to a small rest.

    groups: (parameters, peak learning rate of each).
    state: of one that was stopped; None to begin.
    """

    def __init__(
        self,
        *groups: tuple[Iterable[Any], float],
        steps: int,
        decay: float,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._steps = steps
        self._peaks = [peak for _, peak in groups]
        self._inner = torch.optim.AdamW(
            [{"params": list(parameters)} for parameters, _ in groups],
            betas=(0.9, 0.98),
            weight_decay=decay,
            fused=True,
        )
        if state is not None:
            self._inner.load_state_dict(state)

    @property
    def state(self) -> dict[str, Any]:
        """What a later one needs, as `state`, to go on from here."""
        state: dict[str, Any] = self._inner.state_dict()
        return state

    def step(self, number: int, loss: torch.Tensor, factor: float = 1.0) -> None:
        """One update, the number-th of the schedule, with the gradient's norm held at 1."""
        rate = factor * _share(number, self._steps)
        parameters = []
        for group, peak in zip(self._inner.param_groups, self._peaks, strict=True):
            group["lr"] = peak * rate
            parameters += group["params"]
        self._inner.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        self._inner.step()


class Log:
    """A line of JSON for each event, on stdout and in a file: what, which step, after how long."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        """append: whether the events of a training that was stopped are kept."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if not append:
            path.write_text("")
        self._path = path
        self._start, self._cpu = time.monotonic(), time.process_time()

    def __call__(self, event: str, step: int, **values: Any) -> None:
        """Values that are floats are rounded to four digits."""
        figures = {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}
        spent = {
            "seconds": round(time.monotonic() - self._start),
            "cpu_seconds": round(time.process_time() - self._cpu),
        }
        line = json.dumps({"event": event, "step": step, **figures, **spent})
        with self._path.open("a", encoding="utf-8") as file:
            print(line, file=file)
        print(line, flush=True)


def save_half(folder: Path, model: Any, *others: Any) -> None:
    """`save_pretrained` of a model in float16, left as it is, and of what belongs beside it."""
    copy.deepcopy(model).cpu().half().save_pretrained(folder)
    for other in others:
        other.save_pretrained(folder)
    make_portable(folder)


def _share(step: int, steps: int) -> float:
    """The schedule: share of the peak learning rate at a step, counted from 1."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, step / _WARMUP) * (cosine * (1 - _FLOOR) + _FLOOR)


def _steps(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part)
