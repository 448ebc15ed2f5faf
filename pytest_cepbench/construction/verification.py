"""People label the chosen images, labels are settled by vote, and the set is frozen.

An item of the study is an image with all names of the closed list; people tick those that fit. What
the model said is not shown: votes are worth counting where they do not lean on one another, and
they stay valid where another model labels the images.

A frozen set has the layout in which MMGenBench was released: `NAME.tsv` with columns `index` and
`image` (base64), `NAME-label-index.json` with the indices of each pattern; `NAME-images.jsonl`
names every image by its path and digest, and `card.md` says where all comes from.
"""

from __future__ import annotations

import io
import json
import shutil
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.patterns import Pattern, annotation_prompt, read_patterns
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import escape_json, quote_toml, visible
from pytest_cepbench.ratings.folder import STUDY, Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.items import begin_study, make_item
from pytest_cepbench.ratings.records import Part, Source, Study
from pytest_cepbench.report.ci_reports import escaped


@dataclass(frozen=True)
class LabelledSet:
    """The chosen images with the labels of the model.

    records: of the chosen images, by number. labels: digest -> patterns.
    """

    patterns: tuple[Pattern, ...]
    records: tuple[files.ImageRecord, ...]
    labels: Mapping[str, tuple[str, ...]]
    source: files.SourceImages
    chosen: files.ChosenImages
    construction: files.ConstructionRecord

    @property
    def names(self) -> tuple[str, ...]:
        """The closed list."""
        return tuple(pattern.name for pattern in self.patterns)


def read_labelled(folder: files.ConstructionFolder) -> LabelledSet:
    """The chosen images of a folder.

    Raises DatasetError where a stage before is missing or was stopped, its file cannot be read,
    patterns were edited since, or files are not of the same labels.
    """
    for name in (files.IMAGES, files.PATTERNS, files.ANNOTATE, files.CHOSEN):
        if not folder.has(name):
            raise DatasetError(
                f"{str(folder.path)!r} has no {name}: finish cepbench dataset patterns first, "
                "without --until"
            )
    construction = folder.read(files.CONSTRUCTION, files.ConstructionRecord)
    patterns = read_patterns(folder.path / files.PATTERNS)
    annotations = folder.read_lines(files.ANNOTATE, files.Annotation)
    model = construction.models.get("annotate")
    asked = model and (model.fingerprint, model.prompt_digest)
    if model is None or any((a.fingerprint, a.prompt_digest) != asked for a in annotations):
        raise DatasetError(
            f"{str(folder.path / files.ANNOTATE)!r} has the labels of another model or prompt than "
            f"{files.CONSTRUCTION}: run cepbench dataset patterns again"
        )
    if model.prompt_digest != digest_text(annotation_prompt(patterns)):
        raise DatasetError(
            f"{str(folder.path / files.PATTERNS)!r} was edited after images were annotated with "
            "it: run cepbench dataset patterns again"
        )
    chosen = folder.read(files.CHOSEN, files.ChosenImages)
    labels = {a.image: a.patterns for a in annotations if a.patterns}
    if files.choose_images(labels, chosen.per_pattern) != list(chosen.images):
        raise DatasetError(
            f"{str(folder.path / files.CHOSEN)!r} was chosen by other labels than those in "
            f"{files.ANNOTATE}: run cepbench dataset patterns again"
        )
    every = tuple(folder.read_lines(files.IMAGES, files.ImageRecord))
    inside = set(chosen.images)
    return LabelledSet(
        patterns=patterns,
        records=tuple(record for record in every if record.image in inside),
        labels={image: own for image, own in labels.items() if image in inside},
        source=files.SourceImages(Path(construction.source), every, construction.unreadable),
        chosen=chosen,
        construction=construction,
    )


# -- the study -------------------------------------------------------------------------------------


def existing_study(folder: files.ConstructionFolder, names: Sequence[str]) -> Ratings | None:
    """The study of a data set, None where there is none.

    Raises DatasetError where it cannot be read, and where people were not asked about a name: no
    tick is no vote on it.
    """
    path = folder.path / files.RATINGS
    if not (path / STUDY).is_file():
        return None
    ratings = read_ratings(path)
    if unasked := [name for name in names if name not in ratings.study.names]:
        raise DatasetError(
            f"people were not asked about {unasked[0]!r} in {str(path)!r}, which came into "
            f"{files.PATTERNS} later: take it out, or move the ratings away and verify anew"
        )
    return ratings


