"""Files of a replay: images by stem, and links that lead out of the folder refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.datasets.paths import images_by_stem, list_folder
from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.errors import DatasetError

_GENERATION = re.compile(r"gen-([0-9]{1,4})")


def refuse_outside(root: Path, path: Path) -> None:
    """Raises DatasetError for a link that leads out of the root: it is not followed."""
    if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
        msg = f"{str(path)!r} is a link out of {str(root)!r}: put the file itself there"
        raise DatasetError(msg)


def images_in(root: Path, folder: Path) -> dict[str, FileImage]:
    """The images directly in a folder below the root, by stem.

    Raises DatasetError as `images_by_stem`, and for links that lead out of the root.
    """
    refuse_outside(root, folder)
    found = images_by_stem(folder)
    for file in found.values():
        refuse_outside(root, file)
    return {name: FileImage(file) for name, file in found.items()}


def numbered_images(root: Path, folder: Path) -> dict[int, FileImage]:
    """The images of a folder whose stems are numbers, by number; others are passed over.

    Raises DatasetError as `images_in`, and when one number is written in two ways.
    """
    found: dict[int, FileImage] = {}
    for name, image in images_in(root, folder).items():
        if not re.fullmatch(r"[0-9]{1,9}", name):
            continue
        number = int(name)
        if number in found:
            msg = f"{str(folder)!r} holds both {found[number].path.name!r} and {image.path.name!r}"
            raise DatasetError(msg)
        found[number] = image
    return found


def generations(folder: Path) -> Iterator[tuple[int, Path]]:
    """Number and path of each folder `gen-3/` and table `gen-4.csv`, in order of numbers.

    Raises DatasetError when a generation is there twice.
    """
    found: dict[int, Path] = {}
    for path in list_folder(folder):
        name = path.name if path.is_dir() else path.name.removesuffix(".csv")
        match = _GENERATION.fullmatch(name)
        if match is None or not (path.is_dir() or path.suffix == ".csv"):
            continue
        number = int(match[1])
        if number in found:
            msg = f"{str(folder)!r} holds generation {number} twice: {found[number].name!r} and {path.name!r}"
            raise DatasetError(msg)
        found[number] = path
    yield from sorted(found.items())
