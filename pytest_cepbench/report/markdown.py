"""The run as Markdown, for the job summaries of CI systems (CommonMark with tables)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_cepbench.report.case_table import (
    HEADS,
    SHORTAGE_HEADS,
    answer_lines,
    cells_of,
    range_shown,
    shortage_advice,
    shortage_cells,
)
from pytest_cepbench.report.fact_table import (
    PAIR_HEADS,
    fact_lines,
    kind_heads,
    kind_rows,
    pair_rows,
    step_heads,
    step_rows,
)
from pytest_cepbench.report.headline import undecided
from pytest_cepbench.report.number_format import name_of, number, printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text import one_line, refusal_lines, warning_lines
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    error_lines,
    improvement_lines,
    judge_lines,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunFacts

_HEAD = f"| {' | '.join(HEADS)} |\n|---|---|---:|---:|---:|---:|---:|---:|---:|"

_SHORTAGE_HEAD = f"| {' | '.join(SHORTAGE_HEADS)} |\n|---|---|---:|---:|---:|---:|"

_LONGEST_TEXT = 300

_LONGEST_HEADLINE = 1000

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", '"': "&quot;"}

_MARKUP = re.compile(r"[\\`*_{}\[\]#!~$]|:(?=\S)")

_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def markdown_summary(facts: RunFacts, results: Sequence[CaseResult]) -> str:
    """The run as Markdown: counts, the cases that need a look, and those that hold, folded away.

    Everything that models, files or users named is escaped.
    """
    loud = [result for result in results if not result.settled]
    quiet = [result for result in results if result.settled]
    opening = facts.headline or f"cepbench: {facts.verdict}"
    lines = [f"## {escaped(opening, _LONGEST_HEADLINE)}", ""]
    lines += [f"- **incomplete:** {escaped(problem, 500)}" for problem in facts.problems]
    lines += [f"- **infrastructure:** {escaped(line, 500)}" for line in facts.infrastructure]
    summary = [*verdict_lines(results), *error_lines(results), *improvement_lines(results)]
    lines += [f"- {line}" for line in summary]
    lines += [f"- {escaped(line, 700)}" for line in judge_lines(results)]
    lines += [f"- {escaped(line, 700)}" for line in fact_lines(results)]
    lines += [f"- **warning:** {escaped(line, 700)}" for line in warning_lines(results)]
    lines += [f"- **refused:** {escaped(line, 700)}" for line in refusal_lines(results)]
    if loud:
        lines += ["", _HEAD, *map(_row, loud)]
    failing = [result for result in results if not result.passes]
    if failing:
        lines += ["", "**What failed:**", ""]
        lines += [f"- {escaped(one_line(result), 500)}" for result in failing]
    lines += _lost_answers(failing)
    lines += _shortage(results)
    lines += _facts(results)
    if quiet:
        lines += ["", f"<details><summary>{counts_line(quiet)}</summary>", ""]
        lines += [_HEAD, *map(_row, quiet), "", "</details>"]
    ranges = [(result, span) for result in results if (span := range_shown(result)) is not None]
    if ranges:
        lines += ["", "<details><summary>what the set-up can see</summary>", ""]
        lines += [f"- {escaped(f'{name_of(result)}: {span}', 500)}" for result, span in ranges]
        lines += ["", "</details>"]
    lines += ["", effort_line(facts.efforts(results))] if results else []
    lines += ["", "**Set-up:**", "", *(f"- {escaped(line, 500)}" for line in facts.lines)]
    lines += ["", f"pytest-cepbench {escaped(facts.version)}"]
    return "\n".join(lines) + "\n"


def escaped(text: str, most: int = 200) -> str:
    """Untrusted text for the inside of a line of Markdown, which shows it and does nothing else.

    No markup, table cells, HTML or links with a hidden address; no user is mentioned by an `@`.
    """
    line = " ".join(printable(text, most).split())  # four spaces at its start would make it code
    marked = _MARKUP.sub(r"\\\g<0>", line)
    shown = "".join(_ENTITIES.get(char, char) for char in marked)
    return _MENTION.sub("@\u200b", shown)


def _shortage(results: Sequence[CaseResult]) -> Iterator[str]:
    """What would decide the cases of which the samples do not tell."""
    cases = undecided(results)
    if cases:
        yield from ("", f"**{escaped(shortage_advice(cases))}:**", "", _SHORTAGE_HEAD)
        for result in cases:
            yield f"| {' | '.join(map(escaped, shortage_cells(result)))} |"


def _facts(results: Sequence[CaseResult]) -> Iterator[str]:
    """What became of the facts of each case about them, folded away."""
    for result in results:
        facts = result.shown.facts
        if facts is None:
            continue
        yield ""
        yield f"<details><summary>{escaped(f'{name_of(result)}: what became of facts')}</summary>"
        yield from ("", *_table(kind_heads(facts), kind_rows(facts)))
        steps = list(step_rows(facts))
        if steps:
            yield from ("", *_table(step_heads(facts), steps))
        yield from ("", *_table(PAIR_HEADS, pair_rows(facts.every)), "", "</details>")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table whose first column begins at the left, and whose others end at the right."""
    yield f"| {' | '.join(map(escaped, heads))} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def _row(result: CaseResult) -> str:
    word, *cells = map(escaped, cells_of(result))
    return f"| {' | '.join([word if result.passes else f'**{word}**', *cells])} |"


def _lost_answers(failing: Sequence[CaseResult]) -> Iterator[str]:
    """The answers that lost most of each failed case, folded away; texts only."""
    for result in failing:
        samples = [answer for answer in result.shown.answers if answer.question]
        if not samples:
            continue
        summary = escaped(f"{name_of(result)}: answers that lost most")
        yield from ("", f"<details><summary>{summary}</summary>", "")
        for answer in samples:
            scores = f"baseline {number(answer.baseline)}, now {number(answer.score)}"
            failure = f"; no answer: {answer.failure}" if answer.failure else ""
            yield f"- **{escaped(answer.sample)}** ({escaped(f'{scores}{failure}', 300)})"
            for name, text in answer_lines(answer, _LONGEST_TEXT):
                yield f"  - {escaped(name)}: {escaped(text, _LONGEST_TEXT)}"
        yield from ("", "</details>")
