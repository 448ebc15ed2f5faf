"""Steps: one input of a role each, with the key that names its result, and a process's progress.

Of a model, a baseline keeps what enters the keys of its steps: enough to find their results in the
store, not to load the model.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from pytest_cepbench.artifacts import canonical_json, digest_json, digest_text
from pytest_cepbench.errors import BaselineError, NotInStoreError
from pytest_cepbench.files import parse_json
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Model, RoleName

STEP_VERSION = 1
"""Enters every key; raised when the same key would come to mean another result."""


@dataclass(frozen=True)
class Step:
    """One input of a role.

    key: names the result for ever.
    seed: of this step.
    load: gives the input when a model needs it: a Pillow image, a text, or an image with queries;
        None when a stored image turned out to be damaged.
    """

    key: str
    seed: int
    load: Callable[[], Any]


def key_of(bound: BoundRole, prompt: str, seed: int, inputs: Sequence[Sequence[str]]) -> str:
    """Key of a step of a role: everything its result depends on.

    inputs: kind and digest of each, in order.
    """
    return digest_json(
        {
            "step": STEP_VERSION,
            "role": bound.role,
            **bound.identity,
            "prompt": prompt,
            "seed": seed if bound.seeded else None,
            "inputs": inputs,
        }
    )


def length_key(bound: BoundRole, text: str) -> str:
    """Key of how long a text is for a model, stored where it does not read it to the end."""
    return key_of(bound, "tokens", 0, [["text", digest_text(text)]])


def losses_key(key: str) -> str:
    """Key of what the answer of a step lost, images or steps, stored beside the answer."""
    return digest_json({"losses of": key})


# -- models as baselines record them -------------------------------------------------------------


class _ModelRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a model that enters its steps' keys; fields as in `BoundRole`."""

    role: RoleName
    adapter: str
    fingerprint: str
    params: dict[str, Any]
    seeded: bool


def remember(bound: BoundRole) -> str:
    """The part of a model that enters its steps' keys, as canonical JSON.

    Raises as `canonical_json`.
    """
    return canonical_json({"role": bound.role, **bound.identity, "seeded": bound.seeded})


def recall(text: str) -> tuple[BoundRole, ...]:
    """The recorded models: one, or several in a list, such as both roles of a unified model.

    They have the keys of the models that were recorded; loading one raises NotInStoreError.
    Raises BaselineError for a text that is not of `remember`, or names a role twice.
    """
    try:
        plain = parse_json(text)  # keeps numbers as they are: they enter keys
        objects = plain if isinstance(plain, list) else [plain]
        records = [msgspec.convert(fields, _ModelRecord) for fields in objects]
        canonical_json(plain)  # NaN and infinities enter no key
    except (ValueError, msgspec.ValidationError) as error:
        raise BaselineError(
            f"the baseline's model.step cannot be read: {error}. Restore the baseline file, or "
            "accept a new one with --snapshot-update"
        ) from error
    if len({record.role for record in records}) < len(records) or not records:
        roles = ", ".join(record.role for record in records) or "no role"
        raise BaselineError(f"the baseline's model.step names {roles}: each role once is expected")

    def load(role: str) -> Model:
        raise NotInStoreError(
            f"a step of the baseline's {role} is not in the store: use the store of the run that "
            "measured the baseline, or measure its model once with this one"
        )

    return tuple(
        BoundRole(
            role=record.role,
            spec=f"the baseline's {record.role}",
            what=f"the {record.role} that the baseline was measured with",
            fingerprint=record.fingerprint,
            adapter=record.adapter,
            load=partial(load, record.role),
            params=record.params,
            seeded=record.seeded,
        )
        for record in records
    )


# A rate is taken over these seconds: models differ in speed, and stored results are quick.
_WINDOW = 60.0


@dataclass
class Progress:
    """The steps of the case that runs; a step is one input of one role.

    case: its name; empty while none runs.
    samples, of_samples: those whose chains are done, and all of the case; 0 where unknown.
    step: that is being made now.
    steps, of_steps: done and all of the case, stored ones included.
    waiting: whether another process works on what this one needs.
    holder: the process of another run that has it, in words; empty where it is of this run.
    server: what a server is waited for; empty while none is.
    cost: of what the process has asked for, in all cases, by the prices in its models' specs.
    parts: that of several threads, which work together.
    """

    case: str = ""
    samples: int = 0
    of_samples: int = 0
    step: str = ""
    steps: int = 0
    of_steps: int = 0
    waiting: bool = False
    holder: str = ""
    server: str = ""
    cost: float = 0.0
    parts: Sequence[Progress] = ()
    _points: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    def begin(self, case: str, samples: int, steps: int) -> None:
        """Begin a case of so many samples and steps."""
        self.case, self.of_samples, self.of_steps = case, samples, steps
        self.samples = self.steps = 0
        self.step, self.waiting = "", False
        self._points.clear()
        self._points.append((time.monotonic(), 0))

    def end(self) -> None:
        """End the case."""
        self.case = ""

    def add(self, steps: int, cost: float = 0.0) -> None:
        """Count steps that have their results, and what these cost."""
        self.steps += steps
        self.cost += cost
        now = time.monotonic()
        self._points.append((now, self.steps))
        while len(self._points) > 2 and now - self._points[0][0] > _WINDOW:
            self._points.popleft()

    @property
    def rate(self) -> float | None:
        """Steps per second of the last minute; None before there is any."""
        if self.parts:
            return sum(own.rate or 0.0 for own in self.parts) or None
        points = tuple(self._points)  # a copy: the thread that works may clear it
        if len(points) < 2:
            return None
        (since, before), (until, after) = points[0], points[-1]
        return (after - before) / (until - since) if until > since and after > before else None

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at this rate; None where the rate is unknown."""
        rate = self.rate
        return None if rate is None else max(0, self.of_steps - self.steps) / rate
