"""A study as a JSON document."""

from __future__ import annotations

import json

import msgspec

from pytest_cepbench.escapes import escape_json
from pytest_cepbench.studies import Study

SCHEMA = 1
"""Raised when a field changes its meaning."""


def study_json(study: Study, version: str, command: str) -> str:
    """Everything that was found, as JSON text; the fields are those of `Study`."""
    document = {"schema": SCHEMA, "cepbench": version, "command": command}
    document |= msgspec.to_builtins(study)
    return escape_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
