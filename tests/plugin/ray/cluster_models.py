"""Models for actors, copied into the tests' projects: slow, deadly, and never the same."""

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


class DeadlyDescriber(user_models.Describer):
    """Ends its process at the sight of the poison."""

    batch_size = 2

    def _tell(self, image: Image.Image) -> str:
        if image.getpixel((0, 0)) == user_models.POISON and "RAY_JOB_ID" in os.environ:
            os._exit(9)
        return super()._tell(image)


class OverwrittenDescriber(user_models.Describer):
    """Ends its process at the poison when a trainer has overwritten its weights."""

    batch_size = 2

    def __init__(self, behaviour: str) -> None:
        super().__init__(behaviour)
        self.fingerprint = f"weights {(HERE / 'weights').read_text()}"

    def _tell(self, image: Image.Image) -> str:
        if image.getpixel((0, 0)) == user_models.POISON and "RAY_JOB_ID" in os.environ:
            (HERE / "weights").write_text("B")
            os._exit(9)
        return super()._tell(image)


class MoodyDescriber(user_models.Describer):
    """Has memory for two images, and raises where it sees the poison."""

    batch_size = 4

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        if len(images) > 2:
            raise RuntimeError("CUDA out of memory, as torch says it")
        return super().describe(images, prompt, seeds)


def slow(behaviour: str = "honest") -> SlowDescriber:
    """A describer that takes its time."""
    return SlowDescriber(behaviour)


def deadly() -> DeadlyDescriber:
    """A describer that kills."""
    return DeadlyDescriber("honest")


def overwritten() -> OverwrittenDescriber:
    """A describer that is another one when its process is started again."""
    return OverwrittenDescriber("honest")


def moody() -> MoodyDescriber:
    """A describer whose exceptions have to arrive as they are."""
    return MoodyDescriber("raise-on-poison")


def fickle() -> user_models.Describer:
    """A describer that is another one in each process."""
    made = user_models.Describer("honest")
    made.fingerprint = f"process {os.getpid()}"
    return made
