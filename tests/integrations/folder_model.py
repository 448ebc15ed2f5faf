"""A describer of generated scenes that is a checkpoint folder, for trainings without torch.

python:tests.integrations.folder_model:FolderDescriber?path=FOLDER
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_cepbench.models.rule_based.scene_models import DescriberKnobs, ShapesDescriber

SPEC = "python:tests.integrations.folder_model:FolderDescriber?path={checkpoint}"
"""The model spec of a gate on such folders."""


def save(folder: Path, miss: float, seconds: float = 0.0, **orders: Any) -> Path:
    """Write a checkpoint, in place where there is one.

    miss: share of all objects that it leaves out.
    seconds: that its first answers take.
    orders: `overwrite`, the folder of a checkpoint whose weights are overwritten in place before
        the first answers; more are for `rule_gate`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {"miss": miss, "seconds": seconds, **orders}
    (folder / "weights.json").write_text(json.dumps(weights), encoding="utf-8")
    (folder / "optimizer.bin").write_bytes(b"moments")
    return folder


class FolderDescriber:
    """Describes scenes as its folder says."""

    seeded = True

    def __init__(self, path: str) -> None:
        file = Path(path, "weights.json")
        self.fingerprint = file.read_text(encoding="utf-8")
        self.files = [str(file)]
        weights = json.loads(self.fingerprint)
        self._seconds = weights["seconds"]
        self._overwrite = weights.get("overwrite")
        self._describer = ShapesDescriber(DescriberKnobs(miss=weights["miss"]))

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """Captions of the images."""
        time.sleep(self._seconds)
        self._seconds = 0
        if self._overwrite is not None:
            Path(self._overwrite, "weights.json").write_text('{"miss": 1.0, "seconds": 0.0}')
        return self._describer.describe(images, prompt, seeds)
