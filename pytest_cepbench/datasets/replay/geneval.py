"""A GenEval image folder: `00012/samples/00003.png` is image 3 of prompt 12.

The generation script writes five digits for the image, its README says four; any number of digits
is read, and JPEG and WebP beside PNG.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_cepbench.datasets.paths import list_folder
from pytest_cepbench.datasets.replay.files import numbered_images, refuse_outside
from pytest_cepbench.datasets.replay.record import Artifact, Layout, Replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError

_SAMPLE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def prompt_and_image(sample: Sample) -> tuple[int, int] | None:
    """Numbers of a GenEval sample, from 0: "00012-3" is image 3 of prompt 12, "00012" its image 0.

    None for ids of other data sets.
    """
    match = _SAMPLE.fullmatch(sample.id)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def _prompts(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for folder in list_folder(path):
            if re.fullmatch(r"[0-9]{1,9}", folder.name) and (folder / "samples").is_dir():
                yield folder


def _fits(path: Path) -> bool:
    return next(_prompts(path), None) is not None


def _read(path: Path, _: Mapping[str, str]) -> Replay:
    images: dict[str, Artifact] = {}
    folders: dict[int, Path] = {}
    for folder in _prompts(path):
        prompt = int(folder.name)
        if prompt in folders:
            msg = f"{str(path)!r} holds both {folders[prompt].name!r} and {folder.name!r}"
            raise DatasetError(msg)
        folders[prompt] = folder
        refuse_outside(path, folder)
        for number, image in numbered_images(path, folder / "samples").items():
            images[f"{prompt}-{number}"] = image
    if not images:
        msg = f"{str(path)!r} holds no image in folders like 00000/samples/"
        raise DatasetError(msg)
    return Replay(LAYOUT.name, path, {("text", 1): images}, _names)


def _names(sample: Sample) -> tuple[str, ...]:
    place = prompt_and_image(sample)
    return () if place is None else (f"{place[0]}-{place[1]}",)


LAYOUT = Layout(
    name="geneval",
    says="00000/samples/00000.png, ... by prompt and image (GenEval)",
    params=(),
    fits=_fits,
    read=_read,
)
