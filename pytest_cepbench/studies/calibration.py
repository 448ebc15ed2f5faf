"""Calibration: a suite measured with one model under several seeds, and the noise of each case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import fsum, sqrt
from pathlib import Path
from statistics import fmean, stdev

from msgspec.structs import replace

from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import CepError, SpecError, StoreError
from pytest_cepbench.gate import CaseKey, Measurement, Noise, Policy, Verdict, judge, record_of
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.pairing import blocks_apart
from pytest_cepbench.gate.sensitivity import BEST, Power, design_of, power_of
from pytest_cepbench.gate.statistics import GAFFKE, Design, Differences, mean_bounds
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
from pytest_cepbench.suites.option_names import check_data_names

Announce = Callable[[str], None]

Scores = Mapping[str, Mapping[str, float]]

_NEEDS_CHAINS = "calibrate and doctor"


@dataclass(frozen=True)
class Trial:
    """The settings of a calibration.

    suite: its file.
    choices: the model, and those of the other roles.
    seeds: how many, from the suite's own on.
    data: data set name -> path or URL.
    samples: most of each category.
    overrides: tolerance and alpha that go before the suite's.
    Raises SpecError for fewer than two seeds, and for chains that were made elsewhere.
    """

    suite: Path
    choices: RoleChoices
    seeds: int
    data: Mapping[str, DataPlace] = field(default_factory=dict)
    samples: int | None = None
    overrides: Overrides = field(default_factory=Overrides)

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise SpecError(f"--seeds {self.seeds}: noise shows between at least 2 seeds")
        if self.choices.replay is not None:
            raise SpecError(
                f"{self.choices.replay!r} brings chains that were made elsewhere, with one seed: "
                "what they would have been under others is not known"
            )


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
    seeded: the measurements under all seeds, the suite's own first; none where one is lacking.
    """

    key: CaseKey
    label: str
    policy: Policy
    measured: Measurement | None
    noise: Noise | None
    reason: str = ""
    broken: bool = False
    seeded: tuple[Measurement, ...] = ()

    @property
    def power(self) -> Power | None:
        """What the case can tell; None without noise or statistics, or if the noise is 0."""
        design = None if self.noise is None else design_of(self.noise, self.noise.units)
        if design is None or not self.policy.statistical:
            return None
        return power_of(design, self.policy)


def prepare_calibration(trial: Trial, model_pool: ModelPool) -> PreparedCalibration:
    """Read the suite and its data, and bind the models.

    Raises what `load_prepared_suite`, `check_data_names` and binding raise, and SuiteError for a
    suite of answers.
    """
    own = load_prepared_suite(trial.suite, trial.choices, trial.data, trial.samples)
    check_data_names(trial.data, [own.suite], "--data")
    refuse_answers(own.suite, _NEEDS_CHAINS)
    for assignment in own.assignments.roles.values():
        model_pool.runner(assignment)
    policies = settle(
        {case.key: claim_of(own.suite, case.key, trial.overrides) for case in own.cases}
    )
    return PreparedCalibration(own.under_seeds(trial.seeds), policies)


def calibrate(
    prepared: PreparedCalibration, model_pool: ModelPool, announce: Announce
) -> list[Calibrated]:
    """Measure every case under every seed, and find its noise.

    announce: is given one line for each seed.
    Raises StoreError, which concerns all cases.
    """
    columns: list[list[Measurement | str]] = []
    for number, (suite, seed) in enumerate(zip(prepared.seeded, prepared.seeds, strict=True), 1):
        announce(f"{number} of {len(prepared.seeded)}: seed {seed}")
        run = require_chains(suite.run(model_pool), _NEEDS_CHAINS)
        columns.append([_measure(run, case) for case in prepared.own.cases])
    rows = zip(*columns, strict=True)
    return [
        _calibrated(case, prepared.policies[case.key], row, prepared.seeds)
        for case, row in zip(prepared.own.cases, rows, strict=True)
    ]


def _measure(run: SuiteRun, case: Case) -> Measurement | str:
    """The measurement of a case, or the reason why there is none."""
    try:
        return run.measure(case)
    except StoreError:
        raise
    except CepError as error:
        return str(error)


