"""Calibration: a suite measured with one model under several seeds, and the noise of each case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import ceil, floor, fsum, inf, isfinite, log10, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import CepError, SpecError, StoreError
from pytest_cepbench.gate import CaseKey, Noise, Policy, record_of
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.pairing import blocks_apart
from pytest_cepbench.gate.sensitivity import (
    BEST,
    Power,
    design_of,
    largest_drop,
    power_of,
    power_remark,
)
from pytest_cepbench.gate.statistics.bounds import GAFFKE, mean_bounds
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.statistics.power import Design, tolerance_that_holds, units_needed
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.suites import (
    Case,
    ModelPool,
    PreparedSuite,
    RoleChoices,
    SuiteRun,
    load_prepared_suite,
)
from pytest_cepbench.suites.chain_run import refuse_answers, require_chains
from pytest_cepbench.suites.gate_config import Overrides, claim_of, settle
from pytest_cepbench.suites.role_assignment import check_data_names, check_encoders
from pytest_cepbench.suites.suite_run import CaseMeasurement

Announce = Callable[[str], None]

_NEEDS_CHAINS = "calibrate and doctor"

_MOST_SEEDS = 1000


@dataclass(frozen=True)
class PreparedCalibration:
    """A calibration that can begin.

    seeded: the suite under each seed, its own seed first.
    policies: how each case is judged, by its key.
    """

    seeded: tuple[PreparedSuite, ...]
    policies: Mapping[CaseKey, Policy]

    @property
    def own(self) -> PreparedSuite:
        """The suite under its own seed."""
        return self.seeded[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds under which the suite is measured, its own first."""
        return tuple(prepared.suite.table.chain.seed for prepared in self.seeded)


@dataclass(frozen=True)
class Calibrated:
    """The calibration of a case.

    policy: with its share of alpha.
    measured: under the suite's own seed.
    noise: None where it cannot be told, for a reason.
    broken: whether that is because the case could not be measured.
    """

    key: CaseKey
    label: str
    policy: Policy
    measured: CaseMeasurement | None
    noise: Noise | None
    reason: str = ""
    broken: bool = False

    @cached_property
    def power(self) -> Power | None:
        """What the case can tell; None without noise or statistics, or if the noise is 0."""
        design = None if self.noise is None else design_of(self.noise, self.noise.units)
        if design is None or not self.policy.statistical:
            return None
        return power_of(design, self.policy)


def prepare_calibration(
    suite: Path,
    choices: RoleChoices,
    seeds: int,
    model_pool: ModelPool,
    data: Mapping[str, DataPlace] | None = None,
    samples: int | None = None,
) -> PreparedCalibration:
    """Read a suite and its data, and bind the models.

    suite: its file.
    choices: the model, and those of the other roles.
    seeds: how many, from the suite's own on.
    data: data set name -> path or URL.
    samples: most of each category.
    Raises SpecError for fewer than two seeds or too many, and for chains made elsewhere; what
    `load_prepared_suite`, `check_data_names` and binding raise; SuiteError for a suite of answers.
    """
    if not 2 <= seeds <= _MOST_SEEDS:
        raise SpecError(
            f"--seeds {seeds}: noise shows between at least 2 seeds, and at most {_MOST_SEEDS}"
        )
    if choices.replay is not None:
        raise SpecError(
            f"{choices.replay!r} brings chains that were made elsewhere, with one seed: what they "
            "would have been under others is not known"
        )
    own = load_prepared_suite(suite, choices, data or {}, samples)
    check_data_names(data or {}, [own.suite], "--data")
    check_encoders(choices.encoders, [own.suite], "--encoder")
    refuse_answers(own.suite, _NEEDS_CHAINS)
    for assignment in own.assignments.roles.values():
        model_pool.runner(assignment)
    policies = settle({case.key: claim_of(own.suite, case.key, Overrides()) for case in own.cases})
    return PreparedCalibration(own.under_seeds(seeds), policies)


