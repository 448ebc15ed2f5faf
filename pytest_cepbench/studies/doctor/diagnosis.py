"""What the doctor's checks read, a suite that was measured, and what they find, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Literal

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainPlan, Modality, RoleRunner, Step
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.gate import Policy
from pytest_cepbench.measures.chain_similarity import SimilarityMeasure
from pytest_cepbench.measures.mapping_drift import MappingMeasure
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.studies.study_data import StudiedModel, StudyUsage
from pytest_cepbench.suites import Case, ChainRun, ModelPool

Status = Literal["not done", "pass", "remark", "problem"]
"""Of a check: there was nothing to check, or it could not be checked; nothing to say; something to
know; the gate cannot keep its promise as it is."""

_STATUSES: Sequence[Status] = ("not done", "pass", "remark", "problem")

Cell = str | float | int | None

Finding = tuple[Status, str, str]
"""Status, a sentence, advice (empty where there is none)."""

Vector = npt.NDArray[np.float64]

STARTS = 24
"""About how many starts are distorted, or drawn from."""

TWICE = 8
"""Inputs that an encoder or a generator is given a second time."""

NAMED = 5
"""Cases or samples that a sentence names; the others are counted."""


# -- what the checks find --------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckTable:
    """A table of what was measured.

    head: names of the columns.
    rows: their cells; the first of a row names it, None is not known.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Check:
    """One check.

    name: what was checked.
    status: the result.
    said: sentences, the first the shortest account.
    advice: what to do about it, a sentence each.
    figures: tables.
    """

    name: str
    status: Status
    said: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    figures: tuple[CheckTable, ...] = ()


def check_of(name: str, findings: Sequence[Finding], summary: str, *figures: CheckTable) -> Check:
    """The check with these findings: the gravest status, every sentence, each piece of advice once.

    summary: the sentence of a check without findings, which passes.
    """
    statuses: list[Status] = ["pass", *(status for status, _, _ in findings)]
    status = max(statuses, key=_STATUSES.index)
    sentences = tuple(sentence for _, sentence, _ in findings) or (summary,)
    advice = tuple(dict.fromkeys(advice for _, _, advice in findings if advice))
    return Check(name, status, sentences, advice, figures)


@dataclass(frozen=True)
class Diagnosis:
    """The checks of one set-up.

    suite, version, file: name, version and file of the suite.
    data: identity of the data set.
    samples: their number, each counted once for each of its seeds.
    seeds: of the chains.
    under_test, model: role and spec of the model to be gated.
    players: all models that were called, those of the other roles too.
    checks: in the order of the page.
    damage: entries that the store found damaged and computed again.
    effort: the work that the checks took.
    """

    suite: str
    version: int
    file: str
    data: Mapping[str, str]
    samples: int
    seeds: tuple[int, ...]
    under_test: str
    model: str
    players: tuple[StudiedModel, ...]
    checks: tuple[Check, ...]
    damage: tuple[str, ...] = ()
    effort: StudyUsage = field(default_factory=StudyUsage)

    @property
    def problems(self) -> tuple[Check, ...]:
        """The checks that found a problem."""
        return tuple(check for check in self.checks if check.status == "problem")


# -- what the checks read --------------------------------------------------------------------------


@dataclass(frozen=True)
class EncoderComparison:
    """An encoder that compares artifacts with starts.

    plan: of the chains.
    encoder: name of its role.
    generations: those that are compared with the start.
    policy: of the case that tolerates the smallest drop.
    visible: the smallest drop that any of its cases fails in 80 % of runs; None where not known.
    """

    plan: ChainPlan
    encoder: str
    generations: tuple[int, ...]
    policy: Policy
    visible: float | None

    @property
    def kind(self) -> Modality:
        """The modality of the starts."""
        return self.plan.start

    @property
    def reads_drawings(self) -> bool:
        """True where starts or compared artifacts are what generators make."""
        return self.plan.makes in {self.plan.modality(g) for g in (0, *self.generations)}


