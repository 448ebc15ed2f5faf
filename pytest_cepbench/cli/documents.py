"""What a study or the doctor found, as files: everything as JSON, the page as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_cepbench.cli.home import HOME
from pytest_cepbench.cli.rendering import Section, to_markdown
from pytest_cepbench.cli.terminal import NOT_DONE, complain, show
from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.report.writers import write_reports
from pytest_cepbench.studies import Study
from pytest_cepbench.studies.doctor import Diagnosis

SCHEMA = 1
"""Raised when a field changes its meaning."""


def write_and_show(
    page: Sequence[Section], document: str, out: Path, name: str, *, what: str
) -> int:
    """Write the files, then the page: what was measured must not be lost to a closed terminal.

    out: folder of the files. name: theirs, without suffix. what: the page is of, in words. Returns 0, or the exit code of files that
    could not be written, which is complained of below the page.
    """
    try:
        files = {".json": document, ".md": to_markdown(page)}
        written = write_reports(out / f"{name}.json", files)
        keep_out_of_git(HOME, out)
    except (OSError, WriteError) as error:
        show(page)
        return complain(f"the {what} could not be written to {str(out)!r}: {error}", NOT_DONE)
    show(page, *(f"written: {path}" for path in written))
    return 0


def study_json(study: Study, version: str, command: str) -> str:
    """Everything that was found, as JSON text; the fields are those of `Study`."""
    return _json(study, version, command)


def doctor_json(diagnosis: Diagnosis, version: str, command: str) -> str:
    """Everything that was found, as JSON text; the fields are those of `Diagnosis`."""
    return _json(diagnosis, version, command)


def _json(found: object, version: str, command: str) -> str:
    document = {"schema": SCHEMA, "cepbench": version, "command": command}
    document |= msgspec.to_builtins(found)
    return escape_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
