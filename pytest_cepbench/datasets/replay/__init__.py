"""Chains and answers that other tools have generated, read in the layouts that their code writes.

Everything is matched by name (file stem, table index), never by position; nothing is unpickled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.datasets.mmgenbench import embedded_images, row_index
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
    refuse_outside,
    refuse_unreadable,
    some_of,
    stem,
)
from pytest_cepbench.datasets.sources.text_files import read_columns, read_rows
from pytest_cepbench.errors import DatasetError, SpecError, unknown_name

VERSION = "1"
"""Of the rules by which files become artifacts; part of a replay's identity."""

Artifact = str | SeedImage

Held = dict[tuple[Modality, int], dict[str, Artifact]]
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


@dataclass(frozen=True)
class Layout:
    """One way in which a tool lays out its chains, or its answers.

    says: what it looks like, for people.
    fits: whether a path looks like it at a glance; raises DatasetError for a folder that cannot be
        read.
    read: raises DatasetError where the files are not as it has them.
    """

    says: str
    fits: Callable[[Path], bool]
    read: Callable[[Path], Replay | RecordedAnswers]


def _stems(sample: Sample) -> tuple[str, ...]:
    """The sample's id without its suffix, with its folders and without them."""
    whole = stem(sample.id)
    return whole, whole.rpartition("/")[2]


def _images_in(root: Path, folder: Path) -> dict[str, FileImage]:
    """The images directly in a folder below the root, by stem.

    Raises DatasetError as `images_by_stem`, and for links that lead out of the root.
    """
    refuse_outside(root, folder)
    images = images_by_stem(folder)
    for file in images.values():
        refuse_outside(root, file)
    return {name: FileImage(file) for name, file in images.items()}


def _numbered(path: Path, form: str) -> Iterator[tuple[int, Path]]:
    """Number and path of each entry of a folder whose name is of a form, in order of numbers.

    form: a pattern with one group. Raises DatasetError when one number is there twice.
    """
    entries: dict[int, Path] = {}
    for entry in list_folder(path):
        if (match := re.fullmatch(form, entry.name)) is None:
            continue
        if (number := int(match[1])) in entries:
            names = f"{entries[number].name!r} and {entry.name!r}"
            raise DatasetError(f"{str(path)!r} holds both {names}: keep one")
        entries[number] = entry
    yield from sorted(entries.items())


# Semantic Drift Protocol: `text-first/{gen-1/, gen-2.csv, gen-3/, ...}` and
# `image-first/{gen-1.csv, gen-2/, ...}`. The released code matches rows and files by position; here
# they are matched by name.

_FOLDERS: Mapping[Modality, str] = {"text": "text-first", "image": "image-first"}


def _read_sdp(path: Path) -> Replay:
    """Generation 0 is the data set's own and is passed over, as are pickles and plots."""
    held: Held = {}
    for start, folder in _FOLDERS.items():
        if not (path / folder).is_dir():
            continue
        for generation, place in _numbered(path / folder, r"gen-([0-9]{1,4})(?:\.csv)?"):
            if generation == 0:
                continue
            drawn = (generation % 2 == 1) == (start == "text")
            if drawn != place.is_dir():
                form = f"images in gen-{generation}/" if drawn else f"captions in {place.stem}.csv"
                raise DatasetError(
                    f"{str(place)!r}: generation {generation} of a {start}-first chain is {form}"
                )
            refuse_outside(path, place)
            if drawn:
                held[start, generation] = {**_images_in(path, place)}
            else:
                rows = read_captions(place)
                held[start, generation] = {name: row.text("caption") for name, row in rows.items()}
    if not held:
        folders = " or ".join(f"{folder}/" for folder in _FOLDERS.values())
        raise DatasetError(f"{str(path)!r} holds no generation after gen-0 in {folders}")
    return Replay("sdp", path, held, _stems)


# GenEval: `00012/samples/00003.png` is image 3 of prompt 12. The generation script writes five
# digits for the image, its README says four; any number of digits is read.

_PROMPT = r"([0-9]{1,9})"


