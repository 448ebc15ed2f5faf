"""The models that the user named, before any suite is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.errors import RoleError, SpecError, did_you_mean, unknown_name
from pytest_cepbench.models.binding import DetectedModel, detect
from pytest_cepbench.models.protocols import ROLE_NAMES, UNIFIED_ROLES, RoleName
from pytest_cepbench.models.spec import PRESET, REPLAY, ModelSpec, parse_spec
from pytest_cepbench.suites.data import data_name
from pytest_cepbench.suites.definition import ANSWERING, ANSWERS_ONLY, Suite

if TYPE_CHECKING:
    from pytest_cepbench.datasets.opening.answers import RecordedAnswers
    from pytest_cepbench.datasets.replay import Replay

Part = RoleName | Literal["unified"]
"""What a model under test can be told to play: a role, or both of a unified model."""


@dataclass(frozen=True)
class RoleAssignment:
    """One role of a run and the model that plays it.

    role: what the model plays.
    spec: of the model.
    source: the option or suite that names it.
    force: whether the role stands although detection does not give it.
    """

    role: RoleName
    spec: ModelSpec
    source: str
    force: bool = False


@dataclass(frozen=True)
class RoleChoices:
    """The models that the user named.

    model: spec of the model under test, if any.
    role: which role it is to play, or "unified" for describer and generator; None to detect it.
    roles: specs for single roles.
    encoders: specs for the named encoders of suites.
    preferred: roles that the model under test plays rather than others, where it can.
    The properties are computed once: for a hub id, detection costs a request to the hub.
    """

    model: str | None = None
    role: Part | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    preferred: tuple[RoleName, ...] = ()

    @cached_property
    def model_spec(self) -> ModelSpec | None:
        """The spec of the model under test, if any. Raises SpecError where it is malformed."""
        return None if self.model is None else parse_spec(self.model)

    @cached_property
    def replay(self) -> str | None:
        """The spec of chains made elsewhere, where `--model` names them.

        Raises SpecError where a role is given that no model would play then.
        """
        if self.model_spec is None or self.model_spec.scheme != REPLAY:
            return None
        growers = ("describer", "generator", "writer", "editor", "interleaver")
        wrong = [f"--{role}" for role in growers if role in self.roles]
        if self.role is not None:
            wrong.append("--cep-role")
        if wrong:
            raise SpecError(f"--model={self.model} brings its results with it: drop {wrong[0]}")
        return self.model

    @cached_property
    def recorded(self) -> Replay | RecordedAnswers | None:
        """The chains or answers made elsewhere, where they are what is under test.

        Raises SpecError as `replay`, DatasetError for what cannot be read.
        """
        spec = self.model_spec
        if self.replay is None or spec is None:
            return None
        from pytest_cepbench.datasets.replay import open_answers, open_replay

        params = dict(spec.params)
        layout = params.pop("layout", None)
        if self.replayed == "answers":
            return open_answers(spec.target, layout, params)
        return open_replay(spec.target, layout, params)

    @cached_property
    def replayed(self) -> Literal["chains", "answers"] | None:
        """What was made elsewhere and is under test, if anything. Raises as `recorded`."""
        spec = self.model_spec
        if self.replay is None or spec is None:
            return None
        from pytest_cepbench.datasets.replay import ANSWER_LAYOUTS, choose_layout

        layout = choose_layout(spec.target, spec.params.get("layout"))
        return "answers" if layout in ANSWER_LAYOUTS else "chains"

    @cached_property
    def played(self) -> tuple[RoleName, ...]:
        """The roles that `--model` plays, as far as a suite needs them.

        The given role; else both roles of a unified model that are free; else the first role that
        it can play and that is free. Raises RoleError when it can play none, SpecError and
        CheckpointError for a wrong spec.
        """
        if self.role == "unified":
            return self._free(UNIFIED_ROLES, "said to be unified")
        if self.role is not None:
            return (self.role,)
        if self.model_spec is None:
            # Of answers, the parts that the user named; else who writes, the others held fixed.
            named = tuple(role for role in self.preferred if role in self.roles)
            return named or self.preferred[:2] or ("describer",)
        if self.model_spec.scheme == PRESET:
            return ("generator",)
        detected = self._detected
        if not detected.roles:
            raise RoleError(
                f"--model={self.model} is a {detected.what}: no role could be told from its "
                f"configuration. Say which it plays with --cep-role={'|'.join(ROLE_NAMES)}"
            )
        prefers = any(role in detected.roles for role in self.preferred)
        free = any(role not in self.roles for role in UNIFIED_ROLES)
        if detected.unified and free and not prefers:
            return self._free(UNIFIED_ROLES, f"a {detected.what}")
        # What plays a role of chains does so in their suites, even where it could write answers.
        chain_roles = tuple(role for role in detected.roles if role not in ANSWERS_ONLY)
        able = detected.roles if prefers or not chain_roles else chain_roles
        return self._free(able, f"a {detected.what}")[:1]

    @cached_property
    def able(self) -> tuple[RoleName, ...]:
        """The roles that `--model` could play, where detection chose: empty where the user did.

        Raises as `played`.
        """
        spec = self.model_spec
        if spec is None or self.role is not None or spec.scheme in (PRESET, REPLAY):
            return ()
        return self._detected.roles

    def unfit(self, made: Modality) -> str:
        """Why `--model` cannot be in chains of a modality, as the beginning of a sentence.

        Empty where it can, and where the user said which role it plays.
        """
        spec = self.model_spec
        if spec is None or self.role is not None or spec.scheme in (PRESET, REPLAY):
            return ""
        if "describer" in self.played and made not in self._detected.reads:
            return f"--model={self.model} reads no {made}s, which"
        if "generator" in self.played and made != self._detected.makes:
            return f"--model={self.model} makes {self._detected.makes}s, not the {made}s that"
        return ""

    @cached_property
    def _detected(self) -> DetectedModel:
        assert self.model_spec is not None
        return detect(self.model_spec)

    def _free(self, roles: Iterable[RoleName], what: str) -> tuple[RoleName, ...]:
        """The roles without an option of their own, in their usual order.

        what: the model is. Raises SpecError where there is none.
        """
        able = [role for role in dict.fromkeys((*self.preferred, *ROLE_NAMES)) if role in roles]
        free = tuple(role for role in able if role not in self.roles)
        if not free:
            taken = ", ".join(f"--{role}" for role in able)
            raise SpecError(
                f"--model={self.model} is {what}, and {taken} is given as well: drop one"
            )
        return free

    @cached_property
    def assigned(self) -> Mapping[str, RoleAssignment]:
        """The roles whose models the user named; `--model` goes before a role's own option.

        Raises as `played`.
        """
        assigned: dict[str, RoleAssignment] = {}
        for role, text in self.roles.items():
            assigned[role] = _assign(role, text, f"--{role}")
        for name, text in self.encoders.items():
            assigned[name] = _assign("encoder", text, f"--encoder {name}")
        if self.model_spec is not None and self.replay is None:
            for role in self.played:
                assigned[role] = RoleAssignment(
                    role, self.model_spec, "--model", force=self.role is not None
                )
        return assigned


def possible_roles(choices: RoleChoices, name: str) -> list[RoleAssignment]:
    """The assignment of a role, and where `--model` alone names it the other roles it could have.

    Which of them it plays each suite decides: one of answers has other roles than one of chains.
    """
    assignment = choices.assigned[name]
    model = choices.model_spec
    if model is None or assignment.source != "--model" or assignment.force:
        return [assignment]
    able = detect(model).roles if model.scheme != PRESET else ()
    others = dict.fromkeys((*(role for role in ANSWERING if role in able), *able))
    return [
        assignment,
        *(replace(assignment, role=role) for role in others if role not in choices.assigned),
    ]


def assigned_role(choices: RoleChoices, role: RoleName) -> RoleAssignment:
    """The model that the user named for a role. Raises SpecError where none was named."""
    if role not in choices.assigned:
        raise SpecError(
            f"no model is given for the {role}: give one with --{role}=FOLDER_OR_HUB_ID"
        )
    return choices.assigned[role]


def _assign(role: RoleName, text: str, source: str) -> RoleAssignment:
    """A role that an option names; forced where the checkpoint's configuration tells no role."""
    spec = parse_spec(text)
    if spec.scheme == REPLAY:
        raise SpecError(f"{text!r}: chains made elsewhere are given with --model")
    force = spec.scheme != PRESET and not detect(spec).roles
    return RoleAssignment(role, spec, source, force=force)