def calibrate(
    prepared: PreparedCalibration, model_pool: ModelPool, announce: Announce
) -> list[Calibrated]:
    """Measure every case under every seed, and find its noise.

    announce: is given one line for each seed.
    Raises StoreError, which concerns all cases.
    """
    columns: list[list[CaseMeasurement | str]] = []
    for number, (suite, seed) in enumerate(zip(prepared.seeded, prepared.seeds, strict=True), 1):
        announce(f"{number} of {len(prepared.seeded)}: seed {seed}")
        run = require_chains(suite.run(model_pool), _NEEDS_CHAINS)
        columns.append([_measure(run, case) for case in prepared.own.cases])
    calibrated = []
    for case, *row in zip(prepared.own.cases, *columns, strict=True):
        policy = prepared.policies[case.key]
        measured = tuple(result for result in row if isinstance(result, CaseMeasurement))
        own = row[0] if isinstance(row[0], CaseMeasurement) else None
        results = zip(row, prepared.seeds, strict=True)
        lacking = [
            f"not measured under seed {seed}: {why}"
            for why, seed in results
            if isinstance(why, str)
        ]
        noise = lacking[0] if lacking else noise_of(measured)
        known, reason = (None, noise) if isinstance(noise, str) else (noise, "")
        calibrated.append(
            Calibrated(case.key, case.label, policy, own, known, reason, broken=bool(lacking))
        )
    return calibrated


def _measure(run: SuiteRun, case: Case) -> CaseMeasurement | str:
    """The measurement of a case, or the reason why there is none."""
    try:
        return run.measure(case)
    except StoreError:
        raise
    except CepError as error:
        return str(error)


# -- the noise of a case, from the same case under several seeds -----------------------------------


def noise_of(measurements: Sequence[CaseMeasurement]) -> Noise | str:
    """The noise of a case, or a sentence why it cannot be told.

    measurements: of one case, one for each seed, at least 2. sd^2 is the mean over all pairs of
    seeds of the variance of a unit's difference, as the gate has it (`Differences.sd`); of a score
    of a whole set the units are its jackknife blocks. value_sd is the sample standard deviation of
    the values. Both in the metric's unit. A unit can lose its `worst` where the gate would make
    Gaffke's bounds of most pairs.
    """
    differences = []
    for first, second in combinations(measurements, 2):
        difference = _difference(first, second)
        if isinstance(difference, str):
            return difference
        differences.append(difference)
    units = differences[0].units
    if units < 2:
        return "one independent sample shows no spread: at least 2 are needed"
    blocks, shares = bool(measurements[0].sizes), measurements[0].shares
    methods = [mean_bounds(d, 0.05, shares=shares, blocks=blocks).method for d in differences]
    by_gaffke = 2 * methods.count(GAFFKE) > len(methods)
    sd = round(sqrt(fsum(pair.sd**2 for pair in differences) / len(differences)), DECIMALS)
    return Noise(
        seeds=len(measurements),
        units=units,
        sd=sd,
        value_sd=round(stdev(measurement.value for measurement in measurements), DECIMALS),
        effective=round(fmean(pair.effective_units for pair in differences), 1),
        degrees=round(fmean(pair.degrees for pair in differences), 1),
        worst=Design.of(differences[0], BEST).worst if sd and by_gaffke else None,
    )


def _difference(first: CaseMeasurement, second: CaseMeasurement) -> Differences | str:
    whole_sets = bool(first.sizes)
    before, after = (first.blocks, second.blocks) if whole_sets else (first.scores, second.scores)
    if whole_sets and not before.keys() == after.keys() == first.scores.keys():
        return "its sets are too small to leave a block of samples out"
    if {c: set(part) for c, part in before.items()} != {c: set(part) for c, part in after.items()}:
        what = "blocks of samples" if whole_sets else "samples"
        return f"not the same {what} were scored under every seed"
    differences = {
        category: {name: after[category][name] - score for name, score in part.items()}
        for category, part in before.items()
    }
    if not whole_sets:
        return Differences.of(differences, first.clusters)
    return Differences.of(blocks_apart(differences))


TOLERANCE = 0.01
"""The tolerance of a suite whose noise is not known, and the smallest that is proposed."""

_SMALL = 20
"""With fewer images in a category, a single odd one can move its number by the tolerance."""

FEWEST = 25
"""Fewest samples of a category that are proposed, where there are as many."""


@dataclass(frozen=True)
class Proposal:
    """What a suite should ask for.

    tolerance: largest drop that does not matter, of every case but those in `larger`.
    cases: PART/METRIC -> tolerance of a case that needs a larger one, or can lose no more than it.
    samples: most of each category; None for all.
    reasons: a sentence each, also why there is no measured number.
    power: part -> what its case can tell with these samples, where that is known.
    measured: whether the noise was measured; the default tolerance is proposed otherwise.
    """

    tolerance: float = TOLERANCE
    cases: Mapping[str, float] = field(default_factory=dict)
    samples: int | None = None
    reasons: tuple[str, ...] = ()
    power: Mapping[str, Power] = field(default_factory=dict)
    measured: bool = False


