"""What the page of a run shows, made of results here alone; its templates read it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.case_table import (
    fact_table,
    hops_of,
    loses_most,
    sample_values,
)
from pytest_cepbench.report.headline import (
    WorstSample,
    in_tolerances,
    worst_case,
    worst_first,
    worst_samples,
)
from pytest_cepbench.report.number_format import number, word_of
from pytest_cepbench.report.plots import change_plot, curve_plot, reach_of
from pytest_cepbench.report.result import AnswerShown, CaseResult, ChainShown, LinkShown
from pytest_cepbench.report.text import cause_lines, finding_lines
from pytest_cepbench.report.totals import (
    counts_line,
    effort_line,
    verdict_lines,
)
from pytest_cepbench.report.writers import RunOutcome, SuiteProvenance

_MOST_CARDS = 3
"""Samples that are shown before everything else; more are named."""

_MOST_ROWS = 200
"""Samples of a case that the page lists; of 10,000 in forty cases all would be megabytes."""

_WORDS = re.compile(r"(\s*)(\w+|[^\w\s]|\Z)")
"""Spaces, and the word, the sign or the end of the text behind them."""

_MOST_WORDS = 2000
"""Words of a text that are compared one by one."""

_MOST_PAIRS = 20_000
"""Equal words of two texts, up to which each can begin what both share; beyond, rare ones alone:
comparing texts that repeat themselves would take minutes. A thousand words of English have 15,000
with another thousand."""

_NOT_IN_ANCHORS = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NAME = 60

# -- addresses -------------------------------------------------------------------------------------


def case_anchor(result: CaseResult, *within: str) -> str:
    """Name of a case: `#case-...` is its row, `#details-...` its details.

    within: names of what is in it.
    """
    names = (result.suite, result.part, result.metric, *within)
    text = _NOT_IN_ANCHORS.sub("-", " ".join(names)).strip("-").lower()
    digest = sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{text[:_LONGEST_NAME]}-{digest}"


def sample_anchor(result: CaseResult, sample: str) -> str:
    """Name of a sample of a case."""
    return f"sample-{case_anchor(result, sample)}"


# -- a chain beside the reference's ----------------------------------------------------------------


class TextPart(NamedTuple):
    """A part of a text. changed: whether the other text does not have it at this place."""

    text: str
    changed: bool = False


class PairedStep(NamedTuple):
    """One generation of two chains of a sample.

    generation: 0 for the start.
    before, now: the baseline's artifact and this run's; None where a chain had stopped, or its
        artifact is not stored.
    before_text, now_text: parts of their texts; empty for others.
    change: of the similarity, positive is better; None where one of them was not measured.
    first: whether the chains differ from here on.
    same: whether both have the same artifact.
    """

    generation: int
    before: LinkShown | None
    now: LinkShown | None
    before_text: tuple[TextPart, ...]
    now_text: tuple[TextPart, ...]
    change: float | None
    first: bool
    same: bool


def _paired_chains(result: CaseResult) -> Iterator[dict[str, Any]]:
    """The chains of a case in the order of the page, each sample once, beside the reference's.

    Those that lost most, the median one and those that the engineer named, with what is special of
    each as `role`. Of a case that holds only the worst of those that lost is shown whole.
    """

    def placed(chain: ChainShown, role: str = "", *, whole: bool = True) -> dict[str, Any]:
        anchor = sample_anchor(result, chain.sample)
        steps = paired_steps(chain) if whole and chain.links else []
        return {"shown": chain, "anchor": anchor, "role": role, "steps": steps}

    shown = result.shown
    named = {chain.sample for chain in shown.requested}
    losers = [chain for chain in shown.chains if chain.sample not in named]
    for place, chain in enumerate(losers):
        worst = result.settled and not place
        yield placed(chain, "worst sample" if worst else "", whole=worst or not result.settled)
    seen = named | {chain.sample for chain in losers}
    if shown.median is not None and shown.median.sample not in seen:
        yield placed(shown.median, "median sample")
    yield from (placed(chain, "--cep-show") for chain in shown.requested)


def paired_steps(shown: ChainShown) -> list[PairedStep]:
    """The steps of a chain beside those of the baseline's, generation by generation."""
    steps = []
    pairs = zip_longest(shown.baseline_links, shown.links)
    for generation, (before, now) in enumerate(pairs):
        texts = ["" if link is None else link.text or "" for link in (before, now)]
        same, change = False, None
        if before is None or now is None:
            parts = _whole(texts[0]), _whole(texts[1])
        else:
            parts = word_differences(texts[0], texts[1])
            same = (before.text, before.file) == (now.text, now.file)
            if before.similarity is not None and now.similarity is not None:
                change = round(now.similarity - before.similarity, 6) + 0.0
        first = generation == shown.first_difference
        steps.append(PairedStep(generation, before, now, *parts, change, first, same))
    return steps


