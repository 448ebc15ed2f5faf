"""Who plays which role: the command line's models, the suite's for what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from pytest_cepbench.chains import Crew, RoleRunner
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.binding import bind, detect
from pytest_cepbench.models.roles import ROLE_NAMES, BindContext, BoundRole, RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.definition import Suite

_CHUNK = 1 << 20

_ARTICLES: Mapping[RoleName, str] = {"describer": "a", "generator": "a", "encoder": "an"}


@dataclass(frozen=True)
class Seat:
    """One role of a run: the spec that takes it, who said so, and whether detection is overruled."""

    spec: str
    source: str
    force: bool = False


@dataclass(frozen=True)
class RoleChoices:
    """What the user said about models.

    model: spec of the model under test, if any. role: which role it is to play, if said.
    roles: specs given for single roles.
    What follows from these is found out once: for a hub id, looking costs a question to the hub.
    """

    model: str | None = None
    role: RoleName | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)

    @cached_property
    def under_test(self) -> RoleName:
        """The role that `--model` plays: what was said, else the first it can play and has free.

        Raises RoleError when it can play none, SpecError and CheckpointError for a wrong spec.
        """
        if self.role is not None or self.model is None:
            return self.role or "describer"
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
    def seats(self) -> Mapping[RoleName, Seat]:
        """The roles whose models the user named; `--model` goes before a role's own option.

        Raises as `under_test`.
        """
        seats = {
            role: Seat(text, f"--{role}", force=not detect(parse_spec(text)).roles)
            for role, text in self.roles.items()
        }
        if self.model is not None:
            seats[self.under_test] = Seat(self.model, "--model", force=self.role is not None)
        return seats


@dataclass(frozen=True)
class Lineup:
    """All roles of a suite's run, and which of them is under test."""

    seats: Mapping[RoleName, Seat]
    under_test: RoleName


def named_seat(choices: RoleChoices, role: RoleName) -> Seat:
    """The seat of a role that the user named. Raises SpecError when nobody was named for it."""
    if role not in choices.seats:
        msg = f"nobody plays the {role}: give one with --{role}=FOLDER_OR_HUB_ID"
        raise SpecError(msg)
    return choices.seats[role]


def choose_roles(suite: Suite, choices: RoleChoices) -> Lineup:
    """Fill every role: `--model` first, then the role's own option, then the suite's default.

    Raises SpecError naming the option that is missing, and the errors of `RoleChoices`.
    """
    seats: dict[RoleName, Seat] = {}
    for role in ROLE_NAMES:
        default = getattr(suite.table.roles, role)
        if role in choices.seats:
            seats[role] = choices.seats[role]
        elif default is not None:
            seats[role] = Seat(default, f"suite {suite.name}")
        else:
            msg = (
                f"suite {suite.name!r} needs {_ARTICLES[role]} {role}: give one with "
                f"--{role}=FOLDER_OR_HUB_ID (or as --model, to gate it)"
            )
            raise SpecError(msg)
    return Lineup(seats, choices.under_test)


class Roster:
    """The models of one process: each spec bound once and loaded once, on one store."""

    def __init__(self, store: Store, threads: int | None = None) -> None:
        self.store = store
        self.runners: dict[tuple[RoleName, str], RoleRunner] = {}
        self._context = BindContext(self._hash_file, threads)

    def runner(self, role: RoleName, seat: Seat) -> RoleRunner:
        """The runner of a role; raises what binding raises."""
        known = self.runners.get((role, seat.spec))
        if known is None:
            bound = bind(parse_spec(seat.spec), role, self._context, force=seat.force)
            known = self.runners[(role, seat.spec)] = RoleRunner(bound, self.store)
        return known

    def crew(self, lineup: Lineup) -> Crew:
        """The runners of all roles of a line-up."""
        seats = lineup.seats
        return Crew(
            describer=self.runner("describer", seats["describer"]),
            generator=self.runner("generator", seats["generator"]),
            encoder=self.runner("encoder", seats["encoder"]),
            store=self.store,
        )

    def _hash_file(self, path: Path) -> str:
        return self.store.file_digest(path, "bytes", _sha256_of)


def describe_role(bound: BoundRole) -> str:
    """A role's identity in one line, for baselines: what it is, which weights, which parameters."""
    given = {name: value for name, value in sorted(bound.params.items()) if value is not None}
    params = ",".join(f"{name}={value}" for name, value in given.items())
    return f"{bound.what} {bound.adapter} {bound.fingerprint[:16]}" + (
        f" {params}" if params else ""
    )


def _sha256_of(path: Path) -> str:
    hasher = sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()
