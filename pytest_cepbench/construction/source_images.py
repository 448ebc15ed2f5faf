"""The images that a data set is constructed from: read once, named by their pixels, each once.

Quotas or draws say which images of a pattern are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pytest_cepbench.artifacts import ImageArtifact, digest_text, read_image
from pytest_cepbench.construction.folder import ImageRecord
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
        path = self.folder / record.path
        try:
            image = read_image(path)
        except ImageError as error:
            raise DatasetError(
                f"{str(path)!r}: {error}; the data set is constructed from it: restore it, or name "
                "the folder where the images lie now with --images DIR"
            ) from error
        if image.digest != record.image:
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


Sampling = Literal["quota", "bernoulli"]
"""quota: so many images of each pattern, the same on every machine. bernoulli: each image of a
pattern of N with the probability per_pattern / N, as MMGenBench drew (3.3)."""

SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)

_UNIT = 16**16


def choose_images(
    labels: Mapping[str, Sequence[str]], per_pattern: int, sampling: Sampling, seed: int
) -> list[str]:
    """The chosen images, sorted by digest.

    labels: digest of an image -> its patterns.
    Raises ValueError unless per_pattern is at least 1.
    """
    if per_pattern < 1:
        raise ValueError(f"at least one image of each pattern is expected, got {per_pattern}")
    members = members_of(labels)
    if sampling == "bernoulli":
        return _draw(members, per_pattern, seed)
    return _fill(labels, members, per_pattern)


def members_of(labels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Pattern -> its images in order of their digests; the rarest pattern first, then by name."""
    members: dict[str, list[str]] = {}
    for image in sorted(labels):
        for pattern in dict.fromkeys(labels[image]):
            members.setdefault(pattern, []).append(image)
    return dict(sorted(members.items(), key=lambda item: (len(item[1]), item[0])))


def _fill(
    labels: Mapping[str, Sequence[str]], members: Mapping[str, Sequence[str]], quota: int
) -> list[str]:
    """Every pattern gets its first image, then its second, and so on, the rarest one first.

    An image counts for all its patterns. In rounds and not pattern by pattern, since only then a
    larger quota takes all that a smaller one takes.
    """
    chosen: set[str] = set()
    counts = dict.fromkeys(members, 0)
    waiting = {pattern: iter(images) for pattern, images in members.items()}
    for wanted in range(1, quota + 1):
        for pattern, images in waiting.items():
            if counts[pattern] >= wanted:
                continue
            image = next((image for image in images if image not in chosen), None)
            if image is not None:
                chosen.add(image)
                for own in dict.fromkeys(labels[image]):
                    counts[own] += 1
    return sorted(chosen)


def _draw(members: Mapping[str, Sequence[str]], per_pattern: int, seed: int) -> list[str]:
    """Draws by the digest of seed, pattern and image: no image changes the draw of another."""
    chosen: set[str] = set()
    for pattern, images in members.items():
        probability = per_pattern / len(images)
        chosen.update(
            image
            for image in images
            if int(digest_text(f"{seed} {pattern} {image}")[:16], 16) / _UNIT < probability
        )
    return sorted(chosen)