def word_differences(before: str, now: str) -> tuple[tuple[TextPart, ...], tuple[TextPart, ...]]:
    """Both texts in parts: those that the other one has as well, and those that it has not.

    Words and signs are compared, and the spaces before those that are equal; texts of more than
    2,000 of them whole.
    """
    spaced: list[list[tuple[str, str]]] = [_WORDS.findall(text) for text in (before, now)]
    words, words_now = ([word for _, word in own] for own in spaced)
    if before == now or max(len(words), len(words_now)) > _MOST_WORDS:
        return _whole(before, changed=before != now), _whole(now, changed=before != now)
    counts, counts_now = Counter(words), Counter(words_now)
    pairs = sum(count * counts_now[word] for word, count in counts.items())
    matcher = SequenceMatcher(None, words, words_now, autojunk=pairs > _MOST_PAIRS)
    old: list[TextPart] = []
    new: list[TextPart] = []
    for tag, low, high, low_now, high_now in matcher.get_opcodes():
        changed = tag != "equal"
        gone, come = spaced[0][low:high], spaced[1][low_now:high_now]
        for parts, own, other in ((old, gone, come), (new, come, gone)):
            for place, (space, word) in enumerate(own):
                # Of words that differ, the first ones may still begin at the same space.
                kept = place < len(other) and other[place][0] == space and not (changed and place)
                parts += [TextPart(space, not kept), TextPart(word, changed)]
    return _joined(old), _joined(new)


def _whole(text: str, *, changed: bool = False) -> tuple[TextPart, ...]:
    return (TextPart(text, changed),) if text else ()


def _joined(parts: Sequence[TextPart]) -> tuple[TextPart, ...]:
    """Parts that follow each other and are both changed, or both not, as one."""
    return tuple(
        TextPart("".join(part.text for part in own), changed)
        for changed, own in groupby(filter(lambda p: p.text, parts), lambda part: part.changed)
    )


# -- cases -----------------------------------------------------------------------------------------


def _replaces_answers(result: CaseResult) -> bool:
    """True where answers become the accepted ones in place of others."""
    measured = result.measurement
    return bool(result.accepted and result.shown.answers and measured and measured.answers)


def _case(result: CaseResult, reach: float, opened: CaseResult | None) -> dict[str, Any]:
    """A case: its row in a table and its details, by the names that `case.html` reads.

    reach: end of the axis of its suite, in tolerances.
    opened: the case whose details are open.
    noteworthy: whether its details are not folded away with others.
    """
    shown, replaces = result.shown, _replaces_answers(result)
    chains = list(_paired_chains(result))
    drawn = [chain["shown"].sample for chain in chains if chain["steps"]]
    drawn += [answer.sample for answer in shown.answers if answer.question]
    remarkable = (
        result.reasons, result.notes, shown.judge, result.failures, result.warnings,
        result.refused, not result.settled, replaces,
    )  # fmt: skip
    facts = shown.facts
    return {
        "result": result,
        "anchor": case_anchor(result),
        "badge": _badge(result),
        "interval": change_plot(result, reach),
        "noteworthy": result.primary and any(remarkable),
        "opened": result is opened,
        "hops": list(hops_of(result)),
        "facts": None if facts is None else (*fact_table(facts), loses_most(facts)),
        "differences": _differences(result, drawn),
        "chains": chains,
        "answers": [(answer, sample_anchor(result, answer.sample)) for answer in shown.answers],
        "replaces_answers": replaces,
    }


