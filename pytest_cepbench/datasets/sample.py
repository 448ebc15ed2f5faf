"""Samples and data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappush, heappushpop
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pytest_cepbench.artifacts import (
    Artifact,
    ImageArtifact,
    Modality,
    Sound,
    decode_image,
    digest_json,
    digest_text,
    read_image,
)
from pytest_cepbench.artifacts.image import reading_file
from pytest_cepbench.datasets.sources.table import CellImage, encoded_image
from pytest_cepbench.datasets.sources.text_files import split_row
from pytest_cepbench.errors import ArtifactError, DatasetError, ImageError
from pytest_cepbench.files import open_regular


@dataclass(frozen=True)
class FileImage:
    """A seed image in a file; read when it is needed."""

    path: Path

    def load(self) -> ImageArtifact:
        """The image. Raises ImageError when the file holds none, UnreadError if it is not read."""
        return read_image(self.path)


@dataclass(frozen=True)
class DrawnImage:
    """A seed image that is computed; `draw` gives the same image at every call."""

    draw: Callable[[], ImageArtifact]

    def load(self) -> ImageArtifact:
        """The image."""
        return self.draw()


@dataclass(frozen=True)
class EmbeddedImage:
    """A seed image in a row of a tab-separated file, as base64; read when it is needed.

    offset, length: of the row, in bytes.
    column: number of the field. `data:image/...;base64,` before the image is allowed.
    where: names row and field in errors.
    """

    path: Path
    offset: int
    length: int
    column: int
    where: str

    @property
    def part(self) -> str:
        """Which part of the file it is."""
        return f"{self.offset}+{self.length}"

    def load(self) -> ImageArtifact:
        """The image. Raises ImageError naming file, row and field when there is none, UnreadError
        when it could not be read.
        """
        place = f"{self.path}, {self.where}"
        try:
            with reading_file(place), open_regular(self.path) as stream:
                stream.seek(self.offset)
                cell = split_row(stream.read(self.length), "\t")[self.column]
            return decode_image(encoded_image(cell.decode("ascii")))
        except (ValueError, IndexError, ImageError) as error:  # ValueError of base64
            raise ImageError(f"{place}: {error}") from error


SeedImage = FileImage | EmbeddedImage | CellImage | DrawnImage


@dataclass(frozen=True)
class FileSound:
    """A seed sound in a file; read when it is needed."""

    path: Path

    def load(self) -> Sound:
        """The sound. Raises SoundError when the file holds none, UnreadError if it is not read."""
        return Sound.from_file(self.path)


@dataclass(frozen=True)
class DrawnSound:
    """A seed sound that is computed; `draw` gives the same sound at every call."""

    draw: Callable[[], Sound]

    def load(self) -> Sound:
        """The sound."""
        return self.draw()


Seed = SeedImage | FileSound | DrawnSound
"""What a chain starts from, where that is no text."""


@dataclass(frozen=True)
class GoldStep:
    """One step of a reference answer; text is empty, image None, where the step has none."""

    text: str
    image: SeedImage | None


@dataclass(frozen=True)
class Sample:
    """One item of a data set.

    id: unique in its data set, stable over time and machines; names the sample in baselines.
    categories: the categories it belongs to, at least one; the first is its home.
    image, text, sound: the seeds a chain can start from; at least one is there, or a question.
    question: texts and images in reading order, where the data set asks for interleaved answers.
    gold: the reference answer to it, where there is one.
    answer: an answer that the data set itself has, which battles the reference one: what judges are
    measured on. Empty where models are to answer.
    metadata: what else the data set says of it, built-in types only.
    cluster: what it shares with samples that are not independent of it: images of one prompt, seeds
    of one image; None for a sample of its own.
    replicate: which of the cluster's seeds it is, 0 for the first.
    """

    id: str
    categories: tuple[str, ...]
    image: SeedImage | None = None
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cluster: str | None = None
    replicate: int = 0
    question: tuple[str | SeedImage, ...] = ()
    gold: tuple[GoldStep, ...] = ()
    answer: tuple[GoldStep, ...] = ()
    sound: FileSound | DrawnSound | None = None

    def seed(self, modality: Modality) -> Seed | None:
        """What a chain of a modality other than text starts from; None where it has no such."""
        return self.image if modality == "image" else self.sound

    @property
    def unit(self) -> str:
        """The cluster it belongs to, itself where it has none: what statistics count once."""
        return self.id if self.cluster is None else self.cluster


@dataclass(frozen=True)
class Dataset:
    """Samples, which are kept sorted by id, and what they depend on.

    identity: loader, its version and options as built-in types; enters baselines, so that numbers
    over other samples are never compared.
    whole: the data set that this is a part of, where samples were limited; None where a part alone
    was ever held.
    notes: sentences for the reader of results, such as the commit that a branch stood for.
    Raises DatasetError when it is empty or an id is there twice, and where a loader of one's own
    gave something else than samples, ids, categories and an identity that baselines can hold.
    """

    name: str
    identity: Mapping[str, Any]
    samples: tuple[Sample, ...]
    whole: Dataset | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        samples = tuple(self.samples)
        if not samples:
            raise DatasetError(f"data set {self.name!r} has no samples")
        if problem := next(filter(None, map(_problem, samples)), ""):
            raise DatasetError(f"data set {self.name!r}: {problem}")
        try:
            digest_json(dict(self.identity))
        except (TypeError, ValueError) as error:
            raise DatasetError(
                f"data set {self.name!r}: identity is {self.identity!r:.200}, a dict of built-in "
                f"types is expected: {error}"
            ) from error
        ordered = tuple(sorted(samples, key=lambda sample: sample.id))
        for before, after in pairwise(ordered):
            if before.id == after.id:
                raise DatasetError(f"data set {self.name!r}: sample id {after.id!r} is there twice")
        object.__setattr__(self, "samples", ordered)

    @property
    def categories(self) -> tuple[str, ...]:
        """All categories, in order of first appearance."""
        return tuple(self._by_category)

    def in_category(self, category: str) -> tuple[Sample, ...]:
        """The samples of one category, sorted by id."""
        return self._by_category.get(category, ())

    def with_id(self, sample_id: str) -> Sample | None:
        """The sample of an id; None where there is none."""
        return self._by_id.get(sample_id)

    def limited(self, most: int) -> Dataset:
        """At most so many samples of each category: the same in every run and on every machine.

        As `choose` does it: one in several categories is only in those it was chosen for.
        """
        every = (Candidate(s.id, s.categories, s, s.replicate) for s in self.samples)
        kept = tuple(replace(own.item, categories=own.categories) for own in choose(every, most))
        return replace(self, samples=kept, whole=self.whole or self)

    def repeated(self, times: int) -> Dataset:
        """Every sample so many times: itself and replicates with ids, hence seeds, of their own."""
        if times == 1:
            return self
        samples = tuple(
            replace(
                sample,
                id=f"{sample.id} seed {k}" if k else sample.id,
                cluster=sample.unit,
                replicate=k,
            )
            for sample in self.samples
            for k in range(times)
        )
        return replace(self, samples=samples, whole=self.whole or self)

    @cached_property
    def _by_category(self) -> Mapping[str, tuple[Sample, ...]]:
        samples_of: dict[str, list[Sample]] = {}
        for sample in self.samples:
            for category in dict.fromkeys(sample.categories):
                samples_of.setdefault(category, []).append(sample)
        return {category: tuple(samples) for category, samples in samples_of.items()}

    @cached_property
    def _by_id(self) -> Mapping[str, Sample]:
        return {sample.id: sample for sample in self.samples}


def _are_names(value: Any) -> bool:
    """Whether a value is a tuple of names, at least one; a text alone is none."""
    names = value if isinstance(value, tuple | list) else ()
    return bool(names) and all(isinstance(name, str) for name in names)


_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "id": (lambda value: isinstance(value, str), "a text"),
    "categories": (_are_names, 'a tuple of names, such as ("fog",),'),
    "cluster": (lambda value: value is None or isinstance(value, str), "a text"),
    "image": (lambda value: isinstance(value, SeedImage | None), "FileImage(path)"),
    "sound": (lambda value: isinstance(value, FileSound | DrawnSound | None), "FileSound(path)"),
}
"""Field of a sample -> whether a value fits it, and what is expected: loaders may be a user's."""


