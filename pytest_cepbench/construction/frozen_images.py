"""The images of a frozen set that was passed on without them: written where they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.construction.data_card import card_with_images
from pytest_cepbench.construction.folder import ConstructionFolder
from pytest_cepbench.construction.frozen_set import (
    CARD,
    MANIFEST,
    FrozenImage,
    image_list_name,
    label_index_name,
    manifest_with_images,
    read_manifest,
    table_path,
    written_table,
)
from pytest_cepbench.construction.source_images import load_image
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import digest_bytes
from pytest_cepbench.replacement import replace_files


def add_images(folder: Path, images: Path) -> list[Path]:
    """Write the table of images into a frozen set that has none; returns what was written.

    images: the folder in which they lie by the paths of the set's list.
    Raises DatasetError where the set is of another kind, has its images already or is damaged, and
    for an image that is not there or has other pixels; WriteError.
    """
    manifest = read_manifest(folder)
    name: str = manifest["name"]
    if manifest.get("kind") != "patterns" or unsafe(name) or "/" in name or "\\" in name:
        raise DatasetError(
            f"{str(folder)!r} is no set of patterns: only such sets are frozen without images"
        )
    if manifest.get("images_copied"):
        raise DatasetError(
            f"{str(folder)!r} has its images already, in {table_path(folder, name).name}"
        )
    for file in (label_index_name(name), image_list_name(name)):
        _check_file(folder / file, manifest["files"].get(file))
    listed = ConstructionFolder(folder).read_lines(image_list_name(name), FrozenImage)
    table = table_path(folder, name)
    with written_table(_load(folder, listed, images), table) as digest:
        text = manifest_with_images((folder / MANIFEST).read_text("utf-8"), name, digest)
    contents: dict[Path, bytes | None] = {folder / MANIFEST: text.encode()}
    card = folder / CARD
    if card.is_file():
        contents[card] = card_with_images(card.read_text("utf-8")).encode()
    replace_files(folder, contents)
    return [table, *reversed(contents)]


def _check_file(path: Path, digest: object) -> None:
    try:
        same = digest_bytes(path.read_bytes()) == digest
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    if not same:
        raise DatasetError(
            f"{str(path)!r} is not the file that was frozen ({MANIFEST}): get the set anew"
        )


def _load(
    folder: Path, listed: list[FrozenImage], images: Path
) -> Iterator[tuple[int, ImageArtifact]]:
    for record in listed:
        reason = unsafe(record.path)
        if reason is not None:
            raise DatasetError(f"{str(folder)!r}, image {record.index}: {reason}")
        yield record.index, load_image(images, record.path, record.image)
