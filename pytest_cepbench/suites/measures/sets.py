"""fid, gc_fid, kid: how far the images of an iteration, taken together, are from the starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.metrics.frechet import frechet_distance, gc_fid_at_t
from pytest_cepbench.metrics.kernel_distance import KernelBlocks
from pytest_cepbench.metrics.moments import FeatureSet
from pytest_cepbench.models.readers import features_name, weights_are_here
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.evidence import Evidence
from pytest_cepbench.suites.measures.measure import (
    Measured,
    Outcome,
    Stage,
    by_category,
    everyone,
    outcome_of_chain,
)
from pytest_cepbench.suites.measures.settings import Parts, Pool, SetTable
from pytest_cepbench.suites.measures.similarity import last_iteration

_ALL = "all images"

_FEWEST = 2

LABELS = {"fid": "FID", "gc_fid": "GC_FID@{T}", "kid": "KID"}
"""Fréchet distance at one iteration (MMGenBench, Eq. 5), its weighted mean over iterations
(GenCeption, Eq. 4), kernel distance at one iteration."""


@dataclass(frozen=True)
class _Distances:
    """Of one category. by_iteration: one distance each. images: how many starts, then how many
    images at each iteration. width: D, the length of the features.
    """

    by_iteration: tuple[float, ...]
    images: tuple[int, ...]
    width: int
    outcomes: tuple[Outcome, ...]

    def __str__(self) -> str:
        later = ", ".join(map(str, self.images[1:]))
        return f"{self.images[0]} against {later} (D = {self.width})"


@dataclass(frozen=True)
class SetMeasure:
    """A distance between sets of images in the features of one encoder; see `Measure`.

    features: names the encoder in the label. Groups and wholes are, by default, the unweighted mean
    of their categories' distances, as in GenCeption's Table 2.
    """

    name: str
    kind: str
    plan: ChainPlan
    at: int
    encoder: str
    features: str
    pool: Pool
    parts: Parts
    higher_is_better: bool = False
    own_parts: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Such as GC_FID@3 [Inception]."""
        return f"{LABELS[self.kind].format(T=self.at)} [{self.features}]"

    @property
    def identity(self) -> str:
        """Formula and iteration."""
        return f"{self.kind}/1 at {self.at}, over {self.pool}"

    @property
    def seats(self) -> tuple[str, ...]:
        """The encoder."""
        return (self.encoder,)

    @property
    def plans(self) -> tuple[ChainPlan, ...]:
        """One kind of chains."""
        return (self.plan,)

    def measure(self, case: Case, evidence: Evidence) -> Measured:
        """One distance per category, or one over all samples.

        A chain that stopped has no image to enter the set: the sets shrink, their sizes are part of
        what was measured, and the gate compares no sets of different sizes.
        """
        parts = by_category(case, evidence)
        found = {name: self._distances(name, part, evidence) for name, part in parts.items()}
        return Measured(
            scores={name: {_ALL: self._value(one)} for name, one in found.items()},
            samples=everyone(parts),
            outcomes=[outcome for one in found.values() for outcome in one.outcomes],
            curve=tuple(np.mean([one.by_iteration for one in found.values()], axis=0).tolist()),
            sizes={name: one.images[0] for name, one in found.items()},
            notes=tuple(f"images of {name}: {one}" for name, one in found.items()),
            identity={"sets": "; ".join(f"{name} {one}" for name, one in found.items())},
        )

    def show(self, _: Case, __: str, ___: Evidence) -> None:
        """A distance of sets belongs to no chain."""

    def _value(self, distances: _Distances) -> float:
        if self.kind == "gc_fid":
            return gc_fid_at_t(np.array(distances.by_iteration))
        return distances.by_iteration[-1]

    def _distances(self, name: str, samples: Sequence[Sample], evidence: Evidence) -> _Distances:
        make = self._kernel if self.kind == "kid" else self._frechet
        return evidence.once(self, name, lambda: make(samples, evidence))

    def _frechet(self, samples: Sequence[Sample], evidence: Evidence) -> _Distances:
        first = self.at if self.kind == "fid" else 1
        walk = _Walk(self, samples, evidence)
        starts = walk.gather(0)
        sizes, distances = [starts.n], []
        for t in range(first, self.at + 1):  # two sets at a time: each may be some D x D matrices
            one = walk.gather(2 * t)
            sizes.append(one.n)
            if min(sizes) >= _FEWEST:
                distances.append(frechet_distance(starts, one))
        walk.require_enough(sizes)
        return _Distances(tuple(distances), tuple(sizes), walk.width, walk.outcomes())

    def _kernel(self, samples: Sequence[Sample], evidence: Evidence) -> _Distances:
        walk = _Walk(self, samples, evidence)
        ends = (0, 2 * self.at)
        sizes = tuple(sum(map(len, walk.features(generation))) for generation in ends)
        walk.require_enough(sizes)
        blocks = KernelBlocks(*sizes)
        # In step, so that no more than a block of each set is held.
        for x, y in zip_longest(*map(walk.features, ends)):
            blocks.add(*(np.empty((0, walk.width)) if rows is None else rows for rows in (x, y)))
        return _Distances((blocks.distance(),), sizes, walk.width, walk.outcomes())


