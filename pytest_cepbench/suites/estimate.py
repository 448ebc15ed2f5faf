"""An estimate of a measurement: the inputs of each model, counted without loading one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Modality, PendingChain, RoleRunner
from pytest_cepbench.chains.batching import Throughput, load_throughput
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.models.protocols import BoundRole
from pytest_cepbench.store import Store
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.base import RequiredFeatures
from pytest_cepbench.suites.suite_run import SuiteRun

_READ = 500  # results looked at together; vectors are large


@dataclass(frozen=True)
class ModelEstimate:
    """The work of one model.

    found: results that are in the store. inputs: what it would be given. habit: how it worked in
    earlier runs on this kind of device. open: whether it gets more than can be told.
    """

    bound: BoundRole
    found: int
    inputs: int
    habit: Throughput | None
    open: bool = False

    @property
    def calls(self) -> int:
        """At the batch size that is known to fit, else the one that is asked for."""
        size = self.bound.batch_size if self.habit is None else self.habit.batch_size
        return -(-self.inputs // size)

    @property
    def seconds(self) -> float | None:
        """On one device; None where it was never measured."""
        if not self.inputs:
            return 0.0
        return None if self.habit is None else self.inputs * self.habit.seconds


@dataclass(frozen=True)
class Forecast:
    """The work that the cases of one suite need.

    samples, chains: how many they read.
    needs: the work of each model.
    """

    samples: int
    chains: int
    needs: tuple[ModelEstimate, ...]

    @property
    def found(self) -> int:
        """Steps whose results are in the store."""
        return sum(need.found for need in self.needs)

    @property
    def steps(self) -> int:
        """All steps, those among them."""
        return self.found + sum(need.inputs for need in self.needs)


@dataclass
class _Book:
    """The keys of what one model is to do: with results in the store, and without."""

    there: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    open: bool = False


def forecast(run: SuiteRun, cases: Iterable[tuple[Case, int | None]]) -> Forecast:
    """Estimate the measurement of some cases, each over at most so many samples of each category.

    Steps whose inputs are yet to be made are taken to succeed, and to give artifacts that differ;
    what is found in images, to be cut out and read, is not foreseen. Raises what binding models and
    looking at seeds raise.
    """
    read = list(_readings(run, cases))
    wanted: dict[Modality, dict[str, Sample]] = {}
    for required, samples in read:
        own = wanted.setdefault(required.plan.start, {})
        own.update((sample.id, sample) for sample in samples)
    books: dict[int, tuple[RoleRunner, _Book]] = {}

    def book(runner: RoleRunner) -> _Book:
        return books.setdefault(id(runner), (runner, _Book()))[1]

    outlooks: dict[tuple[Modality, str], PendingChain] = {}
    for start, own in wanted.items():
        for pending in run.chain_data.look_ahead(start, list(own.values())):
            outlooks[start, pending.chain.sample.id] = pending
            for runner, key in pending.there:
                book(runner).there.add(key)
            for runner, key in pending.ahead:
                book(runner).missing.add(key)
    for required, samples in read:
        if required.reader is None:
            continue
        runner = run.chain_data.runner(required.reader)
        if required.cutouts:
            book(runner).open |= _unseen(books)
            continue
        chains = [outlooks[required.plan.start, sample.id] for sample in samples]
        _enter(book(runner), required, chains, runner)
    return Forecast(
        samples=len({sample_id for own in wanted.values() for sample_id in own}),
        chains=len(outlooks),
        needs=tuple(_need(*pair, run.chain_data.store) for pair in books.values()),
    )


def _readings(
    run: SuiteRun, cases: Iterable[tuple[Case, int | None]]
) -> Iterator[tuple[RequiredFeatures, tuple[Sample, ...]]]:
    for case, most in cases:
        samples = run.looked_at(case, most)
        for required in run.measures[case.key.metric].required_features(case):
            yield required, samples


def _unseen(books: dict[int, tuple[RoleRunner, _Book]]) -> bool:
    """True where detectors still have images to read: their findings are read by other models."""
    return any(book.missing for runner, book in books.values() if runner.bound.role == "detector")


def _enter(
    book: _Book, required: RequiredFeatures, chains: Sequence[PendingChain], runner: RoleRunner
) -> None:
    """Enter what a reader is to do for some chains."""
    for low in range(0, len(chains), _READ // len(required.generations) + 1):
        part = chains[low : low + _READ // len(required.generations) + 1]
        keys = [list(_keys(required, pending, runner)) for pending in part]
        stored = runner.store.get(key for own in keys for key in own)
        for own in keys:
            for key in own:
                (book.there if key in stored else book.missing).add(key)
                if required.stops_chain and isinstance(stored.get(key), Failure):
                    break


def _keys(required: RequiredFeatures, pending: PendingChain, runner: RoleRunner) -> Iterator[str]:
    """The keys of the steps that read a chain, as far as it goes."""
    asked = required.query(pending.chain.sample, runner.bound)
    for generation in required.generations:
        digest = pending.digests[generation] if generation < len(pending.digests) else None
        if digest is not None:
            yield runner.key(asked, 0, required.plan.modality(generation), digest)


def _need(runner: RoleRunner, book: _Book, store: Store) -> ModelEstimate:
    habit = load_throughput(runner.bound, store)
    return ModelEstimate(runner.bound, len(book.there), len(book.missing), habit, book.open)
