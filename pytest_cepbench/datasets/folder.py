"""Folders of images or sounds, whose folders are categories, and those of the MME benchmark."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.datasets.sample import Dataset, FileImage, FileSound, Sample
from pytest_cepbench.datasets.sources.files import (
    FILES,
    SHARDS,
    require_folder,
    sample_name,
    seed_files,
)
from pytest_cepbench.datasets.sources.text_files import read_utf8
from pytest_cepbench.errors import DatasetError

VERSION = 1

ROOT_CATEGORY = "images"
"""Category of images that lie in the folder itself."""

_LARGEST_CAPTION = 1_000_000  # bytes; a caption file larger than this is no caption


def load_folder(path: Path, *, captions: bool = False) -> Dataset:
    """The images below a folder, each named by its path relative to it, suffix included.

    captions: read `photo.txt` beside `photo.jpg` as the sample's text (for text-first chains).
    Hidden files, folders of thumbnails and deleted files as storage makes them, and files of other
    kinds are passed over; pictures of kinds that are not read, sounds and tables are counted in the
    notes. Symbolic links are followed.
    Raises DatasetError when the folder is missing, cannot be read or holds no image, when a name is
    not UTF-8, when two names are the same after Unicode normalization (NFC, so that ids agree over
    systems), or when a caption cannot be used.
    """
    return _load(path, "image", captions=captions)


def load_sounds(path: Path, *, captions: bool = False) -> Dataset:
    """The sounds below a folder, WAV, FLAC and Ogg; otherwise as `load_folder`.

    captions: read `rain.txt` beside `rain.wav` as the sample's text (for text-first chains).
    """
    return _load(path, "sound", captions=captions)


def _load(path: Path, kind: Modality, *, captions: bool) -> Dataset:
    require_folder(path, f"a folder of {kind}s", "data folder ")
    seed = {"image": FileImage, "sound": FileSound}[kind]
    unread: Counter[str] = Counter()
    samples = []
    for file in seed_files(path, unread, kind):
        name = sample_name(path, file)
        category = name.rpartition("/")[0] or f"{kind}s"
        text = None
        if captions:
            caption = file.with_suffix(".txt")
            if not os.path.lexists(caption):  # which raises nothing
                raise DatasetError(
                    f"{file.name!r} has no caption: a text-first chain needs {caption.name!r} "
                    "beside it"
                )
            text = read_utf8(caption, _LARGEST_CAPTION, "caption file").strip()
        own: dict[str, Any] = {kind: seed(file)}
        samples.append(Sample(name, (category,), text=text, **own))
    loader, suffixes = FILES[kind][0], ", ".join(sorted(FILES[kind][1]))
    note = ", ".join(f"{unread[suffix]} {suffix}" for suffix in sorted(unread))
    if note:
        others = " and ".join(other for other, _ in FILES.values() if other != loader)
        note += f" passed over: {loader} reads {suffixes}, the loader {others} others"
        if kind == "image" and unread.keys() & {*SHARDS}:
            note += ", and tables are read from a folder without images"
    if not samples:
        raise DatasetError(
            f"no {kind}s in {str(path)!r} (looked for {suffixes}, also below)"
            + (f"; {note}" if note else "")
        )
    return Dataset(
        name=path.name,
        identity={"loader": loader, "version": VERSION},
        samples=tuple(samples),
        notes=(f"{str(path)!r}: {note}",) if note else (),
    )


MME_VERSION = 1

CATEGORIES = (
    "existence",
    "count",
    "position",
    "color",
    "posters",
    "celebrity",
    "scene",
    "landmark",
    "artwork",
    "commonsense_reasoning",
    "OCR",
    "code_reasoning",
    "numerical_calculation",
    "text_translation",
)
"""Folder names of the release: ten visual-intensive, then four textual-intensive categories."""


def load_mme(path: Path) -> Dataset:
    """The images of all 14 categories; ids are `category/file`, whatever the layout.

    Five of the released categories keep their images in `images/` beside `questions_answers_YN/`,
    the others beside their question files; both layouts are read for any category, questions are
    not. Source: Fu et al., MME, 2023.

    path: the folder that holds the category folders.
    Raises DatasetError naming the categories that are missing or hold no image.
    """
    require_folder(path, "the folder of the category folders", "MME folder ")
    samples: list[Sample] = []
    empty = []
    for category in CATEGORIES:
        folder = path / category
        if (folder / "images").is_dir():
            folder /= "images"
        files = list(seed_files(folder)) if folder.is_dir() else []
        if not files:
            empty.append(category)
        for file in files:
            name = f"{category}/{sample_name(folder, file)}"
            samples.append(Sample(name, (category,), image=FileImage(file)))
    if empty:
        raise DatasetError(
            f"{str(path)!r} has no images for {len(empty)} of the {len(CATEGORIES)} MME "
            f"categories: {', '.join(empty)} (each is a folder with images, or with images in "
            "images/)"
        )
    return Dataset("mme", {"loader": "mme", "version": MME_VERSION}, tuple(samples))
