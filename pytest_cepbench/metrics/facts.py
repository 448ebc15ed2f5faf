"""Facts: whether what is true of a sample is still told and still shown along its chain.

A sample has atomic facts ("a red circle", "three shapes"). Each is checked in every text and every
picture of its chain: 1 where it holds, 0 where it does not. `fact_f1` makes one score of these
answers; `summarize_facts` says which kinds of facts are lost, when, and by which role.

The idea, facts of one scene graph checked on both sides of a unified model, is XTC-Bench's (2026);
the formulas here are of chains and are this project's own.

Soft-TIFA asks a model that answers questions (VQA) one question for each atom of a prompt, about a
picture or a text; an atom's score is the probability that it gives the right answer. TIFA (Hu et
al., 2023) is the same with answers that are right or wrong. Source: Kamath et al., GenEval 2:
Addressing Benchmark Drift in Text-to-Image Evaluation (arXiv 2512.16853), section 4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import unknown_name
from pytest_cepbench.metrics.gc import Array, FloatArray
from pytest_cepbench.metrics.uncertainty import wilson_interval

KINDS = ("object", "count", "color", "size", "position", "relation", "attribute", "action", "text")
"""Known kinds, in the order of tables. object: something is there; count: how many there are;
color, size, attribute: how it looks; position: where it stands; relation: where it stands to
another; action: what it does; text: what is written."""


class Fact(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """One atomic fact.

    kind: one of `KINDS`.
    words: what is true, for people, such as "red circle"; with `kind` and `nth` its identity.
    nth: which of several equal facts it is, 1 for the first: two red circles are two facts, and
    the second is false where only one is left.
    """

    kind: str
    words: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.words} #{self.nth}" if self.nth > 1 else self.words


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise ValueError naming the first kind that is not known, and those that are."""
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(unknown_name("kind of fact", kind, KINDS))


def order_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Each kind once, in the order of `KINDS`."""
    present = set(kinds)
    return tuple(kind for kind in KINDS if kind in present)


@dataclass(frozen=True)
class FactAnswers:
    """What was found of one sample's facts in each artifact of its chain.

    kinds: (n_facts,) the kind of each fact, n_facts at least 1.
    answers: (n_facts, n_artifacts), one column per artifact in the order of the chain, the start
    left out: 1 where the fact holds there, else 0. A chain that stopped has zeros for what is
    missing.
    surplus: kind -> (n_artifacts,) how many facts of it the artifact claims that the start does
    not have.
    Raises ValueError for shapes that do not fit, an unknown kind, or an answer outside [0, 1].
    """

    kinds: tuple[str, ...]
    answers: Array
    surplus: Mapping[str, Array]

    def __post_init__(self) -> None:
        check_kinds((*self.kinds, *self.surplus))
        answers = self.answers
        if answers.ndim != 2 or not answers.size or len(answers) != len(self.kinds):
            raise ValueError(
                f"expected answers on {len(self.kinds)} facts, at least 1, got {answers.shape}"
            )
        if not ((answers >= 0) & (answers <= 1)).all():
            raise ValueError(f"answers lie in [0, 1], got {answers.min():g} to {answers.max():g}")
        for kind, counts in self.surplus.items():
            if counts.shape != (answers.shape[1],) or (counts < 0).any():
                raise ValueError(
                    f"expected {answers.shape[1]} counts from 0 of surplus {kind} facts"
                )


def fact_f1(checked: FactAnswers) -> Array:
    """Macro-F1 of the facts of each artifact: every kind counts alike, however many facts it has.

    Of a kind, TP = sum of answers, FN = sum of (1 - answer), FP = surplus, and
    F1 = 2 TP / (2 TP + FP + FN). The artifact's score is the mean over the kinds that the start has
    or the artifact claims.
    Returns (n_artifacts,) in [0, 1], higher is better. 1 exactly where every fact holds and nothing
    else is claimed.
    Source: F1 over atomic facts of a scene graph, after XTC-Bench (2026); over chains, ours.
    """
    scores: list[list[float]] = [[] for _ in range(checked.answers.shape[1])]
    nothing = np.zeros(len(scores))
    for kind in order_kinds((*checked.kinds, *checked.surplus)):
        own = checked.answers[[name == kind for name in checked.kinds]]
        false = checked.surplus.get(kind, nothing).tolist()
        for score, right, wrong in zip(scores, own.sum(axis=0).tolist(), false, strict=True):
            if len(own) or wrong > 0:
                score.append(2 * right / (right + len(own) + wrong))
    return np.array([fsum(own) / len(own) for own in scores])


Role = Literal["describer", "generator"]


@dataclass(frozen=True)
class RoleLoss:
    """What the steps of one role do to facts.

    role: `describer` or `generator`.
    steps: how many steps of a chain are its own.
    right: facts that were right before such a step, over all steps.
    lost: how many of them are wrong after it.
    wrong: facts that were wrong before such a step.
    regained: how many of them are right after it.
    """

    role: Role
    steps: int
    right: float
    lost: float
    wrong: float
    regained: float


def attribute_losses(answers: FloatArray, roles: Sequence[Role]) -> tuple[RoleLoss, ...]:
    """How many of the facts that are right before a step are wrong after it, by role.

    answers: (n_facts, n_steps) in [0, 1], as in `FactAnswers`; before the first step all facts are
    right.
    roles: (n_steps,) whose step each is.
    Returns one of each role that has a step, in the order in which they come.
    Raises ValueError where there is another number of steps.
    """
    if answers.ndim != 2 or answers.shape[1] != len(roles):
        raise ValueError(f"expected answers after {len(roles)} steps, got {answers.shape}")
    counts = {role: np.zeros(4) for role in dict.fromkeys(roles)}
    before = np.ones(len(answers))
    for after, role in zip(answers.T, roles, strict=True):
        wrong = 1 - before
        counts[role] += (before.sum(), before @ (1 - after), wrong.sum(), wrong @ after)
        before = after
    return tuple(
        RoleLoss(role, list(roles).count(role), *map(float, own)) for role, own in counts.items()
    )


@dataclass(frozen=True)
class FactKind:
    """What became of the facts of one kind, or of all of them.

    kind: empty for all kinds together.
    facts: how many there are, over all samples.
    curve: share that is right at each generation.
    last: the last generation that was checked.
    half_life: generations until half of them are gone; None for more than `last`.
    low, high: ends of its 95 % interval; None for more than `last`.
    losses: what each role loses.
    """

    kind: str
    facts: int
    curve: tuple[float, ...]
    last: int
    half_life: float | None
    low: float | None
    high: float | None
    losses: tuple[RoleLoss, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What became of the facts of a case's samples along their chains.

    generations: that were checked.
    every: the facts of all kinds.
    kinds: of each kind.
    """

    generations: tuple[int, ...]
    every: FactKind
    kinds: tuple[FactKind, ...]


