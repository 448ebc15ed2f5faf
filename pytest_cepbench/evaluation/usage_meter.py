"""The usage of a process's models: in total, by case, and outside of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pytest_cepbench.chains import RoleRunner, total
from pytest_cepbench.report import UsageTotals
from pytest_cepbench.report.totals import total_usage, usage_between


class UsageMeter:
    """Counts what the models of one process did.

    worker: name of the process; empty for the only one.
    runners: gives the models that were bound so far.
    cluster: gives loads by role and seconds in models, where threads share models on a cluster.
    """

    def __init__(
        self,
        worker: str,
        runners: Callable[[], Sequence[RoleRunner]],
        cluster: Callable[[], tuple[Counter[str], float] | None],
    ) -> None:
        self._worker = worker
        self._runners = runners
        self._cluster = cluster
        self._charged = UsageTotals()

    @property
    def total(self) -> UsageTotals:
        """Everything so far."""
        tallies = [(runner.bound.role, runner.tally) for runner in self._runners()]
        loads: Counter[str] = Counter()
        for role, tally in tallies:
            loads[role] += tally.loads
        spent = total(tally for _, tally in tallies)
        # Threads that share models on a cluster also wait for them, so they cannot count these.
        loads, seconds = self._cluster() or (loads, spent.seconds)
        return UsageTotals(
            loads.total(),
            spent.inputs,
            spent.hits,
            model_seconds=seconds,
            roles=dict(+loads),
            usage=spent.usage,
            worker=self._worker,
        )

    def charge(self, before: UsageTotals, seconds: float) -> UsageTotals:
        """Usage for a case.

        before: the total when the case began.
        seconds: how long it took.
        """
        spent = usage_between(before, self.total, seconds, self._worker)
        self._charged = total_usage([self._charged, spent])
        return spent

    def background(self, helpers: Iterable[UsageTotals]) -> UsageTotals:
        """Usage outside of this process's cases: for cases of others, or in tests of the engineer.

        helpers: usage of helper processes.
        """
        own = usage_between(self._charged, self.total, 0.0, self._worker)
        others = list(helpers)
        return total_usage([own, *others]) if others else own
