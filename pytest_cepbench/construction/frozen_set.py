"""Frozen data sets: labels settled, files in the layout in which MMGenBench was released, a card.

`NAME.tsv` has columns `index` and `image` (base64), `NAME-label-index.json` the indices of each
pattern. `NAME-images.jsonl` names every image by its path and digest, and is there also where the
images themselves are not copied.
"""

from __future__ import annotations

import io
import json
import os
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pytest_cepbench.artifacts import ImageArtifact, digest_json
from pytest_cepbench.construction.folder import (
    EXTRACT,
    FORMAT,
    ConstructionFolder,
    ModelRecord,
    PatternCounts,
    encode,
)
from pytest_cepbench.construction.verification import (
    LabelledSet,
    PeopleLabels,
    read_counts,
    read_labelled,
    read_people,
)
from pytest_cepbench.datasets.sources.text_files import convert_record, read_toml
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import escape_json, quote_toml, visible
from pytest_cepbench.files import digest_bytes
from pytest_cepbench.metrics.judge_agreement import RatedThings, alpha_estimate
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.ci_reports import escaped

_MANIFEST, _CARD = "dataset.toml", "card.md"

_FILES = "files"
"""Table of a manifest: path of each file -> its digest."""

_LARGEST = 2**20  # bytes of a manifest

# -- final labels of images: the majority of the model and the people who looked at them -----------
# Source: MMGenBench, 3.3: labels of the model, checked by people, and voted on.


@dataclass(frozen=True)
class FinalLabel:
    """The labels of an image.

    patterns: those that it has in the end, in the order of the closed list.
    annotators: people who looked at it.
    changed: whether they are others than the model gave.
    disputed: patterns on which not all who voted agree.
    """

    patterns: tuple[str, ...]
    annotators: int
    changed: bool
    disputed: tuple[str, ...]


def vote_labels(
    names: Sequence[str], model: Collection[str], people: Sequence[Collection[str]]
) -> FinalLabel:
    """Vote on every pattern of a closed list.

    names: the list. model: patterns that the model gave. people: those that each person gave.
    A pattern has one vote of the model and one of each person. Where as many are for it as against
    it, the majority of the people decides: then their number is odd, so that they have one.
    """
    patterns, disputed = [], []
    for name in names:
        votes = [name in labels for labels in people]
        balance = 2 * (sum(votes) + (name in model)) - len(votes) - 1
        if balance > 0 or (balance == 0 and 2 * sum(votes) > len(votes)):
            patterns.append(name)
        if len({name in model, *votes}) > 1:
            disputed.append(name)
    changed = set(patterns) != set(model) & set(names)
    return FinalLabel(tuple(patterns), len(people), changed, tuple(disputed))


class FrozenImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of a frozen set. index: its number. image: digest of its pixels."""

    v: int = FORMAT
    index: int
    image: str
    path: str
    patterns: tuple[str, ...]
    annotators: int


@dataclass(frozen=True)
class FrozenSet:
    """A set whose labels are settled.

    labels: digest of an image -> its final label.
    counts: of extraction, where it was done.
    models: stage -> its model; none of an extraction that was stopped and left nothing.
    """

    name: str
    labelled: LabelledSet
    people: PeopleLabels
    labels: Mapping[str, FinalLabel]
    counts: PatternCounts | None
    models: Mapping[str, ModelRecord]

    @property
    def unverified(self) -> int:
        """Images that nobody looked at."""
        return sum(not label.annotators for label in self.labels.values())

    @property
    def changed(self) -> int:
        """Images that have other labels than the model gave."""
        return sum(label.changed for label in self.labels.values())

    @property
    def members(self) -> dict[str, list[int]]:
        """Pattern -> indices of its images; patterns without an image are left out."""
        members: dict[str, list[int]] = {name: [] for name in self.labelled.names}
        for record in self.labelled.records:
            for name in self.labels[record.image].patterns:
                members[name].append(record.number)
        return {name: indices for name, indices in members.items() if indices}

    @property
    def shown_members(self) -> list[tuple[str, int, int]]:
        """(pattern, images that have it, images from which people took it or to which gave it)."""
        model = self.labelled.labels
        rows = []
        for name, indices in self.members.items():
            changed = sum(
                (name in model.get(image, ())) != (name in label.patterns)
                for image, label in self.labels.items()
            )
            rows.append((name, len(indices), changed))
        return rows


def settle_labels(
    name: str, folder: ConstructionFolder, images: Path | None, *, unverified: bool
) -> FrozenSet:
    """The set of a folder with its final labels.

    images: the folder of images, where it has moved.
    unverified: whether images that nobody looked at may be in it, with the labels of the model.
    Raises DatasetError where there are such images and they may not, and as `read_labelled`.
    """
    labelled = read_labelled(folder, images)
    people = read_people(folder, labelled.names)
    labels = {
        record.image: vote_labels(
            labelled.names,
            labelled.labels.get(record.image, ()),
            list(people.labels.get(record.image, {}).values()),
        )
        for record in labelled.records
    }
    models = dict(labelled.construction.models)
    if not folder.has(EXTRACT):
        models.pop("extract", None)
    frozen = FrozenSet(name, labelled, people, labels, read_counts(folder), models)
    if frozen.unverified and not unverified:
        raise DatasetError(
            f"{frozen.unverified} of {len(labels)} images are not verified by anyone: run cepbench "
            "dataset verify, or freeze the model's labels with --unverified"
        )
    if not frozen.members:
        raise DatasetError("no image has a pattern that is left: there is nothing to freeze")
    return frozen


# -- files -----------------------------------------------------------------------------------------


def write_frozen(frozen: FrozenSet, folder: Path, *, copy: bool) -> list[Path]:
    """Write the files of a set; returns their paths.

    copy: whether the images are copied into the table.
    Raises DatasetError for an image that has changed, and for a folder that holds another set;
    WriteError.
    """
    name, labelled = frozen.name, frozen.labelled
    images = []
    for record in labelled.records:
        own = frozen.labels[record.image]
        images.append(
            FrozenImage(
                index=record.number,
                image=record.image,
                path=record.path,
                patterns=own.patterns,
                annotators=own.annotators,
            )
        )
    index = json.dumps(frozen.members, indent=1, ensure_ascii=False)
    contents: dict[str, bytes] = {
        label_index_name(name): (escape_json(index) + "\n").encode(),
        f"{name}-images.jsonl": encode(images),
    }
    digests = {file: digest_bytes(data) for file, data in contents.items()}
    table = _table_path(folder, name)
    with _written_table(frozen, table) if copy else nullcontext(None) as digest:
        if digest is not None:
            digests[table.name] = digest
        _refuse_other_files(folder, name, digests)
    chosen, construction = labelled.chosen, labelled.construction
    fields = ("role", "spec", "what", "adapter", "fingerprint", "prompt_digest")
    tables: dict[str, Mapping[str, Any]] = {
        "": {
            "name": name,
            "kind": "patterns",
            "images": len(images),
            "images_copied": copy,
            "unverified": frozen.unverified,
            "data": digest_json(sorted(frozen.labels)),
        },
        "sampling": {
            "how": chosen.sampling,
            "per_pattern": chosen.per_pattern,
            "seed": chosen.seed,
        },
        "prompts": {"style": construction.prompts},
        _FILES: digests,
    }
    for stage, model in frozen.models.items():
        tables[f"models.{quote_toml(stage)}"] = {field: getattr(model, field) for field in fields}
    contents[_CARD] = _card(frozen, copy=copy).encode()
    contents[_MANIFEST] = _manifest_text(tables)
    replace_files(folder, {folder / file: data for file, data in contents.items()})
    return [folder / file for file in (*digests, _CARD, _MANIFEST)]


@contextmanager
def _written_table(frozen: FrozenSet, table: Path) -> Iterator[str]:
    """Write the table row by row, which may be larger than memory; gives its digest.

    It has its name at the end, where nothing was raised meanwhile. Raises WriteError.
    """
    new = table.with_name(f".{table.name}.new")
    hasher = sha256()
    source = frozen.labelled.source
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as stream:
            hasher.update(b"index\timage\n")
            stream.write(b"index\timage\n")
            for record in frozen.labelled.records:
                png = b64encode(_png_bytes(source.load(record)))
                row = b"%d\t%s\n" % (record.number, png)
                hasher.update(row)
                stream.write(row)
            stream.flush()
            os.fsync(stream.fileno())
        yield hasher.hexdigest()
        new.replace(table)
    except OSError as error:
        raise WriteError(
            f"{table} could not be written: {error.strerror or error}; nothing was changed"
        ) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _png_bytes(image: ImageArtifact) -> bytes:
    """An image as PNG, which holds its pixels and nothing else."""
    stream = io.BytesIO()
    image.to_pil().save(stream, "PNG")
    return stream.getvalue()


def _table_path(folder: Path, name: str) -> Path:
    """File of the images of a set."""
    return folder / f"{name}.tsv"


def label_index_name(name: str) -> str:
    """File of the label index of a set."""
    return f"{name}-label-index.json"


def _manifest_text(tables: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A manifest of tables of texts, numbers and truth values.

    The first table has no name; `_FILES` has digests by path.
    """
    blocks = []
    for title, values in tables.items():
        rows = [
            f"{quote_toml(key) if title == _FILES else key} = "
            f"{quote_toml(value) if isinstance(value, str) else str(value).lower()}"
            for key, value in values.items()
        ]
        blocks.append("\n".join([f"[{title}]", *rows] if title else rows))
    return ("\n\n".join(blocks) + "\n").encode()


def _refuse_other_files(folder: Path, name: str, digests: Mapping[str, str]) -> None:
    """Raise DatasetError where a folder holds other files, or a frozen set that would change.

    name: of the set that is to be written. digests: of its files, by their paths in the folder.
    """
    if not (folder / _MANIFEST).is_file():
        files = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
        others = [
            file.as_posix()
            for file in files
            if not any(part.startswith(".") for part in file.parts)
            and file.as_posix() not in {*digests, _CARD}  # else a freeze was stopped
        ]
        if others:
            raise DatasetError(
                f"{str(folder)!r} holds other files ({min(others)}): name a new folder with --to"
            )
        return
    manifest = read_toml(folder / _MANIFEST, _LARGEST)
    place = f"{str(folder / _MANIFEST)!r} is no manifest of a data set"
    before = convert_record(place, manifest, _Manifest)
    changed = sorted(f for f, digest in before.files.items() if digests.get(f) != digest)
    if before.name != name or changed:
        first = _MANIFEST if before.name != name else changed[0]
        raise DatasetError(
            f"{str(folder)!r} holds the set {before.name!r}, which was frozen with other labels "
            f"or images, with --copy, or under another name ({first} would change): what is frozen "
            "stays; name another folder with --to"
        )


class _Manifest(msgspec.Struct, frozen=True):
    name: str
    files: dict[str, str]


# -- the card: where a set comes from, who labelled it, and how to use it --------------------------


def _card(frozen: FrozenSet, *, copy: bool) -> str:
    """The card as Markdown; names and texts of models stand in it as they are, and do nothing.

    copy: whether the images are in the table.
    """
    labelled = frozen.labelled
    sentences = {pattern.name: pattern.sentence for pattern in labelled.patterns}
    lines = [f"# {escaped(frozen.name)}", "", *_items(_facts(frozen, copy=copy))]
    lines += ["", "## Patterns", ""]
    lines += ["| pattern | images | changed by people | what it is |", "|---|---:|---:|---|"]
    for name, images, changed in frozen.shown_members:
        what = escaped(sentences[name], 500)
        lines.append(f"| {escaped(name)} | {images} | {changed} | {what} |")
    bare = sum(not label.patterns for label in frozen.labels.values())
    if bare:
        lines += ["", f"{bare} images have no pattern that is left: they count in the whole alone."]
    without = [name for name in sentences if name not in frozen.members]
    if without:
        lines += ["", f"Without an image: {escaped(', '.join(without), 500)}."]
    lines += ["", "## Labels of people", "", *_items(_votes(frozen)), "", "## Models", ""]
    for stage, model in frozen.models.items():
        lines += [
            f"### {escaped(stage)}",
            "",
            f"- {escaped(model.role)}: {escaped(model.spec, 500)} ({escaped(model.what)})",
            f"- adapter {escaped(model.adapter)}, fingerprint {model.fingerprint}",
        ]
        if model.prompt:
            of_counts = ", with the frequencies of counts.json" if stage == "summary" else ""
            lines += [f"- prompt{of_counts}, digest {model.prompt_digest}:", ""]
            lines += [f"      {visible(line)}" for line in model.prompt.splitlines()]
        lines.append("")
    lines += ["## Use", ""]
    if not copy:
        how = "`cepbench dataset freeze FOLDER --copy --images DIR`"
        lines += [f"The table with the images is written where they are: {how}.", ""]
    table = quote_toml(_table_path(Path(), frozen.name).name)
    labels = quote_toml(label_index_name(frozen.name))
    lines += ["In a suite:", "", "    [data]", '    loader = "mmgenbench"']
    lines += [f"    options = {{ file = {table}, labels = {labels} }}"]
    return "\n".join(lines) + "\n"


def _items(texts: Iterator[str]) -> list[str]:
    return [f"- {escaped(text, 500)}" for text in texts]


def _facts(frozen: FrozenSet, *, copy: bool) -> Iterator[str]:
    labelled, counts = frozen.labelled, frozen.counts
    chosen, construction = labelled.chosen, labelled.construction
    every = labelled.source.records
    yield (
        f"{len(labelled.records)} images in {len(frozen.members)} patterns, an image may be in "
        f"several; chosen of {len(every)}"
    )
    if chosen.sampling == "quota":
        yield (
            f"chosen by quotas of {chosen.per_pattern} images for each pattern, the rarest first, "
            "in order of digests: a larger set contains a smaller one"
        )
    else:
        yield (
            f"each image of a pattern of N drawn with the probability {chosen.per_pattern} / N, "
            f"seed {chosen.seed}"
        )
    same = sum(len(record.same) for record in every)
    yield f"{same} files of the source were left out, since another has the same pixels"
    if construction.unreadable:
        yield f"{len(construction.unreadable)} files held no image that can be read"
    yield f"prompts: {construction.prompts}"
    if counts is not None:
        failed = ", ".join(f"{kind} {number}" for kind, number in counts.failures.items())
        yield (
            f"extraction: {len(counts.patterns)} names in {counts.annotations} annotations of "
            f"{counts.images} images; failures: {failed or 'none'}"
        )
    where = "in the table" if copy else "not in it: paths and digests stand for them"
    yield f"the images are {where}; their licences are those of their source"


def _votes(frozen: FrozenSet) -> Iterator[str]:
    """What people said; how far they agree, by Krippendorff's alpha of yes or no for each image and
    pattern, drawn anew by image.
    """
    labels = list(frozen.labels.values())
    names = frozen.labelled.names
    people = sorted({name for own in frozen.people.labels.values() for name in own})
    yield (
        f"{len(labels) - frozen.unverified} of {len(labels)} images were checked, by "
        f"{len(people)} people; final labels are the majority of the model and those who "
        "looked, and of the latter where it is a tie"
    )
    if frozen.unverified:
        yield f"{frozen.unverified} images have the labels of the model alone"
    disputed = sum(bool(label.disputed) for label in labels)
    changed = frozen.changed
    yield f"{changed} images have other labels than the model gave; on {disputed} not all agreed"
    ratings = np.full((len(people) + 1, len(labels) * len(names)), np.nan)
    for place, image in enumerate(frozen.labels):
        raters = {0: frozen.labelled.labels.get(image, ())}
        for person, own in frozen.people.labels.get(image, {}).items():
            raters[1 + people.index(person)] = own
        for rater, given in raters.items():
            columns = slice(place * len(names), (place + 1) * len(names))
            ratings[rater, columns] = [name in given for name in names]
    owners = np.repeat(np.arange(len(labels)), len(names))
    for who, rows in (("people", ratings[1:]), ("people and the model", ratings)):
        alpha = alpha_estimate(RatedThings(rows, owners), "nominal")
        if alpha.value is not None and alpha.low is not None and alpha.high is not None:
            yield (
                f"agreement of {who}: Krippendorff's alpha {alpha.value:.2f}, 95 % interval "
                f"{alpha.low:.2f} to {alpha.high:.2f}, over {alpha.items} images"
            )
    if frozen.people.outside:
        yield f"{frozen.people.outside} ticks are of names that have left the list: dropped"
    yield from frozen.people.remarks
