"""Chains in the layouts of other tools: what each is read into, and the folders that they write."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.datasets.nocaps_docci import read_captions
from pytest_cepbench.datasets.opening.answers import (
    LAYOUT,
    RecordedAnswers,
    answer_paths,
    read_answers,
)
from pytest_cepbench.datasets.sample import FileImage, Sample, SeedImage
from pytest_cepbench.datasets.sources.files import (
    SUFFIXES,
    images_by_stem,
    list_folder,
    refuse_unreadable,
    some_of,
    stem,
)
from pytest_cepbench.errors import DatasetError, SpecError

VERSION = "1"
"""Of the rules by which files become artifacts; part of a replay's identity."""

_GENERATION = re.compile(r"gen-([0-9]{1,4})")


Artifact = str | SeedImage

Held = Mapping[tuple[Modality, int], Mapping[str, Artifact]]
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

    def records(self, start: Modality, generation: int) -> bool:
        """True where this generation (from 1) of chains with this start was recorded at all."""
        return (start, generation) in self.held

    def artifact(self, sample: Sample, start: Modality, generation: int) -> Artifact | None:
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
        owners: dict[tuple[Modality, int, str], str] = {}
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


# Chains in the layout of the Semantic Drift Protocol's code: both starts, folders and CSV in turn.
#
# `text-first/{gen-1/, gen-2.csv, gen-3/, ...}` and `image-first/{gen-1.csv, gen-2/, ...}`. The
# released code matches rows and files by position; here they are matched by name.

_FOLDERS: Mapping[Modality, str] = {"text": "text-first", "image": "image-first"}


def _read_sdp(path: Path, params: Mapping[str, str]) -> Replay:
    """Generation 0 is the data set's own and is passed over, as are pickles and plots."""
    encoding = params.get("encoding", "utf-8")
    held: dict[tuple[Modality, int], Mapping[str, Artifact]] = {}
    for start, folder in _FOLDERS.items():
        if not (path / folder).is_dir():
            continue
        refuse_outside(path, path / folder)
        for generation, place in generations(path / folder):
            if generation == 0:
                continue
            drawn = (generation % 2 == 1) == (start == "text")
            if drawn != place.is_dir():
                expected = f"captions in gen-{generation}.csv"
                if drawn:
                    expected = f"images in gen-{generation}/"
                raise DatasetError(
                    f"{str(place)!r}: generation {generation} of a {start}-first chain is "
                    f"{expected}"
                )
            if drawn:
                held[start, generation] = images_in(path, place)
                continue
            refuse_outside(path, place)
            rows = read_captions(place, encoding)
            held[start, generation] = {name: row.text("caption") for name, row in rows.items()}
    if not held:
        folders = " or ".join(f"{folder}/" for folder in _FOLDERS.values())
        raise DatasetError(f"{str(path)!r} holds no generation after gen-0 in {folders}")
    return Replay(SDP.name, path, held, stems)


SDP = Layout(
    name="sdp",
    says="text-first/ and image-first/ with gen-1/, gen-2.csv, ... (Semantic Drift Protocol)",
    params=("encoding",),
    fits=lambda path: any((path / folder).is_dir() for folder in _FOLDERS.values()),
    read=_read_sdp,
)


# Images of several generations as MGG's code reads them: `gen-{1,3,5,...}/{line}.png`.
#
# The name is the number of the prompt's line in the metadata, from 0; chains start from texts.


def _read_mgg(path: Path, _: Mapping[str, str]) -> Replay:
    held: dict[tuple[Modality, int], Mapping[str, Artifact]] = {}
    for generation, folder in generations(path):
        if generation == 0 or not folder.is_dir():
            continue
        if generation % 2 == 0:
            raise DatasetError(
                f"{str(folder)!r}: generations of images are odd in a chain that starts from texts"
            )
        images = numbered_images(path, folder)
        held["text", generation] = {str(number): image for number, image in images.items()}
    if not held:
        raise DatasetError(f"{str(path)!r} holds no generation of images (gen-1/, gen-3/, ...)")

    def names(sample: Sample) -> tuple[str, ...]:
        """One image per prompt and generation: further images of a prompt have none."""
        place = prompt_and_image(sample)
        return (str(place[0]),) if place is not None and place[1] == 0 else ()

    return Replay(MGG.name, path, held, names)


MGG = Layout(
    name="mgg",
    says="gen-1/, gen-3/, ... with 0.png, 1.png, ... by the line of the prompt (MGG)",
    params=(),
    # Folders beside tables are one of SDP's chains, whose names are not lines of GenEval.
    fits=lambda path: any(path.glob("gen-*/")) and not any(path.glob("gen-*.csv")),
    read=_read_mgg,
)


# A GenEval image folder: `00012/samples/00003.png` is image 3 of prompt 12.
#
# The generation script writes five digits for the image, its README says four; any number of digits
# is read, and JPEG and WebP beside PNG.

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