def _badge(result: CaseResult) -> str:
    """Classes of a verdict."""
    color = "accepted" if result.accepted else result.presentation.color
    return f"{color} {result.verdict} {'' if result.primary else 'informational'}".strip()


def _differences(result: CaseResult, drawn: Collection[str]) -> dict[str, Any] | None:
    """The paired differences: counts in words, the samples that lost most, with addresses of those
    that are drawn, and how many are left.

    None where fewer than two samples were compared.
    """
    differences = result.shown.differences.values()
    if len(differences) < 2:
        return None
    worse, better = (sum(sign * each > 0 for each in differences) for sign in (-1, 1))
    same = len(differences) - worse - better
    return {
        "counts": f"{len(differences)} samples: {worse} worse, {same} equal, {better} better",
        "rows": [
            (value, f"#{sample_anchor(result, value.sample)}" if value.sample in drawn else "")
            for value in sample_values(result)[: min(_MOST_ROWS, len(differences))]
        ],
        "left": max(0, len(differences) - _MOST_ROWS),
    }


# -- the first screen ------------------------------------------------------------------------------


def _models(suites: Sequence[SuiteProvenance]) -> list[tuple[str, list[tuple[str, str]], str]]:
    """Candidate and baseline: what each is called, its models, each once, and a remark.

    Of a model what was typed, and the beginning of its fingerprint, empty where it is not known.
    """
    candidate = [(model.spec, model.fingerprint[:8]) for s in suites for model in s.candidate]
    candidate += [(suite.recorded, "") for suite in suites if suite.recorded]
    baseline = [(model.spec, model.fingerprint[:8]) for s in suites for model in s.baselines]
    latest = max(suites, key=lambda suite: suite.accepted, default=None)
    accepted = ""
    if latest is not None and latest.accepted:
        accepted = f"accepted {latest.accepted[:10]}"
        if latest.uncommitted:
            accepted += ", not committed"
        elif latest.accepted_commit:
            accepted += f" by {latest.accepted_commit[:8]}"
        if len({suite.accepted for suite in suites if suite.accepted}) > 1:
            accepted += "; others earlier"
    return [
        ("candidate", list(dict.fromkeys(candidate)), ""),
        ("baseline", list(dict.fromkeys(baseline)), accepted),
    ]


def _forest(results: Sequence[CaseResult]) -> list[dict[str, Any]]:
    """The gating cases against their tolerances on one axis: those that fail, the worst first,
    those that are undecided, and those that hold. shown: its change in words, or its verdict.
    """

    def drop(result: CaseResult) -> float:
        return in_tolerances(result.judgement.difference, result.tolerance)

    cases = [result for result in results if result.primary and not result.is_pooled]
    others = [result for result in cases if result.passes]
    others.sort(key=lambda r: (r.verdict != Verdict.INCONCLUSIVE or r.accepted, drop(r)))
    cases = [*worst_first(cases), *others]
    reach = reach_of(cases)
    several = len({case.suite for case in cases}) > 1
    return [
        {
            "name": f"{f'{case.suite} ' if several else ''}{case.part} {case.label}",
            "address": f"details-{case_anchor(case)}",
            "badge": _badge(case),
            "interval": change_plot(case, reach),
            "shown": word_of(case)
            if case.judgement.difference is None
            else number(case.judgement.difference, signed=True),
        }
        for case in cases
    ]


def _card(worst: WorstSample) -> dict[str, Any]:
    """One of the samples of the run that lost most.

    cells: what it is about and where it first differs from the baseline's, each with its name, an
    image or the parts of a text, and the element around parts that the other text has not; none
    where the sample is only named.
    """
    shown = worst.shown
    cells: list[tuple[str, str | None, Sequence[TextPart], str]] = []
    if worst.is_whole and isinstance(shown, AnswerShown):
        parts = ("question", shown.question), (shown.opponent, shown.opposing)
        for name, steps in (*parts, ("new answer", shown.steps)):
            for step in steps[:1]:
                image = step.image if not step.text else None
                cells.append((name, image, [TextPart(step.text)], ""))
    elif worst.is_whole and isinstance(shown, ChainShown):
        pairs = paired_steps(shown)
        first = next((step for step in pairs if step.first), pairs[-1])
        start = pairs[0].now or pairs[0].before
        if first is not pairs[0] and start is not None:
            cells.append(("start", start.file, [TextPart(start.text or "")], ""))
        at = f"generation {first.generation}" if first.generation else "start"
        if first.before is not None:
            name = f"{worst.result.judgement.reference}, {at}"
            cells.append((name, first.before.file, first.before_text, "del"))
        if first.now is not None:
            mark = "ins" if first.before is not None else ""
            cells.append((f"now, {at}", first.now.file, first.now_text, mark))
    return {"worst": worst, "anchor": sample_anchor(worst.result, shown.sample), "cells": cells}