def half_life(
    shares: FloatArray, generations: Sequence[int]
) -> tuple[float | None, float | None, float | None]:
    """The half-life of facts over the chains of many samples, and the ends of its 95 % interval.

    shares: (n_units, n_generations) in [0, 1]: of each sample's facts the share that is right at
    each generation. Samples that are not independent are averaged to one row before.
    generations: rising, from 1 on; at generation 0 all facts are right, by definition.
    Returns the first generation, between two checked ones by a straight line, at which the share is
    one half, and the interval's ends; None for each that is more than the last generation.

    The curve is the mean over units. The interval is the set of times at which one half cannot be
    excluded, as Brookmeyer and Crowley (1982) make one for a median survival time: where the upper
    and the lower band of the curve cross one half. The band is Wilson's with one trial a unit,
    which is wide enough for any scores in [0, 1], as no such score varies more than a coin with its
    mean. Nothing is ever extrapolated: what the chain did not reach is "more than" its end. Facts
    may come back; the first crossing counts.
    Raises ValueError for shapes that do not fit, or no units.
    """
    steps = list(generations)
    rising = all(before < after for before, after in zip([0, *steps], steps, strict=False))
    if shares.ndim != 2 or shares.shape[1] != len(steps) or not shares.size or not rising:
        raise ValueError(
            f"expected shares (n, {len(steps)}) at rising generations from 1, got {shares.shape}"
        )
    means = shares.mean(axis=0).tolist()
    bands = [wilson_interval(mean, len(shares)) for mean in means]
    low, high = zip(*bands, strict=True)
    return _crossing(steps, means), _crossing(steps, low), _crossing(steps, high)


def _crossing(times: Sequence[int], curve: Sequence[float]) -> float | None:
    """First time at which a curve that is 1 at time 0 is one half; None where it never is."""
    before, height = 0, 1.0
    for time, value in zip(times, curve, strict=True):
        if value <= 0.5:
            return before + (time - before) * (height - 0.5) / (height - value)
        before, height = time, value
    return None


