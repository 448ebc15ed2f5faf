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

    def ask(prompts: Mapping[ImageRecord, str]) -> dict[ImageRecord, Result]:
        steps = []
        for record, prompt in prompts.items():
            own = int(digest_text(f"{seed} {question.stage} {record.image}")[:8], 16)
            key = describer.json_key(prompt, question.schema, own, [["image", record.image]])
            steps.append(Step(key, own, partial(_load, source, record, prompt)))
        results = describer.ask("describe_json", steps, question.schema) if steps else []
        return dict(zip(prompts, results, strict=True))

    annotations: list[Annotation] = []
    total = len(source.records)
    asked = {
        "fingerprint": describer.bound.fingerprint,
        "prompt_digest": digest_text(question.prompt),
    }
    for begin in range(0, total, _CHUNK):
        first = ask(dict.fromkeys(source.records[begin : begin + _CHUNK], question.prompt))
        readings = {record: _read(result) for record, result in first.items()}
        again = ask(
            {
                record: repair_prompt(
                    question.prompt, str(reading), plain_line(str(first[record]), LONGEST_REPLY)
                )
                for record, reading in readings.items()
                if isinstance(reading, UnreadableReplyError)
            }
        )
        readings |= {record: _read(result) for record, result in again.items()}
        for record, reading in readings.items():
            annotation = _annotation(record.image, reading, question.names, again.get(record))
            annotations.append(msgspec.structs.replace(annotation, **asked))
        if begin + _CHUNK < total:
            announce(f"{question.stage}: {begin + _CHUNK:,} of {total:,} images")
    return annotations


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
    given = {pattern.name: pattern.sentence for pattern in reading.patterns}
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

    known = {fold_name(name): name for name in shown}

    def ask(text: str) -> tuple[str, tuple[Pattern, ...] | UnreadableReplyError]:
        key = writer.json_key("", schema, seed, [["text", digest_text(text)]])
        (result,) = writer.ask("write_json", [Step(key, seed, lambda: (text,))], "", schema)
        if isinstance(result, Failure):
            raise MeasurementError(
                f"the writer {writer.bound.spec} gave no summary: {result.kind}: {result.detail}"
            )
        try:
            given = read_pattern_reply(str(result)).patterns[:most]
        except UnreadableReplyError as problem:
            return str(result), problem
        if not given:
            return str(result), UnreadableReplyError("it names no pattern")
        # What they take in are names that were counted.
        merged = [[known[f] for n in p.merged_from if (f := fold_name(n)) in known] for p in given]
        return str(result), tuple(
            msgspec.structs.replace(pattern, merged_from=tuple(names))
            for pattern, names in zip(given, merged, strict=True)
        )

    reply, patterns = ask(question)
    if isinstance(patterns, UnreadableReplyError):
        problem = str(patterns)
        _, patterns = ask(repair_prompt(question, problem, plain_line(reply, LONGEST_REPLY)))
    if isinstance(patterns, UnreadableReplyError):
        raise MeasurementError(
            f"the writer {writer.bound.spec} gave no summary that can be read (bad-json: "
            f"{patterns}): try another --writer, or write the patterns into a file and give it "
            "with --patterns FILE"
        ) from patterns
    return patterns