def _curves(results: Sequence[CaseResult]) -> list[dict[str, Any]]:
    """The curves of a suite: those of its cases with most samples, equal ones once.

    Cases that regressed come first, and stand for others of the same curve.
    """
    drawn = [result for result in results if result.shown.curve_now is not None]
    most = max((result.n for result in drawn), default=0)
    ordered = sorted(
        (result for result in drawn if result.n == most),
        key=lambda result: (result.verdict != Verdict.REGRESSED, not result.primary),
    )
    views: dict[tuple[object, ...], dict[str, Any]] = {}
    for result in ordered:
        now, before = result.shown.curve_now, result.shown.curve_reference
        assert now is not None  # as chosen
        key = (*now.generations, *now.mean, *([] if before is None else before.mean))
        if key in views:
            continue
        if before is not None and before.generations != now.generations:
            before = None
        quantity = "similarity to the start"
        if result.shown.facts is not None:
            quantity = "F1 of facts"
        elif result.measurement is not None and result.measurement.shares:
            quantity = "share that is right"
        kind = "regressed" if result.verdict == Verdict.REGRESSED else ""
        views[key] = {
            "result": result,
            "quantity": quantity,
            "samples": now.n,
            "known": before is not None,
            "kind": kind,
            "plot": curve_plot(now, before, result.judgement.reference, quantity, kind),
        }
    return list(views.values())


# -- the whole run ---------------------------------------------------------------------------------


def run_view(run: RunOutcome) -> dict[str, Any]:
    """All that the page of a run shows, but for its images, by the names that `run.html` reads.

    forest: all gating cases, the worst first.
    cards: samples that lost most; others: more of them, which are only named.
    suites: of each its cases, its plots and the end of its axis in tolerances (None where nothing
    was compared), and the cases whose details are shown by themselves, those that fail first.
    lines: counts, promises and what else is said of the whole run.
    choices: name and values of each filter of its cases.
    """
    results = run.results
    opened = worst_case(results) or next(filter(_replaces_answers, results), None)
    by_suite: dict[str, list[CaseResult]] = {}
    for result in results:
        by_suite.setdefault(result.suite, []).append(result)
    suites = []
    for place, (name, own) in enumerate(by_suite.items(), 1):
        reach = reach_of(own)
        compared = any(result.judgement.difference is not None for result in own)
        cases = [_case(result, reach, opened) for result in own]
        rest = [case for case in cases if not case["noteworthy"]]
        suites.append(
            {
                "name": name,
                "anchor": f"suite-{place}",
                "counts": counts_line(own),
                "cases": cases,
                "reach": reach if compared else None,
                "curves": _curves(own),
                "noteworthy": sorted(
                    (case for case in cases if case["noteworthy"]),
                    key=lambda case: case["result"].passes,
                ),
                "rest": rest,
                "rest_counts": counts_line([case["result"] for case in rest]),
            }
        )
    samples = [_card(sample) for sample in worst_samples(results)]
    cards = [sample for sample in samples if sample["cells"]][:_MOST_CARDS]
    return {
        "run": run,
        "title": run.headline or f"cepbench: {run.verdict}",
        "models": [] if run.provenance is None else _models(run.provenance.suites),
        "forest": _forest(results),
        "cards": cards,
        "others": [sample for sample in samples if sample not in cards],
        "causes": cause_lines(results),
        "suites": suites,
        "lines": [
            *verdict_lines(results),
            *finding_lines(results),
            effort_line(run.efforts),
        ],
        "choices": [
            ("verdict", sorted({result.word.lower() for result in results})),
            ("suite", sorted(by_suite)),
            ("metric", sorted({result.label for result in results})),
        ],
    }