def _read_geneval(path: Path) -> Replay:
    images: dict[str, Artifact] = {}
    suffixes = "|".join(sorted(suffix[1:] for suffix in SUFFIXES))
    for prompt, folder in _numbered(path, _PROMPT):
        if not (folder / "samples").is_dir():
            continue
        refuse_outside(path, folder / "samples")
        for number, file in _numbered(folder / "samples", rf"(?i){_PROMPT}\.(?:{suffixes})"):
            refuse_outside(path, file)
            images[f"{prompt}-{number}"] = FileImage(file)
    if not images:
        raise DatasetError(f"{str(path)!r} holds no image in folders like 00000/samples/")

    def names(sample: Sample) -> tuple[str, ...]:
        """Of image 3 of prompt 12 for "00012-3", and of its image 0 for "00012"."""
        match = re.fullmatch(rf"{_PROMPT}(?:-{_PROMPT})?", sample.id)
        return () if match is None else (f"{int(match[1])}-{int(match[2] or 0)}",)

    return Replay("geneval", path, {("text", 1): images}, names)


# MMGenBench: VLMEvalKit writes `<model>_MMGenBench-Test` with columns index, prediction and others,
# as XLSX or TSV, of which the latter is read; the generation script writes `<generator>.tsv` with
# index and image (base64). Predictions are taken as they are: what is cut from them before drawing
# is the suite's business.


def _tables(path: Path) -> list[Path]:
    files = list_folder(path) if path.is_dir() else [path]
    return [file for file in files if file.suffix.lower() == ".tsv"]


def _read_mmgenbench(path: Path) -> Replay:
    root = path if path.is_dir() else path.parent
    tables: dict[str, list[Path]] = {"predictions": [], "images": []}
    for table in _tables(path):  # the benchmark's own table is neither
        refuse_outside(root, table)
        columns = set(read_columns(table, "\t"))
        if {"index", "prediction"} <= columns:
            tables["predictions"].append(table)
        elif columns == {"index", "image"}:
            tables["images"].append(table)
    for what, own in tables.items():
        if len(own) > 1:
            several = some_of(table.name for table in own)
            raise DatasetError(
                f"{str(root)!r} holds several tables of {what}: {several}; put those that are "
                "meant into a folder of their own"
            )
    held: Held = {}
    for texts in tables["predictions"]:
        found: dict[int, str] = {}
        for row in read_rows(texts, "\t", ("index", "prediction")):
            found[row_index(row, found)] = row.text("prediction")
        held["image", 1] = {str(index): text for index, text in found.items()}
    for drawn in tables["images"]:
        held["image", 2] = {str(index): image for index, image in embedded_images(drawn).items()}
    if not held:
        raise DatasetError(
            f"{str(path)!r} holds {some_of(table.name for table in _tables(path)) or 'no .tsv'}: a "
            "table with columns index and prediction, or index and image, is expected"
        )

    def names(sample: Sample) -> tuple[str, ...]:
        return (str(int(sample.id)),) if re.fullmatch(r"[0-9]{1,18}", sample.id) else ()

    return Replay("mmgenbench", path, held, names)


# GenCeption's results folders: `{stem}_{i}.jpg` is the image drawn in iteration i + 1.
#
# The descriptions and similarities lie in `{stem}_result.pkl`, which is never opened: unpickling
# runs whatever code a file holds. So the texts are not recorded, and the images are.

_PICKLE, _RESULTS = "_result.pkl", "results_"


def _fits_genception(path: Path) -> bool:
    return any(
        name.endswith(_PICKLE)
        or (Path(name).suffix.lower() in SUFFIXES and stem(name).endswith("_0"))
        for _, _, files in os.walk(path)
        for name in files
    )


