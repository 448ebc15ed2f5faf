"""Who plays which part in a suite: the command line's models, the suite's for what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.errors import (
    MissingDependencyError,
    SpecError,
    SuiteNotApplicableError,
    unknown_name,
)
from pytest_cepbench.models.protocols import ROLE_NAMES, RoleName
from pytest_cepbench.models.registry import PRESET
from pytest_cepbench.models.registry import check_installed as check_libraries
from pytest_cepbench.models.spec import ModelSpec, parse_spec
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.measures import Measure, SuiteContext, make_measures
from pytest_cepbench.suites.measures.base import grower
from pytest_cepbench.suites.model_options import RoleAssignment, RoleChoices
from pytest_cepbench.suites.relative_specs import check_located, locate

_ARTICLES: Mapping[RoleName, str] = {
    "describer": "a",
    "generator": "a",
    "encoder": "an",
    "detector": "a",
    "judge": "a",
}


@dataclass(frozen=True)
class Assignments:
    """All seats of a suite's run, and which of them are under test.

    seats: by name: a role's, or a further encoder's. gated: the role under test, both of a unified
    model, or "replay" where the chains were made elsewhere. subject: the spec of what is under test.
    replay: those chains. spare: seats that somebody was named for and that no chain or metric needs; a
    test of the user's own may ask for them.
    """

    seats: Mapping[str, RoleAssignment]
    gated: tuple[str, ...]
    subject: str
    replay: Replay | None = None
    spare: Mapping[str, RoleAssignment] = field(default_factory=dict)

    @property
    def under_test(self) -> str:
        """What is under test, in words."""
        return "+".join(self.gated)


def cast_suite(suite: Suite, choices: RoleChoices) -> tuple[Assignments, dict[str, Measure]]:
    """Fill every seat that the suite's chains and metrics need, and make its measures.

    `--model` goes first, then the role's own option, then the suite's default. Raises SpecError
    naming the option that is missing, SuiteError for metrics that do not fit the suite and for a folder
    that it names and that is not there, the errors of `RoleChoices`, and NotConcernedError where the
    model under test has nothing to do, or a preset is named that the suite does not have.
    """
    known = _known_seats(suite, choices)
    specs = {name: seat.spec for name, seat in known.items()}
    measures = make_measures(suite.metrics, SuiteContext(suite.name, suite.plans, specs))
    needed = _needed(suite, measures, replayed=choices.replay is not None)
    named = ("replay",) if choices.replay is not None else choices.played
    gated = tuple(role for role in named if role in (*needed, "replay"))
    if not gated:
        msg = f"the {' and '.join(named)} under test plays no part in suite {suite.name!r}"
        if choices.model is None:
            msg += ": name with --model what is to be gated"
        raise SuiteNotApplicableError(msg)
    for name in needed:
        if name not in known:
            raise SpecError(_nobody(suite, name))
        check_located(suite, name, choices)
    seats = {name: known[name] for name in needed}
    subject = seats[gated[0]].spec.text if choices.replay is None else choices.replay
    spare = {name: seat for name, seat in known.items() if name not in seats}
    return Assignments(seats, gated, subject, choices.chains, spare), measures


def check_installed(suite: Suite, lineup: Assignments) -> None:
    """Raise SpecError where a seat's model needs libraries that are not here, so that it is said once."""
    for seat in lineup.seats.values():
        try:
            check_libraries(seat.spec)
        except MissingDependencyError as error:
            msg = f"suite {suite.name!r}: {seat.role} {seat.spec}: {error}"
            raise SpecError(msg) from error


def _known_seats(suite: Suite, choices: RoleChoices) -> dict[str, RoleAssignment]:
    seats: dict[str, RoleAssignment] = {}
    for role in ROLE_NAMES:
        default = getattr(suite.table.roles, role)
        if default is not None:
            seats[role] = RoleAssignment(role, locate(suite, default), f"suite {suite.name}")
    for name, spec in suite.table.encoders.items():
        seats[name] = RoleAssignment("encoder", locate(suite, spec), f"suite {suite.name}")
    seats |= choices.seats
    return {name: _settle(suite, seat) for name, seat in seats.items()}


def _needed(suite: Suite, measures: Mapping[str, Measure], *, replayed: bool) -> list[str]:
    """Seats in a fixed order: those who grow chains, then readers."""
    growers = {
        grower(plan, generation)
        for plan in suite.plans.values()
        for generation in range(1, plan.generations + 1)
    }
    readers = [seat for measure in measures.values() for seat in measure.seats]
    names = dict.fromkeys((*sorted(growers), *readers))
    return [name for name in names if not (replayed and name in growers)]


def _nobody(suite: Suite, name: str) -> str:
    if name in ROLE_NAMES:
        role: RoleName = next(role for role in ROLE_NAMES if role == name)
        return (
            f"suite {suite.name!r} needs {_ARTICLES[role]} {role}: give one with "
            f"--{role}=FOLDER_OR_HUB_ID (or as --model, to gate it)"
        )
    return (
        f"suite {suite.name!r} needs the encoder {name!r}: give one with "
        f"--encoder {name}=FOLDER_OR_HUB_ID, or name it under [encoders]"
    )


def _settle(suite: Suite, seat: RoleAssignment) -> RoleAssignment:
    """A seat whose spec names a preset of the suite, with the model and settings of that."""
    spec = seat.spec
    if spec.scheme != PRESET:
        return seat
    return RoleAssignment(seat.role, _expand(suite, spec), f"{seat.source} {seat.spec}", seat.force)


def _expand(suite: Suite, spec: ModelSpec) -> ModelSpec:
    presets = suite.table.presets
    if spec.target not in presets:
        msg = f"suite {suite.name!r}: {unknown_name('preset', spec.target, presets)}"
        raise SuiteNotApplicableError(msg)
    preset = presets[spec.target]
    given = dict(spec.params)
    named = given.pop("model", None)
    model = locate(suite, preset.model) if named is None else parse_spec(named)
    written = {name: _write(value) for name, value in preset.parameters.items()}
    params = {**written, **model.params, **given}
    body = f"{model.scheme}:{model.target}" if model.scheme else model.target
    return parse_spec(f"{body}?{urlencode(params)}" if params else body)


def _write(value: str | float | bool) -> str:  # noqa: FBT001 - a TOML value
    return str(value).lower() if isinstance(value, bool) else str(value)
