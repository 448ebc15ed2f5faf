"""A unified model out of its authors' repository: copy this file, put yours in tiny_omni's place.

    pytest my-suite "--model=python:unified_model:load?path=checkpoints/one"

One object has the methods of both roles, so `--model` gates both and the weights are loaded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from tiny_omni import Omni

VERSION = 1  # of this file; raise it when it comes to ask the model in another way


class Unified:
    """Describes and draws with one model of the repository."""

    what = "tiny-omni"  # a name for people
    seeded = True  # a drawing depends on its seed
    batch_size = 4  # most inputs of one call; a loop over single calls gains nothing from more

    def __init__(self, path: str, device: str = "cpu", steps: str = "8") -> None:
        self.folder = Path(path)
        self.device = device
        # Settings that change the answers and lie in no file: results are stored under them.
        self.params = {"steps": int(steps)}
        # Everything else that decides the answers: the weights, and the code that runs them.
        # A digest comes first or alone: people are shown its first 16 characters.
        self.fingerprint = digest(self.folder, repository())
        self._model: Omni | None = None

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text per RGB image, in order."""
        return [self.model.understand(image, prompt) for image in images]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """One picture per text, in order; each from its own text and seed alone.

        Where a repository draws from torch's global generator, seed it before every call, inside
        `torch.random.fork_rng()`: then a picture does not depend on what was drawn before it.
        """
        steps = self.params["steps"]
        return [
            self.model.text_to_image(text, seed, steps)
            for text, seed in zip(texts, seeds, strict=True)
        ]

    def move(self, device: str) -> None:
        """With --cep-residency=swap: wait on the CPU, or come back."""
        if self._model is not None:
            self._model.to(device)

    @property
    def model(self) -> Omni:
        """The repository's object, loaded when the first answer is not in the store."""
        if self._model is None:
            from tiny_omni import Omni

            self._model = Omni.from_pretrained(self.folder).to(self.device)
        return self._model


def repository() -> Path:
    """The repository's code: a package's folder, or a module's file."""
    found = find_spec("tiny_omni")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("tiny_omni is neither in this folder nor installed")
    origin = Path(found.origin)
    return origin.parent if origin.name == "__init__.py" else origin


def digest(*places: Path) -> str:
    """Of this file's version and the names and bytes of files; of folders all but caches."""
    together = sha256(f"unified_model/{VERSION}".encode())
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place}: no such file or folder")
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                together.update(file.name.encode() + b"\0")
                together.update(sha256(file.read_bytes()).digest())
    return together.hexdigest()


def load(path: str = "", **settings: str) -> Unified:
    """Factory: parameters of the spec arrive as strings."""
    if not path:
        raise ValueError("say where the checkpoint is: python:unified_model:load?path=FOLDER")
    return Unified(path, **settings)
