"""The record every layout is read into: artifacts by start, generation and name; and its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pytest_cepbench.datasets.sample import FileImage, Sample, SeedImage
from pytest_cepbench.datasets.sources.file_names import images_by_stem, list_folder, some_of, stem
from pytest_cepbench.errors import DatasetError

VERSION = "1"
"""Of the rules by which files become artifacts; part of a replay's identity."""

_GENERATION = re.compile(r"gen-([0-9]{1,4})")

Start = Literal["image", "text"]

Artifact = str | SeedImage

Held = Mapping[tuple[Start, int], Mapping[str, Artifact]]
"""Start and generation -> name -> artifact; a generation that a layout lacks has no entry."""


@dataclass(frozen=True)
class Replay:
    """Chains that another tool has generated.

    name: of the layout.
    path: what the user gave.
    held: what was found.
    names: the names under which the artifacts of a sample may be recorded, best first; none where
    its id cannot be one of this layout's.
    """

    name: str
    path: Path
    held: Held
    names: Callable[[Sample], Sequence[str]]

    @property
    def identity(self) -> Mapping[str, str]:
        """The layout and the version of its reading, for baselines."""
        return {"layout": self.name, "version": VERSION}

    def records(self, start: Start, generation: int) -> bool:
        """True where this generation (from 1) of chains with this start was recorded at all."""
        return (start, generation) in self.held

    def artifact(self, sample: Sample, start: Start, generation: int) -> Artifact | None:
        """The artifact of the sample's chain there; None where it is missing.

        A text is given as it was written, perhaps empty; the `load` of an image raises ImageError
        when the file holds none.
        """
        artifacts = self.held.get((start, generation), {})
        name = self._name(sample, artifacts)
        return None if name is None else artifacts[name]

    def check(self, samples: Iterable[Sample]) -> None:
        """Refuse a data set that these chains cannot belong to.

        samples: all of the data set's.
        Raises DatasetError when two of them would be given the same artifact (`a.jpg` and `a.png`,
        or one stem in two categories beside a flat folder), or when there is none for any of them.
        """
        owners: dict[tuple[Start, int, str], str] = {}
        ids = []
        for sample in samples:
            ids.append(sample.id)
            for (start, generation), artifacts in self.held.items():
                name = self._name(sample, artifacts)
                if name is None:
                    continue
                owner = owners.setdefault((start, generation, name), sample.id)
                if owner != sample.id:
                    raise DatasetError(
                        f"{self.path}: {name!r} would be the artifact of both {owner!r} and "
                        f"{sample.id!r}: keep the files of each category in a folder of its name"
                    )
        if not owners:
            recorded = {name for artifacts in self.held.values() for name in artifacts}
            raise DatasetError(
                f"{self.path} ({self.name}) holds nothing of these samples; it has "
                f"{some_of(recorded) or 'no artifact'}, the samples are {some_of(ids)}"
            )

    def _name(self, sample: Sample, artifacts: Mapping[str, Artifact]) -> str | None:
        return next((name for name in self.names(sample) if name in artifacts), None)


R = TypeVar("R")


@dataclass(frozen=True)
class Layout(Generic[R]):
    """One way in which a tool lays out its chains, which are a `Replay`, or its answers.

    says: what it looks like, for people.
    params: what a user may set.
    fits: whether a path looks like it at a glance; raises DatasetError for a folder that cannot be
    read.
    read: raises DatasetError where the files are not as it has them.
    """

    name: str
    says: str
    params: tuple[str, ...]
    fits: Callable[[Path], bool]
    read: Callable[[Path, Mapping[str, str]], R]


def stems(sample: Sample) -> tuple[str, ...]:
    """The sample's id without its suffix, with its folders and without them."""
    whole = stem(sample.id)
    return whole, whole.rpartition("/")[2]


def refuse_outside(root: Path, path: Path) -> None:
    """Raises DatasetError for a link that leads out of the root: it is not followed."""
    if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
        raise DatasetError(
            f"{str(path)!r} is a link out of {str(root)!r}: put the file itself there"
        )


def images_in(root: Path, folder: Path) -> dict[str, FileImage]:
    """The images directly in a folder below the root, by stem.

    Raises DatasetError as `images_by_stem`, and for links that lead out of the root.
    """
    refuse_outside(root, folder)
    images = images_by_stem(folder)
    for file in images.values():
        refuse_outside(root, file)
    return {name: FileImage(file) for name, file in images.items()}


def numbered_images(root: Path, folder: Path) -> dict[int, FileImage]:
    """The images of a folder whose stems are numbers, by number; others are passed over.

    Raises DatasetError as `images_in`, and when one number is written in two ways.
    """
    images: dict[int, FileImage] = {}
    for name, image in images_in(root, folder).items():
        if not re.fullmatch(r"[0-9]{1,9}", name):
            continue
        number = int(name)
        if number in images:
            raise DatasetError(
                f"{str(folder)!r} holds both {images[number].path.name!r} and {image.path.name!r}"
            )
        images[number] = image
    return images


def generations(folder: Path) -> Iterator[tuple[int, Path]]:
    """Number and path of each folder `gen-3/` and table `gen-4.csv`, in order of numbers.

    Raises DatasetError when a generation is there twice.
    """
    paths: dict[int, Path] = {}
    for path in list_folder(folder):
        name = path.name if path.is_dir() else path.name.removesuffix(".csv")
        match = _GENERATION.fullmatch(name)
        if match is None or not (path.is_dir() or path.suffix == ".csv"):
            continue
        number = int(match[1])
        if number in paths:
            raise DatasetError(
                f"{str(folder)!r} holds generation {number} twice: {paths[number].name!r} and "
                f"{path.name!r}"
            )
        paths[number] = path
    yield from sorted(paths.items())