def write_verification(
    folder: files.ConstructionFolder, annotators: tuple[str, ...], overlap: int | None
) -> None:
    """Write the study of the chosen images, where there is none.

    annotators: names of the people. overlap: people who see each item; None for all of them.
    Raises DatasetError for settings that cannot be, for images that are not there any more, for a
    study that is of other images, and for settings of one that is there.
    """
    labelled = read_labelled(folder)
    ratings = existing_study(folder, labelled.names)
    wanted = {record.image for record in labelled.records}
    if ratings is not None:
        if annotators or overlap is not None:
            raise DatasetError(
                f"{str(ratings.path)!r} is a study already, which goes on as it was written: drop "
                "--annotators and --overlap, or move it away"
            )
        questions = [item.question for item in ratings.asked.values()]
        asked = {part.image for parts in questions for part in parts if part.image}
        if asked != wanted:
            raise DatasetError(
                f"{str(ratings.path)!r} asks about other images ({len(asked - wanted)} that are "
                f"not chosen any more, {len(wanted - asked)} not yet): its votes stay valid for "
                "freeze; move it away to write a study of the images that are chosen now"
            )
        return
    shown = {record.image: labelled.source.load(record) for record in labelled.records}
    meanings = "\n".join(f"{p.name}: {p.sentence}" for p in labelled.patterns if p.sentence)
    below = [Part(text=meanings)] if meanings else []
    options = [[Part(text=name)] for name in labelled.names]
    asking = {image: make_item("verify", [Part(image=image), *below], options) for image in shown}
    model = labelled.construction.models["annotate"]
    sources = [
        Source(item=item.item, model=model.spec, fingerprint=model.fingerprint, sample=image)
        for image, item in asking.items()
    ]
    study = Study(
        kind="verify",
        seed=0,
        annotators=annotators,
        overlap=len(annotators) if overlap is None else overlap,
        population=len(asking),
        names=labelled.names,
    )
    begin_study(folder.path / files.RATINGS, study, list(asking.values()), shown, sources)


# -- final labels: the majority of the model and the people who looked at an image -----------------
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


@dataclass(frozen=True)
class FrozenSet:
    """A set whose labels are settled.

    labels: digest of an image -> its final label.
    remarks: of votes that do not count.
    """

    name: str
    labelled: LabelledSet
    labels: Mapping[str, FinalLabel]
    remarks: tuple[str, ...]

    @property
    def members(self) -> dict[str, list[int]]:
        """Pattern -> indices of its images; patterns without an image are left out."""
        members: dict[str, list[int]] = {name: [] for name in self.labelled.names}
        for record in self.labelled.records:
            for name in self.labels[record.image].patterns:
                members[name].append(record.number)
        return {name: indices for name, indices in members.items() if indices}

    def facts(self) -> Iterator[str]:
        """What people said, in sentences."""
        labels = list(self.labels.values())
        checked = sum(bool(label.annotators) for label in labels)
        changed = sum(label.changed for label in labels)
        disputed = sum(bool(label.disputed) for label in labels)
        yield (
            f"{checked} of {len(labels)} images were checked by people, the others have the labels "
            "of the model alone; final labels are the majority of the model and those who looked, "
            "and of the latter where it is a tie"
        )
        yield f"{changed} have other labels than the model gave; on {disputed} not all agreed"
        yield from self.remarks


def settle_labels(name: str, folder: files.ConstructionFolder, *, unverified: bool) -> FrozenSet:
    """The set of a folder with its final labels.

    unverified: whether images that nobody looked at may be in it, with the labels of the model.
    Raises DatasetError where there are such images and they may not, and as `read_labelled`.
    """
    labelled = read_labelled(folder)
    people: dict[str, dict[str, set[str]]] = {}
    remarks: tuple[str, ...] = ()
    if (ratings := existing_study(folder, labelled.names)) is not None:
        votes = read_votes(ratings)
        remarks = votes.remarks
        for vote in votes.answers():
            image = next(part.image for part in ratings.items[vote.item].question if part.image)
            given = {*(vote.ticked or ()), *(vote.added or ())}
            people.setdefault(image, {})[vote.annotator] = given
    labels = {
        record.image: vote_labels(
            labelled.names,
            labelled.labels.get(record.image, ()),
            list(people.get(record.image, {}).values()),
        )
        for record in labelled.records
    }
    unseen = sum(not label.annotators for label in labels.values())
    if unseen and not unverified:
        raise DatasetError(
            f"{unseen} of {len(labels)} images are not verified by anyone: run cepbench dataset "
            "verify, or freeze the model's labels with --unverified"
        )
    frozen = FrozenSet(name, labelled, labels, remarks)
    if not frozen.members:
        raise DatasetError("no image has a pattern that is left: there is nothing to freeze")
    return frozen


