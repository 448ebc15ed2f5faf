"""A study, and a diagnosis, as JSON documents."""

from __future__ import annotations

import json

import msgspec

from pytest_cepbench.studies import Study
from pytest_cepbench.studies.doctor import Diagnosis

SCHEMA = 1
"""Raised when a field changes its meaning."""


def study_json(study: Study, version: str, command: str) -> str:
    """Everything that was found, as JSON text; the fields are those of `Study`."""
    return _json(study, version, command)


def doctor_json(diagnosis: Diagnosis, version: str, command: str) -> str:
    """Everything that was found, as JSON text; the fields are those of `Diagnosis`."""
    return _json(diagnosis, version, command)


def _json(found: object, version: str, command: str) -> str:
    document = {"schema": SCHEMA, "cepbench": version, "command": command}
    document |= msgspec.to_builtins(found)
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
