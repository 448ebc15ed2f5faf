"""Checkpoints on disk: found, recognised, checked and fingerprinted without any model library."""

from pytest_cepbench.models.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointPart,
    fingerprint,
    stored_precision,
)
from pytest_cepbench.models.checkpoints.checkpoint_files import component_names, list_files
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.checkpoints.inspection import complete_checkpoint, inspect_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointPart",
    "complete_checkpoint",
    "component_names",
    "fingerprint",
    "inspect_checkpoint",
    "list_files",
    "read_json",
    "stored_precision",
]