def _read_geneval(path: Path, _: Mapping[str, str]) -> Replay:
    images: dict[str, Artifact] = {}
    folders: dict[int, Path] = {}
    for folder in _prompts(path):
        prompt = int(folder.name)
        if prompt in folders:
            raise DatasetError(
                f"{str(path)!r} holds both {folders[prompt].name!r} and {folder.name!r}"
            )
        folders[prompt] = folder
        refuse_outside(path, folder)
        for number, image in numbered_images(path, folder / "samples").items():
            images[f"{prompt}-{number}"] = image
    if not images:
        raise DatasetError(f"{str(path)!r} holds no image in folders like 00000/samples/")

    def names(sample: Sample) -> tuple[str, ...]:
        place = prompt_and_image(sample)
        return () if place is None else (f"{place[0]}-{place[1]}",)

    return Replay(GENEVAL.name, path, {("text", 1): images}, names)


GENEVAL = Layout(
    name="geneval",
    says="00000/samples/00000.png, ... by prompt and image (GenEval)",
    params=(),
    fits=lambda path: any(_prompts(path)),
    read=_read_geneval,
)


# GenCeption's results folders: `{stem}_{i}.jpg` is the image drawn in iteration i + 1.
#
# The descriptions and similarities lie in `{stem}_result.pkl`, which is never opened: unpickling
# runs whatever code a file holds. So the texts are not recorded, and the images are.

_IMAGE = re.compile(r"(.+)_([0-9]{1,3})", re.DOTALL)

_PICKLE = "_result.pkl"

_RESULTS = "results_"


def _fits_genception(path: Path) -> bool:
    return any(
        name.endswith(_PICKLE)
        or (Path(name).suffix.lower() in SUFFIXES and stem(name).endswith("_0"))
        for _, _, files in os.walk(path)
        for name in files
    )


def _read_genception(path: Path, params: Mapping[str, str]) -> Replay:
    """Flat, or a folder per category; `results_<model>` folders below a category are its results.

    results: the one of them that is meant, where there are several.
    """
    folders: dict[Path, str] = {}  # to the results_ folder that it is in, if any
    for place, below, _ in os.walk(path, onerror=refuse_unreadable):
        folder = Path(place)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in below:
            refuse_outside(path, folder / name)
        parts = folder.relative_to(path).parts
        folders[folder] = next((part for part in parts if part.startswith(_RESULTS)), "")
    models = {name for name in folders.values() if name}
    wanted = params.get("results")
    if wanted is not None and wanted not in models:
        raise DatasetError(
            f"{str(path)!r} has no folder {wanted!r}; it has {some_of(models) or 'no results_'}"
        )
    if wanted is None and len(models) > 1:
        raise DatasetError(
            f"{str(path)!r} holds results of several models: {some_of(models)}; name one with the "
            "parameter results"
        )
    wanted = wanted or next(iter(models), "")
    held: dict[tuple[Modality, int], dict[str, Artifact]] = {}
    for folder, model in folders.items():
        if model == wanted:
            _add(held, path, folder)
    if not held:
        pickles = [file.name for file in path.rglob(f"*{_PICKLE}")]
        if pickles:
            raise DatasetError(
                f"{str(path)!r} holds only pickles of GenCeption ({some_of(pickles)}): they are "
                "never opened, because unpickling runs whatever code a file holds. Give the folder "
                "with the images that lay beside them (STEM_0.jpg, STEM_1.jpg, ...)"
            )
        raise DatasetError(f"{str(path)!r} holds no images named STEM_0.jpg, STEM_1.jpg, ...")
    return Replay(GENCEPTION.name, path, held, stems)


def _add(held: dict[tuple[Modality, int], dict[str, Artifact]], root: Path, folder: Path) -> None:
    parts = folder.relative_to(root).parts
    kept = [part for part in parts if not part.startswith(_RESULTS)]
    # Five of MME's categories keep their images in images/, and so their results below it.
    if len(kept) < len(parts) and kept[-1:] == ["images"]:
        kept.pop()
    category = PurePosixPath(*kept)
    for name, image in images_in(root, folder).items():
        match = _IMAGE.fullmatch(name)
        if match is None:
            continue
        images = held.setdefault(("image", 2 * (int(match[2]) + 1)), {})
        key = (category / match[1]).as_posix()
        if key in images:
            raise DatasetError(
                f"{str(root)!r} holds {name!r} of {str(category)!r} in more than one folder: keep "
                "one"
            )
        images[key] = image


GENCEPTION = Layout(
    name="genception",
    says="STEM_0.jpg, STEM_1.jpg, ... flat or in folders of categories (GenCeption)",
    params=("results",),
    fits=_fits_genception,
    read=_read_genception,
)


def _read_opening(path: Path, params: Mapping[str, str]) -> RecordedAnswers:
    partial = params.get("partial", "false")
    if partial not in ("true", "false"):
        raise SpecError(f"replay:{path}: the parameter partial is true or false, got {partial!r}")
    return read_answers(path, partial=partial == "true")


OPENING = Layout(
    name=LAYOUT,
    says="0101001.json (or .jsonl), 0101001-o-0.jpg, ... by question (OpenING, answers)",
    params=("partial",),
    fits=lambda path: path.is_dir() and any(answer_paths(path)),
    read=_read_opening,
)
