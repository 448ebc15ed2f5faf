"""The controlling side of a run: header, ledger, acceptance of baselines, summary and reports."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from pytest_cepbench.errors import StoreError, WriteError
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.plugin.ledger import Ledger
from pytest_cepbench.plugin.options import notes_on_options
from pytest_cepbench.plugin.run_settings import RunSettings
from pytest_cepbench.plugin.terminal.header import (
    HeaderLine,
    setup_lines,
    shown_location,
    suite_lines,
)
from pytest_cepbench.plugin.workers.run_dir import run_folder

if TYPE_CHECKING:
    from pytest_cepbench.artifacts import ImageArtifact
    from pytest_cepbench.gate.acceptance import Change
    from pytest_cepbench.plugin.evaluator import Evaluator
    from pytest_cepbench.plugin.workers.crashes import CrashLog
    from pytest_cepbench.report import UsageTotals


@dataclass
class Controller:
    """One per run, in the process that the user started.

    process: gives that process's suites, store and models; called only when they are needed.
    started: when, in seconds since the epoch.
    header: who is gated against what. lines: the same in full, for reports. changes: the baselines that were
    taken over. refused: whether there was reason to take over none. unwritten: whether they could
    not be written. written: reports. unreported: why there are none. beside: what processes did
    outside of cases. remarks: on memory, from workers that helped.
    pools: of a cluster, in a line. pytests_code: the exit code that pytest itself gave the session.
    """

    settings: RunSettings
    process: Callable[[], Evaluator]
    run_id: str = field(default_factory=lambda: uuid4().hex)
    started: float = field(default_factory=time.time)
    ledger: Ledger = field(default_factory=Ledger)
    header: list[HeaderLine] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    refused: bool = False
    unwritten: bool = False
    written: list[Path] = field(default_factory=list)
    unreported: str | None = None
    beside: list[UsageTotals] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pools: str | None = None
    pytests_code: int = 0

    @cached_property
    def deaths(self) -> CrashLog:
        """The workers that died."""
        from pytest_cepbench.plugin.workers import crashes

        return crashes.CrashLog(self.ledger)

    @property
    def folder(self) -> Path:
        """Where the processes of this run leave word for one another."""
        return run_folder(self.settings.home, self.run_id)

    def start(self, taken: Sequence[str]) -> None:
        """Resolve what the user named, so that a wrong name or parameter stops the run here.

        taken: short options that other plugins own. Raises CepError kinds.
        """
        if (
            self.settings.baselines.is_dir()
        ):  # a plain pytest run has none, and imports nothing more
            from pytest_cepbench.replacement import recover

            told = recover(self.settings.baselines)
            self.remarks += [] if told is None else [told]
        if self.settings.names_models:
            self.header = list(setup_lines(self.settings, self.process(), taken))
            self.lines = [line.full for line in self.header]

    def header_lines(self, *, verbose: bool) -> Iterator[str]:
        """What pytest's header says of this run. verbose: with whole specs."""
        yield from (line.full if verbose else line.short for line in self.header)
        yield from notes_on_options(self.settings.sources)

    @property
    def identities(self) -> dict[str, str]:
        """The models that were named on the command line, as workers have to find them."""
        if not self.settings.names_models:
            return {}
        from pytest_cepbench.plugin.workers.model_identity import identities_of

        return identities_of(runner.bound for runner in self.process().runners)

    def plan_pools(self) -> None:
        """Divide the cluster among the models of what was collected. Raises CepError kinds."""
        self.pools = self.process().plan_pools()

    def suite_lines(self, *, verbose: bool) -> Iterator[str]:
        """One line for each suite that is about to be gated. verbose: with whole specs."""
        if not self.ledger.expected:
            return
        if self.pools:
            yield self.pools
        selected = set(self.ledger.cases.values())
        yield from suite_lines(self.settings, self.process(), selected, verbose=verbose)

    def finish(self, session: pytest.Session, *, updating: bool) -> None:
        """Close the books: exit status, accepted baselines, reports."""
        ledger = self.ledger
        if not ledger.active:
            return
        self._publish(session)
        if updating and self.deaths.all:
            ledger.fail(
                "a worker died, and baselines are accepted only from a run in which none did: run it "
                "again, what was computed is in the store"
            )
        ledger.close()
        session.exitstatus = self.exit_code(session.exitstatus)  # type: ignore[assignment] # an int
        if updating:
            self._accept(session)
            staged = self.process().staged
            shutil.rmtree(staged, ignore_errors=True)
            with suppress(OSError):  # another run may be staging beside
                staged.parent.rmdir()
        if ledger.results:
            self.beside.append(self.process().beside)
            self._write_reports()

    def exit_code(self, code: int | str | None) -> int | str | None:
        """What the run ends with: this code of pytest's or a plugin's, unless there is a worse one.

        A code that says that something is wrong is left as it is.
        """
        ledger = self.ledger
        nothing = pytest.ExitCode.NO_TESTS_COLLECTED
        # The system passes on the lowest eight bits alone.
        harmless = not code or (isinstance(code, int) and code % 256 in (0, nothing))
        if not harmless or self.settings.plan or self.settings.listing:
            return code
        failing = [result for result in ledger.results if not result.passes]
        if failing:
            return max(result.presentation.exit_code for result in failing)
        if ledger.active and ledger.problems():
            from pytest_cepbench.gate import PRESENTATIONS, Verdict

            return PRESENTATIONS[Verdict.INCOMPLETE].exit_code
        # Who names a model wants to know of it, and no test ran.
        unasked = self.settings.names_models and self.pytests_code == nothing
        return nothing if ledger.nothing_compared or unasked else code

    def _publish(self, session: pytest.Session) -> None:
        """Wait until results of this process are where they are published."""
        place = self.settings.publish
        if place is None and not self.settings.shared:
            return

        def waiting(left: int) -> None:
            reporter = session.config.pluginmanager.getplugin("terminalreporter")
            if reporter is not None and place is not None:
                reporter.ensure_newline()
                reporter.write_line(
                    f"cepbench: {left:,} results are being uploaded to {shown_location(place)}; interrupt "
                    "it to leave them to cepbench store push"
                )

        self.remarks += self.process().publish(publishing_seconds(session), waiting)

    def hear(self, told: Any) -> None:
        """What a worker did outside of cases; None where it had none."""
        if told is not None:
            import msgspec

            from pytest_cepbench.report import UsageTotals

            self.beside.append(msgspec.convert(told["effort"], UsageTotals))
            self.remarks += told["remarks"]

    @property
    def infrastructure(self) -> list[str]:
        """What went wrong with machines and was made good, a sentence each."""
        own = self.process().infrastructure if self.ledger.active else []
        lines = [*self.deaths.lines(), *self.ledger.repeated, *self.remarks, *own]
        return list(dict.fromkeys(lines))

    def _accept(self, session: pytest.Session) -> None:
        from pytest_cepbench.gate import CaseKey
        from pytest_cepbench.gate.acceptance import apply, propose

        results = self.ledger.results
        errors = [result for result in results if not result.passes]
        failed = session.exitstatus or self.pytests_code
        self.refused = bool(self.ledger.problems() or errors or failed)
        if not self.refused:
            root = self.settings.baselines
            measured = {  # once, where several tests judged a case
                CaseKey(one.suite, one.part, one.metric): one.measured
                for one in results
                if one.accepted and one.measured is not None
            }
            proposed = [propose(key, baseline, root) for key, baseline in measured.items()]
            changes = [change for change in proposed if change is not None]
            try:
                apply(changes, root)
            except WriteError as error:
                self.unwritten = True
                self.ledger.fail(f"nothing was accepted: {error}")
                session.exitstatus = self.exit_code(session.exitstatus)  # type: ignore[assignment] # as above
            else:
                self.changes = changes
                return
        from msgspec.structs import replace

        self.ledger.results[:] = [replace(r, accepted=False) for r in self.ledger.results]
        for suite in {result.suite for result in self.ledger.results}:
            with suppress(OSError):  # syrupy makes the folder before it hands over what to write
                (self.settings.baselines / suite).rmdir()

    def _write_reports(self) -> None:
        from pytest_cepbench._version import __version__
        from pytest_cepbench.report.markdown import markdown_summary
        from pytest_cepbench.report.writers import (
            RunFacts,
            html_page,
            json_document,
            write_reports,
        )

        ledger = self.ledger
        facts = RunFacts(
            ledger.verdict(),
            __version__,
            self._setup_lines(),
            ledger.problems(),
            self.infrastructure,
            self.beside,
            len(self.deaths.all),
        )
        results = ledger.results
        documents = {
            ".json": json_document(facts, results),
            ".html": html_page(facts, results, self._stored_image),
            ".md": markdown_summary(facts, results),
        }
        try:
            # What an earlier run reported would be taken for the report of this one.
            self.written = write_reports(self.settings.report, documents, stale=False)
        except WriteError as error:  # the run is judged, and its exit code says how
            self.unreported = str(error)
            return
        with suppress(OSError):
            keep_out_of_git(self.settings.home, self.settings.report)

    def _stored_image(self, digest: str) -> ImageArtifact | None:
        """An image for the report; the store is opened for the first one only."""
        try:
            return self.process().store.get_image(digest)
        except StoreError:  # the store was removed, or its disk is full: the page does without
            return None

    def _setup_lines(self) -> list[str]:
        """The header, or what the results say where nothing was named on the command line."""
        if self.lines:
            return self.lines
        first = self.ledger.results[0]
        return [f"{name}: {value}" for name, value in {**first.model, **first.identity}.items()]

    def tell_junit(self, config: pytest.Config) -> None:
        """Put the verdict of the run into pytest's JUnit file, if it writes one."""
        from _pytest.junitxml import xml_key  # the stash key that pytest's own fixture uses

        xml = config.stash.get(xml_key, None)
        if xml is not None and self.ledger.active:
            xml.add_global_property("cepbench_verdict", self.ledger.verdict())
            # What a dead worker began stays there as a test without an outcome, beside its retry.
            for (nodeid, _), begun in xml.node_reporters.items():
                if str(nodeid) in self.deaths.retried and not begun.nodes:
                    xml.node_reporters_ordered.remove(begun)


def publishing_seconds(session: pytest.Session) -> float | None:
    """How long the end of a run waits for uploads; None: as long as they go on."""
    return 5.0 if session.exitstatus == pytest.ExitCode.INTERRUPTED else None


CONTROLLER = pytest.StashKey[Controller]()
