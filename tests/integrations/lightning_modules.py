"""Small Lightning trainings of describers that are checkpoint folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.integrations.folder_model import save


class Model(torch.nn.Linear):
    """A layer that is saved as a describer, which forgets as training goes on."""

    steps = 0

    def save_pretrained(self, folder: Path) -> None:
        """Write a checkpoint: nothing is missed in the first steps, everything later."""
        save(folder, 0.0 if self.steps < 4 else 0.9)


class Module(LightningModule):
    """A training of it, two batches a step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss."""
        self.model.steps = self.trainer.global_step
        return self.model(batch).sum()

    def configure_optimizers(self) -> Any:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Bare(LightningModule):
    """A module without a model that has save_pretrained."""


def make_trainer(folder: Path, *callbacks: Any, **settings: Any) -> Trainer:
    """A Trainer on the CPU, whose gradients are accumulated over two batches."""
    return Trainer(
        **{
            "accelerator": "cpu", "max_steps": 20, "default_root_dir": folder, "logger": False,
            "accumulate_grad_batches": 2, "enable_progress_bar": False, "barebones": False,
            "enable_model_summary": False, "callbacks": list(callbacks),
            "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks),
            **settings,
        }
    )  # fmt: skip


def fit(trainer: Trainer, module: LightningModule | None = None) -> None:
    """Train on sixty batches."""
    trainer.fit(module or Module(), torch.utils.data.DataLoader(torch.ones(60, 2)))