class _Walk:
    """Passes over the features of some samples' chains, keeping the books of what failed.

    width: D, the length of the features; 1 before any was seen.
    """

    def __init__(self, measure: SetMeasure, samples: Sequence[Sample], evidence: Evidence) -> None:
        self._measure = measure
        self._samples = samples
        self._evidence = evidence
        self._failed: dict[str, Outcome] = {}
        self.width = 1

    def features(self, generation: int) -> Iterator[npt.NDArray[np.float32]]:
        """(n, D) features of each shard at a generation; what failed is left out."""
        measure = self._measure
        shards = self._evidence.features(
            measure.plan.start, measure.encoder, generation, self._samples
        )
        for shard in shards:
            rows = []
            for chain, found in shard:
                if isinstance(found, Failure):
                    self._failed[chain.sample.id] = Outcome(chain.sample.id, found, measure.encoder)
                else:
                    rows.append(found)
            if rows:
                self.width = len(rows[0])
                yield np.stack(rows)

    def gather(self, generation: int) -> FeatureSet:
        """All features of a generation as one set."""
        gathered: FeatureSet | None = None
        for rows in self.features(generation):
            gathered = gathered or FeatureSet(self.width)
            gathered.add(rows)
        return gathered or FeatureSet(self.width)

    def outcomes(self) -> tuple[Outcome, ...]:
        """One for every chain."""
        plan = self._measure.plan
        chains = self._evidence.chains(plan.start, self._samples)
        return tuple(
            outcome_of_chain(chain, plan)
            if chain.failure is not None or name not in self._failed
            else self._failed[name]
            for name, chain in chains.items()
        )

    def require_enough(self, sizes: Sequence[int]) -> None:
        """Raise MeasurementError for a set of fewer than two images, which has no covariance."""
        if min(sizes) < _FEWEST:
            stopped = Counter(o.failure.kind for o in self.outcomes() if o.failure is not None)
            msg = (
                f"{self._measure.label} needs at least {_FEWEST} images in every set, and there are "
                f"{', '.join(map(str, sizes))}"
                + (f" (chains that stopped: {dict(stopped)})" if stopped else "")
            )
            raise MeasurementError(msg)


def make_sets(kind: str, name: str, table: SetTable, stage: Stage) -> SetMeasure:
    """The measure of a table.

    Of several encoders the first is taken that is known and whose weights are on this machine; the
    last one where none is, so that what is missing is named. Raises SuiteError for an iteration
    that the chains do not reach.
    """
    plan = stage.plan(name, table.start)
    wanted = [table.encoder] if isinstance(table.encoder, str) else table.encoder
    if not wanted:
        msg = f"suite {stage.suite!r}, metric {name!r}: encoder = [] names none"
        raise SuiteError(msg)
    here = [seat for seat in wanted if seat in stage.specs and weights_are_here(stage.specs[seat])]
    encoder = here[0] if here else wanted[-1]
    return SetMeasure(
        name=name,
        kind=kind,
        plan=plan,
        at=last_iteration(kind, name, table.at, plan, stage),
        encoder=encoder,
        features=features_name(stage.specs[encoder]) if encoder in stage.specs else encoder,
        pool=table.pool or "categories",
        parts=table.parts or "all",
    )
