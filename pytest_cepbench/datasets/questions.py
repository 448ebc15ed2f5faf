"""Questions that check the facts of samples: a strict file of them, and controls among them.

A sample keeps its questions in its metadata: under `QUESTIONS` what a picture of it is asked, under
`CONTROLS` questions of other samples whose answer is no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.sources.text_files import read_json_lines
from pytest_cepbench.errors import DatasetError, did_you_mean, unknown_name
from pytest_cepbench.metrics.facts import check_kinds

VERSION = 1

QUESTIONS, CONTROLS = "questions", "controls"

YES = "yes"

NO = "no"

METADATA = "metadata"
"""In the place of a file's name: the questions are made of the samples' metadata."""

METADATA_KINDS = ("object", "count", "color", "size", "relation")
"""Of the facts that such questions ask for."""

MOST_CONTROLS = 4
"""Control questions that a sample keeps; a metric asks as many of them as it is told."""

_FIELDS = ("sample", "id", "question", "kind", "answer", "depends_on")

_LONGEST = 1000
"""Characters of a question or an answer: more are no question."""


@dataclass(frozen=True)
class FactQuestion:
    """A question whose right answer says that a fact holds.

    id: unique among the questions of its sample.
    text: the question.
    kind: of the fact that it checks, one of `metrics.facts.KINDS`.
    answer: the right one: "yes", "no", or in the fewest words ("four", "red").
    depends_on: ids of earlier questions of the sample; where one of them fails, this one has.
    """

    id: str
    text: str
    kind: str
    answer: str
    depends_on: tuple[str, ...] = ()

    @property
    def asks_presence(self) -> bool:
        """Whether yes is the right answer."""
        return self.answer.strip().lower() == YES


def questions_of(sample: Sample) -> tuple[FactQuestion, ...]:
    """The questions of a sample; none where its data set has none."""
    return tuple(
        FactQuestion(**{**fields, "depends_on": tuple(fields["depends_on"])})
        for fields in sample.metadata.get(QUESTIONS, ())
    )


def controls_of(sample: Sample) -> tuple[str, ...]:
    """Questions about what the sample does not name: the answer to each is no."""
    return tuple(sample.metadata.get(CONTROLS, ()))


def check_question(fields: Mapping[str, Any]) -> FactQuestion:
    """The question that an object of a file states.

    Raises ValueError for a key that no question has, a question or answer that is missing or
    empty, and a kind that is not known.
    """
    for key in fields:
        if key not in _FIELDS:
            raise ValueError(unknown_name("key", key, _FIELDS))
    texts = {key: text_field(fields, key) for key in ("id", "question", "kind", "answer")}
    check_kinds([texts["kind"]])
    depends_on = fields.get("depends_on", [])
    if not isinstance(depends_on, list) or not all(isinstance(own, str) for own in depends_on):
        raise ValueError(f"depends_on: a list of ids is expected, got {depends_on!r:.80}")
    return FactQuestion(
        texts["id"], texts["question"], texts["kind"], texts["answer"], tuple(depends_on)
    )


def text_field(fields: Mapping[str, Any], key: str, longest: int = _LONGEST) -> str:
    """The text of a key. Raises ValueError where it is missing, empty, too long or no UTF-8."""
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        actual = "missing" if key not in fields else f"got {value!r:.80}"
        raise ValueError(f"{key}: a text is expected, {actual}")
    if len(value) > longest:
        raise ValueError(f"{key}: at most {longest} characters are expected, got {len(value):,}")
    check_encodable(key, value)
    return value


def check_encodable(key: str, text: str) -> None:
    """Raise ValueError for half of a surrogate pair, which JSON can escape and no file takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{key}: half of a surrogate pair at character {error.start}") from error


