"""Calibration: a suite played by one model against itself, under several seeds, case by case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import CepError, SpecError, StoreError
from pytest_cepbench.gate import CaseKey, Measurement, Noise, Policy
from pytest_cepbench.gate.sensitivity import Reach, reach, tolerance_remark
from pytest_cepbench.studies.noise_estimate import noise_of
from pytest_cepbench.suites import (
    Assignments,
    Case,
    ModelPool,
    RoleChoices,
    Suite,
    SuiteRun,
    cast_suite,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.gate_config import Overrides, check_names, claim_of, settle
from pytest_cepbench.suites.measures import Measure

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """What is to be calibrated.

    suite: its file. choices: the model, and who else plays. seeds: how many, from the suite's own
    on. data: data set name -> path. samples: most of each category. overrides: tolerance and alpha
    that go before the suite's.
    Raises SpecError for fewer than two seeds, and for chains that were made elsewhere.
    """

    suite: Path
    choices: RoleChoices
    seeds: int
    data: Mapping[str, Path] = field(default_factory=dict)
    samples: int | None = None
    overrides: Overrides = field(default_factory=Overrides)

    def __post_init__(self) -> None:
        if self.seeds < 2:
            msg = f"--seeds {self.seeds}: noise shows between at least 2 seeds"
            raise SpecError(msg)
        if self.choices.replay is not None:
            msg = (
                f"{self.choices.replay!r} brings chains that were made elsewhere, with one seed: "
                "what they would have been under others is not known"
            )
            raise SpecError(msg)


@dataclass(frozen=True)
class CalibrationModels:
    """The suite under one seed, everything settled but the measuring."""

    seed: int
    suite: Suite
    lineup: Assignments
    measures: Mapping[str, Measure]


@dataclass(frozen=True)
class PreparedCalibration:
    """A trial that can begin. plays: the suite's own seed first. policies: by case."""

    suite: Suite
    dataset: Dataset
    plays: tuple[CalibrationModels, ...]
    cases: tuple[Case, ...]
    policies: Mapping[CaseKey, Policy]


@dataclass(frozen=True)
class Calibrated:
    """What was found of a case.

    policy: with its share of alpha. measured: under the suite's own seed. noise: None where it
    cannot be told, for a reason. broken: whether that is because the case could not be measured.
    """

    key: CaseKey
    label: str
    policy: Policy
    measured: Measurement | None
    noise: Noise | None
    reason: str = ""
    broken: bool = False

    @property
    def reach(self) -> Reach | None:
        """How small a drop shows; None without noise or statistics, or where the noise is 0."""
        if self.noise is None or self.noise.sd == 0 or not self.policy.statistical:
            return None
        return reach(self.noise.sd, self.noise.units, self.policy)

    @property
    def remark(self) -> str | None:
        """A sentence where the tolerance is below what can be seen, and that matters to the gate."""
        if self.noise is None or not self.policy.statistical:
            return None
        return tolerance_remark(self.noise, self.noise.units, self.policy)


def rehearse(trial: Trial, roster: ModelPool) -> PreparedCalibration:
    """Read the suite and its data, and find out whether the model can play.

    Raises what `load_suite`, `load_data`, `cast_suite`, `check_names` and binding raise.
    """
    suite = load_suite(trial.suite)
    dataset = load_data(suite, trial.data, trial.samples).repeated(suite.table.chain.seeds)
    own = suite.table.chain.seed
    plays = [_play(suite, seed, trial.choices) for seed in range(own, own + trial.seeds)]
    for seat in plays[0].lineup.seats.values():
        roster.runner(seat)
    cases = tuple(list_cases(plays[0].measures, suite.name, dataset, suite.table.groups))
    check_names(suite, cases)
    claims = {case.key.within: claim_of(suite, case.key, trial.overrides) for case in cases}
    settled = settle(claims)
    policies = {case.key: settled[case.key.within] for case in cases}
    return PreparedCalibration(suite, dataset, tuple(plays), cases, policies)


def calibrate(rehearsal: PreparedCalibration, roster: ModelPool, tell: Tell) -> list[Calibrated]:
    """Measure every case under every seed, and find its noise.

    tell: is given one line for each seed. Raises StoreError, which concerns all cases.
    """
    columns: list[list[Measurement | str]] = []
    for number, play in enumerate(rehearsal.plays, 1):
        tell(f"{number} of {len(rehearsal.plays)}: seed {play.seed}")
        run = SuiteRun(play.suite, rehearsal.dataset, play.lineup, play.measures, roster)
        columns.append([_measure(run, case) for case in rehearsal.cases])
    rows = zip(*columns, strict=True)
    return [
        _calibrated(case, rehearsal.policies[case.key], row, rehearsal.plays)
        for case, row in zip(rehearsal.cases, rows, strict=True)
    ]


def _play(suite: Suite, seed: int, choices: RoleChoices) -> CalibrationModels:
    chain = msgspec.structs.replace(suite.table.chain, seed=seed)
    table = msgspec.structs.replace(suite.table, chain=chain)
    seeded = msgspec.structs.replace(suite, table=table)
    return CalibrationModels(seed, seeded, *cast_suite(seeded, choices))


def _measure(run: SuiteRun, case: Case) -> Measurement | str:
    """What was measured, or why it could not be."""
    try:
        return run.measure(case)
    except StoreError:
        raise
    except CepError as error:
        return str(error)


def _calibrated(
    case: Case, policy: Policy, row: Sequence[Measurement | str], plays: Sequence[CalibrationModels]
) -> Calibrated:
    measured = [one for one in row if isinstance(one, Measurement)]
    own = row[0] if isinstance(row[0], Measurement) else None
    for one, play in zip(row, plays, strict=True):
        if isinstance(one, str):
            reason = f"not measured under seed {play.seed}: {one}"
            return Calibrated(case.key, case.label, policy, own, None, reason, broken=True)
    found = noise_of(measured)
    if isinstance(found, str):
        return Calibrated(case.key, case.label, policy, own, None, found)
    return Calibrated(case.key, case.label, policy, own, found)