def write_frozen(frozen: FrozenSet, folder: Path) -> list[Path]:
    """Write the files of a set; returns their paths.

    The folder has its name when it is complete. Raises DatasetError for an image that has changed,
    for what is no folder of its own, and for one that holds something; WriteError.
    """
    if folder.name in ("", "..") or (folder.exists() and not folder.is_dir()):
        raise DatasetError(f"{str(folder)!r} cannot be a new folder: name another with --to")
    if folder.exists() and any(folder.iterdir()):
        raise DatasetError(
            f"{str(folder)!r} holds files already: what is frozen stays; name another folder with "
            "--to, or remove it"
        )
    name, source = frozen.name, frozen.labelled.source
    images = [
        {
            "index": record.number,
            "image": record.image,
            "path": record.path,
            "patterns": frozen.labels[record.image].patterns,
            "annotators": frozen.labels[record.image].annotators,
        }
        for record in frozen.labelled.records
    ]
    index = json.dumps(frozen.members, indent=1, ensure_ascii=False)
    contents: dict[str, object] = {
        f"{name}-label-index.json": escape_json(index) + "\n",
        f"{name}-images.jsonl": images,
        "card.md": _card(frozen),
    }
    new = folder.with_name(f".{folder.name}-{uuid4().hex}")
    try:
        new.mkdir(parents=True)
        for file, value in contents.items():
            (new / file).write_bytes(files.encode(value))
        with (new / f"{name}.tsv").open("wb") as stream:  # may be larger than memory
            stream.write(b"index\timage\n")
            for record in frozen.labelled.records:
                png = io.BytesIO()  # pixels and nothing else
                source.load(record).to_pil().save(png, "PNG")
                stream.write(b"%d\t%s\n" % (record.number, b64encode(png.getvalue())))
        new.rename(folder)
    except OSError as error:
        raise WriteError(f"{folder} could not be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return [folder / file for file in (f"{name}.tsv", *contents)]


def _card(frozen: FrozenSet) -> str:
    """The card as Markdown; names and texts of models stand in it as they are, and do nothing."""
    labelled, construction = frozen.labelled, frozen.labelled.construction
    every = labelled.source.records
    same = sum(len(record.same) for record in every)
    facts = [
        f"{len(labelled.records)} images in {len(frozen.members)} patterns, chosen of {len(every)}",
        f"{labelled.chosen.per_pattern} images for each pattern were wanted, in order of digests",
        f"files with the same pixels as another, left out: {same}",
        f"files that held no image that can be read: {len(construction.unreadable)}",
        f"prompts: {construction.prompts}; the licences of the images are those of their source",
        *frozen.facts(),
    ]
    lines = [f"# {escaped(frozen.name)}", "", *(f"- {escaped(fact, 500)}" for fact in facts)]
    lines += ["", "## Patterns", "", "| pattern | images | what it is |", "|---|---:|---|"]
    for pattern in labelled.patterns:
        number = len(frozen.members.get(pattern.name, ()))
        lines.append(f"| {escaped(pattern.name)} | {number} | {escaped(pattern.sentence, 500)} |")
    lines += ["", "## Models"]
    for stage, model in construction.models.items():
        lines += [
            "",
            f"### {escaped(stage)}",
            "",
            f"- {escaped(model.role)}: {escaped(model.spec, 500)} ({escaped(model.what)})",
            f"- adapter {escaped(model.adapter)}, fingerprint {model.fingerprint}",
            f"- prompt, digest {model.prompt_digest}:",
            "",
            *(f"      {visible(line)}" for line in model.prompt.splitlines()),
        ]
    table, labels = quote_toml(f"{frozen.name}.tsv"), f"{frozen.name}-label-index.json"
    lines += ["", "## Use", "", "In a suite:", "", "    [data]", '    loader = "mmgenbench"']
    lines += [f"    options = {{ file = {table}, labels = {quote_toml(labels)} }}"]
    return "\n".join(lines) + "\n"
