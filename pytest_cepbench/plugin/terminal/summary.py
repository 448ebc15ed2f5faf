"""The section at the end of the terminal's output: verdicts, what was accepted, what is missing."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.escapes import visible, width_of
from pytest_cepbench.evaluation.run_result import nothing_compared, unmeasured_lines
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.files import shown_path
from pytest_cepbench.gate.measurement import differing_fields
from pytest_cepbench.plugin.ledger import NO_CHANGE
from pytest_cepbench.plugin.records import GATED, SUITES
from pytest_cepbench.report import text, totals
from pytest_cepbench.report.case_table import fact_lines
from pytest_cepbench.report.headline import (
    LINES,
    PROBLEMS,
    ROWS,
    SAMPLES,
    undecided,
    worst_case,
    worst_first,
    worst_samples,
)
from pytest_cepbench.report.number_format import counted, name_of, number, printable
from pytest_cepbench.report.tables import (
    Line,
    Span,
    shorten,
    summary_table,
    wrap,
)
from pytest_cepbench.report.writers import RunOutcome

_LONGEST_REASON = 400

_SHORTEST_PATH = 20  # columns that are left of a path

Sentence = tuple[str, str]
"""A text and its style."""


# -- pytest's own sections -------------------------------------------------------------------------


class QuietSections:
    """Keeps the cases out of pytest's sections of failures, which the summary stands in for.

    They are counted as ever, and shown with `-v`; failures of other tests are shown as pytest does.
    Verdicts of whole suites, which pytest counts apart, are shown among the failures.
    """

    def __init__(self) -> None:
        self._reports: dict[str, list[Any]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own, which prints sections
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None]:
        """Put aside the reports that fail by their verdict, and put them back."""
        stats = terminalreporter.stats
        self._reports = {name: stats[name] for name in ("failed", "error") if name in stats}
        whole = stats.get(SUITES, [])
        if terminalreporter.verbosity < 1:
            self._leave_out(terminalreporter)
        elif whole:
            stats["failed"] = [*self._reports.get("failed", ()), *whole]
        try:
            return (yield)
        finally:
            if whole and "failed" not in self._reports:
                stats.pop("failed", None)
            stats.update(self._reports)

    def end_sections(self, reporter: Any) -> None:
        """Called before the short summary, which has them only where `-rf` or `-rA` asks for it."""
        asked = set(reporter.config.option.reportchars)
        if asked & set("fA") and asked != set("fE"):
            reporter.stats.update(self._reports)
        else:
            self._leave_out(reporter)

    def _leave_out(self, reporter: Any) -> None:
        stats = reporter.stats
        for name in {"failed", "error"} & stats.keys():
            stats[name] = [report for report in stats[name] if not getattr(report, GATED, False)]


# -- the section -----------------------------------------------------------------------------------


def write_summary(
    outcome: RunOutcome | None, settings: RunSettings, unjudged: int, reporter: Any
) -> None:
    """Write the section, in a run that has to do with cepbench.

    unjudged: cases of a run that only plans or lists them.
    reporter: pytest's terminal reporter.
    """
    output = SummaryOutput(reporter)
    if unjudged:
        plan = f"{settings.sources.get('plan')} asks for a plan"
        asked = plan if settings.plan else "only listed"
        cases = counted(unjudged, "case")
        output.write_sentences([(f"Nothing was judged: {cases}, {asked}", "bold yellow")])
        return
    if outcome is None:
        return
    color = "yellow" if undecided(outcome.results) else "green"
    style = f"bold {color if outcome.code == 0 else 'red'}"
    if reporter.verbosity < -1:
        output.write([(Span(outcome.headline, style),)])
        return
    reporter.write_sep("=", "cepbench summary")
    output.write_sentences([(outcome.headline, style)])
    if reporter.verbosity < 0:
        output.write(_failing_rows(outcome, output))
        causes = at_most(text.cause_lines(outcome.results), LINES)
        output.write_sentences((line, "red") for line in causes)
        output.write_sentences(_files(outcome, brief=True))
        return
    verbose = reporter.verbosity > 0
    if not verbose:
        output.write(_failing_rows(outcome, output))
        output.write_sentences(_samples(outcome, output))
    elif outcome.results:
        output.write(summary_table(outcome.results, output.table_columns))
    output.write_sentences(_results(outcome, verbose=verbose))
    output.write_sentences(_acceptance(outcome, settings.baselines, verbose=verbose))
    worst, step = worst_case(outcome.results), text.next_step(outcome.results)
    if step and (worst is None or worst.verdict != "no-baseline"):  # which is said already
        output.write_sentences([(f"next: {step}", "")])
    if settings.show:  # samples that no report shows
        unshown = totals.unshown_lines(outcome.results, settings.show)
        output.write_sentences((line, "yellow") for line in unshown)
    output.write_sentences(_files(outcome, brief=False))


def write_nothing_found(config: pytest.Config, reporter: Any) -> None:
    """Say why a run that names a model has no case, and which command mends it.

    reporter: pytest's terminal reporter.
    """
    deselected = len(reporter.stats.get("deselected", ()))
    if deselected:
        line = f"nothing was gated: -k, -m or --deselect left out all {deselected} tests"
    else:
        paths = (Path(argument.partition("::")[0]).absolute() for argument in config.args)
        places = ", ".join(str(shown_path(path)) for path in paths)
        line = (
            f"nothing was gated: no test below {places} takes cep_case. `cepbench init` writes a "
            "suite of your data, `cepbench suites` lists those that come with the package"
        )
    SummaryOutput(reporter).write_sentences([(line, "bold red")])


def at_most(lines: Sequence[str], most: int, *, verbose: bool = False) -> list[str]:
    """The first lines, and how many there are besides; all of them with `-v`."""
    more = len(lines) - most
    if verbose or more <= 0:
        return list(lines)
    if most == 1:
        return [f"{lines[0]} (+{more} with -v)"]
    return [*lines[:most], f"and {more} more (all with -v)"]


def _failing_rows(outcome: RunOutcome, output: SummaryOutput) -> Iterator[Line]:
    """The cases that were compared and do not pass, worst first; each row names its suite."""
    failing = [
        result
        for result in worst_first(outcome.results)
        if result.judgement.difference is not None and not result.is_pooled
    ]
    if failing:
        shown = failing[:ROWS]
        yield from summary_table(shown, output.table_columns, grouped=False)
    if len(failing) > ROWS:
        yield (Span(f"and {len(failing) - ROWS} more (all with -v)"),)


def _samples(outcome: RunOutcome, output: SummaryOutput) -> Iterator[Sentence]:
    """The samples that lost most, in words, and where the worst case lost its score."""
    regressed = [r for r in worst_first(outcome.results) if r.verdict == "regressed"]
    if not regressed:
        return
    width = output.columns - 4
    for sample in worst_samples(regressed, SAMPLES):
        yield f"lost most: {text.scores_of_sample(sample)} ({name_of(sample.result)})", ""
        yield from ((f"    {line}", "") for line in text.sample_words(sample, width))
    if lost := text.worst_loss(outcome.results):
        yield f"where: {lost}", ""


def _results(outcome: RunOutcome, *, verbose: bool) -> Iterator[Sentence]:
    """What is said of the cases, then of the run: of each kind the first lines."""

    def some(
        lines: Iterable[str], most: int = 1, style: str = "", begin: str = ""
    ) -> list[Sentence]:
        shown = at_most(list(lines), most, verbose=verbose)
        return [(f"{begin}{line}", style) for line in shown]

    def long(lines: Iterable[str]) -> list[str]:
        return [printable(line, _LONGEST_REASON) for line in dict.fromkeys(lines)]

    results = outcome.results
    if results:
        yield from some(text.cause_lines(results), LINES, "red")
        yield from some(text.refusal_lines(results), LINES, "red", "refused: ")
        most = 1 if worst_case(results) else LINES
        yield from some(text.shortage_lines(results), most, "yellow")
        counts = list(totals.verdict_lines(results))
        if len(counts) == 2 and not verbose:
            counts = [f"{counts[0]}; {counts[1].partition(',')[0]}"]
        counts += filter(None, [text.pooled_line(results)])
        yield from ((line, "") for line in (counts if verbose else ["; ".join(counts)]))
        yield from some(totals.error_lines(results))
        yield from some(totals.judge_lines(results))
        yield from some(f if verbose else f.partition("; ")[0] for f in fact_lines(results))
        yield from ((line, "") for line in totals.improvement_lines(results))
        yield from some(text.warning_lines(results), LINES, "yellow", "warning: ")
        yield from some(unmeasured_lines(results), LINES, "yellow", "informational: ")
        yield totals.effort_line([*(result.effort for result in results), *outcome.usage]), ""
    damage = sorted({note for result in results for note in result.damage})
    again = (f"{printable(note)}: computed again" for note in damage)
    yield from some(again, LINES, "yellow", "store: ")
    yield from some(long(outcome.skipped.values()), LINES, "yellow", "skipped: ")
    own = "infrastructure: "
    lines = [line.removeprefix(own) for line in outcome.infrastructure]
    yield from some(lines, LINES, "yellow", own)
    yield from some(long(outcome.remarks), LINES, "yellow", "note: ")
    yield from some(outcome.problems, PROBLEMS, "red", "INCOMPLETE: ")
    if nothing_compared(results, outcome.skipped):
        yield "no case was judged: nothing is known of the model", "red"


def _acceptance(outcome: RunOutcome, baselines: Path, *, verbose: bool) -> Iterator[Sentence]:
    """Every baseline that was replaced, before and after; of new ones how many there are."""
    new = sum(change.before is None for change in outcome.changes)
    changes = [f"{new} new {'case' if new == 1 else 'cases'}"] if new else []
    anchors = {"frozen": ", the one before is its anchor", "moved": ", its anchor moves"}
    for change in outcome.changes:
        before, after = change.before, change.after
        if before is not None:
            differ = differing_fields(before.identity, after.identity)
            other = ", measured under other conditions" if differ else ""
            if change.replaced_answers is not None:  # against themselves all score one half
                what = f"{change.replaced_answers} of {len(after.answers)} answers replaced"
            else:
                what = (
                    f"{number(before.value)} -> {number(after.value)} "
                    f"({after.value - before.value:+.4f}), n = {after.n}"
                )
            other += anchors.get(change.anchor, "")
            changes.append(f"changed {printable(str(change.key))}: {what}{other}")
    yield from ((line, "") for line in at_most(changes, ROWS, verbose=verbose))
    verdicts = [result.verdict for result in outcome.results if not result.is_pooled]
    errors = "error" in verdicts
    if outcome.acceptance == "written":
        files = counted(len(outcome.changes), "baseline")
        yield f"{files} written below {shown_path(baselines)}: commit them", ""
    elif outcome.acceptance == "refused":
        yield "no baseline was changed: only a complete run without failures can be accepted", ""
    elif outcome.acceptance == "unchanged" and not outcome.headline.endswith(NO_CHANGE):
        yield NO_CHANGE, ""
    elif outcome.acceptance == "not asked" and "no-baseline" in verdicts and not errors:
        count = sum(verdict == "no-baseline" for verdict in verdicts)
        cases = "1 case has" if count == 1 else f"{count} cases have"
        step = "run again with --snapshot-update to accept what was measured"
        yield f"{cases} no baseline: {step}", ""


def _files(outcome: RunOutcome, *, brief: bool) -> Iterator[Sentence]:
    """Where the reports are; last the address of the sample that lost most, for a click.

    brief: only the page.
    """
    yield from ((line, "yellow") for line in outcome.unwritten)
    page = next((path for path in outcome.written if path.suffix == ".html"), None)
    beside = [path for path in outcome.written if page is None or path.stem == page.stem]
    for path in [page or path for path in beside[:1]]:
        others = ", ".join(other.suffix for other in beside if other != path)
        yield f"report: {shown_path(path)}{f' (and {others})' if others and not brief else ''}", ""
    for path in outcome.written:
        if path not in beside and not brief:
            yield f"report: {shown_path(path)}", ""
    if page is None or brief:
        return
    from pytest_cepbench.report.view import sample_anchor

    # The address of its pictures, which terminals open by a click.
    pictured = (sample for sample in worst_samples(outcome.results) if sample.is_whole)
    worst = next(pictured, None)
    if worst is not None:
        anchor = sample_anchor(worst.result, worst.shown.sample)
        yield f"worst sample: {page.absolute().as_uri()}#{anchor}", ""


# -- lines on pytest's terminal --------------------------------------------------------------------


@dataclass(frozen=True)
class SummaryOutput:
    """Where a section is written.

    reporter: pytest's terminal reporter.
    """

    reporter: Any

    @property
    def table_columns(self) -> int | None:
        """Columns that a table may take; None in a file, which has no edge, unless COLUMNS is set.

        A number that a log lacks cannot be had by making the window wider.
        """
        known = self.reporter.isatty or os.environ.get("COLUMNS")
        return self._writer.fullwidth if known else None

    @property
    def columns(self) -> int:
        """Columns of the terminal; of a file what pytest takes it to have."""
        return int(self._writer.fullwidth)

    def write(self, lines: Iterable[Line]) -> None:
        """Write lines as they are."""
        for line in lines:
            texts = (self._styled(span) for span in line)
            self.reporter.write_line("".join(texts))

    def write_sentences(self, sentences: Iterable[tuple[str, str]]) -> None:
        """Write (text, style) pairs, broken between words where the terminal ends.

        In a file, where pytest takes it to end.
        """
        for sentence, style in sentences:
            self.write((Span(line, style),) for line in self.wrap(sentence))

    def wrap(self, sentence: str, indent: str = "  ", *, shortened: bool = False) -> list[str]:
        """A line, broken between words where the terminal ends.

        indent: of what is continued.
        shortened: whether a word that no line has room for loses its middle, and a path earlier.
        """
        text, columns = visible(sentence), self.columns
        if not shortened:
            return wrap(text, columns, indent)
        if width_of(text) > columns:
            most, words = max(_SHORTEST_PATH, columns // 3), text.split(" ")
            text = " ".join(shorten(word, most) if os.sep in word else word for word in words)
        return wrap(text, columns, indent, shortened=True)

    @property
    def _writer(self) -> Any:
        return self.reporter.config.get_terminal_writer()

    @property
    def _encoding(self) -> str:
        # pytest's writer has no public attribute for the file that it writes to.
        file = getattr(self._writer, "_file", None)
        return getattr(file, "encoding", None) or "utf-8"

    def _styled(self, span: Span) -> str:
        """A text that the file can take: pytest would write a whole line in escapes."""
        text = visible(span.text).encode(self._encoding, "backslashreplace").decode(self._encoding)
        markup: str = self._writer.markup(text, **dict.fromkeys(span.style.split(), True))
        return markup
