"""Models as a baseline records them: enough to find their steps in the store, not to load them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pytest_cepbench.artifacts import canonical_json
from pytest_cepbench.errors import BaselineError, NotInStoreError
from pytest_cepbench.files import parse_json
from pytest_cepbench.models.protocols import BoundRole, Model, RoleName


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
    except (ValueError, msgspec.ValidationError) as error:
        msg = (
            f"the baseline's model.step cannot be read: {error}. Restore the baseline file, or "
            "accept a new one with --snapshot-update"
        )
        raise BaselineError(msg) from error
    if len({record.role for record in records}) < len(records) or not records:
        roles = ", ".join(record.role for record in records) or "no role"
        msg = f"the baseline's model.step names {roles}: each role once is expected"
        raise BaselineError(msg)
    return tuple(_bind(record) for record in records)


def _bind(record: _ModelRecord) -> BoundRole:
    return BoundRole(
        role=record.role,
        spec=f"the baseline's {record.role}",
        what=f"the {record.role} that the baseline was measured with",
        fingerprint=record.fingerprint,
        adapter=record.adapter,
        load=_refuse(record.role),
        params=record.params,
        seeded=record.seeded,
    )


def _refuse(role: str) -> Callable[[], Model]:
    def load() -> Model:
        msg = (
            f"a step of the baseline's {role} is not in the store: use the store of the run that "
            "measured the baseline, or measure its model once with this one"
        )
        raise NotInStoreError(msg)

    return load
