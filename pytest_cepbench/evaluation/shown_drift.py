"""What reports show of collapse and of texts that drift: attractors, and words by generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.chains import Chain, ChainPlan
from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.evaluation.shown_chains import links_shown
from pytest_cepbench.metrics.text_statistics import (
    refuses,
    repeated_share,
    script_shares,
    words_of,
)
from pytest_cepbench.metrics.word_changes import WordChanges, word_changes
from pytest_cepbench.report import (
    OTHER_WORDS,
    AttractorShown,
    EndShown,
    TextDriftShown,
    TextStepShown,
    WordFlowShown,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites.cases import OVERALL
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.measures.base import by_category, everyone, grower, plans_of
from pytest_cepbench.suites.measures.language import language_shares
from pytest_cepbench.suites.measures.set_diversity import DiversityMeasure
from pytest_cepbench.suites.measures.text_quality import TextMeasure
from pytest_cepbench.suites.stored_chains import StoredChains, stored_chains

MOST_ATTRACTORS = 4
"""Attractors that are shown, the largest."""

MOST_EXAMPLES = 12
"""Chains of an attractor that are shown."""

MOST_CHAINS = 1000
"""Chains whose texts are aligned: a thousand tell what drifts, more would take minutes."""

MOST_WORDS = 8
"""Words that a flow names."""

_LISTED = 3  # scripts and languages

Statistics = Callable[[Sequence[str]], dict[str, Any]]
"""Texts -> fields of a `TextStepShown` about them."""

_LONGEST_WORD = 40  # characters; a text without spaces or sense can be one "word"

_FUNCTION_WORDS = frozenset(
    ["a", "an", "the", "and", "or", "of", "in", "on", "at", "to", "with", "is", "are", "it", "its"]
)
"""English words that texts exchange all the time, and that no flow names before others."""


@dataclass(frozen=True)
class ShownDrift:
    """What a report shows of a case; the fields are those of `CaseResult`."""

    attractors: list[AttractorShown] = field(default_factory=list)
    texts: list[TextDriftShown] = field(default_factory=list)
    texts_reference: list[TextDriftShown] = field(default_factory=list)


def shown_drift(run: ChainRun, evaluated: EvaluatedCase, store: Store) -> ShownDrift:
    """The attractors of a case that measures diversity, and what drifts in its texts.

    Texts are shown by the whole suite's cases, and by those of the suite's first metric, so that
    every choice of cases has them and few have them twice. Nothing is grown or encoded: the case
    has been measured. The chains of the baseline's model come from stores alone.
    """
    case = evaluated.case
    measure = run.measures[case.key.metric]
    attractors: list[AttractorShown] = []
    if isinstance(measure, DiversityMeasure):
        attractors = _attractors(run, evaluated, measure, store)
    if case.key.part != OVERALL and case.key.metric != next(iter(run.measures)):
        return ShownDrift(attractors)
    ids = _told_by(run, evaluated)
    starts = dict.fromkeys(plan.start for plan in plans_of(measure.required_features(case)))
    plans = [run.suite.plans[start] for start in starts]
    samples = [sample for sample in run.chain_data.dataset.samples if sample.id in ids]

    def texts(plan: ChainPlan) -> TextDriftShown:
        """Made once for all cases of the same chains."""
        return run.chain_data.once(
            ("text drift", plan.start),
            digest_json(sorted(ids)),
            lambda: text_drift(
                plan,
                list(run.chain_data.chains(plan.start, samples).values()),
                languages=_asks_languages(run),
            ),
        )

    return ShownDrift(
        attractors,
        [texts(plan) for plan in plans],
        _texts_of_reference(run, evaluated, plans, ids),
    )


def _told_by(run: ChainRun, evaluated: EvaluatedCase) -> frozenset[str]:
    """Ids of the samples whose texts tell what drifts: those that the numbers come from.

    Of more than `MOST_CHAINS` those that a limited run would take first.
    """
    if evaluated.measurement.sizes:  # one score of a set
        ids = {sample.id for sample in everyone(by_category(evaluated.case, run.chain_data))}
    else:
        ids = {sample for part in evaluated.measurement.scores.values() for sample in part}
    return frozenset(sorted(ids, key=digest_text)[:MOST_CHAINS])


# -- attractors ------------------------------------------------------------------------------------


def _attractors(
    run: ChainRun, evaluated: EvaluatedCase, measure: DiversityMeasure, store: Store
) -> list[AttractorShown]:
    attractors = measure.attractors(evaluated.case, run.chain_data)
    last = measure.generations[-1]

    def end(name: str) -> EndShown:
        samples = run.chain_data.named(name)
        chain = run.chain_data.chains(measure.plan.start, samples)[name]
        links = links_shown(chain, {}, store)
        return EndShown(name, links[0], links[last])

    return [
        AttractorShown(
            chains=len(alike.samples),
            share=round(len(alike.samples) / attractors.ends, 6),
            origins=alike.origins,
            center=end(alike.center).end,
            examples=[end(name) for name in alike.samples[:MOST_EXAMPLES]],
        )
        for alike in attractors.found[:MOST_ATTRACTORS]
    ]


# -- texts -----------------------------------------------------------------------------------------


def _texts_of_reference(
    run: ChainRun, evaluated: EvaluatedCase, plans: Sequence[ChainPlan], ids: Collection[str]
) -> list[TextDriftShown]:
    """The same of the baseline's or anchor's model, where stores have all of its chains."""
    reference = evaluated.reference
    step = "" if reference is None else reference.model.get("step", "")
    if not step or run.assignments.replay is not None:
        return []
    try:
        stored = stored_chains(run, step)
        if len(stored.known(evaluated.case, ids)) < len(ids):
            return []
        return [
            run.chain_data.once(
                ("text drift", plan.start, step),
                digest_json(sorted(ids)),
                partial(_stored_texts, stored, plan, ids, languages=_asks_languages(run)),
            )
            for plan in plans
        ]
    except CepError:  # the verdict stands without them
        return []


def _stored_texts(
    stored: StoredChains, plan: ChainPlan, ids: Collection[str], *, languages: bool
) -> TextDriftShown:
    return text_drift(plan, list(stored.chains(plan.start, ids).values()), languages=languages)


def _asks_languages(run: ChainRun) -> bool:
    """True where a metric of the suite asks for a language, so that telling them is wanted.

    The identifier takes half a second and 100 MB, and a report is to be the same wherever the suite
    runs.
    """
    return any(isinstance(m, TextMeasure) and m.tells_languages for m in run.measures.values())


def text_drift(
    plan: ChainPlan, chains: Sequence[Chain], *, languages: bool = False
) -> TextDriftShown:
    """What drifts in the texts of chains.

    plan: by which they were grown. languages: whether to tell the language of each text.
    A text that was not recorded, or that a chain which stopped does not have, is left out.
    """
    generations = [g for g in range(plan.generations + 1) if plan.modality(g) == "text"]
    describe = partial(_statistics, languages=languages)
    steps = [_first_step(plan, generations[0], chains, describe)] if generations else []
    steps += [_step(plan, *pair, chains, describe) for pair in pairwise(generations)]
    if len(generations) < 2:
        return TextDriftShown(plan.start, steps)
    first, last = generations[0], generations[-1]
    pairs = list(_pairs(chains, first, last))
    return TextDriftShown(plan.start, steps, first, last, len(pairs), _flows(word_changes(pairs)))


def _first_step(
    plan: ChainPlan, generation: int, chains: Sequence[Chain], describe: Statistics
) -> TextStepShown:
    texts = [text for chain in chains if (text := _text(chain, generation)) is not None]
    roles = grower(plan, generation) if generation else ""
    return TextStepShown(generation, None, roles, len(texts), **describe(texts))


def _step(
    plan: ChainPlan, before: int, generation: int, chains: Sequence[Chain], describe: Statistics
) -> TextStepShown:
    pairs = list(_pairs(chains, before, generation))
    changes = word_changes(pairs)
    return TextStepShown(
        generation=generation,
        since=before,
        roles=", ".join(grower(plan, g) for g in range(before + 1, generation + 1)),
        texts=len(pairs),
        kept=changes.kept.total(),
        changed=changes.changed.total(),
        lost=changes.lost.total(),
        gained=changes.gained.total(),
        kinds={
            kind: [words.kept, words.changed, words.lost, words.gained]
            for kind, words in changes.by_kind().items()
        },
        **describe([later for _, later in pairs]),
    )


def _statistics(texts: Sequence[str], *, languages: bool) -> dict[str, Any]:
    count = max(1, len(texts))
    told = list(language_shares(texts).items())[:_LISTED] if languages else []
    scripts = list(script_shares("".join(texts)).items())[:_LISTED]
    return {
        "words": round(sum(len(words_of(text)) for text in texts) / count, 3),
        "repeated": round(sum(map(repeated_share, texts)) / count, 6),
        "scripts": {script: round(share, 6) for script, share in scripts},
        "refusals": sum(map(refuses, texts)),
        "languages": {name: round(share, 6) for name, share in told},
    }


def _pairs(chains: Sequence[Chain], before: int, later: int) -> Iterator[tuple[str, str]]:
    for chain in chains:
        texts = _text(chain, before), _text(chain, later)
        if texts[0] is not None and texts[1] is not None:
            yield texts[0], texts[1]


def _text(chain: Chain, generation: int) -> str | None:
    return chain.links[generation].text if chain.has(generation) else None


def _flows(changes: WordChanges) -> list[WordFlowShown]:
    """Every word of the two texts once, those that are not named as one."""
    named = _named_words(changes)
    flows: Counter[tuple[str, str]] = Counter()
    for word, count in changes.kept.items():
        flows[_name(word, named), _name(word, named)] += count
    for (before, after), count in changes.changed.items():
        flows[_name(before, named), _name(after, named)] += count
    for word, count in changes.lost.items():
        flows[_name(word, named), ""] += count
    for word, count in changes.gained.items():
        flows["", _name(word, named)] += count
    return [
        WordFlowShown(before, after, count)
        for (before, after), count in sorted(flows.items(), key=lambda flow: (-flow[1], flow[0]))
    ]


def _named_words(changes: WordChanges) -> frozenset[str]:
    """The words that a flow names on both sides: those that moved most, then those used most.

    Function words are named only where there are no others.
    """
    moved = changes.lost + changes.gained
    for (before, after), count in changes.changed.items():
        moved[before] += count
        moved[after] += count
    there = changes.before + changes.after
    candidates = [word for word in there if word not in _FUNCTION_WORDS] or list(there)
    ranked = sorted(candidates, key=lambda word: (-moved[word], -there[word], word))
    return frozenset(ranked[:MOST_WORDS])


def _name(word: str, named: Collection[str]) -> str:
    if word not in named:
        return OTHER_WORDS
    return word if len(word) <= _LONGEST_WORD else f"{word[: _LONGEST_WORD - 3]}..."