@dataclass(frozen=True)
class MeasuredSuite:
    """A suite as it is set up, measured under its own seed.

    run: the measuring.
    cases: its cases.
    calibrations: the calibration of each case.
    model_pool: its models.
    second_store: an empty store, for inputs that a model is given a second time.
    """

    run: ChainRun
    cases: tuple[Case, ...]
    calibrations: tuple[Calibrated, ...]
    model_pool: ModelPool
    second_store: Store

    @property
    def dataset(self) -> Dataset:
        """Its samples."""
        return self.run.dataset

    def runner(self, role: str) -> RoleRunner:
        """The runner of a role, by its name."""
        return self.model_pool.runner(self.run.assignments.roles[role])

    def second(self, role: str) -> RoleRunner:
        """The same model, which is called even where the store has the result."""
        runner = self.runner(role)
        return RoleRunner(runner.bound, self.second_store, runner.handle, tally=runner.tally)

    def comparisons(self) -> list[EncoderComparison]:
        """One for each start and encoder that a similarity of the suite needs."""
        uses: dict[tuple[Modality, str], list[tuple[ChainPlan, tuple[int, ...], Calibrated]]] = {}
        for case, calibrated in zip(self.cases, self.calibrations, strict=True):
            measure = self.run.measures[case.key.metric]
            if not isinstance(measure, SimilarityMeasure | MappingMeasure):
                continue
            if isinstance(measure, MappingMeasure) and measure.rates:
                continue
            for required in measure.required_features(case):
                if required.reader is not None:
                    use = (required.plan, required.generations[1:], calibrated)
                    uses.setdefault((required.plan.start, required.reader), []).append(use)
        comparisons = []
        for (_, encoder), own in uses.items():
            generations = sorted({g for _, compared, _ in own for g in compared})
            policy = min((case.policy for *_, case in own), key=lambda policy: policy.tolerance)
            reaches = [case.power.visible for *_, case in own if case.power is not None]
            visible = min(filter(isfinite, reaches), default=None)
            comparisons.append(
                EncoderComparison(own[0][0], encoder, tuple(generations), policy, visible)
            )
        return comparisons

    def chosen(self, start: Modality) -> tuple[Sample, ...]:
        """About `STARTS` samples, the same in every run, from all categories alike.

        Further seeds of a sample start where it does, and are left out.
        """
        depth = max(1, ceil(STARTS / len(self.dataset.categories)))
        return tuple(
            sample
            for sample in self.dataset.limited(depth).samples
            if sample.replicate == 0
            and (sample.text if start == "text" else sample.seed(start)) is not None
        )


def encode(
    runner: RoleRunner, kind: Modality, inputs: Sequence[tuple[str, object]]
) -> list[Vector | None]:
    """The vector of each artifact, unit length; None for one that the encoder cannot read.

    inputs: (digest, what the role takes). Equal ones are encoded once, and what the store has is
    not encoded again.
    Raises what encoding raises.
    """
    steps = [
        Step(runner.key("", 0, kind, digest), 0, always(artifact)) for digest, artifact in inputs
    ]
    vectors: list[Vector | None] = []
    for result in runner.ask(f"encode_{kind}s", steps):
        vector = None if isinstance(result, Failure) else np.asarray(result, dtype=np.float64)
        vectors.append(None if vector is None else vector / np.linalg.norm(vector))
    return vectors


def always(value: object) -> Callable[[], object]:
    """A function that returns the value."""
    return lambda: value


def distances(vectors: Sequence[Vector | None], others: Sequence[Vector | None]) -> list[float]:
    """1 - the cosine of each pair of unit vectors, at least 0 in spite of rounding.

    Pairs that lack one are left out.
    """
    return [
        max(0.0, 1.0 - float(vector @ other))
        for vector, other in zip(vectors, others, strict=True)
        if vector is not None and other is not None
    ]
