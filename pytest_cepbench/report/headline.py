"""The headline: the one sentence that says what a run means, with which every report opens.

It says "May ship" only of a run that ends with exit code 0, and "Do not ship" only of one that does
not. Only gating cases are counted in it; informational ones have a line of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.policy import Policy
from pytest_cepbench.report.number_format import bounds_used, counted, printable, short, sight_of
from pytest_cepbench.report.result import AnswerShown, CaseResult, ChainShown

_LONGEST_REASON = 120


UNMEASURED = (Verdict.ERROR, Verdict.INCOMPLETE)
_HELD = (Verdict.HELD, Verdict.IMPROVED)

_GROUPS = (
    ((Verdict.REGRESSED,), "regressed"),
    (UNMEASURED, "not measured"),
    ((Verdict.INCOMPARABLE,), "not comparable with the baseline"),
    ((Verdict.NO_BASELINE,), "without a baseline"),
    ((Verdict.INCONCLUSIVE,), "undecided"),
)
"""Verdicts that keep a run from shipping, the gravest first, and their name beside a graver one."""


def headline(
    results: Sequence[CaseResult],
    problems: Collection[str] = (),
    *,
    skipped: Mapping[str, str] | None = None,
    other_code: int = 0,
) -> str:
    """The run in one sentence, on one line.

    results: of all judged cases.
    problems: why the run is incomplete; empty when it is complete.
    skipped: what was not to be judged, by name, and why.
    other_code: exit code that the run has for a reason other than its cases; 0 where it has none.
    """
    skipped = skipped or {}
    clauses = [_outcome(results, list(problems), skipped, other_code)]
    failing = any(not result.passes for result in results)
    if problems and failing:
        clauses.append(f"the run is incomplete: {_first(problems)}")
    if skipped and results:
        why = "" if problems else f" ({_first(list(dict.fromkeys(skipped.values())))})"
        clauses.append(f"{len(skipped)} skipped{why}")
    return "; ".join(clauses)


def gating(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The cases that the headline counts: those that could have failed the run.

    Without the verdicts of whole suites, which sum them up.
    """
    return without_pooled([result for result in results if result.gates])