def _calibrated(
    case: Case, policy: Policy, row: Sequence[Measurement | str], seeds: Sequence[int]
) -> Calibrated:
    measured = [result for result in row if isinstance(result, Measurement)]
    own = row[0] if isinstance(row[0], Measurement) else None
    for result, seed in zip(row, seeds, strict=True):
        if isinstance(result, str):
            reason = f"not measured under seed {seed}: {result}"
            return Calibrated(case.key, case.label, policy, own, None, reason, broken=True)
    noise = noise_of(measured)
    known, reason = (None, noise) if isinstance(noise, str) else (noise, "")
    return Calibrated(
        case.key, case.label, policy, own, known, reason=reason, seeded=tuple(measured)
    )


def repeated_verdicts(case: Calibrated) -> list[Verdict]:
    """The gate's verdicts on measurements of the same weights, each seed against each other one.

    In the order of `itertools.permutations` of the seeds, of which the first is the baseline. They
    are judged as if the weights were others: the gate holds the same model without bounds.
    """
    return [
        judge(now, replace(record_of(before), identity=now.identity, model={}), case.policy).verdict
        for before, now in permutations(case.seeded, 2)
    ]


# -- the noise of a case, from the same case under several seeds -----------------------------------


def noise_of(measurements: Sequence[Measurement]) -> Noise | str:
    """The noise of a case, or a sentence why it cannot be told.

    measurements: of one case, one for each seed, at least 2. sd^2 is the mean over all pairs of
    seeds of the variance of a unit's difference, as the gate has it (`Differences.sd`); of a score
    of a whole set the units are its jackknife blocks. value_sd is the sample standard deviation of
    the values. Both in the metric's unit. A unit can lose its `worst` where the gate would make
    Gaffke's bounds of most pairs.
    Raises ValueError for fewer than 2 measurements.
    """
    if len(measurements) < 2:
        raise ValueError(f"noise shows between at least 2 seeds, got {len(measurements)}")
    differences = []
    for first, second in combinations(measurements, 2):
        difference = _difference(first, second)
        if isinstance(difference, str):
            return difference
        differences.append(difference)
    units = differences[0].units
    if units < 2:
        return "one independent sample shows no spread: at least 2 are needed"
    sd = round(sqrt(fsum(pair.sd**2 for pair in differences) / len(differences)), DECIMALS)
    return Noise(
        seeds=len(measurements),
        units=units,
        sd=sd,
        value_sd=round(stdev(measurement.value for measurement in measurements), DECIMALS),
        effective=round(fmean(pair.effective_units for pair in differences), 1),
        degrees=round(fmean(pair.degrees for pair in differences), 1),
        worst=_worst(differences, measurements[0]) if sd else None,
    )


def _worst(differences: Sequence[Differences], measurement: Measurement) -> float | None:
    """The most that a unit can lose; None where most bounds of such differences are Hall's."""
    blocks, shares = bool(measurement.sizes), measurement.shares
    methods = [mean_bounds(d, 0.05, shares=shares, blocks=blocks).method for d in differences]
    if 2 * methods.count(GAFFKE) <= len(methods):
        return None
    return Design.of(differences[0], BEST).worst


def _difference(first: Measurement, second: Measurement) -> Differences | str:
    whole_sets = bool(first.sizes)
    before, after = (first.blocks, second.blocks) if whole_sets else (first.scores, second.scores)
    if whole_sets and not before.keys() == after.keys() == first.scores.keys():
        return "its sets are too small to leave a block of samples out"
    if _names(before) != _names(after):
        what = "blocks of samples" if whole_sets else "samples"
        return f"not the same {what} were scored under every seed"
    differences = {
        category: {name: after[category][name] - score for name, score in part.items()}
        for category, part in before.items()
    }
    if not whole_sets:
        return Differences.of(differences, first.clusters)
    return Differences.of(blocks_apart(differences))


def _names(scores: Scores) -> dict[str, set[str]]:
    return {category: set(part) for category, part in scores.items()}