def propose(calibrated: Sequence[Calibrated], counts: Mapping[str, int], metric: str) -> Proposal:
    """The samples that hold good checkpoints at 0.01, and the tolerance at which those here do.

    calibrated: the cases of a pilot.
    counts: category -> samples that there are.
    metric: the one that is gated with statistics. A sample is taken for one independent unit.
    Of a model whose seed changes nothing, and where the whole could not be measured, the defaults.
    """
    cases = {case.key.part: case for case in calibrated if case.key.metric == metric}
    whole = cases.get(OVERALL)
    if whole is None or whole.noise is None:
        reason = "" if whole is None else whole.reason
        return Proposal(reasons=(f"the noise could not be measured: {reason}",))
    noise = whole.noise
    if noise.sd == 0:
        reason = (
            f"the noise is 0 over {noise.seeds} seeds: no model that plays uses its seed, so "
            "differences between checkpoints are not known"
        )
        return Proposal(reasons=(reason,))
    design = design_of(noise, noise.units)
    assert design is not None  # noise is of two units or more
    needed = units_needed(design, TOLERANCE, whole.policy.alpha) or sum(counts.values())
    # The fewest of each category that make so many in all; None where all are needed.
    most = max(counts.values())
    fewer = range(min(FEWEST, most), most)
    samples = next((n for n in fewer if sum(min(c, n) for c in counts.values()) >= needed), None)
    used = {name: min(count, samples or count) for name, count in counts.items()}
    units = {OVERALL: sum(used.values()), **used}
    planned = {
        part: plan
        for part, case in cases.items()
        if part in units and (plan := _planned(case, units[part])) is not None
    }
    tolerance = planned[OVERALL].tolerance
    own = {
        part: plan.tolerance
        for part, plan in planned.items()
        if plan.tolerance > tolerance or plan.loss <= tolerance
    }
    policies = {
        part: replace(cases[part].policy, tolerance=own.get(part, tolerance)) for part in planned
    }
    scatter = (
        f"paired differences of a sample scatter by {noise.sd:.3g} over {noise.seeds} seeds "
        f"({noise.units} samples)"
    )
    enough = (
        f"about {needed} samples would hold as good a checkpoint at a tolerance of {TOLERANCE:g} "
        f"in the whole; there are {sum(counts.values())}"
    )
    reasons = [scatter, enough]
    reasons += [
        f"{part} can lose {plan.loss:.2g}, and a tolerance that holds good checkpoints, "
        f"{plan.holding:g}, would hide that: "
        f"{power_remark(plan.design, policies[part]) or 'no drop fails there'}"
        for part, plan in planned.items()
        if not plan.sees
    ]
    if small := [f"{name} ({n})" for name, n in sorted(counts.items()) if n < _SMALL]:
        reasons.append(
            f"fewer than {_SMALL} images: {', '.join(small[:5])}. Give more: a single "
            "odd image can decide such a case"
        )
    power = {part: power_of(plan.design, policies[part]) for part, plan in planned.items()}
    by_case = {f"{part}/{metric}": drop for part, drop in own.items()}
    return Proposal(tolerance, by_case, samples, tuple(reasons), power, measured=True)


class _Plan(NamedTuple):
    """What a case of so many samples can hold.

    design: of its samples.
    holding: the smallest tolerance at which good checkpoints are held, at least `TOLERANCE`.
    loss: the most that the case can lose; infinite where that has no end.
    sees: whether a fall that large would fail in most runs at that tolerance.
    """

    design: Design
    holding: float
    loss: float
    sees: bool

    @property
    def tolerance(self) -> float:
        """The one that holds; half of what can be lost where no drop would be seen with it."""
        return self.holding if self.sees else max(TOLERANCE, _rounded_up(self.loss / 2))


def _planned(case: Calibrated, units: int) -> _Plan | None:
    """The plan of a case; None where its noise is not known, and of one sample."""
    design = None if case.noise is None else design_of(case.noise, units)
    if design is None:
        return None
    holding = max(TOLERANCE, _rounded_up(tolerance_that_holds(design, case.policy.alpha)))
    visible = power_of(design, replace(case.policy, tolerance=holding)).visible
    loss, measured = None, case.measured
    if measured is not None:
        loss = largest_drop(measured.value, record_of(measured), measured.floor)
    loss = inf if loss is None else loss
    return _Plan(design, holding, loss, visible <= loss)


def _rounded_up(value: float) -> float:
    """To two digits; the value itself where it is 0 or infinite."""
    if not value or not isfinite(value):
        return value
    step = 10.0 ** (floor(log10(value)) - 1)
    return round(ceil(round(value / step, 6)) * step, 12)