def summarize_facts(
    checked: Sequence[FactAnswers],
    units: Sequence[str],
    generations: Sequence[int],
    roles: Sequence[Role],
) -> Facts:
    """The summary of chains of equal length.

    checked: (n,) the answers of each sample.
    units: (n,) what each sample shares with those that are not independent of it.
    generations: (n_artifacts,) rising from 1, without gaps.
    roles: (n_artifacts,) who made each; a describer's is a text.
    Raises ValueError where there is no sample, or lengths differ.
    """
    if not checked or any(own.answers.shape[1] != len(generations) for own in checked):
        raise ValueError(f"expected answers of at least one sample in {len(generations)} artifacts")

    def summary(kind: str) -> FactKind:
        """Of one kind, or of all facts where no kind is named."""
        tables = [own.answers[[not kind or k == kind for k in own.kinds]] for own in checked]
        of_units: dict[str, list[Array]] = {}
        for unit, table in zip(units, tables, strict=True):
            if len(table):
                of_units.setdefault(unit, []).append(table.mean(axis=0))
        shares = np.array([np.mean(rows, axis=0) for rows in of_units.values()])
        stacked = np.concatenate(tables)
        return FactKind(
            kind,
            len(stacked),
            tuple(shares.mean(axis=0).tolist()),
            generations[-1],
            *half_life(shares, generations),
            losses=attribute_losses(stacked, roles),
        )

    kinds = order_kinds(kind for own in checked for kind in own.kinds)
    return Facts(tuple(generations), summary(""), tuple(map(summary, kinds)))


def chance_f1(
    starts: Sequence[Collection[Fact]],
    claims: Sequence[Sequence[Collection[Fact]]],
    homes: Sequence[str],
) -> Array | None:
    """The mean macro-F1 of each sample's facts in the artifacts of other samples.

    starts: (n,) the facts of each sample.
    claims: (n, n_artifacts) the facts that each artifact claims, empty where it is not there.
    homes: (n,) the category within which a sample is exchanged; where no other sample there starts
    differently, it is exchanged within all of them.
    Returns (n,) in [0, 1]; None where all samples have the same facts. It is exact: every other
    sample with other facts counts once.
    """
    sets = [frozenset(facts) for facts in starts]
    numbers = {facts: number for number, facts in enumerate(dict.fromkeys(sets))}
    if len(numbers) < 2:
        return None
    start_of = np.array([numbers[facts] for facts in sets])
    every = {*chain(*sets), *chain.from_iterable(facts for row in claims for facts in row)}
    place = {fact: i for i, fact in enumerate(every)}
    kinds = order_kinds(fact.kind for fact in place)
    of_kind = np.array([[fact.kind == kind for kind in kinds] for fact in place], np.float32)
    there = _table(sets, place)
    starts_of: defaultdict[str, set[frozenset[Fact]]] = defaultdict(set)
    for home, start in zip(homes, sets, strict=True):
        starts_of[home].add(start)
    exchanged: defaultdict[str | None, list[int]] = defaultdict(list)  # None: within all
    for row, home in enumerate(homes):
        exchanged[home if len(starts_of[home]) > 1 else None].append(row)
    chance: Array = np.zeros(len(sets))
    for artifact in range(len(claims[0])):
        claimed = _table([row[artifact] for row in claims], place)
        for category, rows in exchanged.items():
            others = range(len(sets)) if category is None else rows
            chance[rows] += _others_f1(there, claimed, start_of, of_kind, rows, others)
    return chance / len(claims[0])


def _others_f1(
    there: FloatArray,
    claimed: FloatArray,
    start_of: npt.NDArray[np.int64],
    of_kind: FloatArray,
    rows: Sequence[int],
    others: Sequence[int],
) -> Array:
    """(len(rows),) the mean F1 of samples' facts in the claims of others that start differently.

    Claims with facts of the same kinds, and as many of one kind, differ in that kind by what they
    share with a start alone: of each such group the shared facts are counted, not of each pair.
    """
    starts, first, start = np.unique(start_of[rows], return_index=True, return_inverse=True)
    own, theirs = there[np.array(rows)[first]], claimed[others]
    own_sizes, sizes = own @ of_kind, (theirs @ of_kind).astype(int)
    # Samples that start alike are taken away again, by whole numbers.
    alike = np.flatnonzero(np.isin(start_of[others], starts))
    same = np.searchsorted(starts, start_of[others][alike])
    in_both = (own[same] * theirs[alike]) @ of_kind
    bits = np.arange(len(of_kind.T))
    patterns, pattern_of = np.unique((sizes > 0) @ (1 << bits), return_inverse=True)
    present = ((own_sizes > 0)[:, None] | (patterns[:, None] >> bits & 1)).sum(axis=2)
    total: Array = np.zeros(len(starts))
    for kind in bits:
        most = sizes[:, kind].max() + 1
        groups, group_of = np.unique(pattern_of * most + sizes[:, kind], return_inverse=True)
        pattern, size = np.divmod(groups, most)
        column = of_kind[:, kind] > 0
        is_in = (np.arange(len(groups))[:, None] == group_of).astype(np.float32)
        shared = own[:, column] @ (is_in @ theirs[:, column]).T
        np.subtract.at(shared, (same, group_of[alike]), in_both[:, kind])
        f1 = 2 * shared / np.maximum(own_sizes[:, [kind]] + size, 1)
        total += (f1 / np.maximum(present[:, pattern], 1)).sum(axis=1)
    total /= len(others) - np.bincount(same, minlength=len(starts))
    return total[start]


