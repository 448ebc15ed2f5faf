"""How far the annotators of a ratings folder agree: with one another, with themselves, with known
answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.errors import DatasetError, NotInStoreError
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.metrics.battles import FloatArray
from pytest_cepbench.metrics.judge_agreement import (
    VERDICTS,
    RatedThings,
    Reading,
    alpha_estimate,
    equal_votes_estimate,
    fleiss_estimate,
    mean_cohen_estimate,
    median_estimate,
    ratio_estimate,
)
from pytest_cepbench.metrics.uncertainty import DRAWS, Estimate
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Part, Vote
from pytest_cepbench.ratings.summary import attention_results, repeat_results
from pytest_cepbench.ratings.votes import SCALES, VoteTable, vote_table
from pytest_cepbench.store import Store
from pytest_cepbench.studies.rated_items import Draw, Output, RatedItems, RatedRun, require_runs
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.stored_chains import stored_chains

_READINGS: tuple[tuple[Reading, str], ...] = (
    ("fdt", "equal votes, ties forced"),
    ("three_way", "equal votes, ties one verdict"),
)


@dataclass(frozen=True)
class Coefficient:
    """One number of agreement. name: in words. scale: what it is of. note: how to read it."""

    name: str
    scale: str
    estimate: Estimate
    note: str = ""


@dataclass(frozen=True)
class AnnotatorRecord:
    """One annotator.

    votes: answers that count. skipped: items without an answer.
    seconds: median of an answer; None of none.
    attention: hidden checks answered right, and all that were answered.
    repeats: equal answers to items that came again, and all of them.
    """

    name: str
    votes: int
    skipped: int
    seconds: float | None
    attention: tuple[int, int]
    repeats: tuple[int, int]


@dataclass(frozen=True)
class RatingAgreement:
    """The agreement of the annotators of one study.

    ratings: the folder. kind, suite: of the study.
    items: asked of people. judged: that have an answer. shared: that have several.
    remarks: what of the votes does not count, a sentence each.
    """

    ratings: str
    kind: str
    suite: str
    items: int
    judged: int
    shared: int
    coefficients: tuple[Coefficient, ...]
    annotators: tuple[AnnotatorRecord, ...]
    remarks: tuple[str, ...]


def measure_agreement(ratings: Ratings, votes: Votes, draws: int = DRAWS) -> RatingAgreement:
    """The agreement of all annotators who answered.

    draws: of the bootstrap by item, for each interval.
    Raises DatasetError where nobody has answered an item.
    """
    answers = votes.answers()
    if not answers:
        why = "; ".join(votes.remarks.lines)
        raise DatasetError(
            f"{ratings.path}: nobody has judged an item yet{f' ({why})' if why else ''}"
        )
    names = [name for name in ratings.study.annotators if _answers_of(name, answers)]
    tables = [vote_table(scale, answers, names) for scale in SCALES[ratings.study.kind]]
    coefficients = [each for table in tables for each in _coefficients(table, draws)]
    coefficients += _of_annotators(ratings, votes, answers, draws)
    judged = Counter(vote.item for vote in answers)
    return RatingAgreement(
        ratings=str(ratings.path),
        kind=ratings.study.kind,
        suite=ratings.study.suite,
        items=sum(item.kind == "item" for item in ratings.items.values()),
        judged=len(judged),
        shared=sum(count > 1 for count in judged.values()),
        coefficients=tuple(coefficients),
        annotators=tuple(_records(ratings, votes, names)),
        remarks=tuple(votes.remarks.lines),
    )


def _answers_of(name: str, votes: Iterable[Vote]) -> list[Vote]:
    return [vote for vote in votes if vote.annotator == name]


def _coefficients(table: VoteTable, draws: int) -> Iterator[Coefficient]:
    rated, scale = RatedThings(table.values, table.owners), table.scale
    if scale.ordered:
        alpha = alpha_estimate(rated, "ordinal", draws)
        yield Coefficient("Krippendorff's alpha, ordinal", scale.name, alpha)
    if not scale.labels:  # ranks that are shared are no names
        return
    nominal = alpha_estimate(rated, "nominal", draws)
    yield Coefficient("Krippendorff's alpha, nominal", scale.name, nominal)
    yield Coefficient("mean of Cohen's kappa", scale.name, mean_cohen_estimate(rated, draws))
    fleiss, raters = fleiss_estimate(rated, draws)
    note = f"over those with {raters} votes" if raters else ""
    yield Coefficient("Fleiss' kappa", scale.name, fleiss, note)
    if scale.labels == WINNERS:
        for reading, words in _READINGS:
            read = replace(rated, values=_read(table.values, reading))
            yield Coefficient(words, scale.name, equal_votes_estimate(read, draws))
    else:
        yield Coefficient("equal votes", scale.name, equal_votes_estimate(rated, draws))


def _read(values: FloatArray, reading: Reading) -> FloatArray:
    """Verdicts on pairs in another reading of ties."""
    words = [VERDICTS[reading][winner] for winner in WINNERS]
    codes = np.array([sorted(set(words)).index(word) for word in words], float)
    read = np.full_like(values, np.nan)
    given = np.isfinite(values)
    read[given] = codes[values[given].astype(int)]
    return read


def _of_annotators(
    ratings: Ratings, votes: Votes, answers: Sequence[Vote], draws: int
) -> Iterator[Coefficient]:
    """Agreement with oneself and with known answers, and the time of an answer."""
    number = {item: place for place, item in enumerate(ratings.items)}

    def share(name: str, results: Iterable[tuple[Vote, bool]], note: str = "") -> Coefficient:
        right, total = np.zeros(len(number)), np.zeros(len(number))
        for vote, good in results:
            right[number[vote.item]] += good
            total[number[vote.item]] += 1
        return Coefficient(name, "votes", ratio_estimate(right, total, draws), note)

    yield share("the same answer again", repeat_results(votes), "items that came twice")
    yield share("attention checks passed", attention_results(ratings, votes), "hidden checks")
    seconds = median_estimate(
        [vote.seconds for vote in answers], [number[vote.item] for vote in answers], draws
    )
    yield Coefficient("median seconds of an answer", "votes", seconds)


def _records(ratings: Ratings, votes: Votes, names: Sequence[str]) -> Iterator[AnnotatorRecord]:
    for name in names:
        own = _answers_of(name, votes.answers())
        skipped = [
            vote
            for vote in votes.counted.values()
            if vote.annotator == name and vote.kind == "item" and vote.skip
        ]
        attention = [
            good for vote, good in attention_results(ratings, votes) if vote.annotator == name
        ]
        repeats = [good for vote, good in repeat_results(votes) if vote.annotator == name]
        yield AnnotatorRecord(
            name=name,
            votes=len(own),
            skipped=len(skipped),
            seconds=median(vote.seconds for vote in own) if own else None,
            attention=(sum(attention), len(attention)),
            repeats=(sum(repeats), len(repeats)),
        )


_DECISIVE = ("suite", "samples", "chain", "describe prompt", "generate prompt", "descriptions")
"""Fields of an identity that decide the artifacts of chains, beside the models."""

_Outputs = dict[str, list[tuple[RatedRun, Chain]]]


def chain_grades(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], store: Store, draw: Draw
) -> RatedItems:
    """Items of the kind `grades`: for each start of the suite, what all runs made of a sample.

    Captions of an image are graded as understanding, images of a text as generation (SDP, 3.3). The
    draw is of samples, so that both sections of a sample are there.
    Only what the models under test have made is graded.
    run: of the suite; its own models are neither loaded nor asked. cases: of the suite.
    Raises DatasetError where the suite is not as it was measured, where fewer than two runs are
    given and where nothing is left to rate; what reading chains raises.
    """
    require_runs(runs, 2)
    made = RatedItems("grades", run.suite.name)
    starts = [start for start in run.suite.plans if _made_by_all(runs, start)]
    if not starts:
        raise DatasetError(
            f"the runs test {' and '.join(sorted({rated.tested for rated in runs}))}: outputs of "
            "describers, or of generators, are graded beside one another"
        )
    by_start = {start: _first_hops(run, cases, runs, start) for start in starts}
    able = {
        name
        for outputs in by_start.values()
        for name, own in outputs.items()
        if len(_different(own)) > 1
    }
    every = {name for outputs in by_start.values() for name in outputs}
    left_out = {"have fewer than two different outputs": len(every) - len(able)}
    chosen = made.choose(draw, able, left_out)
    for name in chosen:
        for outputs in by_start.values():
            own = outputs.get(name, [])
            if len(_different(own)) > 1:
                _add(made, name, own, store)
    return made


def caption_pairs(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], store: Store, draw: Draw
) -> RatedItems:
    """Items of the kind `caption`: an image with the captions of two runs.

    Of more than two runs each image gets two, by digest. Equal captions are comparable without a
    vote and left out. Source: MMGenBench, C.4. Raises as `chain_grades`.
    """
    require_runs(runs, 2)
    if "image" not in run.suite.plans:
        raise DatasetError(
            f"suite {run.suite.name!r} has no chains that begin with an image: none has captions"
        )
    if not _made_by_all(runs, "image"):
        raise DatasetError(
            "captions are compared of runs that test a describer, and one of these tests none"
        )
    outputs = _first_hops(run, cases, runs, "image")
    pairs = {name: _two_of(own, name, draw.seed) for name, own in outputs.items() if len(own) > 1}
    able = [name for name, own in pairs.items() if len(_different(own)) > 1]
    left_out = {
        "lack a caption": len(outputs) - len(pairs),
        "have equal captions": len(pairs) - len(able),
    }
    made = RatedItems("caption", run.suite.name)
    for name in made.choose(draw, able, left_out):
        _add(made, name, pairs[name], store)
    return made


def _made_by_all(runs: Sequence[RatedRun], start: Modality) -> bool:
    """Whether the first hop from a start is by the model under test in every run."""
    maker = "describer" if start == "image" else "generator"
    return all(maker in rated.tested.split("+") for rated in runs)


def _first_hops(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], start: Modality
) -> _Outputs:
    """The chains of all samples that reach generation 1, by sample and run.

    Raises DatasetError where the suite changed, NotInStoreError where a run has no chain at all.
    """
    samples = {sample.id: sample for sample in run.dataset.samples}
    outputs: _Outputs = {}
    for rated in runs:
        _refuse_changes(run, cases, rated)
        ids = [name for name in rated.sample_ids if name in samples]
        chains = stored_chains(run, rated.record.model.get("step", "")).chains(start, ids)
        whole = {name: chain for name, chain in chains.items() if chain.has(1)}
        if not whole:
            raise NotInStoreError(
                f"no {start}-first chain of {rated.name!r} is in the store: use the store of that "
                "run (--store)"
            )
        for name, chain in whole.items():
            outputs.setdefault(name, []).append((rated, chain))
    return outputs


def _refuse_changes(run: ChainRun, cases: Sequence[Case], rated: RatedRun) -> None:
    """Raise DatasetError where the suite asks for something else than the run measured."""
    record = rated.record
    if not record.model.get("step"):
        raise DatasetError(
            f"the run of {rated.name!r} read chains that were made elsewhere: no store has them, "
            "and a run that makes its chains is needed"
        )
    case = next((case for case in cases if str(case.key) == record.case), None)
    ids = set(rated.sample_ids)
    samples = [sample for sample in run.dataset.samples if sample.id in ids]
    if case is None or len(samples) < len(ids):
        raise DatasetError(
            f"suite {run.suite.name!r} has other cases or samples than the run of {rated.name!r}"
        )
    identity = run.identity(case, samples)
    changed = [
        name
        for name, value in identity.items()
        if name in _DECISIVE and record.identity.get(name) != value
    ]
    if changed:
        raise DatasetError(
            f"suite {run.suite.name!r} is not as the run of {rated.name!r} measured it: "
            f"{', '.join(changed)} changed since"
        )


def _two_of(
    own: Sequence[tuple[RatedRun, Chain]], sample: str, seed: int
) -> Sequence[tuple[RatedRun, Chain]]:
    pairs = list(combinations(own, 2))
    return pairs[int(digest_text(f"captions {seed} {sample}")[:12], 16) % len(pairs)]


def _different(own: Sequence[tuple[RatedRun, Chain]]) -> Counter[str]:
    return Counter(chain.links[1].digest for _, chain in own)


def _add(made: RatedItems, name: str, own: Sequence[tuple[RatedRun, Chain]], store: Store) -> None:
    question = list(_part(made, own[0][1], 0, store))
    outputs = [Output(rated, tuple(_part(made, chain, 1, store))) for rated, chain in own]
    made.add(name, question, outputs)


def _part(made: RatedItems, chain: Chain, index: int, store: Store) -> Iterator[Part]:
    link = chain.links[index]
    if link.text is not None:
        yield Part(text=link.text)
    else:
        yield made.take_image(link.digest, link.source, store)