def _problem(sample: Any) -> str:
    """What is wrong with a sample; empty for nothing."""
    if not isinstance(sample, Sample):
        return f"{sample!r:.80} is no Sample"
    for name, (fits, what) in _FIELDS.items():
        if not fits(value := getattr(sample, name)):
            return f"sample {sample.id!r:.80}: {name} is {value!r:.80}, {what} is expected"
    return ""


T = TypeVar("T")


class Candidate(NamedTuple, Generic[T]):
    """What may become a sample.

    id, replicate: of the sample.
    categories: those it belongs to, or was chosen for.
    item: the sample itself, or the row of a table that it is made of.
    """

    id: str
    categories: tuple[str, ...]
    item: T
    replicate: int = 0


def choose(candidates: Iterable[Candidate[T]], most: int) -> list[Candidate[T]]:
    """At most so many of each category, each in the categories alone that it was chosen for.

    They are chosen by the digest of their ids, first seeds before further ones, so that fewer are
    always among more. Only those that may be chosen are held.
    """
    heaps: dict[str, list[tuple[int, int, str, Candidate[T]]]] = {}
    for candidate in candidates:
        digest = int(digest_text(candidate.id), 16)
        entry = -candidate.replicate, -digest, candidate.id, candidate  # the least goes first
        for category in dict.fromkeys(candidate.categories):
            heap = heaps.setdefault(category, [])
            if len(heap) < most:
                heappush(heap, entry)
            else:
                heappushpop(heap, entry)
    chosen: dict[str, Candidate[T]] = {}
    chosen_for: dict[str, set[str]] = {}
    for category, heap in heaps.items():
        for *_, own in heap:
            chosen[own.id] = own
            chosen_for.setdefault(own.id, set()).add(category)
    return [
        own._replace(categories=tuple(c for c in own.categories if c in chosen_for[name]))
        for name, own in sorted(chosen.items())
    ]


def load_seed(sample: Sample, modality: Modality) -> Artifact:
    """The sample's seed of a modality. Raises DatasetError naming the sample when it cannot be
    used.
    """
    seed = sample.seed(modality)
    if seed is None:
        chain = f"{'an' if modality == 'image' else 'a'} {modality}-first chain"
        raise DatasetError(f"sample {sample.id!r} has no {modality}: {chain} cannot start from it")
    try:
        loaded: Any = seed.load()
    except ArtifactError as error:
        raise DatasetError(f"{sample.id}: {error}") from error
    if not isinstance(loaded, ImageArtifact | Sound):
        what = "ImageArtifact.from_pil(image)" if modality == "image" else "a Sound"
        raise DatasetError(f"{sample.id}: draw gave {type(loaded).__name__}, {what} is expected")
    return loaded


def load_seed_image(sample: Sample) -> ImageArtifact:
    """The sample's seed image. Raises DatasetError as `load_seed`."""
    image = load_seed(sample, "image")
    assert isinstance(image, ImageArtifact)
    return image
