"""Verdicts as numbers and texts for experiment trackers: TensorBoard, W&B, MLflow.

A tracker that fails never fails the training: what it raises becomes a warning in the log.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_cepbench.integrations.verdict import GateVerdict, Outcome

LOGGER = logging.getLogger("pytest_cepbench.integrations")

Values = Mapping[str, float | str]

Tracker = Callable[[Values, int], None]
"""Writes named numbers and texts down for a step of the training."""

_OUTCOMES = {Outcome.ACCEPTED: 1, Outcome.INCONCLUSIVE: 0, Outcome.REGRESSED: -1}
_VERDICTS = {"improved": 2, "held": 1, "inconclusive": 0, "regressed": -1}
_UNKNOWN = -2  # nothing is known of the checkpoint

_MLFLOW_NAME = re.compile(r"[^\w\-. :/]")


def values_of(verdict: GateVerdict) -> dict[str, float | str]:
    """What trackers are given of a verdict.

    `cepbench/outcome`: 1 accepted, 0 inconclusive, -1 regressed, -2 failed; `cepbench/verdict` the
    same in words, `cepbench/report` the page, `cepbench/seconds` the time that the gate took. Of
    each case, below `cepbench/SUITE/PART/METRIC/`: `value`, `baseline`, `difference`, `low` and
    `high` as in the JSON report, where they are known, and `verdict`: 2 improved, 1 held,
    0 inconclusive, -1 regressed, -2 not measured.
    """
    values: dict[str, float | str] = {
        "cepbench/outcome": _OUTCOMES.get(verdict.outcome, _UNKNOWN),
        "cepbench/verdict": str(verdict.outcome),
        "cepbench/report": str(verdict.report.absolute()),
        "cepbench/seconds": round(verdict.seconds, 1),
    }
    for case in verdict.cases:
        for name in ("value", "baseline", "difference", "low", "high"):
            number = getattr(case, name)
            if number is not None:
                values[f"cepbench/{case.name}/{name}"] = number
        if case.verdict != "no-baseline":  # of the first checkpoint, which is compared with nothing
            values[f"cepbench/{case.name}/verdict"] = _VERDICTS.get(case.verdict, _UNKNOWN)
    return values


def divided(values: Values) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers among the values, and the texts, for trackers that take them apart."""
    numbers = {name: value for name, value in values.items() if not isinstance(value, str)}
    return numbers, {name: value for name, value in values.items() if isinstance(value, str)}


def track(verdict: GateVerdict, trackers: Sequence[Tracker] | None) -> None:
    """Give a verdict to trackers, None standing for every run that is active in this process.

    The step is that of the checkpoint, 0 where it is not known. Never raises.
    """
    values = values_of(verdict)
    for each in active_runs() if trackers is None else trackers:
        try:
            each(values, verdict.step or 0)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - nor is sys.exit() in one a reason to stop
            LOGGER.warning("a verdict could not be logged: %s: %s", type(error).__name__, error)


def active_runs() -> list[Tracker]:
    """The active runs of W&B and MLflow in this process, which imported them."""
    wandb, mlflow = (sys.modules.get(name) for name in ("wandb", "mlflow"))
    active = {
        to_wandb: getattr(wandb, "run", None),
        to_mlflow: getattr(mlflow, "active_run", lambda: None)(),
    }
    return [tracker for tracker, run in active.items() if run is not None]


def to_wandb(values: Values, step: int) -> None:
    """Log to the active run of W&B; the axis of these charts is `cepbench/step`."""
    run: Any = sys.modules["wandb"].run
    # A verdict may come later than other values of its step, and W&B's own steps never go back.
    run.define_metric("cepbench/*", step_metric="cepbench/step")
    run.log({**values, "cepbench/step": step})


def to_mlflow(values: Values, step: int) -> None:
    """Log to the active run of MLflow: numbers as metrics, texts as tags."""
    mlflow: Any = sys.modules["mlflow"]
    numbers, texts = divided(values)
    mlflow.log_metrics({_MLFLOW_NAME.sub("_", name): numbers[name] for name in numbers}, step=step)
    mlflow.set_tags(texts)


def to_tensorboard(writer: Any) -> Tracker:
    """A tracker that writes to a `torch.utils.tensorboard.SummaryWriter`."""

    def write(values: Values, step: int) -> None:
        numbers, texts = divided(values)
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)
        for name, text in texts.items():
            writer.add_text(name, text, step)
        writer.flush()

    return write
