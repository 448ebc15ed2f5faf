"""From the names that a model gave to a short list of patterns: counts, and a writer's summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner, Step
from pytest_cepbench.construction.folder import sorted_counts
from pytest_cepbench.construction.model_json import (
    LONGEST_REPLY,
    plain_line,
    read_pattern_reply,
)
from pytest_cepbench.construction.pattern_list import Pattern, fold_name
from pytest_cepbench.construction.prompts import (
    EXAMPLE_NAMES,
    Examples,
    Style,
    repair_prompt,
    summary_question,
    summary_schema,
)
from pytest_cepbench.construction.records import Annotation, PatternCounts
from pytest_cepbench.errors import MeasurementError, UnreadableReplyError

MOST_NAMES = 500
"""Most frequent names that a writer is shown."""


def count_patterns(annotations: Sequence[Annotation], examples: Examples) -> PatternCounts:
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
    total = sum(counts.values())
    primed = sum(spellings[fold].total() for fold in map(fold_name, EXAMPLE_NAMES) if fold in shown)
    return PatternCounts(
        images=sum(not annotation.failure for annotation in annotations),
        failures=sorted_counts(a.failure for a in annotations if a.failure),
        annotations=total,
        examples=examples,
        example_share=primed / total if total else 0.0,
        patterns=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
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
