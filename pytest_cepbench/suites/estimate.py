"""An estimate of a measurement: the inputs of each model, counted without loading one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Modality, RoleRunner
from pytest_cepbench.chains.batching import Throughput, load_throughput
from pytest_cepbench.chains.growth import PendingChain
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.models.binding import BoundRole

_READ = 500  # results looked at together; vectors are large


@dataclass
class ModelSteps:
    """The work of one model: the keys of its steps, with results in the store and without.

    incomplete: whether there are steps that depend on results that are yet to be made.
    """

    runner: RoleRunner
    stored: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    incomplete: bool = False

    @property
    def bound(self) -> BoundRole:
        """The model."""
        return self.runner.bound

    @property
    def inputs(self) -> int:
        """How many it would be given."""
        return len(self.missing)

    @cached_property
    def throughput(self) -> Throughput | None:
        """Of earlier runs on this kind of device; None where it was never measured."""
        return load_throughput(self.bound, self.runner.store)

    @property
    def calls(self) -> int:
        """At the batch size that is known to fit, else the one that is asked for."""
        known = self.throughput
        size = self.bound.resources.batch_size if known is None else known.batch_size
        return ceil(self.inputs / size)

    @property
    def seconds(self) -> float | None:
        """On one device; None where it was never measured."""
        if not self.inputs:
            return 0.0
        return None if self.throughput is None else self.inputs * self.throughput.seconds


@dataclass(frozen=True)
class Forecast:
    """The work that the cases of one suite need.

    samples: how many they read.
    units: how many chains, or answers.
    needs: the work of each model.
    """

    samples: int
    units: int
    needs: tuple[ModelSteps, ...]

    @property
    def stored(self) -> int:
        """Steps whose results are in the store."""
        return sum(len(need.stored) for need in self.needs)

    @property
    def steps(self) -> int:
        """All steps, those among them."""
        return self.stored + sum(need.inputs for need in self.needs)


def count_chain_steps(
    data: ChainData, readings: Sequence[tuple[RequiredFeatures, Sequence[Sample]]]
) -> tuple[int, list[ModelSteps]]:
    """How many chains are read of samples, and the steps of each model for that.

    Steps whose inputs are yet to be made are taken to succeed, and to give artifacts that differ;
    what is detected in images, to be cut out and read, is not foreseen. Raises what binding models
    and looking at seeds raise.
    """
    wanted: dict[Modality, dict[str, Sample]] = {}
    for required, samples in readings:
        own = wanted.setdefault(required.plan.start, {})
        own.update((sample.id, sample) for sample in samples)
    by_runner: dict[int, ModelSteps] = {}

    def steps_of(runner: RoleRunner) -> ModelSteps:
        return by_runner.setdefault(id(runner), ModelSteps(runner))

    chains: dict[tuple[Modality, str], PendingChain] = {}
    for start, own in wanted.items():
        for pending in data.look_ahead(start, list(own.values())):
            chains[start, pending.chain.sample.id] = pending
            for runner, key in pending.stored:
                steps_of(runner).stored.add(key)
            for runner, key in pending.missing:
                steps_of(runner).missing.add(key)
    for required, samples in readings:
        if required.reader is None:
            continue
        steps = steps_of(data.runner(required.reader))
        if required.cutouts:  # what detectors find in images that they have not read yet
            steps.incomplete |= any(
                other.missing
                for other in by_runner.values()
                if other.runner.bound.role == "detector"
            )
            continue
        together = _READ // len(required.generations) + 1
        for low in range(0, len(samples), together):
            keys: list[list[str]] = []  # of the steps that read each chain, as far as it goes
            for sample in samples[low : low + together]:
                digests = chains[required.plan.start, sample.id].digests
                query = required.query(sample, steps.runner.bound)
                keys.append(
                    [
                        steps.runner.key(query, 0, required.plan.modality(at), digest)
                        for at in required.generations
                        if at < len(digests) and (digest := digests[at]) is not None
                    ]
                )
            stored = steps.runner.store.get(key for own in keys for key in own)
            for read in keys:
                for key in read:
                    (steps.stored if key in stored else steps.missing).add(key)
                    if required.stops_chain and isinstance(stored.get(key), Failure):
                        break
    return len(chains), list(by_runner.values())
