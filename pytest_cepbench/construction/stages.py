"""The stages of a data set of patterns that models and files do by themselves.

Extract, count, summary, annotate, sample: each writes its file into the folder, and what models
answered is in the store, so that a stage that was stopped goes on where it was. Every question is
asked through the store, its reply read as JSON, and repaired once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from msgspec.structs import replace

from pytest_cepbench.artifacts import DECODER, Failure, digest_text
from pytest_cepbench.chains import RoleRunner, Step
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.patterns import (
    EXTRACTION_PROMPT,
    LONGEST_REPLY,
    PROMPTS_VERSION,
    Pattern,
    annotation_prompt,
    fold_name,
    pattern_schema,
    read_pattern_reply,
    read_patterns,
    repair_prompt,
    summary_question,
    summary_schema,
    write_patterns,
)
from pytest_cepbench.errors import DatasetError, MeasurementError, SpecError, UnreadableReplyError
from pytest_cepbench.escapes import plain_line
from pytest_cepbench.store import Result

Stage = Literal["count", "summary", "sample"]

STAGES: tuple[Stage, ...] = get_args(Stage)
"""Where the construction may stop: before people or a writer list the patterns, before images are
annotated with them, and at its end.
"""

MOST_NAMES = 500
"""Most frequent names that a writer is shown."""

_CHUNK = 256
"""Images between two lines of progress; each batch in it is stored as soon as it is answered."""

Announce = Callable[[str], None]


@dataclass
class Construction:
    """A data set: what is wanted of it, and what its stages have found.

    images: folder of images. out: folder of the data set.
    announce: told of progress, in lines.
    patterns: a file of patterns to annotate with; None to summarize those that are extracted.
    most: patterns of a summary at most.
    per_pattern: images of each pattern that are wanted.
    until: the last stage.
    folder, source: the data set and its images, from `run` on.
    asked: stage -> the model whose answers its file has.
    counts: of extraction; annotations: with the closed list; chosen: the set. None, where a stage
        was not reached.
    """

    images: Path
    out: Path
    announce: Announce
    patterns: Path | None = None
    most: int = 13
    per_pattern: int = 100
    until: Stage = "sample"
    folder: files.ConstructionFolder = field(init=False)
    source: files.SourceImages = field(init=False)
    asked: dict[str, files.ModelRecord] = field(default_factory=dict)
    counts: files.PatternCounts | None = None
    annotations: Sequence[files.Annotation] = ()
    chosen: files.ChosenImages | None = None
    written: list[Path] = field(default_factory=list)

    def run(self, describer: RoleRunner, writer: RoleRunner | None) -> None:
        """Do the stages up to the last one that is wanted.

        writer: asked for a summary; None where none is given, or needed.
        Raises DatasetError for images, folders and files that cannot be used, SpecError where a
        writer is needed and not given, MeasurementError and WriteError, and what models and store
        raise.
        """
        folder = self.folder = files.start_construction(self.out)
        begun = folder.has(files.IMAGES)
        earlier = folder.read_lines(files.IMAGES, files.ImageRecord) if begun else []

        def look(path: Path) -> str:
            # Decoded once as long as a file does not change: large folders are read at every run.
            return describer.store.file_digest(path, f"pixels {DECODER}", files.pixels_digest)

        self.source = files.find_images(self.images, earlier, look, without=self.out)
        if folder.has(files.CONSTRUCTION):
            self.asked |= folder.read(files.CONSTRUCTION, files.ConstructionRecord).models
        self.write({files.IMAGES: list(self.source.records)})
        patterns = self.given_patterns()
        if not patterns or self.until == "count":
            counts = self.counts = count_patterns(self.ask(describer, "extract", EXTRACTION_PROMPT))
            self.write({files.COUNTS: counts})
            if self.until == "count":
                return
            if writer is None:
                raise SpecError(
                    f"a summary of {len(counts.patterns)} names needs a writer: give one with "
                    "--writer SPEC, or the patterns themselves with --patterns FILE"
                )
            if not counts.patterns:
                raise DatasetError("no image has a pattern: there is nothing to summarize")
            proposed = write_patterns(summarize(writer, counts.patterns, self.most))
            question = summary_question({}, self.most)
            self.write({files.PATTERNS: proposed}, {"summary": _asked(writer, question)})
            # As a person would find it: what cannot be read again must not be annotated with.
            path = folder.path / files.PATTERNS
            patterns = read_patterns(path)
            self.announce(f"{len(patterns)} patterns proposed: {path} is for you to edit")
        if self.until == "summary":
            return
        # Without it no labels are frozen that another model gave, wherever this run is stopped.
        (folder.path / files.CHOSEN).unlink(missing_ok=True)
        names = [pattern.name for pattern in patterns]
        self.annotations = self.ask(describer, "annotate", annotation_prompt(patterns), names)
        labels = {a.image: a.patterns for a in self.annotations if a.patterns}
        images = files.choose_images(labels, self.per_pattern)
        members = files.members_of(labels)
        shares = {
            name: files.PatternShare(len(own), len(set(images).intersection(own)))
            for name in names
            for own in [members.get(name, [])]
        }
        self.chosen = files.ChosenImages(
            per_pattern=self.per_pattern, images=tuple(images), patterns=shares
        )
        self.write({files.CHOSEN: self.chosen})

    def given_patterns(self) -> tuple[Pattern, ...]:
        """The closed list that people gave or edited; none where it is still to be made.

        Raises DatasetError for a list that cannot be read, and where two of them differ.
        """
        own = self.folder.path / files.PATTERNS
        given = self.patterns
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

    def ask(
        self,
        describer: RoleRunner,
        stage: Literal["extract", "annotate"],
        prompt: str,
        names: Sequence[str] | None = None,
    ) -> list[files.Annotation]:
        """Ask about all images, and write the answers into the file of the stage."""
        annotations = annotate_images(describer, self.source, stage, prompt, names, self.announce)
        file = {"extract": files.EXTRACT, "annotate": files.ANNOTATE}[stage]
        # Also where all failed: it has their replies.
        self.write({file: annotations}, {stage: _asked(describer, prompt)})
        if all(annotation.failure for annotation in annotations):
            first = annotations[0]
            reply = f" (its reply: {first.reply[:80]!r})" if first.reply else ""
            raise MeasurementError(
                f"{stage}: the describer {describer.bound.spec} annotated none of "
                f"{len(annotations)} images; the first: {first.failure}: {first.detail}{reply}"
            )
        return annotations

    def write(
        self, contents: Mapping[str, object], asked: Mapping[str, files.ModelRecord] | None = None
    ) -> None:
        """Write files of the folder, and anew what it was constructed from."""
        self.asked |= asked or {}
        record = files.ConstructionRecord(
            source=str(self.images),
            prompts=PROMPTS_VERSION,
            unreadable=self.source.unreadable,
            models=self.asked,
        )
        self.folder.write({**contents, files.CONSTRUCTION: record})
        self.written += [self.folder.path / name for name in contents]


def _asked(runner: RoleRunner, prompt: str) -> files.ModelRecord:
    bound = runner.bound
    return files.ModelRecord(
        role=bound.role,
        spec=bound.spec,
        what=bound.what,
        adapter=bound.adapter,
        fingerprint=bound.fingerprint,
        params=dict(bound.params),
        prompt=prompt,
        prompt_digest=digest_text(prompt),
    )


# -- what a describer says of images ---------------------------------------------------------------


def annotate_images(
    describer: RoleRunner,
    source: files.SourceImages,
    stage: str,
    prompt: str,
    names: Sequence[str] | None,
    announce: Announce,
) -> list[files.Annotation]:
    """One annotation for each image, in the order of the source.

    What is in the store is not asked again. A reply that cannot be read is asked about once more;
    then it is a failure `bad-json`.
    stage: names the question in seeds and messages.
    names: the closed list of patterns; None where any name counts.
    """
    schema = pattern_schema(names)
    fingerprint, digest = describer.bound.fingerprint, digest_text(prompt)

    def ask(
        prompts: Mapping[files.ImageRecord, str], *, repaired: bool
    ) -> dict[files.ImageRecord, files.Annotation]:
        steps = []
        for record, own in prompts.items():
            seed = int(digest_text(f"0 {stage} {record.image}")[:8], 16)
            key = describer.json_key(own, schema, seed, [["image", record.image]])
            load = partial(lambda record, own: (source.load(record).to_pil(), own), record, own)
            steps.append(Step(key, seed, load))
        results = describer.ask("describe_json", steps, schema) if steps else []
        return {
            record: _read(
                files.Annotation(image=record.image, fingerprint=fingerprint, prompt_digest=digest),
                result,
                names,
                repaired=repaired,
            )
            for record, result in zip(prompts, results, strict=True)
        }

    annotations: list[files.Annotation] = []
    total = len(source.records)
    for begin in range(0, total, _CHUNK):
        own = ask(dict.fromkeys(source.records[begin : begin + _CHUNK], prompt), repaired=False)
        again = {
            record: repair_prompt(prompt, broken.detail, broken.reply)
            for record, broken in own.items()
            if broken.failure == _BAD_JSON
        }
        own |= ask(again, repaired=True)
        annotations += own.values()
        if begin + _CHUNK < total:
            announce(f"{stage}: {begin + _CHUNK:,} of {total:,} images")
    return annotations


_BAD_JSON = "bad-json"


def _read(
    made: files.Annotation, result: Result, names: Sequence[str] | None, *, repaired: bool
) -> files.Annotation:
    """An annotation with what an answer says. names: the closed list."""
    if isinstance(result, Failure):
        return replace(made, failure=result.kind, detail=plain_line(result.detail))
    try:
        reading = read_pattern_reply(str(result))
    except UnreadableReplyError as problem:
        reply = plain_line(str(result), LONGEST_REPLY)
        return replace(made, failure=_BAD_JSON, detail=str(problem), reply=reply)
    given = {pattern.name: pattern.sentence for pattern in reading.patterns}
    dropped: list[str] = []
    if names is not None:
        known = {fold_name(name): name for name in names}
        dropped = [name for name in given if fold_name(name) not in known]
        given = {known[fold_name(name)]: w for name, w in given.items() if name not in dropped}
    return replace(
        made,
        description=reading.description,
        patterns=tuple(given),
        reasons={name: words for name, words in given.items() if words},
        dropped=tuple(dropped),
        repaired=repaired,
    )


# -- a writer's summary of their names -------------------------------------------------------------


def count_patterns(annotations: Sequence[files.Annotation]) -> files.PatternCounts:
    """How many images each name was given to; spellings that differ in case and spaces are one.

    A name is shown as it was spelled most often.
    """
    spellings: dict[str, Counter[str]] = {}
    for annotation in annotations:
        first = {fold_name(name): name for name in reversed(annotation.patterns)}
        for name in first.values():
            spellings.setdefault(fold_name(name), Counter())[" ".join(name.split())] += 1
    counts = {
        min(names, key=lambda name: (-names[name], name)): names.total()
        for names in spellings.values()
    }
    failures = Counter(a.failure for a in annotations if a.failure)

    def ordered(numbers: Mapping[str, int]) -> dict[str, int]:
        return dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))

    return files.PatternCounts(
        images=sum(not annotation.failure for annotation in annotations),
        failures=ordered(failures),
        patterns=ordered(counts),
    )


def summarize(writer: RoleRunner, counts: Mapping[str, int], most: int) -> tuple[Pattern, ...]:
    """A writer's patterns, at most so many.

    counts: name -> images, the most frequent first; the first `MOST_NAMES` are shown.
    Raises MeasurementError where the writer gives none, also when it is asked once more.
    """
    shown = dict(list(counts.items())[:MOST_NAMES])
    question, schema = summary_question(shown, most), summary_schema()
    known = {fold_name(name): name for name in shown}
    text = question
    for _ in range(2):
        key = writer.json_key("", schema, 0, [["text", digest_text(text)]])
        (result,) = writer.ask("write_json", [Step(key, 0, partial(tuple, [text]))], "", schema)
        if isinstance(result, Failure):
            raise MeasurementError(
                f"the writer {writer.bound.spec} gave no summary: {result.kind}: {result.detail}"
            )
        try:
            given = read_pattern_reply(str(result)).patterns[:most]
            problem = "it names no pattern"
        except UnreadableReplyError as error:
            given, problem = (), str(error)
        if given:
            # What they take in are names that were counted.
            merged = [
                [known[f] for n in p.merged_from if (f := fold_name(n)) in known] for p in given
            ]
            return tuple(
                replace(pattern, merged_from=tuple(names))
                for pattern, names in zip(given, merged, strict=True)
            )
        text = repair_prompt(question, problem, plain_line(str(result), LONGEST_REPLY))
    raise MeasurementError(
        f"the writer {writer.bound.spec} gave no summary that can be read (bad-json: {problem}): "
        "try another --writer, or write the patterns into a file and give it with --patterns FILE"
    )