def _table(sets: Sequence[Collection[Fact]], place: Mapping[Fact, int]) -> FloatArray:
    """(n, n_facts) 1 where the set has the fact of the place."""
    table = np.zeros((len(sets), len(place)), np.float32)
    for row, facts in zip(table, sets, strict=True):
        row[[place[fact] for fact in facts]] = 1.0
    return table


MeanName = Literal["geometric", "arithmetic"]

HALF = 0.5
"""An answer less likely than this is not the model's answer: another one, or all others together,
are likelier."""

FEW = 10
"""Control questions too few for a share of them to tell much."""


def soft_tifa(probabilities: Sequence[float], mean: MeanName = "geometric") -> float:
    """The score of one picture or text.

    probabilities: (atoms,) of the right answers, in [0, 1], at least one.
    mean: "geometric" for Soft-TIFA_GM, an estimate of whether the whole prompt is met: one atom of
        probability 0 makes it 0. "arithmetic" for Soft-TIFA_AM, the share of atoms that are met.
    Returns a number in [0, 1]; higher is better. The geometric mean is at most the arithmetic one.
    Chance level: p for a model that gives each right answer the probability p, whatever it is
    shown. Source: GenEval 2, section 4.
    Raises ValueError for no atom, and for a number outside [0, 1].
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"the probabilities of at least one answer are expected, got shape {values.shape}"
        )
    if not ((values >= 0) & (values <= 1)).all():  # also where one is NaN
        raise ValueError(f"probabilities in [0, 1] are expected, got {values.tolist()!r:.80}")
    if mean == "arithmetic":
        return float(values.mean())
    if not values.all():
        return 0.0
    return float(min(1.0, np.exp(np.log(values).mean())))


def fail_descendants(
    probabilities: Sequence[float], parents: Sequence[Sequence[int]]
) -> tuple[float, ...]:
    """The probabilities, 0 for each atom that has a failed atom among its ancestors.

    parents: of each atom the places of those that it depends on, all before its own. An atom has
    failed where its probability is below one half, or an ancestor has failed: the color of a dog
    that is not there is no atom that is met.
    Source: the dependencies of DSG (Cho et al., 2024, section 3) and of Arena-T2I Hard.
    Raises ValueError where a parent does not stand before its child.
    """
    kept: list[float] = []
    for place, (probability, own) in enumerate(zip(probabilities, parents, strict=True)):
        if any(not 0 <= parent < place for parent in own):
            raise ValueError(
                f"atom {place} depends on {list(own)}: places before its own are expected"
            )
        kept.append(0.0 if any(kept[parent] < HALF for parent in own) else probability)
    return tuple(kept)


def means_by_kind(
    kinds: Sequence[str], probabilities: Sequence[float]
) -> Mapping[str, tuple[float, int]]:
    """Soft-TIFA_AM and the number of atoms of each kind, in order of their names.

    Source: GenEval 2's analysis per skill.
    """
    values: dict[str, list[float]] = {}
    for kind, probability in zip(kinds, probabilities, strict=True):
        values.setdefault(kind, []).append(probability)
    return {kind: (float(np.mean(own)), len(own)) for kind, own in sorted(values.items())}


@dataclass(frozen=True)
class ControlAccuracy:
    """How a VQA model answers questions whose answers are known.

    present: (right answers, questions) about what a chain's start is known to show or say.
    absent: the same of questions about what other samples show and this one does not name, whose
        answer is no.
    """

    present: tuple[int, int]
    absent: tuple[int, int]

    @classmethod
    def of(cls, present: Sequence[float], absent: Sequence[float]) -> ControlAccuracy:
        """From the probabilities of the right answers; one of over one half is right.

        Not one half itself: who gives it to every answer would have all of them right.
        """
        return cls(*((sum(p > HALF for p in own), len(own)) for own in (present, absent)))

    @property
    def flawless(self) -> bool:
        """Whether all questions were answered rightly, and some were asked of what is absent."""
        return self.absent[1] > 0 and all(right == asked for right, asked in vars(self).values())

    def below(self, least: float) -> bool:
        """Whether one of the two shares is below a limit; of fewer than `FEW` questions, whether
        none of them was answered rightly, since chance decides most of so small a share.

        A model that says yes to all has 0 of the absent, one that says no to all 0 of the present,
        and one that tosses a coin one half of both. A share of no questions is not below anything.
        """
        return any(
            right == 0 if count < FEW else right < least * count
            for right, count in (self.present, self.absent)
            if count
        )

    def __str__(self) -> str:
        parts = []
        for name, (right, count) in (("present", self.present), ("absent", self.absent)):
            if count:
                parts.append(f"{right:,} of {count:,} about what is {name} ({right / count:.1%})")
        return " and ".join(parts) or "none"
