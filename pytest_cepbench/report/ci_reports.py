"""What the viewers of CI services show of a run, by GitHub, GitLab and Buildkite."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_cepbench.escapes import escape_json
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import shortage_advice
from pytest_cepbench.report.headline import undecided, worst_first
from pytest_cepbench.report.number_format import counted, name_of, printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text import one_line

# -- what GitHub Actions reads of a run: its step's summary, and annotations of what does not hold
# Source: GitHub's documentation of workflow commands, and `ActionCommand` of its runner for what a
# command escapes.


STEP_SUMMARY_BYTES = 2**20
"""The most that the summaries of one step may have; GitHub drops a larger one whole."""

COMMENT_BYTES = 2**16 - 1
"""The most that a comment may have, in characters; bytes are never fewer."""

MOST_ANNOTATIONS = 3
"""Failing cases that are annotated, of the ten annotations of a step that GitHub shows; and
undecided ones that are named."""

_LONGEST_MESSAGE = 1000

_FOLDED_END = "\n</details>"

_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
"""What the runner unescapes in the message of a command."""

_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})
"""The same of a property, such as the title."""


def annotation_lines(
    results: Sequence[CaseResult], problems: Sequence[str], root: Path, workspace: Path
) -> Iterator[str]:
    """Lines that the runner shows: why the run is incomplete and the worst cases, as errors.

    Cases that are undecided and pass are a warning, all together.
    problems: why the run is incomplete; empty when it is complete.
    root: folder that node ids begin from.
    workspace: the checkout, from which GitHub reads paths.
    """
    if problems:
        first = printable(problems[0], _LONGEST_MESSAGE)
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        yield _command("error", {"title": "cepbench: the run is incomplete"}, f"{first}{more}")
    failing = worst_first(results)
    for place, result in enumerate(failing[:MOST_ANNOTATIONS], 1):
        title = f"cepbench: {name_of(result)} {result.word.lower()}"
        message = printable(one_line(result), _LONGEST_MESSAGE)
        left = len(failing) - place
        if place == MOST_ANNOTATIONS and left:
            message += f" ({counted(left, 'case')} more in the report)"
        file, line = place_of(result, root, workspace)
        at = {"file": file} | ({"line": str(line)} if line else {})
        yield _command("error", {**at, "title": title}, message)
    open_cases = [result for result in undecided(results) if result.passes]
    if open_cases:
        names = ", ".join(name_of(result) for result in open_cases[:MOST_ANNOTATIONS])
        message = f"{shortage_advice(open_cases)}; first {names}"
        yield _command(
            "warning", {"title": "cepbench: undecided"}, printable(message, _LONGEST_MESSAGE)
        )


def place_of(result: CaseResult, root: Path, repository: Path) -> tuple[str, int]:
    """The file of a case's suite as a path of the repository, and the line of its metric there.

    The test module and 0 where no suite of that name lies beside it.
    root: folder that node ids begin from.
    """
    module = Path(root, result.nodeid.partition("::")[0]).absolute()
    found, at = module, 0
    for path in sorted(module.parent.glob("*.toml")):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):  # a run has its word for a suite that cannot be read
            continue
        lines = text.replace(" ", "").splitlines()  # TOML, however it is spaced
        name, metric = f'name="{result.suite}"', f"[metrics.{result.metric}]".replace(" ", "")
        if any(line.startswith(name.replace(" ", "")) for line in lines):
            found = path
            at = next((n for n, line in enumerate(lines, 1) if line.startswith(metric)), 1)
            break
    parents = [folder for folder in (repository, root) if found.is_relative_to(folder)]
    return (found.relative_to(parents[0]) if parents else found).as_posix(), at


def append_step_summary(path: Path, text: str) -> None:
    """Append a summary to the file that `GITHUB_STEP_SUMMARY` names, cut to what is left of it.

    Raises OSError where it cannot be written.
    """
    before = path.stat().st_size if path.exists() else 0
    blank = "\n" if before else ""
    shortened = shorten(text, STEP_SUMMARY_BYTES - before - len(blank))
    with path.open("a", encoding="utf-8", errors="replace", newline="\n") as stream:
        stream.write(blank + shortened if shortened else "")


def shorten(text: str, most_bytes: int) -> str:
    """Markdown in so many bytes of UTF-8: whole lines, folded parts closed, with a last remark.

    Empty where not even the remark has room.
    """
    if len(text.encode("utf-8", "replace")) <= most_bytes:
        return text
    remark = "\n\nThe rest is left out here: see the report.\n"
    room = most_bytes - len(remark.encode()) - len(_FOLDED_END)
    lines: list[str] = []
    for line in text.split("\n"):
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    # Folded parts are not nested, and what models and files named is escaped.
    kept = "\n".join(lines)
    if kept.count("<details>") > kept.count("</details>"):
        kept += _FOLDED_END
    return kept + remark


def _command(name: str, properties: dict[str, str], message: str) -> str:
    named = ",".join(f"{key}={text.translate(_PROPERTY)}" for key, text in properties.items())
    return f"::{name} {named}::{message.translate(_DATA)}"


# -- what Buildkite shows above the steps of a build -----------------------------------------------


ANNOTATION_BYTES = 2**20
"""The most that an annotation may have."""


def buildkite_command(verdict: str) -> list[str]:
    """The agent's command that takes Markdown on its standard input and shows it with the build.

    One annotation a gate: a later one of the same context takes the place of an earlier one.
    verdict: of the run, which gives the color.
    """
    style = {"passed": "success", "undecided": "warning"}.get(verdict, "error")
    return ["buildkite-agent", "annotate", "--style", style, "--context", "cepbench"]


# -- the cases of a run as a report of code quality, which GitLab shows in merge requests ----------
# A list of issues in JSON, as GitLab documents it: of Code Climate's format it reads
# `description`, `check_name`, `fingerprint`, `severity` and `location`. Cases that hold are no
# issues.


SUFFIX = ".codequality.json"
"""Of the file, beside the run's other reports."""


def code_quality(
    results: Sequence[CaseResult], problems: Sequence[str], root: Path, repository: Path
) -> str:
    """The issues of a run as JSON text.

    A case has the same fingerprint in every run in which it has the same verdict, so that GitLab
    tells new issues from old ones.

    problems: why the run is incomplete; empty when it is complete.
    root: folder that node ids begin from.
    repository: the checkout, from which GitLab reads paths.
    """
    issues = [
        _issue(
            ("incomplete", str(place)), "incomplete", f"the run is incomplete: {problem}", "blocker"
        )
        for place, problem in enumerate(problems)
    ]
    for result in results:
        if not result.passes:
            severity = "critical" if result.verdict == Verdict.REGRESSED else "major"
        elif result.settled or result.verdict == Verdict.IMPROVED:
            continue
        else:
            severity = "minor" if result.primary else "info"
        word = result.word.lower()
        keys = (result.suite, result.part, result.metric, word)
        path, line = place_of(result, root, repository)
        issues.append(_issue(keys, word, one_line(result), severity, path, line or 1))
    return escape_json(json.dumps(issues, indent=2, ensure_ascii=False)) + "\n"


def _issue(
    keys: Sequence[str], check: str, description: str, severity: str, path: str = ".", line: int = 1
) -> dict[str, Any]:
    return {
        "description": printable(description, 1000),
        "check_name": f"cepbench: {check}",
        "fingerprint": sha256("\0".join(keys).encode("utf-8", "replace")).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }
