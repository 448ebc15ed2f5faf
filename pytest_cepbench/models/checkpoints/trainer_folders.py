"""Folders as trainers leave them: which folder of a run holds the checkpoint.

The root of a run holds `checkpoint-500/`, a link or a file `latest`, or the model in `model/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.files import read_text
from pytest_cepbench.models.checkpoints.checkpoint_files import read_json

_STEP = re.compile(r"checkpoint-(\d+)")
"""The folders of transformers' Trainer and of the scripts that follow it."""

_MOST_NAME = 4096  # bytes of a file `latest`

_MOST_LEVELS = 4  # latest -> checkpoint-500 -> model, and one to spare


def find_checkpoint(
    folder: Path, is_checkpoint: Callable[[Path], bool]
) -> tuple[Path, tuple[str, ...]]:
    """The folder of the checkpoint that a run's folder holds, and what is to be said about it.

    Taken in this order: what `latest` links to or names, `model/`, the only `checkpoint-N/`. A
    folder that is a checkpoint, and one that shows none of these, is returned as it is.

    is_checkpoint: whether a folder is to be read as it is. Raises CheckpointError where several
    `checkpoint-N/` are there, with the newest.
    """
    place = folder
    for _ in range(_MOST_LEVELS):
        if is_checkpoint(place) or (below := _below(place)) is None:
            break
        place = below
    if place == folder:
        return folder, ()
    return place, (f"checkpoint read from {place}",)


def _below(folder: Path) -> Path | None:
    """The folder one level down, None where none is meant."""
    latest = folder / "latest"
    if latest.is_dir():
        return latest.resolve()
    if latest.is_file():
        return _named(latest)
    if (folder / "model").is_dir() and not _has_model_of_its_own(folder):
        return folder / "model"
    steps = {int(match[1]): path for path in folder.iterdir() if (match := _step(path))}
    if not steps:
        return None
    newest = steps[max(steps)]
    if len(steps) > 1:
        listed = ", ".join(steps[number].name for number in sorted(steps)[-8:])
        raise CheckpointError(
            f"{folder} holds {len(steps)} checkpoints ({listed}): give one of them. The newest is "
            f"{newest}{_best(newest)}"
        )
    return newest


def _has_model_of_its_own(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "model_index.json"))


def _step(path: Path) -> re.Match[str] | None:
    return _STEP.fullmatch(path.name) if path.is_dir() else None


def _named(latest: Path) -> Path:
    """The folder beside a text file `latest` that it names, as DeepSpeed writes it."""
    try:
        name = read_text(latest, _MOST_NAME).strip()
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{latest}: not readable as the name of a folder ({error})"
        ) from error
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise CheckpointError(
            f"{latest}: expected the name of a folder beside it, found {name[:80]!r}"
        )
    if not (latest.parent / name).is_dir():
        raise CheckpointError(
            f"{latest} names {name!r}, and there is no such folder beside it. Give the checkpoint"
        )
    return latest.parent / name


def _best(checkpoint: Path) -> str:
    """A hint at the run's best checkpoint, where its newest one says which that is."""
    state = checkpoint / "trainer_state.json"
    if not state.is_file():
        return ""
    try:
        best = read_json(state).get("best_model_checkpoint")
    except CheckpointError:
        return ""
    return f", and the trainer calls {Path(str(best)).name} the best" if best else ""
