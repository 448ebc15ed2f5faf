"""Frozen data sets: labels settled, and files in the layout in which MMGenBench was released.

`NAME.tsv` has columns `index` and `image` (base64), `NAME-label-index.json` the indices of each
pattern. `NAME-images.jsonl` names every image by its path and digest, and is there also where the
images themselves are not copied.
"""

from __future__ import annotations

import io
import json
import os
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from pytest_cepbench.artifacts import ImageArtifact, digest_json
from pytest_cepbench.construction.folder import FORMAT, encode
from pytest_cepbench.construction.verification import LabelledSet, PeopleLabels
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import escape_json, quote_toml
from pytest_cepbench.files import digest_bytes, parse_toml, read_regular
from pytest_cepbench.replacement import replace_files

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
    patterns = tuple(name for name in names if _holds(name in model, [name in p for p in people]))
    disputed = tuple(
        name for name in names if len({name in labels for labels in (model, *people)}) > 1
    )
    changed = set(patterns) != set(model) & set(names)
    return FinalLabel(patterns, len(people), changed, disputed)


def _holds(model: bool, people: Sequence[bool]) -> bool:  # noqa: FBT001 - votes, one of each
    votes = int(model) + sum(people)
    against = 1 + len(people) - votes
    return votes > against if votes != against else sum(people) > len(people) / 2


def error_share(
    final: Mapping[str, Collection[str]], truth: Mapping[str, Collection[str]], names: Sequence[str]
) -> float:
    """Share of wrong labels over all images and patterns, in [0, 1].

    final, truth: image -> its patterns; of the images of both. Raises ValueError for none.
    """
    shared = final.keys() & truth.keys()
    if not shared or not names:
        raise ValueError("no image has both a label and a truth")
    wrong = sum((name in final[i]) != (name in truth[i]) for i in shared for name in names)
    return wrong / (len(shared) * len(names))


MANIFEST = "dataset.toml"

FILES = "files"
"""Table of a manifest: path of each file -> its digest."""

CARD = "card.md"

_LARGEST = 2**20  # bytes of a manifest


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
    unverified: images that nobody looked at.
    """

    name: str
    labelled: LabelledSet
    people: PeopleLabels
    labels: Mapping[str, FinalLabel]

    @property
    def unverified(self) -> int:
        """Images that nobody looked at."""
        return sum(not label.annotators for label in self.labels.values())

    @property
    def images(self) -> Iterator[FrozenImage]:
        """The images by index."""
        for record in self.labelled.records:
            label = self.labels[record.image]
            yield FrozenImage(
                index=record.number,
                image=record.image,
                path=record.path,
                patterns=label.patterns,
                annotators=label.annotators,
            )

    @property
    def members(self) -> dict[str, list[int]]:
        """Pattern -> indices of its images; patterns without an image are left out."""
        members: dict[str, list[int]] = {name: [] for name in self.labelled.names}
        for image in self.images:
            for name in image.patterns:
                members[name].append(image.index)
        return {name: indices for name, indices in members.items() if indices}


def settle_labels(
    name: str, labelled: LabelledSet, people: PeopleLabels, *, unverified: bool
) -> FrozenSet:
    """The set with its final labels.

    unverified: whether images that nobody looked at may be in it, with the labels of the model.
    Raises DatasetError where there are such images and they may not.
    """
    labels = {
        record.image: vote_labels(
            labelled.names,
            labelled.labels.get(record.image, ()),
            list(people.labels.get(record.image, {}).values()),
        )
        for record in labelled.records
    }
    frozen = FrozenSet(name, labelled, people, labels)
    if frozen.unverified and not unverified:
        raise DatasetError(
            f"{frozen.unverified} of {len(labels)} images are not verified by anyone: run cepbench "
            "dataset verify, or freeze the model's labels with --unverified"
        )
    if not frozen.members:
        raise DatasetError("no image has a pattern that is left: there is nothing to freeze")
    return frozen


def write_frozen(
    frozen: FrozenSet, folder: Path, card: Callable[[bool], str], *, copy: bool
) -> list[Path]:
    """Write the files of a set; returns their paths.

    card: its text, where the images are in the table and where they are not.
    copy: whether the images are copied into the table; one that is there already stays.
    Raises DatasetError for an image that has changed, and for a folder that holds another set;
    WriteError.
    """
    name = frozen.name
    index = json.dumps(frozen.members, indent=1, ensure_ascii=False)
    contents: dict[str, bytes] = {
        label_index_name(name): (escape_json(index) + "\n").encode(),
        image_list_name(name): encode(list(frozen.images)),
    }
    digests = {file: digest_bytes(data) for file, data in contents.items()}
    table = table_path(folder, name)
    source = frozen.labelled.source
    rows = ((record.number, source.load(record)) for record in frozen.labelled.records)
    with written_table(rows, table) if copy else nullcontext(None) as digest:
        if digest is not None:
            digests[table.name] = digest
        kept = refuse_other_files(folder, name, digests, copy=copy)
    copied = copy or bool(kept)
    contents |= {
        CARD: card(copied).encode(),
        MANIFEST: _manifest(frozen, digests | kept, copy=copied),
    }
    replace_files(folder, {folder / file: data for file, data in contents.items()})
    return [folder / file for file in (*digests, CARD, MANIFEST)]


@contextmanager
def written_table(images: Iterable[tuple[int, ImageArtifact]], table: Path) -> Iterator[str]:
    """Write the table row by row, which may be larger than memory; gives its digest.

    images: with their indices.
    It has its name at the end, where nothing was raised meanwhile. Raises WriteError.
    """
    new = table.with_name(f".{table.name}.new")
    hasher = sha256()
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as stream:
            for row in _table(images):
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


def _table(images: Iterable[tuple[int, ImageArtifact]]) -> Iterator[bytes]:
    """The rows of the table: images as PNG, which hold pixels and nothing else."""
    yield b"index\timage\n"
    for index, image in images:
        yield b"%d\t%s\n" % (index, b64encode(png_bytes(image)))


def png_bytes(image: ImageArtifact) -> bytes:
    """An image as PNG, which holds its pixels and nothing else."""
    stream = io.BytesIO()
    image.to_pil().save(stream, "PNG")
    return stream.getvalue()


def _manifest(frozen: FrozenSet, digests: Mapping[str, str], *, copy: bool) -> bytes:
    labelled, construction = frozen.labelled, frozen.labelled.construction
    chosen = labelled.chosen
    head = {
        "name": frozen.name,
        "kind": "patterns",
        "images": len(labelled.records),
        "images_copied": copy,
        "unverified": frozen.unverified,
        "data": digest_json(sorted(frozen.labels)),
    }
    sampling = {"how": chosen.sampling, "per_pattern": chosen.per_pattern, "seed": chosen.seed}
    prompts = {"style": construction.prompts, "examples": construction.examples}
    fields = ("role", "spec", "what", "adapter", "fingerprint", "prompt_digest")
    models = {
        f"models.{quote_toml(stage)}": {field: getattr(model, field) for field in fields}
        for stage, model in construction.models.items()
    }
    return manifest_text(
        {"": head, "sampling": sampling, "prompts": prompts, FILES: digests, **models}
    )


def manifest_text(tables: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A manifest of tables of texts, numbers and truth values.

    The first table has no name; `FILES` has digests by path.
    """
    blocks = []
    for title, values in tables.items():
        rows = [
            f"{quote_toml(key) if title == FILES else key} = "
            f"{quote_toml(value) if isinstance(value, str) else str(value).lower()}"
            for key, value in values.items()
        ]
        blocks.append("\n".join([f"[{title}]", *rows] if title else rows))
    return ("\n\n".join(blocks) + "\n").encode()


