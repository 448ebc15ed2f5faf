"""The models that the user named, before any suite is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.protocols import ROLE_NAMES, UNIFIED_ROLES, RoleName
from pytest_cepbench.models.registry import detect
from pytest_cepbench.models.spec import PRESET, REPLAY, parse_spec

Part = RoleName | Literal["unified"]
"""What a model under test can be told to play: a role, or both of a unified model."""


@dataclass(frozen=True)
class RoleAssignment:
    """One role of a run: the spec that takes it, who said so, and whether detection is overruled."""

    role: RoleName
    spec: str
    source: str
    force: bool = False


@dataclass(frozen=True)
class RoleChoices:
    """The models that the user named.

    model: spec of the model under test, if any. role: which role it is to play, if said, or
    "unified" for describer and generator.
    roles: specs given for single roles. encoders: specs given for the named encoders of suites.
    What follows from these is found out once: for a hub id, looking costs a question to the hub.
    """

    model: str | None = None
    role: Part | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def replay(self) -> str | None:
        """The spec of chains made elsewhere, where `--model` names them.

        Raises SpecError where roles are given that nobody would play then.
        """
        if self.model is None or parse_spec(self.model).scheme != REPLAY:
            return None
        for role in ("describer", "generator"):
            if role in self.roles:
                msg = f"--model={self.model} brings its chains with it: drop --{role}"
                raise SpecError(msg)
        if self.role is not None:
            msg = f"--model={self.model} brings its chains with it: drop --cep-role"
            raise SpecError(msg)
        return self.model

    @cached_property
    def chains(self) -> Replay | None:
        """The chains made elsewhere, where they are what is under test.

        Raises SpecError as `replay`, DatasetError for what cannot be read.
        """
        if self.replay is None:
            return None
        spec = parse_spec(self.replay)
        params = dict(spec.params)
        return open_replay(spec.target, params.pop("layout", None), params)

    @cached_property
    def played(self) -> tuple[RoleName, ...]:
        """The roles that `--model` plays, as far as a suite needs them.

        What was said; else both roles of a unified model that are free; else the first role that it
        can play and that is free. Raises RoleError when it can play none, SpecError and
        CheckpointError for a wrong spec.
        """
        if self.role == "unified":
            return self._free(UNIFIED_ROLES, "said to be unified")
        if self.role is not None:
            return (self.role,)
        if self.model is None:
            return ("describer",)
        if parse_spec(self.model).scheme == PRESET:
            return ("generator",)
        detected = detect(parse_spec(self.model))
        if not detected.roles:
            msg = (
                f"--model={self.model} is a {detected.what}: no role could be told from its "
                f"configuration. Say which it plays with --cep-role={'|'.join(ROLE_NAMES)}"
            )
            raise RoleError(msg)
        if detected.unified and any(role not in self.roles for role in UNIFIED_ROLES):
            return self._free(UNIFIED_ROLES, f"a {detected.what}")
        return self._free(detected.roles, f"a {detected.what}")[:1]

    def _free(self, roles: Iterable[RoleName], what: str) -> tuple[RoleName, ...]:
        """The roles without an option of their own, in their usual order.

        what: the model is. Raises SpecError where there is none.
        """
        able = [role for role in ROLE_NAMES if role in roles]
        free = tuple(role for role in able if role not in self.roles)
        if not free:
            taken = ", ".join(f"--{role}" for role in able)
            msg = f"--model={self.model} is {what}, and {taken} is given as well: drop one"
            raise SpecError(msg)
        return free

    @cached_property
    def seats(self) -> Mapping[str, RoleAssignment]:
        """The seats whose models the user named; `--model` goes before a role's own option.

        Raises as `played`.
        """
        seats: dict[str, RoleAssignment] = {}
        for role, text in self.roles.items():
            seats[role] = RoleAssignment(role, text, f"--{role}", force=_unknown_role(text))
        for name, text in self.encoders.items():
            source = f"--encoder {name}"
            seats[name] = RoleAssignment("encoder", text, source, force=_unknown_role(text))
        if self.model is not None and self.replay is None:
            for role in self.played:
                seats[role] = RoleAssignment(
                    role, self.model, "--model", force=self.role is not None
                )
        return seats


def named_seat(choices: RoleChoices, role: RoleName) -> RoleAssignment:
    """The seat of a role that the user named. Raises SpecError when nobody was named for it."""
    if role not in choices.seats:
        msg = f"no model is given for the {role}: give one with --{role}=FOLDER_OR_HUB_ID"
        raise SpecError(msg)
    return choices.seats[role]


def _unknown_role(text: str) -> bool:
    """True for a checkpoint whose role cannot be detected: the user's choice holds."""
    spec = parse_spec(text)
    if spec.scheme == REPLAY:
        msg = f"{text!r}: chains made elsewhere are given with --model"
        raise SpecError(msg)
    return spec.scheme != PRESET and not detect(spec).roles
