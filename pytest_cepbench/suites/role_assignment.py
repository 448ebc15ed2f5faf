"""The assignment of models to a suite's roles: from the command line, else from the suite."""

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
from pytest_cepbench.models.model_spec import ModelSpec, parse_spec
from pytest_cepbench.models.protocols import ROLE_NAMES, RoleName
from pytest_cepbench.models.registry import PRESET
from pytest_cepbench.models.registry import check_installed as check_libraries
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.measures import Measure, SuiteContext, make_measures
from pytest_cepbench.suites.measures.base import grower, readers_of
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
    """All roles of a suite's run, and which of them are under test.

    roles: the model of each role that the suite needs, by the name of a role or a further encoder.
    gated: the role under test, both of a unified model, or "replay" where the chains were made
    elsewhere.
    subject: the spec of what is under test.
    replay: the chains that were made elsewhere.
    spare: models that were named for roles that no chain or metric needs; a user's own test may
    call them.
    """

    roles: Mapping[str, RoleAssignment]
    gated: tuple[str, ...]
    subject: str
    replay: Replay | None = None
    spare: Mapping[str, RoleAssignment] = field(default_factory=dict)

    @property
    def under_test(self) -> str:
        """The roles under test, in words."""
        return "+".join(self.gated)


def assign_models(suite: Suite, choices: RoleChoices) -> tuple[Assignments, dict[str, Measure]]:
    """Assign a model to every role that the suite's chains and metrics need, and make its measures.

    `--model` goes first, then the role's own option, then the suite's default. Raises SpecError
    naming the option that is missing, SuiteError for metrics that do not fit the suite and for a
    folder that it names and that is not there, the errors of `RoleChoices`, and SuiteNotApplicableError
    where the model under test has nothing to do, or a preset is named that the suite does not have.
    """
    known = _known_roles(suite, choices)
    specs = {name: assignment.spec for name, assignment in known.items()}
    measures = make_measures(suite.metrics, SuiteContext(suite.name, suite.plans, specs))
    needed = _needed(suite, measures, replayed=choices.replay is not None)
    named = ("replay",) if choices.replay is not None else choices.played
    gated = tuple(role for role in named if role in (*needed, "replay"))
    if not gated:
        msg = f"the {' and '.join(named)} under test has no role in suite {suite.name!r}"
        if choices.model is None:
            msg += ": name with --model what is to be gated"
        raise SuiteNotApplicableError(msg)
    for name in needed:
        if name not in known:
            raise SpecError(_missing_model(suite, name))
        check_located(suite, name, choices)
    roles = {name: known[name] for name in needed}
    subject = roles[gated[0]].spec.text if choices.replay is None else choices.replay
    spare = {name: assignment for name, assignment in known.items() if name not in roles}
    return Assignments(roles, gated, subject, choices.chains, spare), measures


def check_installed(suite: Suite, assignments: Assignments) -> None:
    """Raise SpecError where a model needs libraries that are not installed here."""
    for assignment in assignments.roles.values():
        try:
            check_libraries(assignment.spec)
        except MissingDependencyError as error:
            msg = f"suite {suite.name!r}: {assignment.role} {assignment.spec}: {error}"
            raise SpecError(msg) from error


def _known_roles(suite: Suite, choices: RoleChoices) -> dict[str, RoleAssignment]:
    roles: dict[str, RoleAssignment] = {}
    for role in ROLE_NAMES:
        default = getattr(suite.table.roles, role)
        if default is not None:
            roles[role] = RoleAssignment(role, locate(suite, default), f"suite {suite.name}")
    for name, spec in suite.table.encoders.items():
        roles[name] = RoleAssignment("encoder", locate(suite, spec), f"suite {suite.name}")
    roles |= choices.assigned
    return {name: _expand_preset(suite, assignment) for name, assignment in roles.items()}


def _needed(suite: Suite, measures: Mapping[str, Measure], *, replayed: bool) -> list[str]:
    """The names of the needed roles: those that grow chains, then readers."""
    growers = {
        grower(plan, generation)
        for plan in suite.plans.values()
        for generation in range(1, plan.generations + 1)
    }
    readers = [
        name
        for measure in measures.values()
        for name in readers_of(measure.required_features(None))
    ]
    names = dict.fromkeys((*sorted(growers), *readers))
    return [name for name in names if not (replayed and name in growers)]


def _missing_model(suite: Suite, name: str) -> str:
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


def _expand_preset(suite: Suite, assignment: RoleAssignment) -> RoleAssignment:
    """The assignment, where its spec names a preset with the model and settings of that."""
    spec = assignment.spec
    if spec.scheme != PRESET:
        return assignment
    return RoleAssignment(
        assignment.role,
        _preset_spec(suite, spec),
        f"{assignment.source} {assignment.spec}",
        assignment.force,
    )


def _preset_spec(suite: Suite, spec: ModelSpec) -> ModelSpec:
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
