"""Models as a baseline remembers them: enough to find their steps in the store, too little to load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pytest_cepbench.artifacts import canonical_json
from pytest_cepbench.errors import BaselineError, NotInStoreError
from pytest_cepbench.files import parse_json
from pytest_cepbench.models.protocols import BoundRole, Model, RoleName


class _Remembered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a model enters its steps' keys; fields as in `BoundRole`."""

    role: RoleName
    adapter: str
    fingerprint: str
    params: dict[str, Any]
    seeded: bool


def remember(bound: BoundRole) -> str:
    """What of a model enters its steps' keys, as canonical JSON. Raises as `canonical_json`."""
    return canonical_json({"role": bound.role, **bound.identity, "seeded": bound.seeded})


def recall(text: str) -> tuple[BoundRole, ...]:
    """The remembered models: one, or several in a list, such as both roles of a unified model.

    They have the keys of the models that were remembered; loading one raises NotInStoreError.
    Raises BaselineError for a text that is not of `remember`, or names a role twice.
    """
    try:
        plain = parse_json(text)  # keeps numbers as they are: they enter keys
        every = plain if isinstance(plain, list) else [plain]
        found = [msgspec.convert(one, _Remembered) for one in every]
    except (ValueError, msgspec.ValidationError) as error:
        msg = (
            f"the baseline's model.step cannot be read: {error}. Restore the baseline file, or "
            "accept a new one with --snapshot-update"
        )
        raise BaselineError(msg) from error
    if len({one.role for one in found}) < len(found) or not found:
        roles = ", ".join(one.role for one in found) or "no role"
        msg = f"the baseline's model.step names {roles}: each role once is expected"
        raise BaselineError(msg)
    return tuple(_bind(one) for one in found)


def _bind(one: _Remembered) -> BoundRole:
    return BoundRole(
        role=one.role,
        spec=f"the baseline's {one.role}",
        what=f"the {one.role} that the baseline was measured with",
        fingerprint=one.fingerprint,
        adapter=one.adapter,
        load=_refuse(one.role),
        params=one.params,
        seeded=one.seeded,
    )


def _refuse(role: str) -> Callable[[], Model]:
    def load() -> Model:
        msg = (
            f"a step of the baseline's {role} is not in the store: use the store of the run that "
            "measured the baseline, or measure its model once with this one"
        )
        raise NotInStoreError(msg)

    return load
