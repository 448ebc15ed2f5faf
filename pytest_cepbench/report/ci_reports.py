"""What CI services show of a run: Markdown, and the annotations of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import HEADS, cells_of
from pytest_cepbench.report.headline import (
    LINES,
    PROBLEMS,
    ROWS,
    SAMPLES,
    undecided,
    without_pooled,
    worst_first,
    worst_samples,
)
from pytest_cepbench.report.number_format import counted, name_of, printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text import (
    cause_lines,
    figures_first,
    finding_lines,
    next_step,
    pooled_line,
    refusal_lines,
    sample_words,
    scores_of_sample,
    shortage_lines,
    undecided_line,
    warning_lines,
    worst_loss,
)
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunOutcome

# -- what GitHub Actions reads of a run: its step's summary, and annotations of what does not hold
# Source: GitHub's documentation of workflow commands, and `ActionCommand` of its runner for what a
# command escapes.


STEP_SUMMARY_BYTES = 2**20
"""The most that the summaries of one step may have; GitHub drops a larger one whole."""

COMMENT_BYTES = 2**16 - 1
"""The most that a comment may have, in characters; bytes are never fewer. `action.yml` reads it."""

MOST_ANNOTATIONS = 3
"""Failing cases that are annotated, of the ten annotations of a step that GitHub shows."""

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
        message = printable(figures_first(result), _LONGEST_MESSAGE)
        left = len(failing) - place
        if place == MOST_ANNOTATIONS and left:
            message += f" ({counted(left, 'case')} more in the report)"
        module = Path(root, result.nodeid.partition("::")[0]).absolute()
        base = next((at for at in (workspace, root) if module.is_relative_to(at)), Path("/"))
        file = module.relative_to(base).as_posix()
        yield _command("error", {"file": file, "title": title}, message)
    open_cases = [result for result in undecided(results) if result.passes]
    if open_cases:
        message = printable(undecided_line(open_cases), _LONGEST_MESSAGE)
        yield _command("warning", {"title": "cepbench: undecided"}, message)


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


# -- the run as Markdown, for job summaries and comments (CommonMark with tables) ------------------


_HEAD = f"| {' | '.join(HEADS)} |\n|---|---|---:|---:|---:|---:|---:|---:|---:|"
_LONGEST_TEXT = 300
_LONGEST_HEADLINE = 1000
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", '"': "&quot;"}
_MARKUP = re.compile(r"[\\`*_{}\[\]#!~$]|:(?=\S)")
_ITEM = re.compile(r"^\d*(?=[-+.)][ -])")  # of a list, or a rule, within one of ours
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def markdown_summary(run: RunOutcome) -> str:
    """The run as Markdown: on one screen the headline, the worst cases and samples, what to do.

    The other cases, promises and the set-up are folded away. Everything that models, files or users
    named is escaped.
    """
    results = run.results
    loud = without_pooled([result for result in results if not result.settled])
    loud = [*worst_first(loud), *(result for result in loud if result.passes)]
    shown = loud[:ROWS]
    rest = [result for result in results if not any(result is other for other in shown)]
    opening = run.headline or f"cepbench: {run.verdict}"
    lines = [f"## {escaped(opening, _LONGEST_HEADLINE)}", ""]
    lines += _some("**incomplete:** ", run.problems, 500, PROBLEMS)
    lines += _some("**infrastructure:** ", run.infrastructure, 500)
    lines += _some("", cause_lines(results), 700)
    lines += _some("**refused:** ", refusal_lines(results), 700)
    lines += _some("", [*verdict_lines(results), *filter(None, [pooled_line(results)])], 500)
    lines += _some("**warning:** ", warning_lines(results), 700)
    if shown:
        lines += ["", _HEAD, *map(_row, shown)]
    if len(loud) > len(shown):
        lines += ["", f"and {len(loud) - len(shown)} more, in the table of the other cases below"]
    regressed = [result for result in worst_first(results) if result.verdict == Verdict.REGRESSED]
    samples = worst_samples(regressed, SAMPLES)
    lines += ["", "**Samples that lost most:**", ""] if samples else []
    for sample in samples:
        words = f"{scores_of_sample(sample)} ({name_of(sample.result)})"
        lines += [f"- {escaped(words, 300)}"]
        lines += [f"  - {escaped(w, _LONGEST_TEXT)}" for w in sample_words(sample, _LONGEST_TEXT)]
    if lost := worst_loss(results):
        lines += ["", escaped(lost, 500)]
    lines += ["", *_some("", shortage_lines(results), 500)] if undecided(results) else []
    if step := next_step(results):
        lines += ["", f"**Next:** {escaped(step, 500)}"]
    said = [f"- {escaped(line, 700)}" for line in finding_lines(results)]
    lines += _details("facts and promises", said)
    if rest:
        lines += _details(f"the other cases: {counts_line(rest)}", [_HEAD, *map(_row, rest)])
    effort = ["", effort_line(run.efforts)] if results else []
    set_up = [f"- {escaped(line, 500)}" for line in run.setup]
    lines += _details("set-up", [*set_up, *effort])
    lines += ["", f"pytest-cepbench {escaped(run.version)}"]
    return "\n".join(lines) + "\n"


def _some(before: str, lines: Sequence[str], longest: int, most: int = LINES) -> list[str]:
    """The first lines as a list, and how many there are besides."""
    more = [f"- and {len(lines) - most} more"] if len(lines) > most else []
    return [*(f"- {before}{escaped(line, longest)}" for line in lines[:most]), *more]


def _details(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that are folded away; none where there are none."""
    if not lines:
        return []
    return ["", f"<details><summary>{escaped(title)}</summary>", "", *lines, "", "</details>"]


def escaped(text: str, most: int = 200) -> str:
    """Untrusted text for the inside of a line of Markdown, which shows it and does nothing else.

    No markup, table cells, HTML or links with a hidden address; no user is mentioned by an `@`.
    """
    line = " ".join(printable(text, most).split())  # four spaces at its start would make it code
    marked = _ITEM.sub(r"\g<0>\\", _MARKUP.sub(r"\\\g<0>", line))
    shown = "".join(_ENTITIES.get(char, char) for char in marked)
    return _MENTION.sub("@\u200b", shown)


def _row(result: CaseResult) -> str:
    word, *cells = map(escaped, cells_of(result))
    return f"| {' | '.join([word if result.passes else f'**{word}**', *cells])} |"
