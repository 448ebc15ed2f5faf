"""What earlier runs found out about a role on a kind of device: which batch fits, how long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from pytest_cepbench.artifacts import canonical_json, digest_json
from pytest_cepbench.models.devices import device_name
from pytest_cepbench.models.protocols import BoundRole
from pytest_cepbench.store import Store


@dataclass(frozen=True)
class Throughput:
    """How a role works on a kind of device.

    batch_size: inputs of a call that fit. seconds: per input, of such calls.
    """

    batch_size: int
    seconds: float


def habit_of(bound: BoundRole, store: Store) -> Throughput | None:
    """What was found, None where nothing was or the note cannot be read."""
    name = _name(bound)
    text = store.notes([name]).get(name)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=Throughput)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return found if found.batch_size >= 1 and found.seconds >= 0 else None


def note_habit(bound: BoundRole, habit: Throughput, store: Store) -> None:
    """Keep what was found. Raises StoreError."""
    store.note(_name(bound), canonical_json(asdict(habit)))


def _name(bound: BoundRole) -> str:
    """The weights are left out: the next checkpoint of a training run works like this one."""
    device = bound.device
    about: Mapping[str, object] = {
        "role": bound.role,
        "what": bound.what,
        "build": bound.build,
        "adapter": bound.adapter,
        "params": dict(bound.params),
        "asked": bound.batch_size,
        "device": device_name(device),
    }
    return f"habit {digest_json(about)}"
