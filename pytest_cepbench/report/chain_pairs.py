"""A shown chain beside the baseline's: aligned steps, and which words of their texts differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import zip_longest
from typing import NamedTuple

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.measurement import rounded
from pytest_cepbench.report.result import CaseResult, ChainShown, LinkShown

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")

_MOST_WORDS = 2000
"""Words of a text that are compared one by one; comparing takes their square in the worst case."""


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

    @property
    def pictured(self) -> bool:
        """Whether both are pictures that differ: what can be laid over each other."""
        both = self.before is not None and self.now is not None
        return both and not self.same and self.images == 2

    @property
    def either(self) -> LinkShown | None:
        """This run's artifact, or the baseline's where it has none."""
        return self.now or self.before

    @property
    def images(self) -> int:
        """How many of the two are images, or sounds, which are shown by pictures."""
        return sum(link is not None and link.file is not None for link in (self.before, self.now))


class PairedChain(NamedTuple):
    """A chain in the details of a case, beside that of the reference.

    shown: the chain.
    anchor: address of the sample in the page.
    role: why it is shown, in words; empty for one of the samples that lost most.
    steps: of both, generation by generation; empty where only the scores are shown.
    """

    shown: ChainShown
    anchor: str
    role: str = ""
    steps: tuple[PairedStep, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether a change of similarity is known anywhere."""
        return any(step.change is not None for step in self.steps)


def paired_chains(result: CaseResult, *, pictured: bool) -> Iterator[PairedChain]:
    """The chains of a case in the order of the page, each sample once.

    Those that lost most, the median one and those that the engineer named. Of a case that holds
    only the worst and the median one are shown whole, and these only where it is `pictured`.
    """

    def placed(chain: ChainShown, role: str, *, whole: bool = True) -> PairedChain:
        steps = paired_steps(chain) if whole and chain.links else []
        return PairedChain(chain, sample_anchor(result, chain.sample), role, tuple(steps))

    named = {chain.sample for chain in result.shown.requested}
    losers = [chain for chain in result.shown.chains if chain.sample not in named]
    for place, chain in enumerate(losers):
        worst = result.settled and pictured and not place
        role = "worst sample" if worst else ""
        yield placed(chain, role, whole=worst or not result.settled)
    median = result.shown.median if pictured or not result.settled else None
    if median is not None and median.sample not in named | {chain.sample for chain in losers}:
        yield placed(median, "median sample")
    yield from (placed(chain, "--cep-show") for chain in result.shown.requested)


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

    Words, signs and the spaces between them are compared; texts of more than 2,000 of them whole.
    """
    words: list[list[str]] = [_WORDS.findall(text) for text in (before, now)]
    if max(map(len, words)) > _MOST_WORDS:
        return _whole(before, changed=before != now), _whole(now, changed=before != now)
    old: list[TextPart] = []
    new: list[TextPart] = []
    matcher = SequenceMatcher(None, words[0], words[1], autojunk=False)
    for tag, low, high, low_now, high_now in matcher.get_opcodes():
        changed = tag != "equal"
        old += _whole("".join(words[0][low:high]), changed=changed)
        new += _whole("".join(words[1][low_now:high_now]), changed=changed)
    return tuple(old), tuple(new)


def _whole(text: str, *, changed: bool = False) -> tuple[TextPart, ...]:
    return (TextPart(text, changed),) if text else ()


# -- what each hop lost, as observed -------------------------------------------------------------


def observed_losses(result: CaseResult) -> list[float | None]:
    """For each of the case's hops the similarity lost there between baseline and candidate.

    How much further apart the two mean curves are at the first generation compared from the hop on
    than at the one compared before; above 0 for a loss, whatever the metric. None for a hop whose
    next one ends at the same generation, which has the loss of both; for a part of a pipeline; and
    where the curves are not known over the same samples, or hops are of chains with both starts.
    """
    before, now = result.shown.curve_reference, result.shown.curve_now
    one_start = len({hop.start for hop in result.shown.hops}) == 1
    if before is None or now is None or not one_start:
        return [None] * len(result.shown.hops)
    if (before.generations, before.n) != (now.generations, now.n):
        return [None] * len(result.shown.hops)
    apart = [b - n for b, n in zip(before.mean, now.mean, strict=True)]
    lost = dict(
        zip(
            now.generations,
            (round(b - a, 6) + 0.0 for a, b in zip([0.0, *apart], apart, strict=False)),
            strict=True,
        )
    )
    # Of each hop the first generation that is compared from there on.
    ends = [
        next((at for at in now.generations if at >= hop.generation > 0), None)
        for hop in result.shown.hops
    ]
    return [
        None if end is None or end == following else lost[end]
        for end, following in zip(ends, [*ends[1:], None], strict=True)
    ]


class SampleValue(NamedTuple):
    """A sample of a case.

    sample: its id.
    categories: those of the case that it belongs to; empty where they are not known.
    value: its score, in the case's metric; None where it is not known.
    baseline: the same of the reference, which is the baseline or the anchor; None where the sample
        was not compared.
    difference: of both, turned so that positive is better; None where it was not compared.
    """

    sample: str
    categories: tuple[str, ...]
    value: float | None
    baseline: float | None
    difference: float | None


def sample_values(result: CaseResult) -> list[SampleValue]:
    """The samples of a case, those that lost most first, then those that were not compared.

    Empty where the score is one of a whole set, and where the report does not have the scores.
    """
    measured, differences = result.measurement, result.shown.differences
    categories: dict[str, tuple[str, ...]] = {}
    scores: dict[str, float] = {}
    if measured is not None:
        for category, part in measured.scores.items():
            for sample in part:
                categories[sample] = (*categories.get(sample, ()), category)
        if measured.answers and not measured.sizes:
            scores = battle_scores(result)
        elif not measured.sizes:
            scores = {name: s for part in measured.scores.values() for name, s in part.items()}
    sign = 1.0 if result.higher_is_better else -1.0
    compared = sorted(differences, key=lambda name: (differences[name], name))
    values = []
    for sample in (*compared, *sorted(scores.keys() - differences.keys())):
        value, difference = scores.get(sample), differences.get(sample)
        baseline = None
        if value is not None and difference is not None:
            baseline = rounded(value - sign * difference)
        values.append(SampleValue(sample, categories.get(sample, ()), value, baseline, difference))
    return values


def battle_scores(result: CaseResult) -> dict[str, float]:
    """Sample -> its score in the battles of a case.

    The measurement has answers in place of scores: every accepted answer scores one half against
    itself, so that the differences tell what the new one scores.
    """
    sign = 1.0 if result.higher_is_better else -1.0
    return {name: rounded(EVEN + sign * d) for name, d in result.shown.differences.items()}


_NOT_IN_ANCHORS = re.compile(r"[^A-Za-z0-9]+")

_LONGEST_NAME = 60


def case_anchor(result: CaseResult) -> str:
    """Name of a case: `#case-...` is its row, `#details-...` its details."""
    return _anchor(result.suite, result.part, result.metric)


def sample_anchor(result: CaseResult, sample: str) -> str:
    """Name of a sample of a case."""
    return f"sample-{_anchor(result.suite, result.part, result.metric, sample)}"


def _anchor(*names: str) -> str:
    text = _NOT_IN_ANCHORS.sub("-", " ".join(names)).strip("-").lower()
    digest = sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{text[:_LONGEST_NAME]}-{digest}"
