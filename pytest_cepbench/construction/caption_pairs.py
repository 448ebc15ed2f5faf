"""Pairs of images and captions for SDP: a list of ids joined to local copies of its two sources.

The paper's Nocaps+Docci400 is 200 ids of each (SDP, 4.1). The list is all that may be passed on;
with the images copied the set has the layout of the authors' code.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts import ImageArtifact, digest_text, encode_image
from pytest_cepbench.construction.folder import FORMAT, encode
from pytest_cepbench.construction.frozen_set import (
    CARD,
    FILES,
    MANIFEST,
    manifest_text,
    refuse_other_files,
)
from pytest_cepbench.datasets.nocaps_docci import SOURCES, complete_ids, join_copies, load_nd400
from pytest_cepbench.datasets.sample import Dataset, FileImage, Sample
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.files import digest_bytes
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.markdown import escaped

KIND = "pairs"

IDS = "ids.csv"

RECORD = "pairs.jsonl"

_IMAGES = "image-first/gen-0"


class PairRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pair. id, source: as listed. image: digest of its pixels; path: of its file."""

    v: int = FORMAT
    id: str
    source: str
    caption: str
    image: str
    path: str


@dataclass(frozen=True)
class CaptionPairs:
    """Pairs, and what they are made of.

    docci, nocaps: the local copies. listed: whether a list of ids was given; else `per_source` of
    each source were chosen, with `seed`.
    same: ids whose images have the pixels of another pair's; of a list they stay.
    """

    dataset: Dataset
    records: Sequence[PairRecord]
    docci: Path
    nocaps: Path
    listed: bool
    per_source: int
    seed: int
    same: Sequence[str]


def choose_ids(docci: Path, nocaps: Path, per_source: int, seed: int) -> list[tuple[str, str]]:
    """(source, id) of so many pairs of each source, by the digest of seed and id.

    A larger number contains a smaller one. Raises DatasetError where a source has fewer.
    """
    chosen: list[tuple[str, str]] = []
    for source, ids in complete_ids(docci, nocaps).items():
        ranked = sorted(ids, key=lambda name: digest_text(f"{seed} {source} {name}"))
        if len(ranked) < per_source:
            raise DatasetError(
                f"{source} has {len(ranked)} images with captions: {per_source} are wanted"
            )
        chosen += [(source, name) for name in ranked[:per_source]]
    return chosen


def join_pairs(
    docci: Path, nocaps: Path, ids: Path | None, per_source: int, seed: int
) -> CaptionPairs:
    """The pairs of a list of ids, or of those that are chosen here.

    ids: the list; None to choose.
    Raises DatasetError as the loader does, and for images that cannot be read.
    """
    copies = {"docci": docci.absolute(), "nocaps": nocaps.absolute()}
    if ids is None:
        chosen = {name: source for source, name in choose_ids(docci, nocaps, per_source, seed)}
        dataset = join_copies(chosen, copies, "that were chosen")
    else:
        dataset = load_nd400(ids, **{source: str(path) for source, path in copies.items()})
    records: list[PairRecord] = []
    first: dict[str, str] = {}
    same: list[str] = []
    for sample in dataset.samples:
        assert isinstance(sample.image, FileImage)  # of this loader
        digest = _load(sample).digest
        if first.setdefault(digest, sample.id) != sample.id:
            same.append(sample.id)
        records.append(
            PairRecord(
                id=sample.id,
                source=sample.categories[0],
                caption=sample.text or "",
                image=digest,
                path=str(sample.image.path),
            )
        )
    return CaptionPairs(
        dataset, records, docci, nocaps, ids is not None, per_source, seed, tuple(same)
    )


def _load(sample: Sample) -> ImageArtifact:
    """The image of a pair. Raises DatasetError naming its source and file."""
    assert isinstance(sample.image, FileImage)  # of this loader
    try:
        return sample.image.load()
    except ImageError as error:
        raise DatasetError(
            f"{sample.categories[0]} {sample.id}: {str(sample.image.path)!r}: {error}"
        ) from error


def ids_csv(ids: Sequence[tuple[str, str]]) -> bytes:
    """A list of ids as the loader reads it."""
    return _csv(("source", "image_id"), sorted(ids))


def write_pairs(pairs: CaptionPairs, out: Path, name: str, *, copy: bool) -> list[Path]:
    """Write the list, the records, and with `copy` the layout of SDP's code; returns the paths.

    copy: images that were copied before stay without it.
    Raises DatasetError for an id that is no file name, and for a folder that holds other files or
    other pairs; WriteError.
    """
    listed = [(record.source, record.id) for record in pairs.records]
    contents = {IDS: ids_csv(listed), RECORD: encode(list(pairs.records))}
    if copy:
        rows = [(_file_name(record.id), record.caption) for record in pairs.records]
        contents["text-first/gen-0.csv"] = _csv(("filename", "caption"), rows)
    digests = {file: digest_bytes(data) for file, data in contents.items()}
    images = {f"{_IMAGES}/{_file_name(s.id)}": s for s in pairs.dataset.samples if copy}
    # What images are in them, the records say; their bytes may be another encoder's.
    planned = {**dict.fromkeys(images), **digests}
    kept = refuse_other_files(out, name, planned, copy=copy, option="--out")
    for file, sample in images.items():  # one by one: all of them may not fit into memory
        data = encode_image(_load(sample))
        replace_files(out, {out / file: data})
        digests[file] = digest_bytes(data)
    copied = copy or bool(kept)
    contents[MANIFEST] = _manifest(pairs, name, digests | kept, copy=copied)
    contents[CARD] = _card(pairs, name, copy=copied).encode()
    replace_files(out, {out / file: data for file, data in contents.items()})
    return [out / file for file in (IDS, RECORD, MANIFEST, CARD)]


def _file_name(name: str) -> str:
    reason = unsafe(name) or ("it has a slash" if "/" in name or "\\" in name else None)
    if reason is not None:
        raise DatasetError(f"the id {name!r} cannot be the name of a file: {reason}")
    return f"{name}.webp"


def _csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return stream.getvalue().encode()


def _manifest(pairs: CaptionPairs, name: str, digests: Mapping[str, str], *, copy: bool) -> bytes:
    chosen = {} if pairs.listed else {"per_source": pairs.per_source, "seed": pairs.seed}
    head = {"name": name, "kind": KIND, "pairs": len(pairs.records), "images_copied": copy}
    return manifest_text({"": {**head, **chosen}, FILES: digests})


def _card(pairs: CaptionPairs, name: str, *, copy: bool) -> str:
    counts = {
        source: sum(record.source == source for record in pairs.records) for source in SOURCES
    }
    numbers = ", ".join(f"{count} of {source}" for source, count in counts.items())
    how = "from a list of ids" if pairs.listed else f"chosen by digest, seed {pairs.seed}"
    same = ", ".join(pairs.same)
    facts = [
        f"{len(pairs.records)} pairs of an image and a caption: {numbers}; {how}",
        "captions: DOCCI's description, the first of NoCaps' ten in its file",
        f"pairs whose image has the pixels of another pair's: {same or 'none'}",
        "licences are those of DOCCI and NoCaps",
    ]
    options = "" if copy else ' options = { docci = "FOLDER", nocaps = "FOLDER" }'
    return (
        f"# {escaped(name)}\n\n"
        + "".join(f"- {escaped(fact, 500)}\n" for fact in facts)
        + f'\nIn a suite: `[data]`, `loader = "sdp"`{options}\n'
    )