def _read_genception(path: Path) -> Replay:
    """Flat, or a folder per category; `results_<model>` folders below one are its results."""
    folders: dict[Path, str] = {}  # to the results_ folder that it is in, if any
    for place, below, _ in os.walk(path, onerror=refuse_unreadable):
        folder = Path(place)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in below:
            refuse_outside(path, folder / name)
        parts = folder.relative_to(path).parts
        folders[folder] = next((part for part in parts if part.startswith(_RESULTS)), "")
    models = {name for name in folders.values() if name}
    if len(models) > 1:
        raise DatasetError(
            f"{str(path)!r} holds results of several models: {some_of(models)}; put those that are "
            "meant into a folder of their own"
        )
    wanted = next(iter(models), "")
    held: Held = {}
    for folder in (own for own, model in folders.items() if model == wanted):
        parts = folder.relative_to(path).parts
        kept = [part for part in parts if not part.startswith(_RESULTS)]
        # Five of MME's categories keep their images in images/, and so their results below it.
        if len(kept) < len(parts) and kept[-1:] == ["images"]:
            kept.pop()
        for name, image in _images_in(path, folder).items():
            if (match := re.fullmatch(r"(.+)_([0-9]{1,3})", name, re.DOTALL)) is None:
                continue
            images = held.setdefault(("image", 2 * (int(match[2]) + 1)), {})
            key = (PurePosixPath(*kept) / match[1]).as_posix()
            if key in images:
                raise DatasetError(f"{str(path)!r} holds {key!r} in more than one folder: keep one")
            images[key] = image
    if not held:
        pickled = " but pickles, which are never opened" if any(path.rglob(f"*{_PICKLE}")) else ""
        raise DatasetError(
            f"{str(path)!r} holds nothing{pickled}: give the folder with the images (STEM_0.jpg, "
            "STEM_1.jpg, ...)"
        )
    return Replay("genception", path, held, _stems)


LAYOUTS: Mapping[str, Layout] = {
    "sdp": Layout(
        "text-first/ and image-first/ with gen-1/, gen-2.csv, ... (Semantic Drift Protocol)",
        lambda path: any((path / folder).is_dir() for folder in _FOLDERS.values()),
        _read_sdp,
    ),
    "geneval": Layout(
        "00000/samples/00000.png, ... by prompt and image (GenEval)",
        lambda path: (
            path.is_dir()
            and any(
                re.fullmatch(_PROMPT, folder.name) and (folder / "samples").is_dir()
                for folder in list_folder(path)
            )
        ),
        _read_geneval,
    ),
    "mmgenbench": Layout(
        "a TSV with index and prediction, and one with index and image (MMGenBench)",
        lambda path: bool(_tables(path)),
        _read_mmgenbench,
    ),
    "genception": Layout(
        "STEM_0.jpg, STEM_1.jpg, ... flat or in folders of categories (GenCeption)",
        _fits_genception,
        _read_genception,
    ),
    LAYOUT: Layout(
        "0101001.json (or .jsonl), 0101001-o-0.jpg, ... by question (OpenING, answers)",
        lambda path: path.is_dir() and any(answer_paths(path)),
        read_answers,
    ),
}
"""The layouts that can be read, by name: of interleaved answers is the last, of chains the others.
"""


def open_replay(target: str, layout: str | None = None) -> Replay | RecordedAnswers:
    """Open the chains, or the interleaved answers, that another tool has generated at this path.

    target: a folder, or MMGenBench's table.
    layout: one of `LAYOUTS`; None looks for it.
    All files are listed and tables looked through here, so that what is wrong shows at once; images
    are read when they are needed.
    Raises SpecError for a layout that does not exist, DatasetError when there is nothing, when the
    layout is not known or not clear, or when the files are not as it has them.
    """
    path = Path(target)
    if not path.exists():
        raise DatasetError(f"replay:{target}: there is no such file or folder")
    if layout is not None:
        if layout not in LAYOUTS:
            raise SpecError(f"replay:{target}: {unknown_name('layout', layout, LAYOUTS)}")
        return LAYOUTS[layout].read(path)
    fitting = [name for name, known in LAYOUTS.items() if known.fits(path)]
    # GenCeption marks its files by a number at the end only, which files of other layouts can have.
    if len(fitting) > 1 and "genception" in fitting:
        fitting.remove("genception")
    if len(fitting) > 1:
        names = " and ".join(fitting)
        raise DatasetError(
            f"replay:{path}: this looks like {names}: say which with the parameter layout"
        )
    if not fitting:
        content = "this is a single file"
        if path.is_dir():
            entries = [entry.name + "/" * entry.is_dir() for entry in list_folder(path)]
            content = f"found {some_of(entries)}" if entries else "the folder is empty"
        lines = "\n".join(f"  {name}: {known.says}" for name, known in LAYOUTS.items())
        raise DatasetError(f"replay:{path}: {content}, which is no known layout. Known:\n{lines}")
    return LAYOUTS[fitting[0]].read(path)
