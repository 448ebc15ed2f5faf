"""The ledger: which cases should be judged, which were, and what that means for the run.

Kept where the run is controlled. It fails closed: a case that vanished, one over which workers died,
a test that passed without a verdict each make the run incomplete, whatever else passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_cepbench.report import CaseResult

UNJUDGED = "unjudged"
SKIPPED = "skipped"
"""What the report of a case carries that was not judged."""

RETRIED = "retried"
"""What the report of a case carries that is judged again, as xdist's reruns are told."""

_NAMED = 5


@dataclass(eq=False)  # a plugin is registered by its identity
class Ledger:
    """The books of one run.

    expected: node ids of cases. collected: ids by their place in the order of collection; all of
    them under xdist, the cases in a single process. reported: ids whose last report came.
    skipped: cases that were not to be judged, with the reason. unjudged: cases without a verdict.
    results: the judged cases. failures: what else makes the run incomplete.
    """

    expected: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    unjudged: set[str] = field(default_factory=set)
    results: list[CaseResult] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    collected: dict[str, int] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether this run has anything to do with cepbench."""
        return bool(self.expected or self.results or self.skipped or self.unjudged)

    def expect(self, nodeids: Iterable[str]) -> None:
        """Cases that this run is to judge."""
        for nodeid in nodeids:
            self.expected.add(nodeid)
            self.collected.setdefault(nodeid, len(self.collected))

    def expect_collected(self, nodeids: Iterable[str], root: Path) -> None:
        """Ids that an xdist worker collected; those beside a suite file are cases."""
        suites: dict[str, bool] = {}
        for nodeid in nodeids:
            self.collected.setdefault(nodeid, len(self.collected))
            module = nodeid.partition("::")[0]
            if module not in suites:
                suites[module] = (root / module).with_name("suite.toml").exists()
            if suites[module]:
                self.expected.add(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Enter one report, from wherever the test ran."""
        nodeid, payload = report.nodeid, getattr(report, "cepbench", None)
        outcome: str = report.outcome
        if outcome == "rerun":  # the word of plugins that run a test again; not pytest's own
            self.reported.discard(nodeid)  # there is more to come
            return
        # A worker that died reports once, as neither of the three phases; and a report that could
        # not be sent is followed by none.
        if report.when not in ("setup", "call"):
            self.reported.add(nodeid)
        if payload is None:
            return
        if payload == SKIPPED:
            self.skipped[nodeid] = _reason(report)
        elif payload == UNJUDGED:
            self.unjudged.add(nodeid)
        else:
            self.expected.add(nodeid)
            # A test that is run again, by whichever plugin, has its last word.
            self.results[:] = [one for one in self.results if one.nodeid != nodeid]
            self.results += read_results(payload)

    def pytest_internalerror(self, excrepr: object) -> None:
        """A run with an internal error is incomplete, whatever its exit code would be."""
        self.fail(f"internal error: {str(excrepr).splitlines()[-1]}")

    def fail(self, reason: str) -> None:
        """Something happened after which the run cannot be trusted to be whole."""
        self.failures.append(reason)

    def sort(self) -> None:
        """Put the results in the order of collection: workers report as they please."""
        self.results.sort(key=lambda r: self.collected.get(r.nodeid, len(self.collected)))

    def problems(self) -> list[str]:
        """Why the run is incomplete; empty when it is complete."""
        problems = list(self.failures)
        # Under xdist a case outside a suite's folder is known by its report alone: once there are
        # cases, every collected id must have reported.
        missing = (
            self.expected | (self.collected.keys() if self.active else set())
        ) - self.reported
        if missing:
            problems.append(f"{len(missing)} tests did not report: {_names(missing)}")
        if self.unjudged:
            problems.append(
                f"{len(self.unjudged)} tests passed without calling cep_gate: {_names(self.unjudged)}"
            )
        return [*problems, *self._two_identities()]

    def _two_identities(self) -> list[str]:
        """A sentence for each model that was not the same one in all cases."""
        if not self.results:
            return []
        from pytest_cepbench.report.identities import two_identities

        return list(two_identities(self.results, _names))

    @property
    def judged(self) -> set[str]:
        """Ids of the cases that have a result, or a reason for none."""
        return {one.nodeid for one in self.results} | self.skipped.keys() | self.unjudged

    @property
    def nothing_compared(self) -> bool:
        """Whether cases were there and none was judged that could have failed: skipped, or informational."""
        return bool(self.skipped or self.results) and not any(
            result.primary or result.accepted for result in self.results
        )

    def verdict(self) -> str:
        """Of the whole run: passed, failed, or incomplete."""
        if self.problems() or not self.results:
            return "incomplete"
        return "passed" if all(result.passes for result in self.results) else "failed"


def read_results(payload: Any) -> list[CaseResult]:
    """The results that a report carries."""
    import msgspec

    from pytest_cepbench.report import CaseResult

    return msgspec.convert(payload, list[CaseResult])


def _reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    return str(where[2]).removeprefix("Skipped: ") if isinstance(where, tuple | list) else ""


def _names(nodeids: Iterable[str]) -> str:
    ordered = sorted(nodeids)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
