"""Layouts that are folders of images, or of images and tables: SDP, MGG, GenEval, GenCeption."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pytest_cepbench.datasets.nocaps_docci import read_captions
from pytest_cepbench.datasets.replay.record import (
    Artifact,
    Layout,
    Replay,
    Start,
    generations,
    images_in,
    numbered_images,
    refuse_outside,
    stems,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.sources.file_names import (
    SUFFIXES,
    list_folder,
    refuse_unreadable,
    some_of,
    stem,
)
from pytest_cepbench.errors import DatasetError

# Chains in the layout of the Semantic Drift Protocol's code: both starts, folders and CSV in turn.
#
# `text-first/{gen-1/, gen-2.csv, gen-3/, ...}` and `image-first/{gen-1.csv, gen-2/, ...}`. The
# released code matches rows and files by position; here they are matched by name.

_FOLDERS: Mapping[Start, str] = {"text": "text-first", "image": "image-first"}


def _read_sdp(path: Path, params: Mapping[str, str]) -> Replay:
    """Generation 0 is the data set's own and is passed over, as are pickles and plots."""
    encoding = params.get("encoding", "utf-8")
    held: dict[tuple[Start, int], Mapping[str, Artifact]] = {}
    for start, folder in _FOLDERS.items():
        if not (path / folder).is_dir():
            continue
        refuse_outside(path, path / folder)
        for generation, place in generations(path / folder):
            if generation > 0:
                held[start, generation] = _generation(path, start, generation, place, encoding)
    if not held:
        folders = " or ".join(f"{folder}/" for folder in _FOLDERS.values())
        raise DatasetError(f"{str(path)!r} holds no generation after gen-0 in {folders}")
    return Replay(SDP.name, path, held, stems)


def _generation(
    root: Path, start: Start, generation: int, place: Path, encoding: str
) -> Mapping[str, Artifact]:
    drawn = (generation % 2 == 1) == (start == "text")
    if drawn != place.is_dir():
        expected = f"images in gen-{generation}/" if drawn else f"captions in gen-{generation}.csv"
        raise DatasetError(
            f"{str(place)!r}: generation {generation} of a {start}-first chain is {expected}"
        )
    if drawn:
        return images_in(root, place)
    refuse_outside(root, place)
    return {name: caption.text for name, caption in read_captions(place, encoding).items()}


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
    held: dict[tuple[Start, int], Mapping[str, Artifact]] = {}
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
    return Replay(MGG.name, path, held, _mgg_names)


def _mgg_names(sample: Sample) -> tuple[str, ...]:
    """One image per prompt and generation: further images of a prompt have none."""
    place = prompt_and_image(sample)
    return (str(place[0]),) if place is not None and place[1] == 0 else ()


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
    return Replay(GENEVAL.name, path, {("text", 1): images}, _geneval_names)


def _geneval_names(sample: Sample) -> tuple[str, ...]:
    place = prompt_and_image(sample)
    return () if place is None else (f"{place[0]}-{place[1]}",)


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
    for _, _, files in os.walk(path):
        for name in files:
            if name.endswith(_PICKLE) or (
                Path(name).suffix.lower() in SUFFIXES and stem(name).endswith("_0")
            ):
                return True
    return False


def _read_genception(path: Path, params: Mapping[str, str]) -> Replay:
    """Flat, or a folder per category; `results_<model>` folders below a category are its results.

    results: the one of them that is meant, where there are several.
    """
    folders = dict(_folders(path))
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
    held: dict[tuple[Start, int], dict[str, Artifact]] = {}
    for folder, model in folders.items():
        if model == wanted:
            _add(held, path, folder)
    if not held:
        raise _nothing(path)
    return Replay(GENCEPTION.name, path, held, stems)


def _add(held: dict[tuple[Start, int], dict[str, Artifact]], root: Path, folder: Path) -> None:
    home = _home(folder.relative_to(root).parts)
    for name, image in images_in(root, folder).items():
        match = _IMAGE.fullmatch(name)
        if match is None:
            continue
        images = held.setdefault(("image", 2 * (int(match[2]) + 1)), {})
        key = (home / match[1]).as_posix()
        if key in images:
            raise DatasetError(
                f"{str(root)!r} holds {name!r} of {str(home)!r} in more than one folder: keep one"
            )
        images[key] = image


def _home(parts: tuple[str, ...]) -> PurePosixPath:
    """The category that a folder's images belong to."""
    kept = [part for part in parts if not part.startswith(_RESULTS)]
    # Five of MME's categories keep their images in images/, and so their results below it.
    if len(kept) < len(parts) and kept[-1:] == ["images"]:
        kept.pop()
    return PurePosixPath(*kept)


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    """Every folder below, with the name of the results_ folder that it is in, if any."""
    for place, below, _ in os.walk(root, onerror=refuse_unreadable):
        folder = Path(place)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in below:
            refuse_outside(root, folder / name)
        parts = folder.relative_to(root).parts
        yield folder, next((part for part in parts if part.startswith(_RESULTS)), "")


def _nothing(path: Path) -> DatasetError:
    pickles = [file.name for file in path.rglob(f"*{_PICKLE}")]
    if pickles:
        msg = (
            f"{str(path)!r} holds only pickles of GenCeption ({some_of(pickles)}): they are never "
            f"opened, because unpickling runs whatever code a file holds. Give the folder with the "
            f"images that lay beside them (STEM_0.jpg, STEM_1.jpg, ...)"
        )
    else:
        msg = f"{str(path)!r} holds no images named STEM_0.jpg, STEM_1.jpg, ..."
    return DatasetError(msg)


GENCEPTION = Layout(
    name="genception",
    says="STEM_0.jpg, STEM_1.jpg, ... flat or in folders of categories (GenCeption)",
    params=("results",),
    fits=_fits_genception,
    read=_read_genception,
)
