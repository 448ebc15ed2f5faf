"""The images that a data set is constructed from: read once, named by their pixels, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact, read_image
from pytest_cepbench.construction.records import ImageRecord
from pytest_cepbench.datasets.sources.files import sample_name as relative_name
from pytest_cepbench.datasets.sources.files import some_of, walk_images
from pytest_cepbench.errors import DatasetError, ImageError

Announce = Callable[[str], None]


@dataclass(frozen=True)
class SourceImages:
    """The images of a folder.

    records: those of different pixels, by number.
    unreadable: path -> why no image could be read there.
    """

    folder: Path
    records: tuple[ImageRecord, ...]
    unreadable: Mapping[str, str]

    def load(self, record: ImageRecord) -> ImageArtifact:
        """An image. Raises DatasetError where its file holds another by now, or none."""
        return load_image(self.folder, record.path, record.image)


def load_image(folder: Path, name: str, digest: str) -> ImageArtifact:
    """The image of a data set in a folder of images. name: its path there. digest: of its pixels.

    Raises DatasetError where its file holds another one, or none.
    """
    path = folder / name
    try:
        image = read_image(path)
    except ImageError as error:
        raise DatasetError(
            f"{str(path)!r}: {error}; the data set is constructed from it: restore it, or name "
            "the folder where the images lie now with --images DIR"
        ) from error
    if image.digest != digest:
        raise DatasetError(
            f"{str(path)!r} has changed since it was read first: restore it, name the folder "
            "where the images lie now with --images DIR, or begin anew"
        )
    return image


def look_at(path: Path) -> str:
    """Digest, width and height of the image in a file, as a text. Raises ImageError."""
    image = read_image(path)
    width, height = image.size
    return f"{image.digest} {width} {height}"


def find_images(
    folder: Path,
    earlier: Sequence[ImageRecord] = (),
    look: Callable[[Path], str] = look_at,
    without: Path | None = None,
) -> SourceImages:
    """The images below a folder; hidden files and files of other kinds are passed over.

    earlier: those of the data set so far, which keep their numbers; others may have been added.
    look: as `look_at`, which may remember what it saw.
    without: a folder, such as that of the data set, whose images are passed over where it lies
    below the other one.
    Files of the same pixels are one image, and files that hold no image are left out with the
    reason. Raises DatasetError for a folder without an image, and where one of `earlier` is gone.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DatasetError(f"{str(folder)!r} {what}: a folder of images is expected")
    files: dict[str, list[str]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    unreadable: dict[str, str] = {}
    whole = folder.resolve()
    own = None if without is None or without.resolve() == whole else without.resolve()
    for path in sorted(walk_images(folder)):
        name = relative_name(folder, path)
        if own is not None and (whole / name).is_relative_to(own):
            continue
        try:
            digest, width, height = look(path).split()
        except ImageError as error:
            unreadable[name] = str(error)
            continue
        except OSError as error:  # a link that leads nowhere
            unreadable[name] = f"cannot be read: {error.strerror or error}"
            continue
        files.setdefault(digest, []).append(name)
        sizes[digest] = int(width), int(height)
    if not files:
        why = f": {len(unreadable)} files hold none that can be read" if unreadable else ""
        raise DatasetError(f"no images in {str(folder)!r}{why}")
    gone = [record.path for record in earlier if record.image not in files]
    if gone:
        raise DatasetError(
            f"the data set was begun with other images: {len(gone)} of its {len(earlier)} are not "
            f"in {str(folder)!r} ({some_of(gone)}): give the folder that it was begun with, or "
            "another --out"
        )
    return SourceImages(folder, tuple(_number(files, sizes, earlier)), unreadable)


def _number(
    files: Mapping[str, Sequence[str]],
    sizes: Mapping[str, tuple[int, int]],
    earlier: Sequence[ImageRecord],
) -> Iterable[ImageRecord]:
    known = {record.image: record.number for record in earlier}
    new = sorted((names[0], digest) for digest, names in files.items() if digest not in known)
    first = max(known.values(), default=-1) + 1
    numbers = known | {digest: number for number, (_, digest) in enumerate(new, first)}
    for digest, number in sorted(numbers.items(), key=lambda item: item[1]):
        path, *same = files[digest]
        width, height = sizes[digest]
        yield ImageRecord(
            number=number, image=digest, path=path, width=width, height=height, same=tuple(same)
        )
