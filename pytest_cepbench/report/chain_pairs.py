"""A shown chain beside the baseline's: aligned steps, and which words of their texts differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import zip_longest

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.measurement import rounded
from pytest_cepbench.report.result import CaseResult, ChainShown, HopShown, LinkShown

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")

_MOST_WORDS = 2000
"""Words of a text that are compared one by one; comparing takes their square in the worst case."""


@dataclass(frozen=True)
class TextPart:
    """A part of a text. changed: whether the other text does not have it at this place."""

    text: str
    changed: bool = False


@dataclass(frozen=True)
class PairedStep:
    """One generation of two chains of a sample.

    generation: 0 for the start.
    before, now: the baseline's artifact and this run's; None where a chain had stopped, or its
        artifact is not stored.
    before_text, now_text: parts of their texts; empty for images.
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
        """Whether both are images that differ: what can be laid over each other."""
        both = self.before is not None and self.now is not None
        return both and not self.same and self.images == 2

    @property
    def images(self) -> int:
        """How many of the two are images."""
        return sum(link is not None and link.image is not None for link in (self.before, self.now))


@dataclass(frozen=True)
class PairedChain:
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
    return [
        _step(generation, before, now, first=generation == shown.first_difference)
        for generation, (before, now) in enumerate(zip_longest(shown.baseline_links, shown.links))
    ]


def _step(
    generation: int, before: LinkShown | None, now: LinkShown | None, *, first: bool
) -> PairedStep:
    before_text = "" if before is None else before.text or ""
    now_text = "" if now is None else now.text or ""
    if before is None or now is None:
        parts = _whole(before_text), _whole(now_text)
    else:
        parts = word_differences(before_text, now_text)
    same = (
        before is not None
        and now is not None
        and (before.text, before.image) == (now.text, now.image)
    )
    return PairedStep(generation, before, now, *parts, _change(before, now), first, same)


def _change(before: LinkShown | None, now: LinkShown | None) -> float | None:
    ends = [None if link is None else link.similarity for link in (before, now)]
    if ends[0] is None or ends[1] is None:
        return None
    return round(ends[1] - ends[0], 6) + 0.0


def word_differences(before: str, now: str) -> tuple[tuple[TextPart, ...], tuple[TextPart, ...]]:
    """Both texts in parts: those that the other one has as well, and those that it has not.

    Words, signs and the spaces between them are compared; texts of more than 2,000 of them whole.
    """
    words: list[list[str]] = [_WORDS.findall(text) for text in (before, now)]
    if max(map(len, words)) > _MOST_WORDS:
        return _whole(before, changed=before != now), _whole(now, changed=before != now)
    operations = SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes()
    return (
        tuple(_parts(words[0], [(tag, low, high) for tag, low, high, _, _ in operations])),
        tuple(_parts(words[1], [(tag, low, high) for tag, _, _, low, high in operations])),
    )


def _parts(words: list[str], operations: list[tuple[str, int, int]]) -> Iterator[TextPart]:
    for tag, low, high in operations:
        if high > low:
            yield TextPart("".join(words[low:high]), tag != "equal")


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
    ends = [_end(hop, now.generations) for hop in result.shown.hops]
    return [
        None if end is None or end == following else lost[end]
        for end, following in zip(ends, [*ends[1:], None], strict=True)
    ]


def _end(hop: HopShown, generations: list[int]) -> int | None:
    """The first generation compared from a hop on."""
    if not hop.generation:
        return None
    return next((at for at in generations if at >= hop.generation), None)


@dataclass(frozen=True)
class SampleValue:
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
    categories = _categories(result)
    scores = _scores(result)
    sign = 1.0 if result.higher_is_better else -1.0

    def values(sample: str) -> SampleValue:
        value, difference = scores.get(sample), result.shown.differences.get(sample)
        baseline = None
        if value is not None and difference is not None:
            baseline = rounded(value - sign * difference)
        return SampleValue(sample, categories.get(sample, ()), value, baseline, difference)

    compared = sorted(
        result.shown.differences, key=lambda name: (result.shown.differences[name], name)
    )
    others = sorted(scores.keys() - result.shown.differences.keys())
    return [values(sample) for sample in (*compared, *others)]


def battle_scores(result: CaseResult) -> Mapping[str, float]:
    """Sample -> its score in the battles of a case.

    The measurement has answers in place of scores: every accepted answer scores one half against
    itself, so that the differences tell what the new one scores.
    """
    sign = 1.0 if result.higher_is_better else -1.0
    return {name: rounded(EVEN + sign * d) for name, d in result.shown.differences.items()}


def _scores(result: CaseResult) -> Mapping[str, float]:
    """Sample -> its score."""
    measured = result.measurement
    if measured is None or measured.sizes:
        return {}
    if measured.answers:
        return battle_scores(result)
    return {name: score for part in measured.scores.values() for name, score in part.items()}


def _categories(result: CaseResult) -> Mapping[str, tuple[str, ...]]:
    if result.measurement is None:
        return {}
    categories: dict[str, tuple[str, ...]] = {}
    for category, part in result.measurement.scores.items():
        for sample in part:
            categories[sample] = (*categories.get(sample, ()), category)
    return categories


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