# -- names in options that a suite has to know: of data sets and presets ---------------------------
# A name that one suite of a run does not know may be meant for another; one that none of them
# knows is a mistake.


def check_data_names(names: Iterable[str], suites: Sequence[Suite], option: str) -> None:
    """Raise SpecError for the first name of a data set that no suite reads.

    option: that named it, for the message.
    """
    known = {name for suite in suites if (name := data_name(suite)) is not None}
    for name in names:
        if name in known:
            continue
        read = f"They read {', '.join(sorted(known))}." if known else "Their data is built in."
        elsewhere = " What other runs need can stand in the ini file, as cepbench_data."
        raise SpecError(
            f"{option} {name}=...: no suite of this run ({_names(suites)}) reads a data set "
            f"{name!r}.{did_you_mean(name, known)} {read}"
            f"{elsewhere if option.startswith('--cep-') else ''}"
        )


def check_presets(named: Mapping[str, RoleAssignment], suites: Sequence[Suite]) -> None:
    """Raise SpecError for the first preset that no suite has.

    named: the models that the user named, by role.
    """
    known = {name for suite in suites for name in suite.table.presets}
    for assignment in named.values():
        spec = assignment.spec
        if spec.scheme == PRESET and spec.target not in known:
            raise SpecError(
                f"{assignment.source} {spec}: {unknown_name('preset', spec.target, known)} Suites "
                f"of this run: {_names(suites)}"
            )


def _names(suites: Sequence[Suite]) -> str:
    return ", ".join(dict.fromkeys(suite.name for suite in suites))
