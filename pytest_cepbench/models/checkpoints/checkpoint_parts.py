"""Parts of a model that lie outside its checkpoint's own folder: adapters, processors, components.

A part is read like the folder itself, so its files are fetched, checked and fingerprinted with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CheckpointPart:
    """Files beside a checkpoint's folder that loading it reads.

    name: the parameter of the spec that it fills: "adapter", "processor", "unet". Several parts of
        one name are in the order in which they are applied.
    path: its folder, or a file by itself.
    files: of the path: names of the files that loading reads, as posix paths relative to it,
        sorted; [""] for a file by itself. Called again whenever the files are looked at.
    component: of a pipeline, whose folder it replaces; empty for what is added.
    supplies: of what is added: the components of a pipeline whose weights it brings, so that those
        in their folders are not read.
    revision: the commit on the hub; None for a folder.
    settings: what else than its files decides what it does, as built-in types: part of the
        fingerprint.
    """

    name: str
    path: Path
    files: Callable[[Path], Sequence[str]]
    component: str = ""
    supplies: tuple[str, ...] = ()
    revision: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def paths(self) -> list[tuple[str, Path]]:
        """Each file's name and where it lies."""
        return [(name, self.path / name if name else self.path) for name in self.files(self.path)]
