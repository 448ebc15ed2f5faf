"""The controlling side of a run: header, ledger, acceptance of baselines, summary and reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.errors import SpecError, StoreError, WriteError
from pytest_cepbench.evaluation import run_result
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.plugin.ledger import Ledger

if TYPE_CHECKING:
    from pytest_cepbench.artifacts import ImageArtifact
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.gate.acceptance import Change
    from pytest_cepbench.plugin.workers.crashes import CrashLog
    from pytest_cepbench.report import UsageTotals


@dataclass
class Controller:
    """One per run, in the process that the user started.

    context: the run, as this process knows it.
    evaluator: gives this process's suites, store and models; called only when they are needed.
    lines: the models and what they are compared with, for header and reports.
    changes: the baselines that were accepted.
    refused: whether there was reason to accept none.
    unwritten: whether they could not be written.
    written: paths of the reports.
    unreported: why there are no reports.
    background_usage: usage of the run's processes outside of cases.
    remarks: on memory, from workers that helped.
    pools: the pools of a cluster, in a line.
    pytests_code: the exit code that pytest itself gave the session.
    """

    context: RunContext
    evaluator: Callable[[], Evaluator]
    ledger: Ledger = field(default_factory=Ledger)
    lines: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    refused: bool = False
    unwritten: bool = False
    written: list[Path] = field(default_factory=list)
    unreported: str | None = None
    background_usage: list[UsageTotals] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pools: str | None = None
    pytests_code: int = 0

    @cached_property
    def crashes(self) -> CrashLog:
        """The workers that died."""
        from pytest_cepbench.plugin.workers import crashes

        return crashes.CrashLog(self.ledger)

    @property
    def settings(self) -> RunSettings:
        """What the engineer asked for."""
        return self.context.settings

    def start(self, taken: Sequence[str]) -> None:
        """Resolve what the user named, so that a wrong name or parameter stops the run here.

        taken: short options that other plugins own. Raises CepError kinds.
        """
        if (
            self.settings.baselines.is_dir()
        ):  # a plain pytest run has none, and imports nothing more
            from pytest_cepbench.replacement import recover

            recovered = recover(self.settings.baselines)
            self.remarks += [] if recovered is None else [recovered]
        self.lines = list(self._setup(taken))

    def _setup(self, taken: Sequence[str]) -> Iterator[str]:
        if not self.settings.names_models:
            return
        for place in self.settings.shared:
            if isinstance(place, Path) and not place.is_dir():
                msg = (
                    f"--cep-shared {shown_path(place)}: no such folder; that of a store is expected"
                )
                raise SpecError(msg)
        engine = self.evaluator().engine
        if engine is not None:
            yield engine.header
        yield from self._model_lines()
        store = shown_path(self.settings.store)
        publish = self.settings.publish
        where = "" if publish is None else f", published to {shown_place(publish)}"
        yield f"baselines {shown_path(self.settings.baselines)}, store {store}{where}"
        for name in taken:
            yield f"{name} belongs to another plugin here, use --cep-{name[2:]}"
        others = [
            f"{name} from {source}"
            for name, source in self.settings.sources.items()
            if not source.startswith("--")
        ]
        if others:
            yield ", ".join(others)

    def _model_lines(self) -> Iterator[str]:
        from pytest_cepbench.models.protocols import ROLE_NAMES
        from pytest_cepbench.models.registry import detect
        from pytest_cepbench.models.spec import PRESET, SUITE_SCHEMES, parse_spec
        from pytest_cepbench.suites.model_pool import describe_role

        evaluator = self.evaluator()
        choices = evaluator.suites.choices
        seats = choices.seats
        gated_roles: Sequence[str] = () if choices.replay is not None else choices.played
        if choices.chains is not None:
            yield f"chains under test: {choices.replay} (layout {choices.chains.name})"
        for name in sorted(
            seats, key=lambda name: (name not in gated_roles, name not in ROLE_NAMES)
        ):
            seat = seats[name]
            gated = "model under test, " if name in gated_roles else ""
            # Which model a preset is, each suite says; what is on a cluster is looked up there.
            elsewhere = self.settings.listing and self.settings.engine == "ray"
            if elsewhere or parse_spec(seat.spec).scheme == PRESET:
                yield f"{gated}{name}: {seat.spec}"
                continue
            bound = evaluator.models.runner(seat).bound
            yield f"{gated}{name}: {seat.spec} ({describe_role(bound)})"
        if choices.model is not None and choices.role is None:
            model = parse_spec(choices.model)
            known = () if model.scheme in SUITE_SCHEMES else detect(model).roles
            others = [role for role in known if role not in seats]
            if others:
                yield f"it could also play {' or '.join(others)}: choose with --cep-role"

    @property
    def identities(self) -> dict[str, str]:
        """The models that were named on the command line, as workers have to find them."""
        if not self.settings.names_models:
            return {}
        from pytest_cepbench.evaluation.model_identity import identities_of

        return identities_of(runner.bound for runner in self.evaluator().runners)

    def plan_pools(self) -> None:
        """Divide the cluster among the models of what was collected. Raises CepError kinds."""
        self.pools = self.evaluator().plan_pools()

    def suite_lines(self) -> Iterator[str]:
        """One line for each suite that is about to be gated."""
        if not self.ledger.expected:
            return
        if self.pools:
            yield f"cepbench: {self.pools}"
        loaded_suites = self.evaluator().suites.loaded
        known = {name for loaded in loaded_suites for name in loaded.suite.table.encoders}
        for name in self.settings.encoders:
            if name not in known and loaded_suites:
                yield f"cepbench: no suite here has an encoder {name!r} (--encoder {name}=...)"
        selected = set(self.ledger.cases.values())
        for loaded in loaded_suites:
            if not any(str(case.key) in selected for case in loaded.cases):
                continue  # all of its cases were deselected
            lineup = loaded.lineup
            rest = ", ".join(
                f"{role} {seat.spec}"
                for role, seat in lineup.seats.items()
                if role not in lineup.gated
            )
            yield (
                f"cepbench: suite {loaded.suite.name} gates {lineup.under_test} "
                f"{lineup.subject}{f' ({rest})' if rest else ''} "
                f"against {shown_path(self.settings.baselines / loaded.suite.name)}"
            )

    def finish(self, session: pytest.Session, *, updating: bool) -> None:
        """Close the books: exit status, accepted baselines, reports."""
        ledger = self.ledger
        if not ledger.active:
            return
        self._publish(session)
        if updating and self.crashes.all:
            ledger.fail(
                "a worker died, and baselines are accepted only from a run in which none did: run it "
                "again, what was computed is in the store"
            )
        ledger.close()
        session.exitstatus = self.exit_code(session.exitstatus)  # type: ignore[assignment] # an int
        if updating:
            self._accept(session)
            staged = self.context.staged
            shutil.rmtree(staged, ignore_errors=True)
            with suppress(OSError):  # another run may be staging beside
                staged.parent.rmdir()
        if ledger.results:
            self.background_usage.append(self.evaluator().background_usage)
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
        worst = run_result.exit_code(
            ledger.results, lambda: ledger.problems() if ledger.active else ()
        )
        if worst:
            return worst
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
                    f"cepbench: {left:,} results are being uploaded to {shown_place(place)}; interrupt "
                    "it to leave them to cepbench store push"
                )

        self.remarks += self.evaluator().publish(publishing_seconds(session), waiting)

    def record_worker(self, sent: Any) -> None:
        """Enter what a worker did outside of cases; None where it had none."""
        if sent is not None:
            import msgspec

            from pytest_cepbench.report import UsageTotals

            self.background_usage.append(msgspec.convert(sent["effort"], UsageTotals))
            self.remarks += sent["remarks"]

    @property
    def infrastructure(self) -> list[str]:
        """What went wrong with machines and was made good, a sentence each."""
        own = self.evaluator().infrastructure if self.ledger.active else []
        lines = [*self.crashes.lines(), *self.ledger.repeated, *self.remarks, *own]
        return list(dict.fromkeys(lines))

    def _accept(self, session: pytest.Session) -> None:
        results = self.ledger.results
        errors = [result for result in results if not result.passes]
        failed = session.exitstatus or self.pytests_code
        self.refused = bool(self.ledger.problems() or errors or failed)
        if not self.refused:
            try:
                self.changes = run_result.accept_baselines(results, self.settings.baselines)
            except WriteError as error:
                self.unwritten = True
                self.ledger.fail(f"nothing was accepted: {error}")
                session.exitstatus = self.exit_code(session.exitstatus)  # type: ignore[assignment] # as above
            else:
                return
        from msgspec.structs import replace

        self.ledger.results[:] = [replace(r, accepted=False) for r in self.ledger.results]
        for suite in {result.suite for result in self.ledger.results}:
            with suppress(OSError):  # syrupy makes the folder before it hands over what to write
                (self.settings.baselines / suite).rmdir()

    def _write_reports(self) -> None:
        from pytest_cepbench import __version__
        from pytest_cepbench.report.writers import RunFacts

        ledger = self.ledger
        facts = RunFacts(
            ledger.verdict(),
            __version__,
            self._setup_lines(),
            ledger.problems(),
            self.infrastructure,
            self.background_usage,
            len(self.crashes.all),
        )
        settings = self.settings
        try:
            self.written = run_result.write_run_reports(
                facts, ledger.results, self._stored_image, settings.report, settings.home
            )
        except WriteError as error:  # the run is judged, and its exit code says how
            self.unreported = str(error)

    def _stored_image(self, digest: str) -> ImageArtifact | None:
        """An image for the report; the store is opened for the first one only."""
        try:
            return self.evaluator().store.get_image(digest)
        except StoreError:  # the store was removed, or its disk is full: the page does without
            return None

    def _setup_lines(self) -> list[str]:
        """The header, or what the results say where nothing was named on the command line."""
        if self.lines:
            return self.lines
        first = self.ledger.results[0]
        return [f"{name}: {value}" for name, value in {**first.model, **first.identity}.items()]

    def mark_junit(self, config: pytest.Config) -> None:
        """Put the verdict of the run into pytest's JUnit file, if it writes one."""
        from _pytest.junitxml import xml_key  # the stash key that pytest's own fixture uses

        xml = config.stash.get(xml_key, None)
        if xml is not None and self.ledger.active:
            xml.add_global_property("cepbench_verdict", self.ledger.verdict())
            # What a dead worker began stays there as a test without an outcome, beside its retry.
            for (nodeid, _), begun in xml.node_reporters.items():
                if str(nodeid) in self.crashes.retried and not begun.nodes:
                    xml.node_reporters_ordered.remove(begun)


def publishing_seconds(session: pytest.Session) -> float | None:
    """How long the end of a run waits for uploads; None: as long as they go on."""
    return 5.0 if session.exitstatus == pytest.ExitCode.INTERRUPTED else None


def shown_place(place: Path | str) -> str:
    """A shared store as it is said; a URL with secrets was refused before."""
    return place if isinstance(place, str) else str(shown_path(place))


def shown_path(path: Path) -> Path:
    """A path as short as it can be said from here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


CONTROLLER = pytest.StashKey[Controller]()
