"""What models say of images: annotations by a describer, and a writer's summary of their names.

Every question is asked through the store, its reply read as JSON, and repaired once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from PIL import Image

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner, Step
from pytest_cepbench.construction.folder import (
    Annotation,
    Announce,
    ImageRecord,
    PatternCounts,
    SourceImages,
)
from pytest_cepbench.construction.patterns import (
    LONGEST_REPLY,
    Pattern,
    PatternReply,
    Style,
    fold_name,
    plain_line,
    read_pattern_reply,
    repair_prompt,
    summary_question,
    summary_schema,
)
from pytest_cepbench.errors import MeasurementError, UnreadableReplyError
from pytest_cepbench.store import Result

_CHUNK = 256
"""Images between two lines of progress; each batch in it is stored as soon as it is answered."""


@dataclass(frozen=True)
class ImageQuestion:
    """A question that every image gets.

    stage: names it in seeds and messages.
    names: the closed list of patterns; None where any name counts.
    """

    stage: str
    prompt: str
    schema: Mapping[str, Any]
    names: Sequence[str] | None = None


def annotate_images(
    describer: RoleRunner,
    source: SourceImages,
    question: ImageQuestion,
    seed: int,
    announce: Announce,
) -> list[Annotation]:
    """One annotation for each image, in the order of the source.

    What is in the store is not asked again. A reply that cannot be read is asked about once more;
    then it is a failure `bad-json`.
    """
    annotations: list[Annotation] = []
    total = len(source.records)
    for begin in range(0, total, _CHUNK):
        chunk = source.records[begin : begin + _CHUNK]
        annotations += _annotate(describer, source, question, seed, chunk)
        if begin + _CHUNK < total:
            announce(f"{question.stage}: {begin + len(chunk):,} of {total:,} images")
    asked = {
        "fingerprint": describer.bound.fingerprint,
        "prompt_digest": digest_text(question.prompt),
    }
    return [msgspec.structs.replace(annotation, **asked) for annotation in annotations]


def require_annotations(annotations: Sequence[Annotation], stage: str, spec: str) -> None:
    """Raise MeasurementError where no image has an annotation. spec: of the describer."""
    if not all(annotation.failure for annotation in annotations):
        return
    first = annotations[0]
    reply = f" (its reply: {first.reply[:80]!r})" if first.reply else ""
    raise MeasurementError(
        f"{stage}: the describer {spec} annotated none of {len(annotations)} images; the first: "
        f"{first.failure}: {first.detail}{reply}"
    )


def _annotate(
    describer: RoleRunner,
    source: SourceImages,
    question: ImageQuestion,
    seed: int,
    images: Sequence[ImageRecord],
) -> list[Annotation]:
    def ask(prompts: Mapping[str, str]) -> dict[str, Result]:
        asked = [record for record in images if record.image in prompts]
        steps = [step(record, prompts[record.image]) for record in asked]
        results = describer.ask("describe_json", steps, question.schema) if steps else []
        return {record.image: result for record, result in zip(asked, results, strict=True)}

    def step(record: ImageRecord, prompt: str) -> Step:
        own = int(digest_text(f"{seed} {question.stage} {record.image}")[:8], 16)
        key = describer.json_key(prompt, question.schema, own, [["image", record.image]])
        return Step(key, own, partial(_load, source, record, prompt))

    first = ask({record.image: question.prompt for record in images})
    readings = {image: _read(result) for image, result in first.items()}
    problems = {
        image: repair_prompt(
            question.prompt, str(reading), plain_line(str(first[image]), LONGEST_REPLY)
        )
        for image, reading in readings.items()
        if isinstance(reading, UnreadableReplyError)
    }
    second = ask(problems)
    readings |= {image: _read(result) for image, result in second.items()}
    return [
        _annotation(image, reading, question.names, second.get(image))
        for image, reading in readings.items()
    ]


def _load(source: SourceImages, record: ImageRecord, prompt: str) -> tuple[Image.Image, str]:
    return source.load(record).to_pil(), prompt


def _read(result: Result) -> PatternReply | Failure | UnreadableReplyError:
    if isinstance(result, Failure):
        return result
    try:
        return read_pattern_reply(str(result))
    except UnreadableReplyError as problem:
        return problem


def _annotation(
    image: str,
    reading: PatternReply | Failure | UnreadableReplyError,
    names: Sequence[str] | None,
    second: Result | None,
) -> Annotation:
    """The annotation of an answer. second: to the repeated question, where it was asked."""
    if isinstance(reading, UnreadableReplyError):
        reply = plain_line(str(second), LONGEST_REPLY)
        return Annotation(image=image, failure="bad-json", detail=str(reading), reply=reply)
    if isinstance(reading, Failure):
        return Annotation(image=image, failure=reading.kind, detail=plain_line(reading.detail))
    given = {pattern.name: pattern.words for pattern in reading.patterns}
    dropped: list[str] = []
    if names is not None:
        known = {fold_name(name): name for name in names}
        dropped = [name for name in given if fold_name(name) not in known]
        given = {known[fold_name(name)]: w for name, w in given.items() if name not in dropped}
    return Annotation(
        image=image,
        description=reading.description,
        patterns=tuple(given),
        reasons={name: words for name, words in given.items() if words},
        dropped=tuple(dropped),
        repaired=second is not None,
    )


MOST_NAMES = 500
"""Most frequent names that a writer is shown."""


def count_patterns(annotations: Sequence[Annotation]) -> PatternCounts:
    """How many images each name was given to; spellings that differ in case and spaces are one.

    A name is shown as it was spelled most often.
    """
    spellings: dict[str, Counter[str]] = {}
    for annotation in annotations:
        first = {fold_name(name): name for name in reversed(annotation.patterns)}
        for name in first.values():
            spellings.setdefault(fold_name(name), Counter())[" ".join(name.split())] += 1
    shown = {
        folded: min(names, key=lambda name: (-names[name], name))
        for folded, names in spellings.items()
    }
    counts = {shown[folded]: names.total() for folded, names in spellings.items()}
    failures = Counter(a.failure for a in annotations if a.failure)

    def ordered(numbers: Mapping[str, int]) -> dict[str, int]:
        return dict(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))

    return PatternCounts(
        images=sum(not annotation.failure for annotation in annotations),
        failures=ordered(failures),
        annotations=sum(counts.values()),
        patterns=ordered(counts),
    )


def summarize(
    writer: RoleRunner, counts: Mapping[str, int], style: Style, most: int, seed: int
) -> tuple[Pattern, ...]:
    """A writer's patterns, at most so many.

    counts: name -> images, the most frequent first; the first `MOST_NAMES` are shown.
    Raises MeasurementError where the writer gives none, also when it is asked once more.
    """
    shown = dict(list(counts.items())[:MOST_NAMES])
    question = summary_question(style, shown, most)
    schema = summary_schema(style)

    def ask(text: str) -> str:
        key = writer.json_key("", schema, seed, [["text", digest_text(text)]])
        (result,) = writer.ask("write_json", [Step(key, seed, lambda: (text,))], "", schema)
        if isinstance(result, Failure):
            raise MeasurementError(
                f"the writer {writer.bound.spec} gave no summary: {result.kind}: {result.detail}"
            )
        return str(result)

    reply = ask(question)
    try:
        patterns = _patterns(reply, shown, most)
    except UnreadableReplyError as problem:
        again = ask(repair_prompt(question, str(problem), plain_line(reply, LONGEST_REPLY)))
        try:
            patterns = _patterns(again, shown, most)
        except UnreadableReplyError as second:
            raise MeasurementError(
                f"the writer {writer.bound.spec} gave no summary that can be read (bad-json: "
                f"{second}): try another --writer, or write the patterns into a file and give it "
                "with --patterns FILE"
            ) from second
    return patterns


def _patterns(reply: str, counts: Mapping[str, int], most: int) -> tuple[Pattern, ...]:
    """The patterns of a reply; what they take in are names that were counted.

    Raises UnreadableReplyError.
    """
    known = {fold_name(name): name for name in counts}
    patterns = tuple(
        Pattern(
            pattern.name,
            pattern.words,
            tuple(
                known[fold_name(name)] for name in pattern.merged_from if fold_name(name) in known
            ),
        )
        for pattern in read_pattern_reply(reply).patterns[:most]
    )
    if not patterns:
        raise UnreadableReplyError("it names no pattern")
    return patterns
