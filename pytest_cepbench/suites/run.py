"""Measuring the cases of one suite with one line-up of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.chains import Crew, Trace, play
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics import METRICS, mean_similarity
from pytest_cepbench.models.roles import ROLE_NAMES, BoundRole, RoleName
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.roster import Lineup, Roster, describe_role

SHARD = 256
"""Most samples grown together. Shards lie within a category and do not depend on which cases run
or where, so that batches, and with them the last bits of results, do not either."""

_LONGEST_PROMPT_SHOWN = 60


class SuiteRun:
    """A suite being measured: its data set, its models, the traces that are known so far."""

    def __init__(self, suite: Suite, dataset: Dataset, lineup: Lineup, roster: Roster) -> None:
        self.suite = suite
        self.dataset = dataset
        self.lineup = lineup
        self._roster = roster
        self._traces: dict[str, Trace] = {}

    @cached_property
    def crew(self) -> Crew:
        """The bound roles; binding reads weights' digests, so it waits for the first case."""
        return self._roster.crew(self.lineup)

    def measure(self, case: Case) -> Measurement:
        """The value of a case, growing what chains it needs.

        Raises DatasetError, CheckpointError, ModelError, StoreError as they come, and
        MeasurementError when every chain failed in a way that says nothing of the model under test.
        """
        samples = {category: self.dataset.in_category(category) for category in case.categories}
        traces = self.traces({s.id: s for part in samples.values() for s in part}.values())
        self._refuse_infrastructure(list(traces.values()))
        metric = METRICS[case.key.metric]
        scores = {}
        for category, part in samples.items():
            own = [traces[sample.id] for sample in part]
            values = metric.scores(
                np.array([trace.similarities for trace in own]),
                np.array([trace.failure is not None for trace in own]),
            )
            scores[category] = dict(
                zip([sample.id for sample in part], values.tolist(), strict=True)
            )
        return Measurement(
            key=case.key,
            label=case.label,
            higher_is_better=metric.higher_is_better,
            scores=scores,
            identity=self._identity(case, traces),
            model=self._model(),
            failures=Counter(t.failure.kind for t in traces.values() if t.failure is not None),
            curve=tuple(
                mean_similarity(np.array([t.similarities for t in traces.values()])).tolist()
            ),
        )

    def traces(self, samples: Iterable[Sample]) -> dict[str, Trace]:
        """The trace of each sample by id; those not known yet are made, shard by shard."""
        wanted = [sample.id for sample in samples]
        missing = {sample_id for sample_id in wanted if sample_id not in self._traces}
        for shard in self._shards:
            if any(sample.id in missing for sample in shard):
                for trace in play(self.suite.plan, shard, self.crew):
                    self._traces[trace.chain.sample.id] = trace
        return {sample_id: self._traces[sample_id] for sample_id in wanted}

    def trace(self, sample_id: str) -> Trace:
        """The trace of a sample that was measured."""
        return self._traces[sample_id]

    @cached_property
    def _shards(self) -> list[Sequence[Sample]]:
        home: dict[str, list[Sample]] = {}
        for sample in self.dataset.samples:
            home.setdefault(sample.categories[0], []).append(sample)
        return [
            part[low : low + SHARD] for part in home.values() for low in range(0, len(part), SHARD)
        ]

    def _role_of(self, trace: Trace) -> RoleName:
        """Whose step it was that failed."""
        assert trace.failure is not None
        assert trace.failed_at is not None
        if trace.failed_at == 0 or trace.chain.failure is not trace.failure:
            return "encoder"
        return "describer" if self.suite.plan.describes(trace.failed_at) else "generator"

    def _refuse_infrastructure(self, traces: Sequence[Trace]) -> None:
        """No verdict where nothing worked and the model under test is not to blame for all of it."""
        failures = [(t.failure, self._role_of(t)) for t in traces if t.failure is not None]
        excused = (
            failure.kind == "exception" or role != self.lineup.under_test
            for failure, role in failures
        )
        if len(failures) == len(traces) and all(excused):
            failure, role = failures[0]
            msg = (
                f"all {len(traces)} chains failed at the {role} "
                f"({self.lineup.seats[role].spec}): {failure.kind}: {failure.detail}"
            )
            raise MeasurementError(msg)

    def _bound(self, role: RoleName) -> BoundRole:
        return self._roster.runner(role, self.lineup.seats[role]).bound

    def _model(self) -> dict[str, str]:
        bound = self._bound(self.lineup.under_test)
        return {"role": bound.role, "spec": bound.spec, "identity": describe_role(bound)}

    def _identity(self, case: Case, traces: Mapping[str, Trace]) -> dict[str, str]:
        """What a comparable number must share, as short texts that a reviewer can read."""
        plan, metric = self.suite.plan, METRICS[case.key.metric]
        seeds = [[name, trace.chain.links[0].digest] for name, trace in sorted(traces.items())]
        identity = {
            "suite": f"{self.suite.name}/{self.suite.table.version}",
            "metric": f"{metric.name}/{metric.version}",
            "samples": f"{len(seeds)} {digest_json(seeds)[:16]}",
            "data": " ".join(f"{k}={v}" for k, v in sorted(self.dataset.identity.items())),
            "chain": f"{plan.start}-first, {plan.iterations} iterations, seed {plan.seed}",
            "describe prompt": _short(plan.describe),
            "generate prompt": _short(plan.generate),
            "under test": self.lineup.under_test,
        }
        fixed = [role for role in ROLE_NAMES if role != self.lineup.under_test]
        identity |= {role: describe_role(self._bound(role)) for role in fixed}
        return identity


def _short(prompt: str) -> str:
    """A prompt as it is, or its beginning and digest when it is long."""
    if len(prompt) <= _LONGEST_PROMPT_SHOWN:
        return prompt
    return f"{prompt[:_LONGEST_PROMPT_SHOWN]}... {digest_text(prompt)[:16]}"
