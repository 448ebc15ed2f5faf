"""A gate in the Trainer of transformers: each saved checkpoint is held to the last accepted one.

    trainer = Trainer(..., processing_class=processor, callbacks=[GateCallback(Gate(folder))])

Give the processor to the Trainer, so that checkpoints hold it and can be loaded by themselves.
"""

from pathlib import Path

from gating import Gate  # reference/gating.py of this repository, to be copied beside
from transformers import TrainerCallback


class GateCallback(TrainerCallback):
    """Gates what the Trainer saves; a regression ends the process with pytest's exit code."""

    def __init__(self, gate: Gate):
        self.gate = gate

    def on_save(self, args, state, control, **others):
        """Called after each save, on every process of a distributed training."""
        if not state.is_world_process_zero:
            return
        verdict = self.gate(Path(args.output_dir) / f"checkpoint-{state.global_step}")
        print(f"step {state.global_step}: {verdict.outcome}")
        if verdict.stops:
            print(verdict.story)
            raise SystemExit(verdict.code)  # a launcher ends the other processes
