"""What the user said about models, before any suite is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.roles import ROLE_NAMES, RoleName
from pytest_cepbench.models.spec import PRESET, REPLAY, parse_spec


@dataclass(frozen=True)
class Seat:
    """One role of a run: the spec that takes it, who said so, and whether detection is overruled."""

    role: RoleName
    spec: str
    source: str
    force: bool = False


@dataclass(frozen=True)
class RoleChoices:
    """What the user said about models.

    model: spec of the model under test, if any. role: which role it is to play, if said.
    roles: specs given for single roles. encoders: specs given for the named encoders of suites.
    What follows from these is found out once: for a hub id, looking costs a question to the hub.
    """

    model: str | None = None
    role: RoleName | None = None
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
    def under_test(self) -> RoleName:
        """The role that `--model` plays: what was said, else the first it can play and has free.

        Raises RoleError when it can play none, SpecError and CheckpointError for a wrong spec.
        """
        if self.role is not None or self.model is None:
            return self.role or "describer"
        if parse_spec(self.model).scheme == PRESET:
            return "generator"
        detected = detect(parse_spec(self.model))
        for role in ROLE_NAMES:
            if role in detected.roles and role not in self.roles:
                return role
        if not detected.roles:
            msg = (
                f"--model={self.model} is a {detected.what}: no role could be told from its "
                f"configuration. Say which it plays with --cep-role={'|'.join(ROLE_NAMES)}"
            )
            raise RoleError(msg)
        taken = ", ".join(f"--{role}" for role in detected.roles)
        msg = f"--model={self.model} is a {detected.what}, and {taken} is given as well: drop one"
        raise SpecError(msg)

    @cached_property
    def seats(self) -> Mapping[str, Seat]:
        """The seats whose models the user named; `--model` goes before a role's own option.

        Raises as `under_test`.
        """
        seats: dict[str, Seat] = {}
        for role, text in self.roles.items():
            seats[role] = Seat(role, text, f"--{role}", force=_unknown_role(text))
        for name, text in self.encoders.items():
            source = f"--encoder {name}"
            seats[name] = Seat("encoder", text, source, force=_unknown_role(text))
        if self.model is not None and self.replay is None:
            role = self.under_test
            seats[role] = Seat(role, self.model, "--model", force=self.role is not None)
        return seats


def named_seat(choices: RoleChoices, role: RoleName) -> Seat:
    """The seat of a role that the user named. Raises SpecError when nobody was named for it."""
    if role not in choices.seats:
        msg = f"nobody plays the {role}: give one with --{role}=FOLDER_OR_HUB_ID"
        raise SpecError(msg)
    return choices.seats[role]


def _unknown_role(text: str) -> bool:
    """Whether a role was named for a checkpoint that shows none: the user knows better."""
    spec = parse_spec(text)
    if spec.scheme == REPLAY:
        msg = f"{text!r}: chains made elsewhere are given with --model"
        raise SpecError(msg)
    return spec.scheme != PRESET and not detect(spec).roles
