"""A case in a series of gates: its place before it is judged, its verdict afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase, References
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.gate import Policy, Verdict
from pytest_cepbench.gate.baseline import Baseline
from pytest_cepbench.gate.series import Entry, Place, SeriesFile, delays_of
from pytest_cepbench.report import SeriesShown
from pytest_cepbench.suites import Case


@dataclass(frozen=True)
class SeriesCase:
    """A case that was entered in the record of its series.

    file: the record.
    run: that judges the case.
    entry: the case, as it is there.
    place: of the case in the series.
    """

    file: SeriesFile
    run: str
    entry: Entry
    place: Place

    def adjusted(self, policy: Policy) -> Policy:
        """The policy with the alpha that the case has in the series, and shares of it."""
        return replace(policy, alpha=self.place.alpha, series=self.place.shares)

    def settle(self, verdict: Verdict, evaluated: EvaluatedCase | None = None) -> None:
        """Record the verdict. evaluated: None where the case could not be measured.

        Raises SeriesError and WriteError.
        """
        entry = msgspec.structs.replace(self.entry, verdict=verdict.value)
        if evaluated is not None:
            judgement, policy = evaluated.judgement, evaluated.policy
            entry = msgspec.structs.replace(
                entry,
                spent=self.place.alpha * self.place.share,
                baseline=self.place.baseline,
                difference=judgement.difference,
                tolerance=policy.tolerance,
                anchor_tolerance=policy.since_anchor,
                design=judgement.design,
            )
        self.file.settle(entry, self.run)

    def shown(self, evaluated: EvaluatedCase) -> SeriesShown:
        """The place for reports, and how soon drops would be found."""
        judgement, place = evaluated.judgement, self.place
        since = judgement.since_anchor
        delays = None
        if judgement.design is not None:
            delays = delays_of(place, judgement.design, evaluated.policy)
        return SeriesShown(
            name=place.series,
            look=place.look,
            expected=place.expected,
            alpha=place.alpha * place.share,
            level=judgement.upper_alpha,
            anchor_level=None if since is None else since.upper_alpha,
            baseline=place.baseline,
            delays=[] if delays is None else list(delays.drops),
            decline=None if delays is None else delays.decline,
        )


def enter_series(
    evaluator: Evaluator, suite_file: Path, case: Case, policy: Policy, references: References
) -> SeriesCase | None:
    """Enter a case in the series of the run; None without one, or where it has no part in it.

    A case that cannot fail the run, or is judged without statistics, has none.
    Raises SeriesError, WriteError, and what binding the model under test raises.
    """
    file = evaluator.series
    if file is None or not (policy.primary and policy.statistical):
        return None
    record = evaluator.suite_run(suite_file).model_record()
    place, entry = file.enter(
        Entry(
            look=0,
            run=evaluator.context.run_id,
            case=str(case.key),
            model=record["identity"],
            spec=record.get("spec", ""),
            alpha=policy.alpha,
            reference=_model(references.baseline) or "",
        ),
        _model(references.anchor),
    )
    return SeriesCase(file, evaluator.context.run_id, entry, place)


def _model(baseline: Baseline | None) -> str | None:
    """Identity of a baseline's model."""
    return None if baseline is None else baseline.model.get("identity")
