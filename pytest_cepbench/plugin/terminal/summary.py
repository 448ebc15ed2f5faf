"""The section at the end of the terminal's output: verdicts, what was accepted, what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.run_result import shown_path, unmeasured_lines
from pytest_cepbench.plugin.controller import Controller
from pytest_cepbench.report.tables import (
    Glyphs,
    Line,
    Span,
    glyphs_for,
    shortage_table,
    summary_table,
    wrap,
)

_LONGEST_REASON = 400

Sentence = tuple[str, str]
"""A text and its style."""


def write_summary(controller: Controller, reporter: Any, *, updating: bool) -> None:
    """Write the section, in a run that has to do with cepbench.

    reporter: pytest's terminal reporter. updating: whether baselines were to be accepted.
    """
    if not (controller.ledger.active or controller.unjudged):
        return
    output = Output(reporter)
    if controller.unjudged:
        output.write_sentences([(unjudged_line(controller), "bold yellow")])
        return
    style = f"bold {_color(controller)}"
    if reporter.verbosity < -1:
        output.write([(Span(controller.headline, style),)])
        return
    reporter.write_sep("=", "cepbench summary")
    output.write_sentences([(controller.headline, style)])
    if reporter.verbosity < 0:
        output.write(_failing_rows(controller, output))
        output.write_sentences(_reports(controller, brief=True))
        return
    output.write(_tables(controller, output))
    output.write_sentences(_results(controller, verbose=reporter.verbosity > 0))
    output.write_sentences(_problems(controller))
    output.write_sentences((line, "") for line in _acceptance(controller, updating=updating))
    output.write_sentences(_reports(controller, brief=False))


def unjudged_line(controller: Controller) -> str:
    """That a run with cases has judged none of them, and what asked for that."""
    from pytest_cepbench.report.number_format import counted

    settings = controller.settings
    asked = f"{settings.sources.get('plan')} asks for a plan" if settings.plan else "only listed"
    return f"Nothing was judged: {counted(controller.unjudged, 'case')}, {asked}"


def _color(controller: Controller) -> str:
    """The color of the headline."""
    from pytest_cepbench.report.headline import undecided

    if controller.code != 0:
        return "red"
    return "yellow" if undecided(controller.ledger.results) else "green"


def _reports(controller: Controller, *, brief: bool) -> Iterator[Sentence]:
    """Where the reports are. brief: only the page."""
    for path in controller.written:
        if not brief or path.suffix == ".html":
            yield f"report: {shown_path(path)}", ""
    if not brief:
        page = next((path for path in controller.written if path.suffix == ".html"), None)
        if page is not None:
            yield from ((line, "") for line in _worst_sample(controller, page))
        yield from ((line, "yellow") for line in _unshown(controller))
    if controller.unreported is not None:
        yield f"no report: {controller.unreported}", "red"
    yield from ((line, "yellow") for line in controller.ci_lines)
    if controller.unrecorded is not None:
        yield f"not in the history: {controller.unrecorded}", "yellow"


def _worst_sample(controller: Controller, page: Path) -> Iterator[str]:
    """The address of the pictures of the sample that lost most, which terminals open by a click."""
    from pytest_cepbench.report.chain_pairs import sample_anchor
    from pytest_cepbench.report.headline import worst_samples

    pictured = (sample for sample in worst_samples(controller.ledger.results) if sample.is_whole)
    worst = next(pictured, None)
    if worst is not None:
        anchor = sample_anchor(worst.result, worst.shown.sample)
        yield f"worst sample: {page.absolute().as_uri()}#{anchor}"


def _unshown(controller: Controller) -> Iterator[str]:
    """Samples of --cep-show that no report shows."""
    if controller.settings.show:
        from pytest_cepbench.report.totals import unshown_lines

        yield from unshown_lines(controller.ledger.results, controller.settings.show)


def _failing_rows(controller: Controller, output: Output) -> list[Line]:
    """A line for each failing case, which says all of it to who finds it alone."""
    failing = [result for result in controller.ledger.results if not result.passes]
    if not failing:
        return []
    return summary_table(failing, output.table_columns, glyphs=output.glyphs, grouped=False)


def _tables(controller: Controller, output: Output) -> Iterator[Line]:
    results, columns = controller.ledger.results, output.table_columns
    if results:
        yield from summary_table(results, columns, glyphs=output.glyphs)
        yield from shortage_table(results, columns, glyphs=output.glyphs)


def _results(controller: Controller, *, verbose: bool) -> Iterator[Sentence]:
    from pytest_cepbench.report.text import (
        promise_lines,
        refusal_lines,
        verbose_lines,
        warning_lines,
    )
    from pytest_cepbench.report.totals import effort_line

    results = controller.ledger.results
    if results:
        yield from ((line, "") for line in promise_lines(results))
        yield from ((f"warning: {line}", "yellow") for line in warning_lines(results))
        yield from ((f"refused: {line}", "red") for line in refusal_lines(results))
        yield from ((f"informational: {line}", "yellow") for line in unmeasured_lines(results))
        yield from ((line, "") for line in (verbose_lines(results) if verbose else ()))
        efforts = [*(result.effort for result in results), *controller.background_usage]
        yield effort_line(efforts), ""


def _problems(controller: Controller) -> Iterator[Sentence]:
    from pytest_cepbench.report.text import printable

    ledger = controller.ledger
    for note in sorted({note for result in ledger.results for note in result.damage}):
        yield f"store: {printable(note)}: computed again", "yellow"
    for reason in dict.fromkeys(ledger.skipped.values()):
        yield f"skipped: {printable(reason, _LONGEST_REASON)}", "yellow"
    for line in controller.infrastructure:
        yield f"infrastructure: {line.removeprefix('infrastructure: ')}", "yellow"
    for remark in ledger.remarks():
        yield f"note: {printable(remark, _LONGEST_REASON)}", "yellow"
    for problem in ledger.problems():
        yield f"INCOMPLETE: {problem}", "red"
    if ledger.nothing_compared:
        yield "no case was judged: nothing is known of the model", "red"


def _acceptance(controller: Controller, *, updating: bool) -> Iterator[str]:
    yield from _changes(controller)
    verdicts = {result.verdict for result in controller.ledger.results}
    if controller.changes:
        count = len(controller.changes)
        files = "baseline" if count == 1 else "baselines"
        place = shown_path(controller.settings.baselines)
        yield f"{count} {files} written below {place}: commit them"
    elif controller.unwritten:
        return  # the problem that was told says what lies there now
    elif controller.refused:
        yield "no baseline was changed: only a complete run without failures can be accepted"
    elif updating:
        yield "no baseline changed"
    elif "no-baseline" in verdicts and "error" not in verdicts:
        count = sum(result.verdict == "no-baseline" for result in controller.ledger.results)
        cases = "1 case has" if count == 1 else f"{count} cases have"
        yield f"{cases} no baseline: run again with --snapshot-update to accept what was measured"


def _changes(controller: Controller) -> Iterator[str]:
    """Every baseline that was replaced, before and after; new ones stand in the table alone."""
    from pytest_cepbench.report.text import number, printable

    new = sum(change.before is None for change in controller.changes)
    if new:
        yield f"{new} new {'case' if new == 1 else 'cases'}"
    anchors = {"frozen": ", the one before is its anchor", "moved": ", its anchor moves"}
    for change in controller.changes:
        before, after = change.before, change.after
        if before is not None:
            other = "" if before.identity == after.identity else ", measured under other conditions"
            if change.replaced_answers is not None:  # against themselves all score one half
                what = f"{change.replaced_answers} of {len(after.answers)} answers replaced"
            else:
                difference = after.value - before.value
                what = (
                    f"{number(before.value)} -> {number(after.value)} ({difference:+.4f}), "
                    f"n = {after.n}"
                )
            anchor = anchors.get(change.anchor, "")
            yield f"changed {printable(str(change.key))}: {what}{other}{anchor}"


# -- lines on pytest's terminal --------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
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
    def glyphs(self) -> Glyphs:
        """Those that the encoding of the output has."""
        return glyphs_for(self._encoding)

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
        shortened: whether a word that no line has room for loses its middle.
        """
        ellipsis = self.glyphs.ellipsis if shortened else ""
        return wrap(visible(sentence), self._writer.fullwidth, indent, ellipsis)

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


def leave_out_cases(config: pytest.Config, baselines: Path) -> None:
    """Take the snapshots below the folder of baselines out of what syrupy counts.

    A user's own snapshots stay. syrupy has judged the session by then.
    """
    session: Any = getattr(config, "_syrupy", None)
    report = getattr(session, "report", None)
    if report is None:
        return
    from syrupy.data import SnapshotCollections

    for outcome in ("created", "failed", "matched", "updated"):
        others = SnapshotCollections()
        for collection in getattr(report, outcome):
            if not Path(collection.location).is_relative_to(baselines):
                others.add(collection)
        setattr(report, outcome, others)
