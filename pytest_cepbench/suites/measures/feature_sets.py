"""fid, gc_fid, kid: how far the images of an iteration, taken together, are from the starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.metrics.frechet import gc_fid_at_t
from pytest_cepbench.models.registry import features_name, weights_present
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.base import (
    CaseScores,
    Measured,
    RequiredFeatures,
    SuiteContext,
    by_category,
    everyone,
    outcome_of_chain,
)
from pytest_cepbench.suites.measures.chain_similarity import last_iteration
from pytest_cepbench.suites.measures.jackknife_blocks import JACKKNIFE, scored_blocks, unbounded
from pytest_cepbench.suites.measures.measure_options import Parts, Pool, SetTable
from pytest_cepbench.suites.measures.set_distances import FEWEST, ImageSets, SetStep

_ALL = "all images"

LABELS = {"fid": "FID", "gc_fid": "GC_FID@{T}", "kid": "KID"}
"""Fréchet distance at one iteration (MMGenBench, Eq. 5), its weighted mean over iterations
(GenCeption, Eq. 4), kernel distance at one iteration."""


@dataclass(frozen=True)
class _Course:
    """Of one category. steps: one for each iteration that counts. outcomes: of every chain."""

    steps: tuple[SetStep, ...]
    outcomes: tuple[CaseScores, ...]

    @property
    def distances(self) -> list[float]:
        """One for each step that has any."""
        return [step.whole for step in self.steps if step.whole is not None]

    @property
    def images(self) -> tuple[int, ...]:
        """How many starts, then how many images at each step."""
        return (self.steps[0].images[0], *(step.images[1] for step in self.steps))

    @property
    def why(self) -> str:
        """What is in the way of leaving blocks out, if anything."""
        return next((step.why for step in self.steps if step.why), "")

    def __str__(self) -> str:
        later = ", ".join(map(str, self.images[1:]))
        return f"{self.images[0]} against {later} (D = {self.steps[0].width})"


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
    per_sample: bool = False
    span: float | None = None

    @property
    def label(self) -> str:
        """Such as GC_FID@3 [Inception]."""
        return f"{LABELS[self.kind].format(T=self.at)} [{self.features}]"

    @property
    def identity(self) -> str:
        """Formula, iteration, and how blocks are left out."""
        return f"{self.kind}/2 at {self.at}, over {self.pool}, {JACKKNIFE}"

    @property
    def seats(self) -> tuple[str, ...]:
        """The encoder."""
        return (self.encoder,)

    @property
    def plans(self) -> tuple[ChainPlan, ...]:
        """One kind of chains."""
        return (self.plan,)

    def readings(self, _: Case) -> tuple[RequiredFeatures, ...]:
        """The starts, and the images of the iterations that count."""
        return (RequiredFeatures(self.plan, self._generations, self.encoder, ends=False),)

    def read(self, _: Case, samples: Sequence[Sample], evidence: ChainData) -> None:
        """The features, which only the store keeps: all of them at once are needed once."""
        evidence.store_features(self.plan.start, self.encoder, self._generations, samples)

    def measure(self, case: Case, evidence: ChainData) -> Measured:
        """One distance per category, or one over all samples, and its pseudo-values by block.

        A chain that stopped has no image to enter the set: the sets shrink, their sizes are part of
        what was measured, and the gate compares no sets of different sizes.
        """
        parts = by_category(case, evidence)
        found = {name: self._course(part, evidence) for name, part in parts.items()}
        blocks = {name: self._blocks(one) for name, one in found.items()}
        return Measured(
            scores={name: {_ALL: self._value(one.distances)} for name, one in found.items()},
            samples=everyone(parts),
            outcomes=[outcome for one in found.values() for outcome in one.outcomes],
            curve=tuple(np.mean([one.distances for one in found.values()], axis=0).tolist()),
            sizes={name: one.images[0] for name, one in found.items()},
            blocks={name: scored for name, scored in blocks.items() if scored},
            notes=(
                *(f"images of {name}: {one}" for name, one in found.items()),
                *(unbounded(name, one.why) for name, one in found.items() if one.why),
            ),
            identity={"sets": "; ".join(f"{name} {one}" for name, one in found.items())},
        )

    def show(self, _: Case, __: str, ___: ChainData) -> None:
        """A distance of sets belongs to no chain."""

    @property
    def _generations(self) -> tuple[int, ...]:
        first = 1 if self.kind == "gc_fid" else self.at
        return (0, *range(2 * first, 2 * self.at + 1, 2))

    def _value(self, distances: Sequence[float]) -> float:
        """Of the distances at the iterations that count."""
        return gc_fid_at_t(np.array(distances)) if self.kind == "gc_fid" else distances[-1]

    def _blocks(self, course: _Course) -> Mapping[str, float]:
        without = zip(*(step.without for step in course.steps), strict=True)
        rest = [] if course.why else [self._value(distances) for distances in without]
        return scored_blocks(self._value(course.distances), rest)

    def _course(self, samples: Sequence[Sample], evidence: ChainData) -> _Course:
        """Raises MeasurementError for a set of too few images, counting what stopped the chains."""
        sets = ImageSets(self.plan, self.encoder, samples, evidence)
        step = sets.kernel if self.kind == "kid" else sets.frechet
        first = 1 if self.kind == "gc_fid" else self.at
        steps = tuple(step(2 * t) for t in range(first, self.at + 1))
        failed = {name: why for one in steps for name, why in one.failed.items()}
        outcomes = tuple(
            outcome_of_chain(chain, self.plan)
            if chain.failure is not None or name not in failed
            else CaseScores(name, failed[name], self.encoder)
            for name, chain in evidence.chains(self.plan.start, samples).items()
        )
        course = _Course(steps, outcomes)
        if min(course.images) < FEWEST:
            stopped = Counter(o.failure.kind for o in outcomes if o.failure is not None)
            msg = (
                f"{self.label} needs at least {FEWEST} images in every set, and there are "
                f"{', '.join(map(str, course.images))}"
                + (f" (chains that stopped: {dict(stopped)})" if stopped else "")
            )
            raise MeasurementError(msg)
        return course


def make_sets(kind: str, name: str, table: SetTable, stage: SuiteContext) -> SetMeasure:
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
    here = [seat for seat in wanted if seat in stage.specs and weights_present(stage.specs[seat])]
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
