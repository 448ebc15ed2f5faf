"""The stages of a data set of patterns that models and files do by themselves.

extract, count, summary, annotate, sample: each writes its file into the folder, and what models
answered is in the store, so that a stage that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pytest_cepbench.artifacts import DECODER, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.annotation import (
    ImageQuestion,
    annotate_images,
    count_patterns,
    require_annotations,
    summarize,
)
from pytest_cepbench.construction.folder import (
    Annotation,
    Announce,
    ChosenImages,
    ConstructionFolder,
    ConstructionRecord,
    ImageRecord,
    ModelRecord,
    PatternCounts,
    PatternShare,
    Sampling,
    SourceImages,
    choose_images,
    find_images,
    look_at,
    members_of,
    start_construction,
)
from pytest_cepbench.construction.patterns import (
    PROMPTS_VERSION,
    Pattern,
    Style,
    annotation_prompt,
    extraction_prompt,
    pattern_schema,
    read_patterns,
    summary_question,
    write_patterns,
)
from pytest_cepbench.errors import DatasetError, SpecError

KIND = "patterns"
"""Kind of data set that these stages make."""

Stage = Literal["extract", "count", "summary", "annotate", "sample"]

STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class ConstructionSettings:
    """What is constructed, and how.

    images: folder of images. out: folder of the data set.
    style: of the prompts.
    patterns: a file of patterns to annotate with; None to summarize those that are extracted.
    most: patterns of a summary at most.
    per_pattern: images of each pattern that are wanted. sampling, seed: how they are chosen.
    until: the last stage.
    """

    images: Path
    out: Path
    style: Style = "neutral"
    patterns: Path | None = None
    most: int = 13
    per_pattern: int = 100
    sampling: Sampling = "quota"
    seed: int = 0
    until: Stage = "sample"


@dataclass
class Constructed:
    """What the stages found.

    counts: of extraction; annotations: with the closed list; chosen: the set. None, where a stage
    was not reached.
    """

    source: SourceImages
    counts: PatternCounts | None = None
    patterns: tuple[Pattern, ...] = ()
    annotations: Sequence[Annotation] = ()
    chosen: ChosenImages | None = None
    written: list[Path] = field(default_factory=list)


def construct_patterns(
    settings: ConstructionSettings,
    describer: RoleRunner,
    writer: RoleRunner | None,
    announce: Announce,
) -> Constructed:
    """Do the stages up to the last one that is wanted.

    writer: asked for a summary; None where none is given, or needed.
    Raises DatasetError for images, folders and files that cannot be used, SpecError where a writer
    is needed and not given, MeasurementError and WriteError, and what models and store raise.
    """
    folder = start_construction(settings.out, KIND)
    earlier = folder.read_lines(files.IMAGES, ImageRecord) if folder.has(files.IMAGES) else []
    source = find_images(
        settings.images,
        earlier,
        # Decoded once as long as a file does not change: large folders are read at every run.
        lambda path: describer.store.file_digest(path, f"pixels and size {DECODER}", look_at),
        without=settings.out,
    )
    asked: dict[str, ModelRecord] = {}
    if folder.has(files.CONSTRUCTION):
        asked.update(folder.read(files.CONSTRUCTION, ConstructionRecord).models)
    found = Constructed(source)
    run = _Run(settings, announce, folder, found, asked)
    run.write({files.IMAGES: list(source.records)})
    last = STAGES.index(settings.until)
    style = settings.style
    given = run.given_patterns()
    if not given or settings.until in ("extract", "count"):
        question = ImageQuestion("extract", extraction_prompt(style), pattern_schema(style))
        extracted = run.ask(describer, question, files.EXTRACT)
        if last >= STAGES.index("count"):
            found.counts = count_patterns(extracted)
            run.write({files.COUNTS: found.counts})
    if last >= STAGES.index("summary"):
        found.patterns = given or run.summary(writer)
    if last >= STAGES.index("annotate"):
        names = [pattern.name for pattern in found.patterns]
        prompt = annotation_prompt(style, found.patterns)
        question = ImageQuestion("annotate", prompt, pattern_schema(style, names), names)
        found.annotations = run.ask(describer, question, files.ANNOTATE)
    if last >= STAGES.index("sample"):
        labels = {a.image: a.patterns for a in found.annotations if a.patterns}
        images = choose_images(labels, settings.per_pattern, settings.sampling, settings.seed)
        members = members_of(labels)
        found.chosen = ChosenImages(
            sampling=settings.sampling,
            per_pattern=settings.per_pattern,
            seed=settings.seed,
            images=tuple(images),
            patterns={
                pattern.name: PatternShare(len(own), len(set(images).intersection(own)))
                for pattern in found.patterns
                for own in [members.get(pattern.name, [])]
            },
        )
        run.write({files.CHOSEN: found.chosen})
    return found


@dataclass
class _Run:
    """The stages over one source. asked: stage -> the model that was asked in it last."""

    settings: ConstructionSettings
    announce: Announce
    folder: ConstructionFolder
    found: Constructed
    asked: dict[str, ModelRecord]

    def given_patterns(self) -> tuple[Pattern, ...]:
        """The closed list that people gave or edited; none where it is still to be made.

        Raises DatasetError for a list that cannot be read, and where two of them differ.
        """
        own = self.folder.path / files.PATTERNS
        given = self.settings.patterns
        patterns = () if given is None else read_patterns(given)
        if not own.is_file():
            if patterns:
                self.write({files.PATTERNS: write_patterns(patterns)})
            return patterns
        kept = read_patterns(own)
        if patterns and [(p.name, p.sentence) for p in patterns] != [
            (p.name, p.sentence) for p in kept
        ]:
            raise DatasetError(
                f"--patterns {str(given)!r} and {str(own)!r} differ: drop the option to go on with "
                "what is in the folder, or delete that file"
            )
        return kept

    def summary(self, writer: RoleRunner | None) -> tuple[Pattern, ...]:
        """Let a writer propose the closed list, for people to edit."""
        counts, settings = self.found.counts, self.settings
        assert counts is not None
        if writer is None:
            raise SpecError(
                f"a summary of {len(counts.patterns)} names needs a writer: give one with --writer "
                "SPEC, or the patterns themselves with --patterns FILE"
            )
        if not counts.patterns:
            raise DatasetError("no image has a pattern: there is nothing to summarize")
        patterns = summarize(writer, counts.patterns, settings.style, settings.most, settings.seed)
        self._note("summary", writer, summary_question(settings.style, {}, settings.most))
        self.write({files.PATTERNS: write_patterns(patterns)})
        # As a person would find it: what cannot be read again must not be annotated with.
        path = self.folder.path / files.PATTERNS
        patterns = read_patterns(path)
        self.announce(f"{len(patterns)} patterns proposed: {path} is for you to edit")
        return patterns

    def ask(self, describer: RoleRunner, question: ImageQuestion, file: str) -> list[Annotation]:
        """Ask about all images, and write the answers into a file of the folder."""
        self._note(question.stage, describer, question.prompt)
        self.write({})  # before the first image: a run that is stopped has asked this model
        annotations = annotate_images(
            describer, self.found.source, question, self.settings.seed, self.announce
        )
        self.write({file: annotations})  # also where all failed: it has their replies
        require_annotations(annotations, question.stage, describer.bound.spec)
        return annotations

    def _note(self, stage: str, runner: RoleRunner, prompt: str) -> None:
        """Keep which model a stage asked; tell where it was another one before."""
        bound = runner.bound
        record = ModelRecord(
            role=bound.role,
            spec=bound.spec,
            what=bound.what,
            adapter=bound.adapter,
            fingerprint=bound.fingerprint,
            params=dict(bound.params),
            prompt=prompt,
            prompt_digest=digest_text(prompt),
        )
        before = self.asked.get(stage)
        if before is not None and before.fingerprint != record.fingerprint:
            self.announce(
                f"{stage}: the {record.role} is {record.spec} now and was {before.spec}: all is "
                "asked anew, so that labels are of one model"
            )
        elif before is not None and before.prompt_digest != record.prompt_digest:
            self.announce(f"{stage}: the prompt has changed: all is asked anew")
        self.asked[stage] = record

    def write(self, contents: Mapping[str, object]) -> None:
        """Write files of the folder, and anew what it was constructed from."""
        settings = self.settings
        record = ConstructionRecord(
            kind=KIND,
            source=str(settings.images),
            prompts=f"{settings.style} {PROMPTS_VERSION}",
            seed=settings.seed,
            unreadable=self.found.source.unreadable,
            models=self.asked,
        )
        self.folder.write({**contents, files.CONSTRUCTION: record})
        self.found.written += [self.folder.path / name for name in contents]
