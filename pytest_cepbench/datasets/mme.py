"""The MME benchmark's folders, whose images MMEception starts from (questions are not read).

Fu et al., 2023. Five of the released categories keep their images in `images/` beside
`questions_answers_YN/`, the others beside their question files; both layouts are read for any
category.
"""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.datasets.sample import Dataset, FileImage, Sample
from pytest_cepbench.datasets.sources.file_names import sample_name, walk_images
from pytest_cepbench.errors import DatasetError

VERSION = 1

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

    path: the folder that holds the category folders.
    Raises DatasetError naming the categories that are missing or hold no image.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DatasetError(
            f"MME folder {str(path)!r} {what}: the folder of the category folders is expected"
        )
    samples: list[Sample] = []
    empty = []
    for category in CATEGORIES:
        images = _category(path, category)
        samples += images
        if not images:
            empty.append(category)
    if empty:
        raise DatasetError(
            f"{str(path)!r} has no images for {len(empty)} of the {len(CATEGORIES)} MME "
            f"categories: {', '.join(empty)} (each is a folder with images, or with images in "
            "images/)"
        )
    return Dataset(
        name="mme",
        identity={"loader": "mme", "version": VERSION},
        samples=tuple(sorted(samples, key=lambda sample: sample.id)),
    )


def _category(root: Path, category: str) -> list[Sample]:
    folder = root / category
    if (folder / "images").is_dir():
        folder /= "images"
    if not folder.is_dir():
        return []
    return [
        Sample(f"{category}/{sample_name(folder, file)}", (category,), image=FileImage(file))
        for file in walk_images(folder)
    ]