def undecided(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The gating cases of which the samples do not tell."""
    return [result for result in gating(results) if result.verdict == Verdict.INCONCLUSIVE]


def _outcome(
    results: Sequence[CaseResult], problems: list[str], skipped: Mapping[str, str], other_code: int
) -> str:
    cases = gating(results)
    failing = without_pooled([result for result in results if not result.passes])
    accepted = [result for result in results if result.accepted]
    if not results:
        reasons = problems or list(dict.fromkeys(skipped.values()))
        return f"Nothing was measured: {_first(reasons) if reasons else 'no case was judged'}"
    if failing:
        return _failure(failing, cases)
    if problems:
        return f"Incomplete: {_first(problems)}; {_standing(cases) or 'nothing was judged'}"
    if not cases and not accepted:
        return (
            f"Nothing was gated: {counted(len(results), 'case')}, informational, "
            "which cannot fail the run"
        )
    if other_code:
        return (
            f"Do not ship yet: {_standing(cases) or _acceptance(accepted)}, but the run failed "
            f"outside of the gate (exit code {other_code})"
        )
    if not cases:
        return f"Accepted: {_acceptance(accepted)}"
    outcome = f"Undecided: {_shortage(cases)}"
    if not undecided(cases):
        how = " by threshold alone" if all(result.gate == "threshold" for result in cases) else ""
        number = "the one gating case" if len(cases) == 1 else f"all {len(cases)} gating cases"
        outcome = f"May ship: {number} held{how}"
        if improved := sum(result.verdict == Verdict.IMPROVED for result in cases):
            outcome += f", {improved} of them improved"
        if warned := sum(bool(result.warnings) for result in cases):
            outcome += f", read the warnings of {warned}"
    return "; ".join([outcome, _acceptance(accepted)] if accepted else [outcome])


# -- runs that fail --------------------------------------------------------------------------------


def _failure(failing: Sequence[CaseResult], cases: Sequence[CaseResult]) -> str:
    """Of cases that fail the run: the gravest kind, then how many there are of the others."""
    refused = [result for result in failing if result.refused]
    judged = [result for result in failing if not result.refused]
    groups = [
        (verdicts[0], name, group)
        for verdicts, name in _GROUPS
        if (group := [result for result in judged if result.verdict in verdicts])
    ]
    total = max(len(cases), len(failing))
    if refused:
        of = f"{len(refused)} of {counted(total, 'measurement')}"
        clause = f"Not accepted: {of} may not become baselines; first {_case(refused[0])}"
        return "; ".join([clause, *(f"{len(group)} {name}" for _, name, group in groups)])
    (verdict, _, group), *others = groups
    of = f"{len(group)} of {counted(total, 'gating case')}"
    have = "has" if len(group) == 1 else "have"
    if verdict == Verdict.REGRESSED:
        clause = f"Do not ship: {of} regressed"
        # The verdict of a suite has no difference.
        compared = [result for result in group if result.judgement.difference is not None]
        for worst in worst_first(compared)[:1]:
            bounds = bounds_used(worst, decimals=3)
            clause += f"; worst {_case(worst)} "
            clause += short(worst.judgement.difference or 0.0, signed=True)
            clause += "" if bounds == "-" else f" {bounds}"
    elif verdict == Verdict.INCOMPARABLE:
        why = _reason(group[0])
        clause = f"Nothing to compare with: {of} {have} a baseline of something else ({why})"
    elif verdict == Verdict.NO_BASELINE:
        clause = f"No baseline: {of} {have} none to compare with"
    elif verdict == Verdict.INCONCLUSIVE:
        clause = f"Undecided, which fails this run: {_shortage(cases)}"
    else:
        unmeasured = [result for result in cases if result.verdict in UNMEASURED]
        start = "Nothing was measured" if len(unmeasured) == total else "Not measured"
        clause = f"{start}: {of} ended in an error; {_case(group[0])}: {_reason(group[0])}"
        held = sum(result.verdict in _HELD for result in cases)
        clause += f"; {held} held" if held else ""
    return "; ".join([clause, *(f"{len(group)} {name}" for _, name, group in others)])


# -- runs that do not fail -------------------------------------------------------------------------


def _standing(cases: Sequence[CaseResult]) -> str:
    """How the judged cases stand, where the run as a whole does not end well."""
    counts = {
        "held": sum(result.verdict in _HELD for result in cases),
        "undecided": len(undecided(cases)),
    }
    known = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{known} of {counted(len(cases), 'gating case')} judged" if known else ""


def _acceptance(accepted: Sequence[CaseResult]) -> str:
    regressed = sum(result.verdict == Verdict.REGRESSED for result in accepted)
    lower = f", {regressed} of which had regressed" if regressed else ""
    are = "is the baseline" if len(accepted) == 1 else "are baselines"
    return f"{counted(len(accepted), 'measurement')} {are} now{lower}"


def _shortage(cases: Sequence[CaseResult]) -> str:
    """The undecided cases, and what the samples of the one that needs most of them can tell."""
    open_cases = undecided(cases)
    clauses = [f"{len(open_cases)} of {counted(len(cases), 'gating case')}"]
    unseen = [result for result in open_cases if result.unseen]
    if unseen:
        clauses.append(f"{_case(unseen[0])}: {_reason(unseen[0])}")
    known = [result for result in open_cases if result.judgement.needed is not None and result.n]
    if known:
        most = max(known, key=lambda result: (result.judgement.needed or 0) / result.n)
        clauses.append(sight_of(most))
    return "; ".join(clauses)


# -- the worst, by one rank ------------------------------------------------------------------------

MOST_SAMPLES = 5
"""Samples that a page shows before everything else."""

ROWS, SAMPLES, LINES, PROBLEMS = 10, 3, 3, 5
"""What a terminal and a comment show of failing cases, samples in words, lines of one kind, and
reasons of an incomplete run, so that all of them fit on a screen."""


def in_tolerances(difference: float | None, tolerance: float) -> float:
    """A difference in tolerances, by which cases of metrics in different units are ordered.

    0 where there is none; a tolerance of 0 counts as the default one.
    """
    return (difference or 0.0) / (tolerance or Policy.tolerance)


def without_pooled(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The cases alone; all of them where there is nothing but the verdict of a suite."""
    return [result for result in results if not result.is_pooled] or list(results)


def worst_first(results: Iterable[CaseResult]) -> list[CaseResult]:
    """The cases that fail the run, in the one order of every report.

    Refused ones, then by verdict, the gravest first; of a verdict those first that lost most
    tolerances. Verdicts of whole suites come last.
    """
    places = {str(v): place for place, (group, _) in enumerate(_GROUPS) for v in group}

    def order(result: CaseResult) -> tuple[bool, bool, int, float]:
        lost = in_tolerances(result.judgement.difference, result.tolerance)
        return result.is_pooled, not result.refused, places.get(result.verdict, len(places)), lost

    return sorted((result for result in results if not result.passes), key=order)


def worst_case(results: Iterable[CaseResult]) -> CaseResult | None:
    """The first of `worst_first`; None where no case fails."""
    return next(iter(worst_first(results)), None)


class WorstSample(NamedTuple):
    """One of the samples of the run that lost most.

    result: the case that shows it.
    shown: its chain or answer there.
    loss: how much worse it is than the baseline's, in the metric's unit.
    """

    result: CaseResult
    shown: ChainShown | AnswerShown
    loss: float

    @property
    def is_whole(self) -> bool:
        """Whether its artifacts are shown, and not only its scores."""
        shown = self.shown
        return bool(shown.links if isinstance(shown, ChainShown) else shown.question)

    @property
    def weight(self) -> float:
        """Its loss in tolerances of its case."""
        return in_tolerances(self.loss, self.result.tolerance)


def worst_samples(results: Sequence[CaseResult], most: int = MOST_SAMPLES) -> list[WorstSample]:
    """The samples that lost most in tolerances of their cases, each once.

    Of the cases that regressed; where none did, of those that can fail the run and are not settled.
    A sample that several cases show is taken from one that shows it whole.
    """
    regressed = [r for r in worst_first(results) if r.verdict == Verdict.REGRESSED]
    open_cases = [result for result in results if result.primary and not result.settled]
    by_sample: dict[tuple[str, str], list[WorstSample]] = {}
    for result in regressed or open_cases:
        sign = 1.0 if result.higher_is_better else -1.0
        shown_samples: list[ChainShown | AnswerShown] = [*result.shown.chains]
        for shown in (*shown_samples, *result.shown.answers):
            loss = 0.0 if shown.baseline is None else sign * (shown.baseline - shown.score)
            if loss > 0:
                sample = WorstSample(result, shown, loss)
                by_sample.setdefault((result.suite, shown.sample), []).append(sample)
    clearest = [
        max(places, key=lambda sample: (sample.is_whole, sample.weight))
        for places in by_sample.values()
    ]
    clearest.sort(key=lambda sample: (sample.weight, sample.is_whole), reverse=True)
    return clearest[:most]


# -- words -----------------------------------------------------------------------------------------


def _case(result: CaseResult) -> str:
    """A case as a path, with its metric as shown."""
    name = f"{result.suite}/{result.part}"
    return f"{printable(name, 60)} {printable(result.label, 40)}"


def _reason(result: CaseResult) -> str:
    reason = result.reasons[0] if result.reasons else result.presentation.meaning
    return printable(reason, _LONGEST_REASON)


def _first(reasons: Collection[str]) -> str:
    """The first reason, and how many there are besides."""
    first, *others = reasons
    more = f", and {counted(len(others), 'reason')} more" if others else ""
    return f"{printable(first, _LONGEST_REASON)}{more}"
