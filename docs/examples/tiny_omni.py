"""The repository of a unified model, as research code publishes one, but without heavy weights.

One object answers questions about an image and draws. Both share a codebook of colors; drawing has
a small diffusion decoder of its own besides. It knows nothing of pytest-cepbench:
`unified_model.py` wraps it. `python tiny_omni.py FOLDER [WORD ...]` writes a checkpoint that
forgot these words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = {
    "black": (20, 20, 20),
    "blue": (30, 60, 200),
    "green": (30, 160, 60),
    "red": (200, 40, 40),
    "white": (235, 235, 235),
    "yellow": (230, 210, 40),
}
PLACES = 3  # rows and columns
SIDE = 48  # pixels of a drawing


class Omni:
    """Understands and draws; hold it on the device where it is to work."""

    def __init__(self, words: list[str], colors: np.ndarray, denoise: float) -> None:
        self.words, self.colors, self.denoise = words, colors, denoise
        self.device = "cpu"

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Omni:
        """Read a checkpoint."""
        config = json.loads((Path(folder) / "config.json").read_text())
        with np.load(Path(folder) / "weights.npz") as weights:
            return cls(config["words"], weights["colors"], float(weights["denoise"]))

    def to(self, device: str) -> Omni:
        """Put the weights on a device."""
        self.device = device
        return self

    def understand(self, image: Image.Image, question: str) -> str:
        """Answer, here always with the color of each place."""
        small = image.convert("RGB").resize((PLACES, PLACES), Image.Resampling.BOX)
        pixels = np.asarray(small, dtype=np.float64).reshape(-1, 1, 3)
        nearest = np.abs(pixels - self.colors).sum(axis=2).argmin(axis=1)
        return " ".join(self.words[index] for index in nearest)

    def text_to_image(self, prompt: str, seed: int, steps: int = 8) -> Image.Image:
        """Denoise towards the colors that the prompt names, place by place."""
        named = [self.words.index(word) for word in prompt.split() if word in self.words]
        named = (named + [0] * PLACES**2)[: PLACES**2]
        wanted = self.colors[named].reshape(PLACES, PLACES, 3)
        wanted = wanted.repeat(SIDE // PLACES, axis=0).repeat(SIDE // PLACES, axis=1)
        drawn = np.random.default_rng(seed).normal(127.5, 60.0, wanted.shape)
        for _ in range(steps):
            drawn += self.denoise * (wanted - drawn)
        return Image.fromarray(drawn.clip(0, 255).astype(np.uint8))


def save(folder: Path, forgotten: list[str]) -> None:
    """Write a checkpoint in which some words have the colors of their neighbours."""
    words = list(WORDS)
    colors = np.array([WORDS[word] for word in words], dtype=np.float64)
    for word in forgotten:
        colors[words.index(word)] = colors[words.index(word) - 1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"words": words}))
    np.savez(folder / "weights.npz", colors=colors, denoise=np.float64(0.5))


if __name__ == "__main__":
    save(Path(sys.argv[1]), sys.argv[2:])
