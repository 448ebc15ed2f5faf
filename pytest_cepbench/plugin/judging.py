"""Judging one case in a test: measure, compare with the baseline, put the result on the item."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench.chains import Chain, total
from pytest_cepbench.errors import BaselineError, CepError, ImageError
from pytest_cepbench.gate import Baseline, Judgement, Measurement, Policy, Verdict, judge
from pytest_cepbench.gate.baseline import REMEDY, load_baseline
from pytest_cepbench.gate.judge import Loser
from pytest_cepbench.gate.snapshot import BaselineExtension, baseline_path
from pytest_cepbench.plugin.process import Process
from pytest_cepbench.report import CaseResult, ChainShown, Effort, LinkShown
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, SuiteRun

_CHAINS_SHOWN = 3


@dataclass(frozen=True)
class Judge:
    """Judges the cases of one suite in one process.

    suite_file: the suite. snapshot: syrupy's assertion of the running test.
    """

    process: Process
    suite_file: Path
    snapshot: Any

    def __call__(self, case: Case, nodeid: str, tolerance: float | None) -> CaseResult:
        """Measure and judge a case. Whatever goes wrong in a known way is the verdict `error`."""
        started = time.perf_counter()
        before = self._effort()
        damage_before = len(self.process.damage)
        policy = self._policy(case, tolerance)
        try:
            fields = self._judge(case, policy)
        except CepError as error:
            fields = {"verdict": Verdict.ERROR.value, "reasons": [str(error)]}
        spent = self._effort()
        return CaseResult(
            nodeid=nodeid,
            suite=case.key.suite,
            part=case.key.part,
            metric=case.key.metric,
            label=case.label,
            tolerance=policy.tolerance,
            damage=self.process.damage[damage_before:],
            effort=Effort(
                loads=spent.loads - before.loads,
                inputs=spent.inputs - before.inputs,
                hits=spent.hits - before.hits,
                seconds=time.perf_counter() - started,
                model_seconds=spent.model_seconds - before.model_seconds,
            ),
            **fields,
        )

    def _policy(self, case: Case, tolerance: float | None) -> Policy:
        """The command line's tolerance, else the test's, else the suite's."""
        asked = self.process.settings.tolerance
        suite = self.process.suite(self.suite_file).suite
        return suite.policy(case.key.metric, tolerance if asked is None else asked)

    def _judge(self, case: Case, policy: Policy) -> dict[str, Any]:
        run = self.process.run(self.suite_file)
        measurement = run.measure(case)
        path = baseline_path(self.process.settings.baselines, case.key)
        accepting = self.snapshot.update_snapshots or (
            self.snapshot.update_new_snapshots_only and not path.exists()
        )
        try:
            baseline = self._baseline(path, case)
        except BaselineError:
            if not accepting:
                raise
            baseline = None  # it is about to be replaced
        judgement = judge(measurement, baseline, policy)
        self._tell_syrupy(measurement, path, judgement, accepting=accepting)
        return {
            "verdict": judgement.verdict.value,
            "higher_is_better": measurement.higher_is_better,
            "value": measurement.value,
            "baseline": judgement.baseline_value,
            "difference": judgement.difference,
            "n": measurement.n,
            "accepted": accepting,
            "failures": dict(measurement.failures),
            "curve": list(measurement.curve),
            "notes": list(measurement.notes),
            "reasons": list(judgement.reasons),
            "model": dict(measurement.model),
            "identity": dict(measurement.identity),
            "chains": _chains(run, case, judgement.losers, self.process.store),
        }

    def _baseline(self, path: Path, case: Case) -> Baseline | None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            msg = f"baseline {path.name} cannot be read: {error}; {REMEDY}"
            raise BaselineError(msg) from error
        return load_baseline(text, case.key, path.name)

    def _tell_syrupy(
        self, measurement: Measurement, path: Path, judgement: Judgement, *, accepting: bool
    ) -> None:
        """Let syrupy count the comparison and stage an update; the verdict is the gate's.

        Raises BaselineError when nothing was staged that should have been: syrupy keeps to itself
        what goes wrong while it compares and writes.
        """
        held = judgement.verdict is Verdict.HELD
        staged = self.process.staged / path.relative_to(self.process.settings.baselines)
        extension = BaselineExtension.bind(path, staged, None if accepting else lambda _: held)
        assertion = self.snapshot.use_extension(extension)
        agreed = bool(assertion(name=str(measurement.key)) == measurement)
        if accepting and not (agreed and (staged.exists() or path.exists())):
            msg = f"the new baseline {path.name} could not be written to {staged.parent}"
            raise BaselineError(msg)

    def _effort(self) -> Effort:
        spent = total(runner.tally for runner in self.process.runners)
        return Effort(spent.loads, spent.inputs, spent.hits, model_seconds=spent.seconds)


def _chains(run: SuiteRun, case: Case, losers: Sequence[Loser], store: Store) -> list[ChainShown]:
    """The chains of the samples that lost most, their first images put where the report finds them."""
    found: list[ChainShown] = []
    for loser in losers:
        shown = run.show(case, loser.sample)
        if shown is None:
            continue
        chain = shown.chain
        pictures = len(found) < _CHAINS_SHOWN
        failure = shown.failure or chain.failure
        at = chain.failed_at if shown.failure is None else shown.failed_at
        where = "" if at is None else f" at generation {at}"
        stopped = f"{failure.kind}{where}: {failure.detail}" if failure else None
        found.append(
            ChainShown(
                sample=loser.sample,
                score=loser.candidate,
                baseline=loser.baseline,
                links=_links(chain, shown.marks, store) if pictures else [],
                failure=stopped,
                remark=shown.remark,
            )
        )
    return found


def _links(chain: Chain, marks: Mapping[int, float], store: Store) -> list[LinkShown]:
    links = []
    for generation, link in enumerate(chain.links):
        if link.source is not None:
            with suppress(ImageError):  # changed since it was measured: the report goes without it
                store.put_image(link.source.load())
        is_image = link.kind == "image" and link.recorded
        links.append(
            LinkShown(
                text=link.text if link.recorded else f"({link.kind} not recorded)",
                image=link.digest if is_image else None,
                similarity=marks.get(generation),
            )
        )
    return links