def read_questions(path: Path, known: Iterable[str] | None) -> dict[str, tuple[FactQuestion, ...]]:
    """The questions of a JSON Lines file by sample, those of one sample in the file's order.

    Each line: {"sample": ..., "id": ..., "question": ..., "kind": ..., "answer": ...}, and
    "depends_on", a list of ids, where it depends on others.
    known: ids of the samples; None where only some of them are here, and any may be named.
    Raises DatasetError naming file and line for what `check_question` refuses, a sample that does
    not exist, an id that its sample has already, and a dependency on no earlier question.
    """
    samples = None if known is None else set(known)
    questions: dict[str, dict[str, FactQuestion]] = {}
    for place, fields in read_json_lines(path):
        try:
            _add_line(fields, samples, questions)
        except ValueError as error:
            raise DatasetError(f"{place}: {error}") from error
    return {name: tuple(own.values()) for name, own in questions.items()}


def _add_line(
    fields: Mapping[str, Any],
    samples: set[str] | None,
    questions: dict[str, dict[str, FactQuestion]],
) -> None:
    """Add the question of a line to those of its sample, by id. Raises ValueError."""
    name = text_field(fields, "sample")
    if samples is not None and name not in samples:
        near = did_you_mean(name, sorted(samples))
        raise ValueError(f"sample: the data set has no {name!r:.80}.{near}")
    question = check_question(fields)
    own = questions.setdefault(name, {})
    if question.id in own:
        raise ValueError(f"id: sample {name!r:.80} has a question {question.id!r:.80} already")
    for parent in question.depends_on:
        if parent not in own:
            raise ValueError(
                f"depends_on: {parent!r:.80} is no earlier question of sample {name!r:.80}"
            )
    own[question.id] = question


def with_questions(dataset: Dataset, path: Path, *, whole: bool = True) -> Dataset:
    """The data set with the questions of a file, which are part of its identity.

    A line may name a sample or the cluster that it belongs to, such as a prompt that is drawn
    several times.
    whole: whether all samples are here, so that a line that names none of them is a mistake.
    Raises DatasetError as `read_questions`, and where a sample has no question.
    """
    names = {sample.id for sample in dataset.samples} | {s.unit for s in dataset.samples}
    questions = read_questions(path, names if whole else None)
    asked = [
        (sample, questions.get(sample.id) or questions.get(sample.unit) or ())
        for sample in dataset.samples
    ]
    without = [sample.id for sample, own in asked if not own]
    if without:
        raise DatasetError(
            f"{path}: {len(without)} of {len(asked)} samples have no question, {without[0]!r} "
            "among them: add a line for each, or leave the samples out of the data"
        )
    content = [[name, [asdict(q) for q in own]] for name, own in sorted(questions.items())]
    identity = {
        **dataset.identity,
        QUESTIONS: {"version": VERSION, "content": digest_json(content)[:16]},
    }
    return replace(dataset, identity=identity, samples=attach_questions(asked, questions.values()))


def attach_questions(
    asked: Iterable[tuple[Sample, Sequence[FactQuestion]]],
    known: Iterable[Sequence[FactQuestion]],
) -> tuple[Sample, ...]:
    """The samples with their questions, and with controls: questions of others.

    A control is a question whose answer is yes elsewhere and that the sample does not ask, of kind
    "object" where there are such. Which ones depends on ids and questions alone.
    known: the questions of each sample of the data set.
    """
    kinds = {q.text: q.kind for own in known for q in own if q.asks_presence}
    objects = [text for text, kind in kinds.items() if kind == "object"]
    pool = sorted(objects or kinds, key=digest_text)
    return tuple(
        replace(
            sample,
            metadata={
                **sample.metadata,
                QUESTIONS: [{**asdict(q), "depends_on": list(q.depends_on)} for q in own],
                CONTROLS: _controls(sample, {q.text for q in own}, pool),
            },
        )
        for sample, own in asked
    )


def _controls(sample: Sample, own: set[str], pool: Sequence[str]) -> list[str]:
    start = int(digest_text(sample.unit)[:12], 16) % len(pool) if pool else 0
    turned = (pool[(start + step) % len(pool)] for step in range(len(pool)))
    foreign = (text for text in turned if text not in own)
    return [text for text, _ in zip(foreign, range(MOST_CONTROLS), strict=False)]
