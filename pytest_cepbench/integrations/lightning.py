"""A gate in a Lightning Trainer.

    gate = TrainingGate(Gate("runs/1/gate", "suites/shapes"), every=500)
    trainer = Trainer(..., callbacks=[GateCallback(gate)])

This module imports lightning, or pytorch_lightning where only that is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations.gate import Gate
from pytest_cepbench.integrations.tracking import LOGGER, Tracker, Values, divided
from pytest_cepbench.integrations.training_gate import TrainingGate

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback

Export = Callable[[Any, Path], object]
"""Writes the model of a LightningModule into a folder that pytest can load; on every rank."""

_WHOLE = ("SingleDevice", "DDP")
"""Beginnings of the strategies under which each rank has the whole model."""


class GateCallback(Callback):
    """Gates the model of a LightningModule, and stops the Trainer where it does not pass.

    A `.ckpt` file is no checkpoint that pytest can load, so the model is exported: every N steps
    with `every`, else whenever Lightning saves a checkpoint. All ranks stop at the same step, and
    `fit` raises TrainingStoppedError. Numbers of verdicts go to the Trainer's loggers.

    gate: a TrainingGate; a Gate stands for one with its defaults.
    export: called with the module and an empty folder, on every rank. Default: `save_pretrained` of
        the module's `model`, and of its `processor` or `tokenizer`, under strategies that have the
        whole model on each rank.
    """

    def __init__(self, gate: Gate | TrainingGate, export: Export | None = None) -> None:
        self.gate = gate if isinstance(gate, TrainingGate) else TrainingGate(gate)
        self._export = export
        self._saved = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Gate what the process before was killed over; refuse what cannot be exported."""
        if self._export is None:
            strategy = type(trainer.strategy).__name__
            if not hasattr(getattr(pl_module, "model", None), "save_pretrained"):
                raise TrainingGateError(
                    f"{type(pl_module).__name__} has no `model` with save_pretrained: give "
                    "GateCallback(export=...) a function that writes the model of a module into a "
                    "folder"
                )
            if not strategy.startswith(_WHOLE):
                raise TrainingGateError(
                    f"under {strategy} a rank may hold a part of the model: give "
                    "GateCallback(export=...) a function that gathers it and writes it into a "
                    "folder"
                )
        if self.gate.trackers is None and trainer.loggers:
            self.gate.trackers = [to_logger(logger) for logger in trainer.loggers]
        self._step, self._saved = trainer.global_step, False
        stop = self.gate.begin(trainer.global_step)
        self._stop(trainer, stop=stop)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Gate in the steps that are due, and take a verdict that is there."""
        del outputs, batch, batch_idx
        step = trainer.global_step
        if step == self._step:  # a batch whose gradients are accumulated
            return
        self._step = step
        save = None if self.gate.every is None else self._saver(trainer, pl_module)
        self._stop(trainer, stop=self.gate.step(step, save))

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Without `every`: remember that the weights are to be gated, once Lightning's file is."""
        del trainer, pl_module, checkpoint
        self._saved = self.gate.every is None

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Gate what Lightning has saved."""
        del batch, batch_idx
        self._gate_saved(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Wait for the last verdicts; raise TrainingStoppedError where one did not pass."""
        self._gate_saved(trainer, pl_module)
        self.gate.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End a gate that runs beside a training that failed, or called sys.exit() with success."""
        del trainer, pl_module
        self.gate.leave(exception)

    def _gate_saved(self, trainer: Any, module: Any) -> None:
        if self._saved:
            self._saved = False
            self._stop(trainer, stop=self.gate.step(self._step, self._saver(trainer, module)))

    def _saver(self, trainer: Any, module: Any) -> Callable[[Path], object]:
        def save(folder: Path) -> None:
            if self._export is not None:
                self._export(module, folder)
            elif trainer.is_global_zero:
                for name in ("model", "processor", "tokenizer"):
                    part: Any = getattr(module, name, None)
                    if hasattr(part, "save_pretrained"):
                        part.save_pretrained(folder)

        return save

    @staticmethod
    def _stop(trainer: Any, *, stop: bool) -> None:
        if stop and not trainer.should_stop:
            trainer.should_stop = True
            if trainer.min_steps or trainer.min_epochs:
                LOGGER.warning("gate: Lightning goes on until min_steps and min_epochs are done")


def to_logger(logger: Any) -> Tracker:
    """A tracker that writes to one of Lightning's loggers, which take numbers alone."""

    def write(values: Values, step: int) -> None:
        logger.log_metrics(divided(values)[0], step=step)
        logger.save()

    return write
