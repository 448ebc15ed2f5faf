"""Totals of a run: cases by verdict, promises on errors, usage, and one identity for each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import fsum

from pytest_cepbench.errors import did_you_mean, few_of
from pytest_cepbench.gate import Verdict
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.report.headline import UNMEASURED, without_pooled
from pytest_cepbench.report.number_format import counted, percent, printable
from pytest_cepbench.report.result import CaseResult, UsageTotals

ACCEPTED, REFUSED, INFORMATIONAL = "accepted", "refused", "informational"

_ORDER = (
    ACCEPTED,
    REFUSED,
    Verdict.HELD,
    Verdict.IMPROVED,
    Verdict.INCONCLUSIVE,
    Verdict.REGRESSED,
    Verdict.NO_BASELINE,
    Verdict.INCOMPARABLE,
    Verdict.ERROR,
    Verdict.INCOMPLETE,
    INFORMATIONAL,
)

_SERIES = (
    "{percent} false failures at most per series, however long, of checkpoints that lost no more "
    "than the tolerance, over {cases}; checkpoint {look} of series {name}, alpha {part:.2g} of "
    "{alpha}"
)

_PROMISES = {
    "regression": "{alpha} false failures at most per run of checkpoints exchangeable with the "
    "baseline, over {cases}",
    "noninferiority": "{alpha} of runs at most pass with a drop larger than tolerated, "
    "over {cases}",
}


_COMPARED = (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE, Verdict.REGRESSED)
"""Verdicts that a gate reached by comparing numbers, and could have reached by mistake."""


def count_verdicts(results: Sequence[CaseResult]) -> dict[str, int]:
    """Number of cases of each verdict, each case once; verdicts without a case are left out.

    A case that was accepted counts as "accepted", one that may not be as "refused", one that cannot
    fail the run as "informational", whatever its verdict is.
    """
    counts: Counter[str] = Counter()
    for result in results:
        if result.accepted:
            counts[ACCEPTED] += 1
        elif result.refused:
            counts[REFUSED] += 1
        else:
            counts[result.verdict if result.primary else INFORMATIONAL] += 1
    return {str(name): counts[name] for name in _ORDER if counts[name]}


def counts_line(results: Sequence[CaseResult]) -> str:
    """The counts in one line."""
    return ", ".join(f"{count} {name}" for name, count in count_verdicts(results).items())


def verdict_lines(results: Sequence[CaseResult]) -> Iterator[str]:
    """The counts by verdict: a line for the cases that gate, one for the informational ones.

    What was accepted or refused is counted as such among the former. Verdicts of whole suites,
    which sum up their cases, are not counted.
    """
    gating: list[CaseResult] = []
    informational: list[CaseResult] = []
    for result in without_pooled(results):
        counts_for = result.primary or result.accepted or result.refused
        (gating if counts_for else informational).append(result)
    if gating:
        kind = "gating case" if all(result.primary for result in gating) else "case"
        yield f"{counted(len(gating), kind)}: {counts_line(gating)}"
    if informational:
        counts = Counter(str(result.verdict) for result in informational)
        shown = ", ".join(f"{counts[name]} {name}" for name in _ORDER if counts[name])
        yield f"{len(informational)} informational, which cannot fail the run: {shown}"


def run_alpha(results: Sequence[CaseResult]) -> float | None:
    """The error that a run may make: the sum of alpha over the cases that could have failed it.

    By Bonferroni's inequality, whatever the cases have to do with each other. A suite's own verdict
    adds nothing: it is reached at the alpha that its cases have together. None where no case is
    judged by statistics.
    """
    shares = [
        result.alpha
        for result in results
        if result.gates and result.alpha is not None and not result.is_pooled
    ]
    # Rounded, so that shares of 0.05 add up to it again.
    return round(fsum(shares), 12) if shares else None


def error_lines(results: Sequence[CaseResult]) -> list[str]:
    """Promises on the run's errors, a line for each gate that compared cases.

    A run with cases that were not measured has no promise. Cases without a baseline, or with one of
    something else, fail without a comparison: nothing is promised of them.
    """
    cases = [result for result in without_pooled(results) if result.gates]
    unmeasured = sum(result.verdict in UNMEASURED for result in cases)
    if unmeasured:
        return [f"{counted(unmeasured, 'case')} not measured: no promise on error"]
    compared = [result for result in cases if result.verdict in _COMPARED]
    # A promise for each gate; of a series one for each of its checkpoints that cases belong to.
    groups: dict[tuple[str, str, int], list[CaseResult]] = {}
    for result in compared:
        if result.gate in _PROMISES and result.alpha is not None and not result.is_pooled:
            series = result.series if result.gate == "regression" else None
            place = ("", 0) if series is None else (series.name, series.look)
            groups.setdefault((result.gate, *place), []).append(result)
    order = list(_PROMISES)
    lines = []
    for gate, name, look in sorted(groups, key=lambda key: (order.index(key[0]), not key[2])):
        own = groups[gate, name, look]
        alpha = run_alpha(own) or 0.0
        line = (_SERIES if look else _PROMISES[gate]).format(
            name=printable(name),
            look=look,
            part=fsum(result.series.alpha for result in own if result.series is not None),
            alpha=f"{alpha:.3g}" if look else percent(alpha),
            percent=percent(alpha),
            cases=counted(len(own), "case"),
        )
        if gate == "regression" and any(result.strict for result in own):
            line += "; inconclusive cases fail besides"
        lines.append(line)
    plain = sum(result.gate == "threshold" for result in compared)
    if plain:
        lines.append(f"{counted(plain, 'case')} judged by threshold alone: no promise on error")
    return lines


def improvement_lines(results: Sequence[CaseResult]) -> Iterator[str]:
    """Advice to raise baselines, where cases improved."""
    improved = sum(result.verdict == Verdict.IMPROVED and not result.accepted for result in results)
    if improved:
        yield (
            f"{counted(improved, 'case')} improved: --snapshot-update raises the baseline, so that "
            "a later drop is seen from there"
        )


def judge_lines(results: Iterable[CaseResult]) -> list[str]:
    """What is known of the judges, a line for each, with the suites whose cases it judged."""
    suites: dict[str, dict[str, None]] = {}
    for result in results:
        if result.shown.judge:
            suites.setdefault(result.shown.judge, {})[result.suite] = None
    return [
        printable(f"judge of {', '.join(names)}: {line}", 700) for line, names in suites.items()
    ]


def total_usage(efforts: Iterable[UsageTotals]) -> UsageTotals:
    """All of them in one; of no worker."""
    efforts, roles = list(efforts), Counter[str]()
    for effort in efforts:
        roles.update(effort.roles)
    return UsageTotals(
        loads=sum(effort.loads for effort in efforts),
        inputs=sum(effort.inputs for effort in efforts),
        hits=sum(effort.hits for effort in efforts),
        seconds=fsum(effort.seconds for effort in efforts),
        model_seconds=fsum(effort.model_seconds for effort in efforts),
        roles=dict(roles),
        usage=sum((effort.usage for effort in efforts), Usage()),
    )


def usage_between(
    before: UsageTotals, now: UsageTotals, seconds: float, worker: str
) -> UsageTotals:
    """Usage between two states of one process, within these seconds."""
    roles = {role: count - before.roles.get(role, 0) for role, count in now.roles.items()}
    return UsageTotals(
        loads=now.loads - before.loads,
        inputs=now.inputs - before.inputs,
        hits=now.hits - before.hits,
        seconds=seconds,
        model_seconds=max(0.0, now.model_seconds - before.model_seconds),
        roles={role: count for role, count in roles.items() if count},
        usage=now.usage - before.usage,
        worker=worker,
    )


def effort_line(efforts: Iterable[UsageTotals]) -> str:
    """Usage of the run, in one sentence."""
    efforts = list(efforts)
    whole = total_usage(efforts)
    loads = f"{whole.loads} model loads"
    if whole.roles:
        by_role = ", ".join(f"{count} {role}" for role, count in whole.roles.items())
        workers = {effort.worker for effort in efforts if effort.loads and effort.worker}
        by = f" by {counted(len(workers), 'worker')}" if workers else ""
        loads = f"{counted(sum(whole.roles.values()), 'model load')} ({by_role}){by}"
    usage = f"; {usage_line(whole.usage)}" if whole.usage.requests else ""
    return (
        f"{loads}, {whole.inputs} model inputs ({whole.model_seconds:.1f} s in models), "
        f"{whole.hits} results from the store{usage}"
    )


def usage_line(usage: Usage) -> str:
    """Requests, tokens and cost that servers counted, in one sentence; empty without a request."""
    if not usage.requests:
        return ""
    retries = f" ({usage.retries} of them again)" if usage.retries else ""
    images = f", {counted(usage.images, 'image')}" if usage.images else ""
    cost = f", cost {usage.cost:.4g}" if usage.cost else ""
    return (
        f"{counted(usage.requests, 'request')}{retries}, {usage.input_tokens} tokens in, "
        f"{usage.output_tokens} out{images}{cost}"
    )


_CHANGED = "It changed during the run: gate it when the trainer has finished, or a copy of it"
_SET_OTHERWISE = "Workers set it differently: say dtype= and device= in its spec"


def two_identities(results: Iterable[CaseResult]) -> Iterator[str]:
    """A sentence for each model, or data set, of a suite that was not the same in all its cases."""
    data: dict[str, dict[str, list[str]]] = {}
    models: dict[tuple[str, str, str], dict[tuple[str, str], list[str]]] = {}
    for result in results:
        if "data" in result.identity:
            known = data.setdefault(result.suite, {})
            known.setdefault(result.identity["data"], []).append(result.nodeid)
        for model in result.shown.models:
            identities = models.setdefault((result.suite, model.seat, model.spec), {})
            identities.setdefault((model.fingerprint, model.identity), []).append(result.nodeid)
    for (suite, seat, spec), identities in models.items():
        if len(identities) > 1:
            lines = (f"{line} in {few_of(tests)}" for (_, line), tests in identities.items())
            fingerprints = {fingerprint for fingerprint, _ in identities}
            yield (
                f"the {seat} {spec} of suite {suite} was not the same model in all cases: "
                f"{'; '.join(lines)}. {_CHANGED if len(fingerprints) > 1 else _SET_OTHERWISE}"
            )

    for suite, known in data.items():
        if len(known) > 1:
            lines = (f"{identity} in {few_of(tests)}" for identity, tests in known.items())
            yield (
                f"the data of suite {suite} was not the same in all cases: {'; '.join(lines)}. It "
                "changed during the run: run it again"
            )


def unshown_lines(
    results: Sequence[CaseResult], requested: Iterable[str], option: str = "--cep-show"
) -> Iterator[str]:
    """A line for each sample that was to be shown and that no case shows.

    requested: ids of samples.
    option: by which the user named them.
    """
    shown, known = set[str](), set[str]()
    for own in (result.shown for result in results):
        chains = [*own.requested, *own.chains, *filter(None, [own.median])]
        shown |= {chain.sample for chain in chains if chain.links}
        shown |= {answer.sample for answer in own.answers}
        known |= own.differences.keys()
    for sample in dict.fromkeys(requested):
        if sample not in shown:
            hint = did_you_mean(sample, known)
            yield printable(f"{option} {sample!r}: no judged case has such a sample.{hint}")
