"""People label the chosen images: a study of the kind `verify`, and what it says.

An item is an image with all names of the closed list; people tick those that fit. What the model
said is not shown: votes are worth counting where they do not lean on one another, and they stay
valid where another model labels the images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.annotation import count_patterns
from pytest_cepbench.construction.folder import (
    Annotation,
    ChosenImages,
    ConstructionFolder,
    ConstructionRecord,
    ImageRecord,
    PatternCounts,
    Sampling,
    SourceImages,
    choose_images,
    find_recorded,
)
from pytest_cepbench.construction.patterns import (
    PROMPTS_VERSION,
    STYLES,
    Pattern,
    annotation_prompt,
    read_patterns,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.ratings.folder import STUDY, read_ratings, read_votes
from pytest_cepbench.ratings.items import make_item, write_study
from pytest_cepbench.ratings.known_items import known_items
from pytest_cepbench.ratings.records import Part, Source, Study


@dataclass(frozen=True)
class VerificationSettings:
    """Who checks how much.

    annotators: names of the people.
    overlap: people who see each image; None for all of them.
    seed: of the order of items; None for 0, or for that of a study which is there already.
    """

    annotators: tuple[str, ...]
    overlap: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class LabelledSet:
    """The chosen images with the labels of the model.

    records: of the chosen images, by number. labels: digest -> patterns.
    """

    patterns: tuple[Pattern, ...]
    records: tuple[ImageRecord, ...]
    labels: Mapping[str, tuple[str, ...]]
    source: SourceImages
    chosen: ChosenImages
    construction: ConstructionRecord

    @property
    def names(self) -> tuple[str, ...]:
        """The closed list."""
        return tuple(pattern.name for pattern in self.patterns)


def read_labelled(folder: ConstructionFolder, images: Path | None = None) -> LabelledSet:
    """The chosen images of a folder.

    images: the folder of images, where it has moved. Raises DatasetError where a stage before is
    missing or was stopped, its file cannot be read, or files are not of the same labels.
    """
    for name in (files.IMAGES, files.PATTERNS, files.ANNOTATE, files.CHOSEN):
        if not folder.has(name):
            raise DatasetError(
                f"{str(folder.path)!r} has no {name}: finish cepbench dataset patterns first, "
                "without --until"
            )
    construction = folder.read(files.CONSTRUCTION, ConstructionRecord)
    patterns = read_patterns(folder.path / files.PATTERNS)
    chosen = folder.read(files.CHOSEN, ChosenImages)
    inside = set(chosen.images)
    every = folder.read_lines(files.IMAGES, ImageRecord)
    annotations = folder.read_lines(files.ANNOTATE, Annotation)
    if _stopped(construction, "annotate", annotations):
        raise DatasetError(
            f"{str(folder.path)!r}: annotation was stopped, and {files.ANNOTATE} has the labels of "
            "another model or prompt: run cepbench dataset patterns again"
        )
    # With other words around the list, what the describer was shown cannot be told.
    same_words = construction.prompts.split()[-1:] == [PROMPTS_VERSION]
    shown = {digest_text(annotation_prompt(style, patterns)) for style in STYLES}
    edited = same_words and construction.models["annotate"].prompt_digest not in shown
    if edited or set(chosen.patterns) != {p.name for p in patterns}:
        raise DatasetError(
            f"{str(folder.path / files.PATTERNS)!r} was edited after images were annotated with "
            "it: run cepbench dataset patterns again"
        )
    sampling = cast("Sampling", chosen.sampling)
    all_labels = {a.image: a.patterns for a in annotations if a.patterns}
    if choose_images(all_labels, chosen.per_pattern, sampling, chosen.seed) != list(chosen.images):
        raise DatasetError(
            f"{str(folder.path / files.CHOSEN)!r} was chosen by other labels than those in "
            f"{files.ANNOTATE}: run cepbench dataset patterns again, without --until"
        )
    labels = {a.image: a.patterns for a in annotations if a.image in inside}
    source = SourceImages(images or find_recorded(construction.source, folder), tuple(every), {})
    records = tuple(record for record in every if record.image in inside)
    return LabelledSet(patterns, records, labels, source, chosen, construction)


def read_counts(folder: ConstructionFolder) -> PatternCounts | None:
    """The counts of extraction; None where nothing was extracted or counted.

    Raises DatasetError where extraction was stopped: the counts are of another model then.
    """
    construction = folder.read(files.CONSTRUCTION, ConstructionRecord)
    if "extract" not in construction.models:
        return None
    has = folder.has(files.EXTRACT)
    extracted = folder.read_lines(files.EXTRACT, Annotation) if has else []
    counts = folder.read(files.COUNTS, PatternCounts) if folder.has(files.COUNTS) else None
    if (
        not has
        or _stopped(construction, "extract", extracted)
        or (counts is not None and counts != count_patterns(extracted))
    ):
        raise DatasetError(
            f"{str(folder.path)!r}: extraction was stopped, and what is there is of another model "
            "or prompt: run cepbench dataset patterns with --until count again"
        )
    return counts


def _stopped(
    construction: ConstructionRecord, stage: str, annotations: Sequence[Annotation]
) -> bool:
    """Whether answers are not those of the model and the prompt that a stage asked last."""
    model = construction.models.get(stage)
    asked = None if model is None else (model.fingerprint, model.prompt_digest)
    return any((a.fingerprint, a.prompt_digest) != asked for a in annotations)


def write_verification(
    folder: ConstructionFolder, labelled: LabelledSet, settings: VerificationSettings
) -> Path:
    """Write the study of the chosen images, where there is none; returns its folder.

    Raises DatasetError for settings that cannot be, for images that are not there any more, and for
    a study that is of other images or other people.
    """
    path = folder.path / files.RATINGS
    if (path / STUDY).is_file():
        ratings = read_ratings(path)
        _refuse_unasked(path, ratings.study, labelled.names)
        asked = {
            part.image
            for item in ratings.items.values()
            if item.kind == "item"
            for part in item.question
            if part.image
        }
        wanted = {record.image for record in labelled.records}
        if asked != wanted:
            raise DatasetError(
                f"{str(path)!r} asks about other images ({len(asked - wanted)} that are not chosen "
                f"any more, {len(wanted - asked)} not yet): its votes stay valid for freeze; move "
                "it away to write a study of the images that are chosen now"
            )
        refuse_other_settings(path, settings)
        return path
    study = verification_study(settings, labelled.names, len(labelled.records))
    images = {record.image: labelled.source.load(record) for record in labelled.records}
    meanings = "\n".join(f"{p.name}: {p.sentence}" for p in labelled.patterns if p.sentence)
    options = [[Part(text=name)] for name in labelled.names]
    items = {
        image: make_item(
            "verify", [Part(image=image), *([Part(text=meanings)] if meanings else [])], options
        )
        for image in images
    }
    known, known_images = known_items(study, list(items.values()), images)
    annotator = labelled.construction.models["annotate"]
    sources = [
        Source(
            item=item.item,
            model=annotator.spec,
            fingerprint=annotator.fingerprint,
            sample=image,
        )
        for image, item in items.items()
    ]
    write_study(path, study, [*items.values(), *known], {**images, **known_images}, sources)
    return path


def verification_study(
    settings: VerificationSettings, names: Sequence[str], population: int
) -> Study:
    """A study of the kind `verify`, as it is before items are known. names: of the closed list."""
    people = len(settings.annotators)
    return Study(
        kind="verify",
        seed=settings.seed or 0,
        annotators=settings.annotators,
        overlap=people if settings.overlap is None else settings.overlap,
        share=1.0,
        practice=3,
        population=population,
        names=tuple(names),
    )


@dataclass(frozen=True)
class PeopleLabels:
    """What people said of images.

    labels: digest of an image -> annotator -> patterns of the closed list that it has.
    outside: ticked names that are not in the closed list any more; they count for nothing.
    remarks: of votes that do not count.
    """

    labels: Mapping[str, Mapping[str, tuple[str, ...]]]
    outside: int
    remarks: tuple[str, ...]


def read_people(folder: ConstructionFolder, names: Sequence[str]) -> PeopleLabels:
    """The labels of people; none where no study was written.

    Raises DatasetError for a study that cannot be read, and one that asked about other names.
    """
    path = folder.path / files.RATINGS
    if not (path / STUDY).is_file():
        return PeopleLabels({}, 0, ())
    ratings = read_ratings(path)
    _refuse_unasked(path, ratings.study, names)
    votes = read_votes(ratings)
    labels: dict[str, dict[str, tuple[str, ...]]] = {}
    outside = 0
    for vote in votes.answers():
        image = next(part.image for part in ratings.items[vote.item].question if part.image)
        given = {*(vote.ticked or ()), *(vote.added or ())}
        outside += len(given - set(names))
        labels.setdefault(image, {})[vote.annotator] = tuple(n for n in names if n in given)
    return PeopleLabels(labels, outside, tuple(votes.remarks.lines))


def _refuse_unasked(path: Path, study: Study, names: Sequence[str]) -> None:
    """Raise DatasetError where people were not asked about a name: no tick is no vote on it."""
    unasked = [name for name in names if name not in study.names]
    if unasked:
        raise DatasetError(
            f"people were not asked about {unasked[0]!r} in {str(path)!r}, which came into "
            f"{files.PATTERNS} later: take it out, or move the ratings away and verify anew"
        )


def refuse_other_settings(path: Path, settings: VerificationSettings) -> None:
    """Raise DatasetError where a study that is there was written with other settings than these.

    path: of the study.
    """
    study = read_ratings(path).study
    given = (
        ("--annotators", settings.annotators or None, study.annotators),
        ("--overlap", settings.overlap, study.overlap),
        ("--seed", settings.seed, study.seed),
    )
    changed = [
        f"{option} (it has {', '.join(has) if isinstance(has, tuple) else has})"
        for option, wanted, has in given
        if wanted is not None and wanted != has
    ]
    if changed:
        raise DatasetError(
            f"{str(path)!r} is a study already, which goes on as it was written: drop "
            f"{', '.join(changed)}, or move it away"
        )