def refuse_other_files(
    folder: Path,
    name: str,
    digests: Mapping[str, str | None],
    *,
    copy: bool,
    option: str = "--to",
) -> dict[str, str]:
    """Raise DatasetError where a folder holds other files, or a frozen set that would change.

    name: of the set that is to be written. option: names another folder.
    digests: of its files, by their paths in the folder; None of those that hold what another file
    says.
    copy: whether images are among them.
    Returns the images' files that are there from before and are not written now, with their
    digests; of a set whose images are copied once more there are none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        others = [
            file
            for file in _files_below(folder)
            if file not in digests and file != CARD  # else a freeze was stopped
        ]
        if others:
            raise DatasetError(
                f"{str(folder)!r} holds other files ({min(others)}): name a new folder with "
                f"{option}"
            )
        return {}
    before = read_manifest(folder)
    frozen: Mapping[str, str] = before["files"]
    copied = before.get("images_copied", False) and not copy
    left = {file: digest for file, digest in frozen.items() if file not in digests}
    changed = sorted(
        file
        for file, digest in frozen.items()
        if digests.get(file) not in (digest, None) or (file in left and not copied)
    )
    if before["name"] != name:
        changed = [MANIFEST]
    if changed:
        raise DatasetError(
            f"{str(folder)!r} holds the set {before['name']!r}, which was frozen with other labels "
            f"or images, or under another name ({changed[0]} would change): what is frozen stays; "
            f"name another folder with {option}"
        )
    return left if all((folder / file).is_file() for file in left) else {}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a frozen set; with its name and its files, whose digests are texts.

    Raises DatasetError where it cannot be read.
    """
    path = folder / MANIFEST
    try:
        manifest = parse_toml(read_regular(path, _LARGEST))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error}") from error
    named = isinstance(manifest.get("name"), str)
    if not named or not isinstance(manifest.get("files"), dict):
        raise DatasetError(
            f"{str(path)!r} is no manifest of a data set: it has no name, or no files"
        )
    return manifest


def _files_below(folder: Path) -> list[str]:
    """The files below a folder, by their paths in it; hidden ones are passed over."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return [
        name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts)
    ]


def image_list_name(name: str) -> str:
    """File of the list of images of a set, with their paths and digests."""
    return f"{name}-images.jsonl"


def manifest_with_images(text: str, name: str, digest: str) -> str:
    """The manifest of a set without its images, once they are in the table.

    digest: of the table. Raises DatasetError for a manifest that was edited.
    """
    copied = "images_copied = {}\n"
    listed = f"{quote_toml(image_list_name(name))} = "
    begin, found, rest = text.partition(listed)
    row, end, others = rest.partition("\n")
    if copied.format("false") not in begin or not found or not end:
        raise DatasetError(f"the manifest of {name!r} is not as it was written: get the set anew")
    begin = begin.replace(copied.format("false"), copied.format("true"), 1)
    return f"{begin}{found}{row}\n{quote_toml(f'{name}.tsv')} = {quote_toml(digest)}\n{others}"


def table_path(folder: Path, name: str) -> Path:
    """File of the images of a set."""
    return folder / f"{name}.tsv"


def label_index_name(name: str) -> str:
    """File of the label index of a set."""
    return f"{name}-label-index.json"


def shown_members(frozen: FrozenSet) -> Sequence[tuple[str, int, int]]:
    """(pattern, images that have it, images from which people took it or to which they gave it)."""
    model = frozen.labelled.labels
    rows = []
    for name, indices in frozen.members.items():
        changed = sum(
            (name in model.get(image, ())) != (name in label.patterns)
            for image, label in frozen.labels.items()
        )
        rows.append((name, len(indices), changed))
    return rows
