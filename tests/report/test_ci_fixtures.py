"""What each CI service is given of one run, in full: a file for each, as its viewer reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.report.ci_reports import annotation_lines, buildkite_command, code_quality
from pytest_cepbench.report.markdown import markdown_summary
from pytest_cepbench.report.writers import RunFacts
from tests.report.results import ANSWERED, FULL, REGRESSED, replace

SERVICES = Path(__file__).with_name("services")

RESULTS = [
    FULL,
    replace(FULL, verdict="held", part="overall", difference=0.0, p=0.5, low=-0.005, high=0.005),
    replace(FULL, verdict="inconclusive", part="shape", difference=-0.01, needed=420),
    replace(REGRESSED, verdict="no-baseline", baseline=None, difference=None),
    replace(REGRESSED, verdict="error", part="size", difference=None, reasons=["out of memory"]),
    ANSWERED,
]

FACTS = RunFacts(
    "failed", "1.2.3", ["model under test: <b>x</b>"], ["a worker <i>died</i>"],
    headline="Do not ship: 2 of 6 gating cases regressed",
)  # fmt: skip

ROOT = Path("/checkout/gates")


def _written(name: str) -> str:
    problems = list(FACTS.problems)
    if name == "github-annotations.txt":
        return "\n".join(annotation_lines(RESULTS, problems, ROOT, ROOT.parent)) + "\n"
    if name == "gitlab-codequality.json":
        return code_quality(RESULTS, problems, ROOT, ROOT.parent)
    if name == "buildkite-command.txt":
        return " ".join(buildkite_command("failed")) + "\n"
    return markdown_summary(FACTS, RESULTS)


WRITTEN = sorted(path for path in SERVICES.iterdir() if path.suffix != ".xml")
"""But for JUnit, which pytest writes: tests/plugin/test_outcomes.py compares it."""


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_a_service_is_given_what_its_file_shows(path: Path) -> None:
    """So that a change of any part of it is seen in review."""
    assert _written(path.name) == path.read_text(encoding="utf-8")


def test_a_summary_fits_on_a_screen() -> None:
    """What is not folded away, of a run of a hundred failing cases."""
    many = [replace(FULL, part=f"part{n}", difference=-n / 1000) for n in range(100)]
    text = markdown_summary(FACTS, many)
    shown = [
        part.partition("</details>")[2] if n else part
        for n, part in enumerate(text.split("<details>"))
    ]
    assert len([line for line in "".join(shown).splitlines() if line.strip()]) <= 45
