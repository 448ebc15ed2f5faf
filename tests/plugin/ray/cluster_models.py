"""A slow model for actors, copied into the tests' projects."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from tests.plugin import user_models
else:
    import user_models  # in the same folder, where this is copied to

HERE = Path(__file__).parent


class SlowDescriber(user_models.Describer):
    """Takes its time, and logs every batch in a file of its node's name."""

    batch_size = 2

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        if "RAY_JOB_ID" in os.environ:  # not in the run that it is compared with
            import ray

            node = ray.get_runtime_context().get_node_id()
            (HERE / "asked").mkdir(exist_ok=True)
            with (HERE / "asked" / node).open("a") as words:
                words.write(".")
            until = time.monotonic() + 20
            while len(list((HERE / "asked").iterdir())) < 2 and time.monotonic() < until:
                time.sleep(0.02)  # the other node's may take its time to start
            time.sleep(0.15)
        return super().describe(images, prompt, seeds)


def slow(behaviour: str = "honest") -> SlowDescriber:
    """A describer that takes its time."""
    return SlowDescriber(behaviour)
