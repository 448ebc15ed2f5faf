"""The ledger: which cases should be judged, which were, and what that means for the run.

Kept where the run is controlled. It fails closed: a case that vanished, one over which workers
died, a test that passed without a verdict each make the run incomplete, whatever else passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import few_of
from pytest_cepbench.plugin.cases import MISTAKE, SUITE_FILE, would_have_cases

if TYPE_CHECKING:
    import pytest

    from pytest_cepbench.report.result import CaseResult

RETRIED = "retried"
"""Mark on the report of a case that is judged again, after its worker died."""

_ALLOWED = "Where that is intended, --cep-allow-skips lets the run pass without them"

NO_CHANGE = "no baseline changed"


@dataclass
class Ledger:
    """The cases of one run, expected and judged.

    root: folder that node ids begin from.
    allow_skips: whether a case that a test or a mark skips leaves the run complete.
    expected: node ids of cases, and under xdist of tests beside a suite file.
    reported: ids whose last report came.
    cases: node id -> the case that its test was given to judge (`suite/part/metric`); None where it
        was given nothing, or that is not known yet.
    records: node id -> what the process of the test said last of it, see `Records`.
    uncollected: modules of suites that could not be collected.
    mistakes: of all modules that could not be collected, whether their suite is written wrongly.
    results: the judged cases.
    failures: what else makes the run incomplete.
    repeated: tests that ran again after an error, a sentence each.
    remarks: on how cases were judged, for the whole run.
    inputs: what processes read by themselves -> its digest -> who read it so.
    collected: ids by their place in the order of collection; all of them under xdist, the cases in
        a single process.
    """

    root: Path = Path()
    allow_skips: bool = False
    expected: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    cases: dict[str, str | None] = field(default_factory=dict)
    records: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    uncollected: set[str] = field(default_factory=set)
    mistakes: set[bool] = field(default_factory=set)
    results: list[CaseResult] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    inputs: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    collected: dict[str, int] = field(default_factory=dict)
    _attempts: dict[tuple[str, str], str] = field(default_factory=dict)
    _contradicted: dict[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether this run has anything to do with cepbench."""
        return bool(self.expected or self.cases or self.results or self.uncollected)

    def expect(self, cases: Mapping[str, str | None]) -> None:
        """Cases that this run is to judge, by node id; see `Ledger.cases`."""
        for nodeid, case in cases.items():
            self.expected.add(nodeid)
            self.collected.setdefault(nodeid, len(self.collected))
            if case is not None or nodeid not in self.cases:
                self.cases[nodeid] = case

    def expect_collected(self, nodeids: Iterable[str]) -> None:
        """Ids that an xdist worker collected; those beside a suite file are cases."""
        suites: dict[str, bool] = {}
        for nodeid in nodeids:
            self.collected.setdefault(nodeid, len(self.collected))
            module = nodeid.partition("::")[0]
            if module not in suites:
                suites[module] = (self.root / module).with_name(SUITE_FILE).exists()
            if suites[module]:
                self.expected.add(nodeid)

    def note_report(self, report: pytest.TestReport) -> None:
        """Enter one report, wherever the test ran; other plugins may have changed its outcome."""
        nodeid, payload = report.nodeid, getattr(report, "cepbench", None)
        outcome: str = report.outcome
        if isinstance(payload, dict):  # what the process of the test recorded, see `Records`
            self.expected.add(nodeid)
            self.cases[nodeid] = payload["case"]
            self.records[nodeid] = {**payload, "results": ()}
            self.note_inputs(payload["inputs"], nodeid)
            for attempt, result in read_results(payload):
                self._enter_result(attempt, result)
        if outcome == "rerun":  # the word of plugins that run a test again; not pytest's own
            self.reported.discard(nodeid)  # there is more to come
        # A worker that died reports once, as neither of the three phases; and a report that could
        # not be sent is followed by none.
        elif report.when not in ("setup", "call"):
            self.reported.add(nodeid)

    def note_inputs(self, inputs: Mapping[str, str], reader: str) -> None:
        """Note what a process read. inputs: digests by name. reader: the process, or its test."""
        for name, digest in inputs.items():
            self.inputs.setdefault(name, {}).setdefault(digest, set()).add(reader)

    def _enter_result(self, attempt: str, result: CaseResult) -> None:
        """Enter the result of an attempt at a test; each case counts once.

        An error says nothing of the model, so the last attempt counts. A verdict does: where one
        that fails is followed by another, it stays, since the answers in the store are the same.
        """
        nodeid, case = result.nodeid, str(result.key)
        latest = self._attempts.setdefault((nodeid, case), attempt)
        if attempt == latest:  # the first one, or the test gated its case twice
            self.results.append(result)
            return
        before = [r for r in self.results if r.nodeid == nodeid and str(r.key) == case]
        standing = next((r for r in before if not r.passes and r.verdict != "error"), None)
        if standing is not None:
            if result.passes:
                self._contradicted[nodeid] = (
                    f"{standing.verdict}, then {result.verdict} when the test ran again: the first "
                    "verdict counts"
                )
            return
        self._attempts[nodeid, case] = attempt
        self.results[:] = [r for r in self.results if not any(r is old for old in before)]
        self.results.append(result)
        reasons = [reason for r in before if not r.passes for reason in r.reasons]
        if reasons:
            self.repeated.append(f"{nodeid} ran again after an error ({reasons[0]})")

    def note_collection(self, report: pytest.CollectReport) -> None:
        """A suite whose module could not be collected has cases that will not be judged."""
        if report.failed:
            self.mistakes.add(getattr(report, MISTAKE, False))
            if would_have_cases(self.root / report.nodeid.partition("::")[0]):
                self.uncollected.add(report.nodeid)

    def fail(self, reason: str) -> None:
        """Note a reason why the run is incomplete."""
        self.failures.append(reason)

    def close(self) -> None:
        """Put the results in the order of collection, with notes on how they were judged.

        Workers report in any order. The notes leave the run as complete as it is.
        """
        self.results.sort(key=lambda r: self.collected.get(r.nodeid, len(self.collected)))
        known, tests = set(self.cases.values()), dict[str, list[str]]()
        for result in self.results:
            tests.setdefault(str(result.key), []).append(result.nodeid)
        for place, result in enumerate(self.results):
            case, notes = str(result.key), []
            if len(tests[case]) > 1:
                notes.append(f"judged more than once: by {', '.join(tests[case])}")
            if case not in known:
                notes.append(f"judged by {result.nodeid}, and no test was collected for it")
            if result.nodeid in self._contradicted:
                notes.append(self._contradicted[result.nodeid])
            if notes:
                from msgspec.structs import replace

                shown = replace(result.shown, notes=[*result.shown.notes, *notes])
                self.results[place] = replace(result, shown=shown)
                self.remarks += [f"{case}: {note}" for note in notes]

    def problems(self) -> list[str]:
        """Why the run is incomplete; empty when it is complete."""
        problems = list(self.failures)
        if self.uncollected:
            problems.append(
                f"{len(self.uncollected)} modules could not be collected: "
                f"{few_of(self.uncollected)}"
            )
        # Under xdist a case outside a suite's folder is known by its report alone: once there are
        # cases, every collected id must have reported.
        missing = (
            self.expected | (self.collected.keys() if self.active else set())
        ) - self.reported
        if missing:
            problems.append(f"{len(missing)} tests did not report: {few_of(missing)}")
        problems += [*self._left_out(), *self._unjudged()]
        for name, digests in self.inputs.items():
            readers = [f"{digest[:12]} for {few_of(who)}" for digest, who in digests.items()]
            if len(readers) > 1:
                problems.append(
                    f"{name.removeprefix(f'{self.root}/')} changed while the run went on, and was "
                    f"not the same for all of its processes: {'; '.join(readers)}. Run it again"
                )
        if self.results:
            from pytest_cepbench.report.totals import two_identities

            problems += two_identities(self.results)
        return problems

    def _left_out(self) -> Iterator[str]:
        """Suites without a case, and cases that were skipped, by the reason."""
        if self.allow_skips:
            return
        cases: dict[str, list[str]] = {}
        for nodeid, reason in sorted(self.skipped.items()):
            stands_for = self.records[nodeid]["stands_for"]
            if stands_for == "suite":
                yield f"{reason}. {_ALLOWED}"
            elif stands_for != "nothing":  # which the engineer's own options and data explain
                cases.setdefault(reason, []).append(nodeid)
        for reason, nodeids in cases.items():
            count = "1 case was" if len(nodeids) == 1 else f"{len(nodeids)} cases were"
            yield f"{count} skipped ({reason}): {few_of(nodeids)}. {_ALLOWED}"

    def _unjudged(self) -> Iterator[str]:
        """Tests that ended without judging their own case, by what they did instead."""
        judged: dict[str, list[str]] = {}
        for result in self.results:
            judged.setdefault(result.nodeid, []).append(str(result.key))
        kinds: dict[str, list[str]] = {}
        for nodeid in self.cases.keys() & self.reported - self.skipped.keys() - self._judging:
            named = nodeid
            if nodeid in judged:
                kind = "judged another case than their own"
                named = f"{nodeid} (judged {', '.join(judged[nodeid])})"
            elif nodeid in self.records and self.records[nodeid]["cut_short"]:
                kind = "ended before cep_gate judged their case"
            else:
                kind = "passed without calling cep_gate"
            kinds.setdefault(kind, []).append(named)
        for kind, nodeids in sorted(kinds.items()):
            yield f"{len(nodeids)} tests {kind}: {few_of(nodeids)}"

    @property
    def _judging(self) -> set[str]:
        """Ids of the tests that have judged the case that they were given."""
        results = ((result.nodeid, str(result.key)) for result in self.results)
        return {nodeid for nodeid, case in results if self.cases.get(nodeid) in (None, case)}

    @property
    def skipped(self) -> dict[str, str]:
        """Node id -> why its case was not judged."""
        judging = self._judging
        return {
            nodeid: record["skipped"]
            for nodeid, record in self.records.items()
            if record["skipped"] is not None and nodeid not in judging
        }

    @property
    def judged(self) -> set[str]:
        """Ids of the cases that have a result, or a reason for none."""
        return {result.nodeid for result in self.results} | self.skipped.keys()


def read_results(payload: Mapping[str, Any]) -> list[tuple[str, CaseResult]]:
    """The results that a report carries, each with its attempt at the test."""
    if not payload["results"]:
        return []
    import msgspec

    from pytest_cepbench.report.result import CaseResult

    return msgspec.convert(payload["results"], list[tuple[str, CaseResult]])
