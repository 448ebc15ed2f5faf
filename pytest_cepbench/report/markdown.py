"""The run as Markdown, for the job summaries of CI systems (CommonMark with tables)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import (
    HEADS,
    answer_lines,
    cells_of,
    range_shown,
    shortage_advice,
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
from pytest_cepbench.report.headline import (
    undecided,
    without_pooled,
    worst_case,
    worst_first,
    worst_samples,
)
from pytest_cepbench.report.number_format import name_of, number, printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text import (
    cause_lines,
    people_lines,
    pooled_line,
    refusal_lines,
    sample_words,
    scores_of_sample,
    shortage_lines,
    warning_lines,
    where_lost,
)
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

_MOST_CASES = 10  # of the table that is not folded away

_MOST_SAMPLES = 3

_MOST_LINES = 3  # of one kind

_MOST_PROBLEMS = 5

_LONGEST_TEXT = 300

_LONGEST_HEADLINE = 1000

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", '"': "&quot;"}

_MARKUP = re.compile(r"[\\`*_{}\[\]#!~$]|:(?=\S)")

_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def markdown_summary(facts: RunFacts, results: Sequence[CaseResult]) -> str:
    """The run as Markdown: on one screen the headline, the worst cases and samples, what to do.

    The other cases, facts, lost answers and the set-up are folded away. Everything that models,
    files or users named is escaped.
    """
    loud = without_pooled([result for result in results if not result.settled])
    loud = [*worst_first(loud), *(result for result in loud if result.passes)]
    shown = loud[:_MOST_CASES]
    rest = [result for result in results if not any(result is other for other in shown)]
    opening = facts.headline or f"cepbench: {facts.verdict}"
    lines = [f"## {escaped(opening, _LONGEST_HEADLINE)}", ""]
    lines += _some("**incomplete:** ", facts.problems, 500, _MOST_PROBLEMS)
    lines += _some("**infrastructure:** ", facts.infrastructure, 500)
    lines += _some("", cause_lines(results), 700)
    lines += _some("**refused:** ", refusal_lines(results), 700)
    lines += _some("", [*verdict_lines(results), *filter(None, [pooled_line(results)])], 500)
    lines += _some("", people_lines(results), 500)
    lines += _some("**warning:** ", warning_lines(results), 700)
    if shown:
        lines += ["", _HEAD, *map(_row, shown)]
    if len(loud) > len(shown):
        lines += ["", f"and {len(loud) - len(shown)} more, in the table of the other cases below"]
    lines += _worst_samples(results)
    lines += ["", *_some("", shortage_lines(results), 500)] if undecided(results) else []
    worst = worst_case(results)
    if worst is not None:
        lines += ["", f"**Next:** {escaped(worst.presentation.next_step, 500)}"]
    elif undecided(results):
        advice = shortage_advice(undecided(results)).partition(": ")[2]
        lines += ["", f"**Next:** {escaped(advice, 500)}"]
    said = [*error_lines(results), *improvement_lines(results), *judge_lines(results)]
    said += fact_lines(results)
    lines += _details("facts and promises", [f"- {escaped(line, 700)}" for line in said])
    lines += _lost_answers([result for result in results if not result.passes])
    lines += _facts(results)
    if rest:
        lines += _details(f"the other cases: {counts_line(rest)}", [_HEAD, *map(_row, rest)])
    ranges = [(result, span) for result in results if (span := range_shown(result)) is not None]
    spans = [f"- {escaped(f'{name_of(result)}: {span}', 500)}" for result, span in ranges]
    lines += _details("what the set-up can see", spans)
    effort = ["", effort_line(facts.efforts(results))] if results else []
    set_up = [f"- {escaped(line, 500)}" for line in facts.lines]
    lines += _details("set-up", [*set_up, *effort])
    lines += ["", f"pytest-cepbench {escaped(facts.version)}"]
    return "\n".join(lines) + "\n"


def _some(before: str, lines: Sequence[str], longest: int, most: int = _MOST_LINES) -> list[str]:
    """The first lines as a list, and how many there are besides."""
    more = [f"- and {len(lines) - most} more"] if len(lines) > most else []
    return [*(f"- {before}{escaped(line, longest)}" for line in lines[:most]), *more]


def _details(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that are folded away; none where there are none."""
    if not lines:
        return []
    return ["", f"<details><summary>{escaped(title)}</summary>", "", *lines, "", "</details>"]


def _worst_samples(results: Sequence[CaseResult]) -> Iterator[str]:
    """The samples that lost most, in words, and where the worst case lost its score."""
    regressed = [result for result in worst_first(results) if result.verdict == Verdict.REGRESSED]
    samples = worst_samples(regressed, _MOST_SAMPLES)
    if samples:
        yield from ("", "**Samples that lost most:**", "")
    for sample in samples:
        yield f"- {escaped(f'{scores_of_sample(sample)} ({name_of(sample.result)})', 300)}"
        for line in sample_words(sample, _LONGEST_TEXT):
            yield f"  - {escaped(line, _LONGEST_TEXT)}"
    lost = next(((r, where) for r in regressed if (where := where_lost(r))), None)
    if lost is not None:
        yield from ("", escaped(f"{name_of(lost[0])}: {lost[1]}", 500))


def escaped(text: str, most: int = 200) -> str:
    """Untrusted text for the inside of a line of Markdown, which shows it and does nothing else.

    No markup, table cells, HTML or links with a hidden address; no user is mentioned by an `@`.
    """
    line = " ".join(printable(text, most).split())  # four spaces at its start would make it code
    marked = _MARKUP.sub(r"\\\g<0>", line)
    shown = "".join(_ENTITIES.get(char, char) for char in marked)
    return _MENTION.sub("@\u200b", shown)


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
