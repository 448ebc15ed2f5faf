"""Items for people to rate, made of what runs of a suite have left in stores: no model is asked.

Which samples are drawn follows from a seed and the samples' ids alone, before a verdict is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from pytest_cepbench.artifacts import ImageArtifact, digest_text
from pytest_cepbench.chains.answers.piece_refs import (
    PieceRefs,
    refer_to_answer,
    refer_to_question,
)
from pytest_cepbench.chains.steps import recall
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import DatasetError, StoreError
from pytest_cepbench.gate import Baseline
from pytest_cepbench.ratings.records import Item, Option, Part, Source, Task
from pytest_cepbench.ratings.records import item_digest as digest_of_item
from pytest_cepbench.ratings.records import option_digest as digest_of_option
from pytest_cepbench.store import ImageRef, Store
from pytest_cepbench.store.answers import get_answers

LoadImage = Callable[[], ImageArtifact]

_NAMED = 3


@dataclass(frozen=True)
class RatedRun:
    """A run whose outputs people rate.

    name: of its model, in tables and in the folder's sources.
    record: a case of the suite as the run measured it; of battles one with answers.
    """

    name: str
    record: Baseline

    @property
    def fingerprint(self) -> str:
        """Of the model; empty where the outputs were made elsewhere."""
        step = self.record.model.get("step", "")
        return "+".join(bound.fingerprint for bound in recall(step)) if step else ""

    @property
    def sample_ids(self) -> list[str]:
        """The samples that it measured, sorted."""
        return sorted({name for part in self.record.scores.values() for name in part})


@dataclass(frozen=True)
class Draw:
    """Which items people get.

    most: how many; all where None.
    seed: of the choice; fewer are among more.
    """

    most: int | None = None
    seed: int = 0

    def choose(self, names: Iterable[str]) -> tuple[list[str], float]:
        """The chosen of all names, sorted, and the probability with which each was drawn."""
        every = sorted(names)
        if self.most is None or self.most >= len(every):
            return every, 1.0
        ranked = sorted(every, key=lambda name: digest_text(f"rate {self.seed} {name}"))
        return sorted(ranked[: self.most]), self.most / len(every)


@dataclass
class RatedItems:
    """Items of a study with everything that its folder needs.

    items: in the order of their samples' ids.
    images: digest -> the image, loaded when it is needed.
    sources: which model made which option.
    population: how many items there were to draw from. probability: with which each was drawn.
    remarks: what was left out and why, a sentence each.
    """

    items: list[Item] = field(default_factory=list)
    images: dict[str, LoadImage] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    population: int = 0
    probability: float = 1.0
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Output:
    """What one run made of a sample. parts: texts, and images by digest."""

    run: RatedRun
    parts: tuple[Part, ...]


@dataclass
class ItemWriter:
    """Puts items together, for one suite.

    task: of the items. suite: its name.
    made: what was put together.
    """

    task: Task
    suite: str
    made: RatedItems

    def add(
        self, sample: str, question: Sequence[Part], outputs: Sequence[Output], probability: float
    ) -> None:
        """An item of a sample; equal outputs are one option with several sources."""
        options: dict[str, Option] = {}
        for output in outputs:
            digest = digest_of_option(output.parts)
            options.setdefault(digest, Option(digest, output.parts))
        item = digest_of_item(self.task, question, list(options))
        self.made.items.append(
            Item(
                item=item,
                question=tuple(question),
                options=tuple(options.values()),
                probability=probability,
            )
        )
        if not outputs:
            self.made.sources.append(Source(item=item, sample=sample, suite=self.suite))
        self.made.sources += [
            Source(
                item=item,
                option=digest_of_option(output.parts),
                model=output.run.name,
                fingerprint=output.run.fingerprint,
                sample=sample,
                suite=self.suite,
            )
            for output in outputs
        ]


def answer_pairs(
    suite: str, dataset: Dataset, runs: tuple[RatedRun, RatedRun], store: Store, draw: Draw
) -> RatedItems:
    """Items of the kind `pair`: the interleaved answers of two runs to the same question.

    Drawn from the questions that both answered differently: equal answers and missing ones need no
    judge. Raises DatasetError where the data set is not that of the runs or nothing is left to
    rate, StoreError where the store lacks answers.
    """
    first, second = (_answers_of(run) for run in runs)
    shared = sorted(first.keys() & second.keys())
    able = [name for name in shared if first[name] and second[name] and first[name] != second[name]]
    counts = {
        "are not of both runs": len(first.keys() ^ second.keys()),
        "lack an answer": sum(not (first[name] and second[name]) for name in shared),
        "have equal answers": sum(bool(first[name]) and first[name] == second[name] for name in shared),
    }
    made = RatedItems(population=len(able), remarks=_left_out(counts))
    chosen, made.probability = draw.choose(able)
    _require_items(chosen, made)
    samples = _samples_of(dataset, runs, lambda sample: [refer_to_question(sample, store).digest])
    writer = ItemWriter("pair", suite, made)
    _add_answers(writer, [samples[name] for name in chosen], runs, store)
    return made


def answer_grades(
    suite: str, dataset: Dataset, runs: Sequence[RatedRun], store: Store, draw: Draw
) -> RatedItems:
    """Items of the kind `grades`: the answers of all runs to a question. Raises as above."""
    known = [_answers_of(run) for run in runs]
    shared = sorted(set.intersection(*(set(answers) for answers in known)))
    able = [name for name in shared if sum(bool(answers[name]) for answers in known) > 1]
    counts = {"have fewer than two answers": len(shared) - len(able)}
    made = RatedItems(population=len(able), remarks=_left_out(counts))
    chosen, made.probability = draw.choose(able)
    _require_items(chosen, made)
    samples = _samples_of(dataset, runs, lambda sample: [refer_to_question(sample, store).digest])
    _add_answers(
        ItemWriter("grades", suite, made), [samples[name] for name in chosen], runs, store
    )
    return made


def described_images(suite: str, dataset: Dataset, draw: Draw) -> RatedItems:
    """Items of the kind `describe`: the images of a data set. Raises DatasetError for none."""
    able = {sample.id: sample for sample in dataset.samples if sample.image is not None}
    counts = {"have no image": len(dataset.samples) - len(able)}
    made = RatedItems(population=len(able), remarks=_left_out(counts))
    chosen, made.probability = draw.choose(able)
    _require_items(chosen, made)
    writer = ItemWriter("describe", suite, made)
    seen: set[str] = set()
    for name in chosen:
        source = able[name].image
        assert source is not None
        image = source.load()
        if image.digest in seen:  # one item, as one image has one digest
            continue
        seen.add(image.digest)
        made.images.setdefault(image.digest, source.load)
        writer.add(name, [Part(image=image.digest)], [], made.probability)
    if len(seen) < len(chosen):
        made.remarks.append(f"{len(chosen) - len(seen)} samples show the image of another sample")
    return made


def pairs_of_runs(
    runs: Sequence[RatedRun], sample: str, seed: int
) -> tuple[RatedRun, RatedRun]:
    """Two of the runs for a sample, each pair equally often, by digest."""
    pairs = list(combinations(runs, 2))
    number = int(digest_text(f"captions {seed} {sample}")[:12], 16)
    return pairs[number % len(pairs)]


def refer(parts: PieceRefs, images: dict[str, LoadImage], store: Store) -> tuple[Part, ...]:
    """Texts and images of an item; the images are added to those that the folder needs."""
    made = []
    for piece, (_, digest) in zip(parts.pieces, parts.inputs, strict=True):
        if isinstance(piece, str):
            made.append(Part(text=piece))
            continue
        load = _stored_image(digest, store) if isinstance(piece, ImageRef) else piece.load
        images.setdefault(digest, load)
        made.append(Part(image=digest))
    return tuple(made)


def _stored_image(digest: str, store: Store) -> LoadImage:
    def load() -> ImageArtifact:
        image = store.get_image(digest)
        if image is None:
            msg = (
                f"the image {digest[:16]} is not in the store {store.root} any more: measure its "
                "model again with this store"
            )
            raise StoreError(msg)
        return image

    return load


def _add_answers(
    writer: ItemWriter, samples: Sequence[Sample], runs: Sequence[RatedRun], store: Store
) -> None:
    named = [(run, _answers_of(run)) for run in runs]
    wanted = {answers[sample.id] for sample in samples for _, answers in named} - {""}
    stored = get_answers(store, wanted)
    if missing := wanted - stored.keys():
        msg = (
            f"{len(missing)} of {len(wanted)} answers of the runs are not in the store "
            f"{store.root}: use the store of the runs (--store), or bring them with "
            "`cepbench answers import`"
        )
        raise StoreError(msg)
    images = writer.made.images
    for sample in samples:
        question = refer(refer_to_question(sample, store), images, store)
        outputs = [
            Output(run, refer(refer_to_answer(stored[answers[sample.id]], sample.id), images, store))
            for run, answers in named
            if answers[sample.id]
        ]
        writer.add(sample.id, question, outputs, writer.made.probability)


def _answers_of(run: RatedRun) -> Mapping[str, str]:
    if not run.record.answers:
        msg = (
            f"the run of {run.name!r} names no answers: a run of a suite with a win rate against "
            "accepted answers is needed"
        )
        raise DatasetError(msg)
    return run.record.answers


def _samples_of(
    dataset: Dataset, runs: Sequence[RatedRun], starts: Callable[[Sample], list[str]]
) -> dict[str, Sample]:
    """The samples by id. Raises DatasetError where they are not those that the runs measured."""
    from pytest_cepbench.suites.suite_run import sample_digest

    by_id = {sample.id: sample for sample in dataset.samples}
    for run in runs:
        absent = [name for name in run.sample_ids if name not in by_id]
        samples = [by_id[name] for name in run.sample_ids if name in by_id]
        digests = [{sample.id: digest} for sample in samples for digest in starts(sample)]
        merged: dict[str, str] = {name: value for own in digests for name, value in own.items()}
        if absent or sample_digest(samples, [merged]) != run.record.identity.get("samples"):
            which = f" ({', '.join(absent[:_NAMED])} are gone)" if absent else ""
            msg = (
                f"the samples of the suite are not those that the run of {run.name!r} measured"
                f"{which}: give --data as in that run, or run it again"
            )
            raise DatasetError(msg)
    return by_id


def _left_out(counts: Mapping[str, int]) -> list[str]:
    return [f"{count} samples {why} and are left out" for why, count in counts.items() if count]


def _require_items(chosen: Sequence[str], made: RatedItems) -> None:
    if not chosen:
        why = "; ".join(made.remarks) or "the runs have no sample in common"
        msg = f"there is nothing to rate: {why}"
        raise DatasetError(msg)


def count_words(counter: Counter[str]) -> Iterator[str]:
    """A sentence for each reason why outputs are left out."""
    return (f"{count} {why}" for why, count in counter.items() if count)
