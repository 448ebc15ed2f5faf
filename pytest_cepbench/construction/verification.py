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
from pytest_cepbench.construction.patterns import (
    PROMPTS_VERSION,
    STYLES,
    Pattern,
    annotation_prompt,
    read_patterns,
)
from pytest_cepbench.construction.stages import count_patterns
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.ratings.folder import STUDY, Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.known_items import begin_study
from pytest_cepbench.ratings.records import Part, Source, Study


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


def read_labelled(folder: files.ConstructionFolder, images: Path | None = None) -> LabelledSet:
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
    construction = folder.record
    patterns = read_patterns(folder.path / files.PATTERNS)
    chosen = folder.read(files.CHOSEN, files.ChosenImages)
    every = folder.read_lines(files.IMAGES, files.ImageRecord)
    annotations = folder.read_lines(files.ANNOTATE, files.Annotation)
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
    sampling = cast("files.Sampling", chosen.sampling)
    labels = {a.image: a.patterns for a in annotations if a.patterns}
    if files.choose_images(labels, chosen.per_pattern, sampling, chosen.seed) != list(
        chosen.images
    ):
        raise DatasetError(
            f"{str(folder.path / files.CHOSEN)!r} was chosen by other labels than those in "
            f"{files.ANNOTATE}: run cepbench dataset patterns again, without --until"
        )
    inside = set(chosen.images)
    return LabelledSet(
        patterns=patterns,
        records=tuple(record for record in every if record.image in inside),
        labels={image: own for image, own in labels.items() if image in inside},
        source=files.SourceImages(images or folder.find_source(), tuple(every), {}),
        chosen=chosen,
        construction=construction,
    )


def read_counts(folder: files.ConstructionFolder) -> files.PatternCounts | None:
    """The counts of extraction; None where nothing was extracted or counted.

    Raises DatasetError where extraction was stopped: the counts are of another model then.
    """
    construction = folder.record
    extracted, counted = folder.has(files.EXTRACT), folder.has(files.COUNTS)
    if "extract" not in construction.models or not (extracted or counted):
        return None
    annotations = folder.read_lines(files.EXTRACT, files.Annotation) if extracted else []
    counts = folder.read(files.COUNTS, files.PatternCounts) if counted else None
    same = counts is None or counts == count_patterns(annotations)
    if not extracted or not same or _stopped(construction, "extract", annotations):
        raise DatasetError(
            f"{str(folder.path)!r}: extraction was stopped, and what is there is of another model "
            "or prompt: run cepbench dataset patterns with --until count again"
        )
    return counts


def _stopped(
    construction: files.ConstructionRecord, stage: str, annotations: Sequence[files.Annotation]
) -> bool:
    """Whether answers are not those of the model and the prompt that a stage asked last."""
    model = construction.models.get(stage)
    asked = None if model is None else (model.fingerprint, model.prompt_digest)
    return any((a.fingerprint, a.prompt_digest) != asked for a in annotations)


# -- the study -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerificationSettings:
    """Who checks how much.

    annotators: names of the people.
    overlap: people who see each item; None for all of them.
    seed: of the order of items; None for 0.
    """

    annotators: tuple[str, ...] = ()
    overlap: int | None = None
    seed: int | None = None

    def study(self, names: Sequence[str], population: int) -> Study:
        """A study of the kind `verify`, as it is before items are known.

        names: of the closed list, which people tick.
        """
        return Study(
            kind="verify",
            seed=self.seed or 0,
            annotators=self.annotators,
            overlap=len(self.annotators) if self.overlap is None else self.overlap,
            population=population,
            names=tuple(names),
        )


def existing_study(folder: files.ConstructionFolder) -> Ratings | None:
    """The study of a data set, None where there is none. Raises DatasetError."""
    path = folder.path / files.RATINGS
    return read_ratings(path) if (path / STUDY).is_file() else None


def write_verification(
    folder: files.ConstructionFolder, settings: VerificationSettings, images: Path | None
) -> None:
    """Write the study of the chosen images, where there is none.

    images: the folder of images, where it has moved.
    Raises DatasetError for settings that cannot be, for images that are not there any more, for a
    study that is of other images, and for settings of one that is there.
    """
    labelled = read_labelled(folder, images)
    ratings = existing_study(folder)
    if ratings is not None:
        given = [name for name, value in vars(settings).items() if value not in ((), None)]
        if given:
            raise DatasetError(
                f"{str(ratings.path)!r} is a study already, which goes on as it was written: drop "
                f"{', '.join(f'--{name}' for name in given)}, or move it away"
            )
        _refuse_unasked(ratings, labelled.names)
        items = [item for item in ratings.items.values() if item.kind == "item"]
        asked = {part.image for item in items for part in item.question if part.image}
        wanted = {record.image for record in labelled.records}
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
    annotator = labelled.construction.models["annotate"]
    sources = [
        Source(
            item=item.item, model=annotator.spec, fingerprint=annotator.fingerprint, sample=image
        )
        for image, item in asking.items()
    ]
    study = settings.study(labelled.names, len(asking))
    begin_study(folder.path / files.RATINGS, study, list(asking.values()), shown, sources)


@dataclass(frozen=True)
class PeopleLabels:
    """What people said of images.

    labels: digest of an image -> annotator -> patterns of the closed list that it has.
    outside: ticked names that are not in the closed list any more; they count for nothing.
    remarks: of votes that do not count.
    """

    labels: Mapping[str, Mapping[str, tuple[str, ...]]]
    outside: int = 0
    remarks: tuple[str, ...] = ()


def read_people(folder: files.ConstructionFolder, names: Sequence[str]) -> PeopleLabels:
    """The labels of people; none where no study was written.

    Raises DatasetError for a study that cannot be read, and one that asked about other names.
    """
    ratings = existing_study(folder)
    if ratings is None:
        return PeopleLabels({})
    _refuse_unasked(ratings, names)
    votes = read_votes(ratings)
    labels: dict[str, dict[str, tuple[str, ...]]] = {}
    outside = 0
    for vote in votes.answers():
        image = next(part.image for part in ratings.items[vote.item].question if part.image)
        given = {*(vote.ticked or ()), *(vote.added or ())}
        outside += len(given - set(names))
        labels.setdefault(image, {})[vote.annotator] = tuple(n for n in names if n in given)
    return PeopleLabels(labels, outside, tuple(votes.remarks.lines))


def _refuse_unasked(ratings: Ratings, names: Sequence[str]) -> None:
    """Raise DatasetError where people were not asked about a name: no tick is no vote on it."""
    unasked = [name for name in names if name not in ratings.study.names]
    if unasked:
        raise DatasetError(
            f"people were not asked about {unasked[0]!r} in {str(ratings.path)!r}, which came into "
            f"{files.PATTERNS} later: take it out, or move the ratings away and verify anew"
        )
