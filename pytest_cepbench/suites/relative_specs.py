"""Models that a suite names by where they lie: a spec that begins with ./ or ../ counts from its folder."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.models.model_spec import ModelSpec, parse_spec
from pytest_cepbench.models.protocols import ROLE_NAMES
from pytest_cepbench.models.registry import PRESET
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_options import RoleChoices

_RELATIVE = ("./", "../")


def locate(suite: Suite, text: str) -> ModelSpec:
    """A spec of a suite's file, parsed as it would be typed where pytest was started.

    Only the folder of a spec that begins with ./ or ../ is put in other words: from the working
    directory where it lies below that, else from the root.
    """
    if not text.startswith(_RELATIVE):
        return parse_spec(text)
    folder, rest = _taken_apart(suite, text)
    here = Path.cwd()
    path = folder.relative_to(here) if folder.is_relative_to(here) else folder
    return parse_spec(f"{path}{rest}")


def check_located(suite: Suite, role: str, choices: RoleChoices) -> None:
    """Raise SuiteError where the suite names a folder for a role and there is none."""
    key, spec = _written(suite, role, choices)
    if not spec.startswith(_RELATIVE):
        return
    folder, _ = _taken_apart(suite, spec)
    if not folder.exists():
        option = f"--{role}=" if role in ROLE_NAMES else f"--encoder {role}="
        msg = (
            f"suite {suite.name!r}: {key} = {spec!r} in {str(suite.file)!r} counts from the folder of "
            f"that file, and {str(folder)!r} is not there: put the checkpoint there, or name another "
            f"with {option}FOLDER_OR_HUB_ID"
        )
        raise SuiteError(msg)


def _written(suite: Suite, role: str, choices: RoleChoices) -> tuple[str, str]:
    """Key and text of the spec in the suite's file that a role rests on; empty where on none."""
    table = suite.table
    key, spec = "", choices.assigned[role].spec.text if role in choices.assigned else ""
    if not spec and role in ROLE_NAMES:
        key, spec = f"roles.{role}", getattr(table.roles, role)
    elif not spec:
        key, spec = f"encoders.{role}", table.encoders[role]
    preset = parse_spec(spec)
    if preset.scheme == PRESET and "model" not in preset.params:
        return f"presets.{preset.target}.model", table.presets[preset.target].model
    return (key, spec) if key else ("", "")


def _taken_apart(suite: Suite, spec: str) -> tuple[Path, str]:
    """The folder that a spec names, and its parameters as they are written."""
    # Of the folder links are followed, since that is what its author saw; the last name is kept.
    start = suite.folder.resolve()
    whole = Path(os.path.normpath(start / spec))
    if whole.exists():  # a folder whose name happens to hold '?'
        return whole, ""
    body, mark, params = spec.partition("?")
    return Path(os.path.normpath(start / body)), f"{mark}{params}"
