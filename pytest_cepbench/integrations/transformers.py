"""A gate in the Trainer of transformers, and in trainers made of it, such as those of trl.

    gate = Gate("runs/1/gate", "suites/shapes")
    trainer = Trainer(..., processing_class=processor, callbacks=[GateCallback(gate)])

This module imports transformers.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import TrainerCallback

from pytest_cepbench.integrations.gate import Gate
from pytest_cepbench.integrations.tracking import Tracker, Values
from pytest_cepbench.integrations.training_gate import TrainingGate


class GateCallback(TrainerCallback):
    """Gates the checkpoints that a Trainer saves, and stops it where one does not pass.

    All ranks stop at the same step, the Trainer ends as after its last step, and `train` raises
    TrainingStoppedError. With `every`, the Trainer saves in these steps too.

    gate: a TrainingGate; a Gate stands for one with its defaults.
    trainer: where given, verdicts go to all trackers that the Trainer reports to, TensorBoard among
        them, and into its `log_history`: `trainer.add_callback(GateCallback(gate, trainer))`.
        Otherwise to the active runs of W&B and MLflow.
    processing_class: processor or tokenizer for checkpoints that are saved without one; the
        Trainer's own is saved by the Trainer.
    """

    def __init__(
        self, gate: Gate | TrainingGate, trainer: Any = None, processing_class: Any = None
    ) -> None:
        self.gate = gate if isinstance(gate, TrainingGate) else TrainingGate(gate)
        self._processing_class = processing_class
        if trainer is not None and self.gate.trackers is None:
            self.gate.trackers = [to_trainer(trainer)]

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Gate what the process before was killed over."""
        del args, objects
        self._stop(control, stop=self.gate.begin(state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Take a verdict that is there, and have a checkpoint saved in the steps that are due."""
        del args, objects
        self._stop(control, stop=self.gate.step(state.global_step))
        if self.gate.every is not None and self.gate.due(state.global_step):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Gate the checkpoint that was saved."""
        del objects
        if self.gate.due(state.global_step):
            checkpoint = Path(args.output_dir, f"checkpoint-{state.global_step}")
            if self._processing_class is not None and state.is_world_process_zero:
                with TemporaryDirectory(dir=checkpoint, prefix=".processor-") as temporary:
                    self._processing_class.save_pretrained(Path(temporary))
                    for path in Path(temporary).iterdir():
                        if not (checkpoint / path.name).exists():  # what was saved stays
                            path.rename(checkpoint / path.name)
            self._stop(control, stop=self.gate.submit(state.global_step, checkpoint))
        self._wait_at_the_end(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Wait for the last verdicts while the Trainer's trackers are still open."""
        del args, objects
        self._wait_at_the_end(state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Raise TrainingStoppedError where a checkpoint did not pass."""
        del args, state, control, objects
        self.gate.finish()

    def _wait_at_the_end(self, state: Any, control: Any) -> None:
        if control.should_training_stop or state.global_step >= state.max_steps:
            self._stop(control, stop=self.gate.look(wait=True))

    @staticmethod
    def _stop(control: Any, *, stop: bool) -> None:
        control.should_training_stop = control.should_training_stop or stop


def to_trainer(trainer: Any) -> Tracker:
    """A tracker that reports to the trackers of a Trainer, and writes into its `log_history`."""

    def report(values: Values, step: int) -> None:
        state, control = trainer.state, trainer.control
        logs: dict[str, Any] = {**values, "cepbench/step": step}
        state.log_history.append({**logs, "step": state.global_step})
        # Not `trainer.log`: trl's adds the averages of its own metrics and begins them anew.
        should_log = control.should_log
        try:
            trainer.callback_handler.on_log(trainer.args, state, control, logs)
        finally:
            control.should_log = should_log  # which on_log takes for done

    return report
