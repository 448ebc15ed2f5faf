"""Models whose weights are the text of a file, copied into tests' projects: quick to overwrite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from tests.plugin import user_models
else:
    import user_models  # it lies beside, where this is copied to

WEIGHTS = Path(__file__).with_name("weights")


def describer() -> user_models.Describer:
    """A describer that is what the file says when it is made."""
    made = user_models.Describer("honest")
    made.fingerprint = f"weights {WEIGHTS.read_text()}"
    return made


class Lazy(user_models.Describer):
    """A describer that reads its weights when it is first asked, as the documentation advises."""

    def __init__(self) -> None:
        super().__init__("honest")
        self.fingerprint = f"weights {WEIGHTS.read_text()}"
        self.files = [WEIGHTS]

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image, which the weights decide."""
        return [f"{text} {WEIGHTS.read_text()}" for text in super().describe(images, prompt, seeds)]
