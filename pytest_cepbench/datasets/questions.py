"""Questions that check the facts of samples: a strict file of them, and controls among them.

A sample keeps its questions in its metadata: under `QUESTIONS` what a picture of it is asked, under
`CONTROLS` questions of other samples whose answer is no.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json_lines
from pytest_cepbench.errors import DatasetError, did_you_mean
from pytest_cepbench.metrics.facts import check_kinds

VERSION = 1

QUESTIONS, CONTROLS = "questions", "controls"

YES = "yes"

NO = "no"

METADATA = "metadata"
"""In the place of a file's name: the questions are made of the samples' metadata."""

MOST_CONTROLS = 4
"""Control questions that a sample keeps; a metric asks as many of them as it is told."""

Text = Annotated[str, msgspec.Meta(pattern=r"\S", max_length=1000)]
"""A question or an answer: not empty, and longer ones are no question."""


class FactQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question whose right answer says that a fact holds.

    id: unique among the questions of its sample.
    text: the question.
    kind: of the fact that it checks, one of `metrics.facts.KINDS`.
    answer: the right one: "yes", "no", or in the fewest words ("four", "red").
    depends_on: ids of earlier questions of the sample; where one of them fails, this one has.
    """

    id: Text
    text: Text = msgspec.field(name="question")
    kind: Text
    answer: Text
    depends_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_kinds([self.kind])


class _QuestionLine(FactQuestion, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sample: Text


def questions_of(sample: Sample) -> tuple[FactQuestion, ...]:
    """The questions of a sample; none where its data set has none."""
    return tuple(
        FactQuestion(**{**fields, "depends_on": tuple(fields["depends_on"])})
        for fields in sample.metadata.get(QUESTIONS, ())
    )


def controls_of(sample: Sample) -> tuple[str, ...]:
    """Questions about what the sample does not name: the answer to each is no."""
    return tuple(sample.metadata.get(CONTROLS, ()))


def with_questions(dataset: Dataset, path: Path, *, whole: bool = True) -> Dataset:
    """The data set with the questions of a JSON Lines file, which are part of its identity.

    Each line: {"sample": ..., "id": ..., "question": ..., "kind": ..., "answer": ...}, and
    "depends_on", a list of ids, where it depends on others. It may name a sample or the cluster
    that it belongs to, such as a prompt that is drawn several times; those of one sample stay in
    the file's order.
    whole: whether all samples are here, so that a line that names none of them is a mistake.
    Raises DatasetError where a sample has no question, and, naming file and line, for a key that no
    question has, a question or answer that is missing or empty, a kind that is not known, a sample
    that does not exist, an id that its sample has already, and a dependency on no earlier question.
    """
    names = {sample.id for sample in dataset.samples} | {s.unit for s in dataset.samples}
    questions: dict[str, dict[str, FactQuestion]] = {}
    for place, fields in read_json_lines(path):
        line = convert_record(place, fields, _QuestionLine)
        if whole and line.sample not in names:
            near = did_you_mean(line.sample, sorted(names))
            raise DatasetError(f"{place}: sample: the data set has no {line.sample!r:.80}.{near}")
        own = questions.setdefault(line.sample, {})
        if line.id in own:
            raise DatasetError(
                f"{place}: id: sample {line.sample!r:.80} has a question {line.id!r:.80} already"
            )
        for parent in line.depends_on:
            if parent not in own:
                raise DatasetError(
                    f"{place}: depends_on: {parent!r:.80} is no earlier question of sample "
                    f"{line.sample!r:.80}"
                )
        own[line.id] = FactQuestion(line.id, line.text, line.kind, line.answer, line.depends_on)
    known = {name: tuple(own.values()) for name, own in questions.items()}
    asked = [(own, known.get(own.id) or known.get(own.unit) or ()) for own in dataset.samples]
    without = [sample.id for sample, own in asked if not own]
    if without:
        raise DatasetError(
            f"{path}: {len(without)} of {len(asked)} samples have no question, {without[0]!r} "
            "among them: add a line for each, or leave the samples out of the data"
        )
    content = [[name, [asdict(q) for q in own]] for name, own in sorted(known.items())]
    identity = {
        **dataset.identity,
        QUESTIONS: {"version": VERSION, "content": digest_json(content)[:16]},
    }
    return replace(dataset, identity=identity, samples=attach_questions(asked, known.values()))


def attach_questions(
    asked: Iterable[tuple[Sample, Sequence[FactQuestion]]], known: Iterable[Sequence[FactQuestion]]
) -> tuple[Sample, ...]:
    """The samples with their questions, and with controls: questions of others.

    A control is a question whose answer is yes elsewhere and that the sample does not ask, of kind
    "object" where there are such. Which ones depends on ids and questions alone.
    known: the questions of each sample of the data set.
    """
    every = [question for own in known for question in own]
    kinds = {q.text: q.kind for q in every if q.answer.strip().lower() == YES}
    objects = [text for text, kind in kinds.items() if kind == "object"]
    pool = sorted(objects or kinds, key=digest_text)
    samples = []
    for sample, own in asked:
        start = int(digest_text(sample.unit)[:12], 16) % len(pool) if pool else 0
        texts = {question.text for question in own}
        turned = (pool[place % len(pool)] for place in range(start, start + len(pool)))
        foreign = (text for text in turned if text not in texts)
        metadata = {
            **sample.metadata,
            QUESTIONS: [{**asdict(q), "depends_on": list(q.depends_on)} for q in own],
            CONTROLS: list(islice(foreign, MOST_CONTROLS)),
        }
        samples.append(replace(sample, metadata=metadata))
    return tuple(samples)
