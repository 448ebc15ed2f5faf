"""Chains and samples of a measured case, as reports show them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import isnan

from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.datasets.sample import SeedImage
from pytest_cepbench.errors import CepError, ImageError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.gate import Measurement
from pytest_cepbench.gate.measurement import Scores
from pytest_cepbench.measures import ChainExcerpt
from pytest_cepbench.measures.chain_data import first_difference
from pytest_cepbench.metrics.fact_losses import FactSummary, KindSummary
from pytest_cepbench.report import (
    ChainShown,
    CurveShown,
    FactKindShown,
    FactsShown,
    FactTableShown,
    LinkShown,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.stored_chains import (
    SimilarityCurve,
    StoredChains,
    similarity_curve,
    stored_chains,
)

MOST_SAMPLES = 5
"""Samples that are named of a case that got worse."""

SHOWN_WHOLE = 3
"""The first of them, which are shown with their artifacts."""


@dataclass(frozen=True)
class ScoredSample:
    """A sample of a case with its scores.

    score: of this run.
    baseline: of the baseline, or of the anchor where that is the reference; None where the sample
    was not compared.
    """

    sample: str
    score: float
    baseline: float | None


def scored_sample(evaluated: EvaluatedCase, sample: str) -> ScoredSample | None:
    """A sample with its scores; None where the case has no score of it."""
    reference = evaluated.reference
    if evaluated.measurement.sizes:  # one score of a set
        return None
    score = _score(evaluated.paired_scores, sample)
    compared = reference is not None and sample in evaluated.differences
    before = _score(reference.scores, sample) if compared and reference is not None else None
    return None if score is None else ScoredSample(sample, score, before)


def _score(scores: Scores, sample: str) -> float | None:
    return next((part[sample] for part in scores.values() if sample in part), None)


def keep_image(source: SeedImage, digest: str, store: Store) -> None:
    """Put an image of the data set into the store, where reports find it."""
    if not store.image_path(digest).exists():
        with suppress(ImageError):  # changed since it was measured: the report goes without it
            store.put_image(source.load())


def shown_facts(summary: FactSummary) -> FactsShown:
    """The record of a summary, of built-in types."""
    return FactsShown(
        generations=list(summary.generations),
        precision=summary.precision,
        unanswered=summary.unanswered,
        every=_shown_kind(summary.every),
        kinds=[_shown_kind(kind) for kind in summary.kinds],
    )


def _shown_kind(summary: KindSummary) -> FactKindShown:
    shown = FactKindShown(
        kind=summary.kind,
        facts=summary.facts,
        losses=list(summary.losses),
        tables=[
            FactTableShown(pair.text, pair.picture, **asdict(pair.table)) for pair in summary.tables
        ],
    )
    found = summary.half_life
    if found is None:
        return shown
    return FactKindShown(
        kind=shown.kind,
        facts=shown.facts,
        curve=[None if isnan(share) else share for share in found.curve],
        last=found.last,
        half_life=found.value,
        low=found.low,
        high=found.high,
        losses=shown.losses,
        tables=shown.tables,
    )


@dataclass(frozen=True)
class ShownChains:
    """What a report shows of a case's chains; the fields are those of `CaseResult`."""

    chains: list[ChainShown] = field(default_factory=list)
    median: ChainShown | None = None
    requested: list[ChainShown] = field(default_factory=list)
    reference_chains: str = ""
    curve_now: CurveShown | None = None
    curve_reference: CurveShown | None = None


def shown_chains(
    run: ChainRun, evaluated: EvaluatedCase, store: Store, settings: RunSettings, nodeid: str
) -> ShownChains:
    """The chains of the samples that lost most, of the median one and of those that the engineer
    named, and the mean similarities.

    Images that reports show are put into the store. The chains of the baseline's model come from
    stores alone: where they are not there, the sentence of `reference_chains` says how to get them.

    settings, nodeid: of the run and the test, for the command in that sentence.
    """
    reference = evaluated.reference
    name = evaluated.judgement.reference
    differences = evaluated.differences
    before = _ReferenceChains(evaluated.case)
    missing = ""
    if reference is not None and differences:
        try:
            before = _reference_chains(run, evaluated, reference, differences)
        except CepError as error:  # the verdict stands without them
            missing = f"The {name}'s chains cannot be shown: {error}"
        else:
            if len(before.known) < len(differences):
                missing = _how_to_get(
                    name, run, reference, len(before.known), len(differences), settings, nodeid
                )

    def chain(sample: str, *, whole: bool = True) -> ChainShown | None:
        scored, excerpt = scored_sample(evaluated, sample), run.show(evaluated.case, sample)
        if scored is None or excerpt is None:
            return None
        return _chain(scored, excerpt, before, store, whole=whole)

    losers = list(dict.fromkeys(loser.sample for loser in evaluated.losers))
    shown: list[ChainShown] = []
    for sample in losers[:MOST_SAMPLES]:
        lost = chain(sample, whole=len(shown) < SHOWN_WHOLE)
        if lost is not None:
            shown.append(lost)
    middle = _median(differences)
    median = None if middle is None else chain(middle)
    drawn = {lost.sample for lost in shown if lost.links} | {middle}
    named = [sample for sample in dict.fromkeys(settings.show) if sample not in drawn]
    return ShownChains(
        chains=shown,
        median=median,
        requested=[found for sample in named if (found := chain(sample)) is not None],
        reference_chains=missing,
        curve_now=_curve(run, evaluated),
        curve_reference=_shown(before.curve),
    )


@dataclass(frozen=True)
class _ReferenceChains:
    """The chains of a case by the reference's model.

    stored: reads them; None where the reference does not say which model that was.
    known: ids of the samples whose chains stores have.
    curve: of all samples; None where stores lack one of them.
    """

    case: Case
    stored: StoredChains | None = None
    known: frozenset[str] = frozenset()
    curve: SimilarityCurve | None = None

    def excerpt(self, sample: str, start: Modality) -> ChainExcerpt | None:
        """The chain of a sample; None where stores do not have it."""
        if self.stored is None or sample not in self.known:
            return None
        with suppress(CepError):  # the verdict stands without it
            return self.stored.excerpt(self.case, sample, start)
        return None


def _reference_chains(
    run: ChainRun, evaluated: EvaluatedCase, reference: Measurement, samples: Collection[str]
) -> _ReferenceChains:
    """The chains of the reference's model. Raises as `stored_chains` and `StoredChains.known`."""
    case, step = evaluated.case, reference.model.get("step", "")
    if not step or run.assignments.replay is not None:
        return _ReferenceChains(case)
    stored = stored_chains(run, step)
    known = frozenset(stored.known(case, samples))
    scored = _scored(evaluated)
    curve = None
    if known and known == scored:
        curve = similarity_curve(stored.scored(case, scored).get, _units(run, scored))
    return _ReferenceChains(case, stored, known, curve)


def _median(differences: Mapping[str, float]) -> str | None:
    """The sample in the middle of all by its difference; of two the one that lost more."""
    ordered = sorted(differences, key=lambda sample: (differences[sample], sample))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _chain(
    scored: ScoredSample,
    excerpt: ChainExcerpt,
    reference: _ReferenceChains,
    store: Store,
    *,
    whole: bool,
) -> ChainShown:
    """A sample's chain. whole: whether its artifacts are shown, or only its scores."""
    chain = excerpt.chain
    before = reference.excerpt(scored.sample, chain.links[0].kind) if whole else None
    return ChainShown(
        sample=scored.sample,
        score=scored.score,
        baseline=scored.baseline,
        links=links_shown(chain, excerpt.marks, store) if whole else [],
        failure=failure_shown(excerpt),
        remark=excerpt.remark,
        baseline_links=[] if before is None else links_shown(before.chain, before.marks, store),
        baseline_failure=None if before is None else failure_shown(before),
        first_difference=None if before is None else first_difference_shown(chain, before.chain),
    )


def first_difference_shown(chain: Chain, before: Chain) -> int | None:
    """The first generation whose artifacts differ, as far as stores have the chain before."""
    if before.failure is None and len(before.links) < len(chain.links):
        chain = Chain(chain.sample, chain.links[: len(before.links)])
    return first_difference(chain, before)


def failure_shown(excerpt: ChainExcerpt) -> str | None:
    """What stopped a chain, and where."""
    failure = excerpt.failure or excerpt.chain.failure
    generation = excerpt.chain.failed_at if excerpt.failure is None else excerpt.failed_at
    where = "" if generation is None else f" at generation {generation}"
    return f"{failure.kind}{where}: {failure.detail}" if failure else None


def links_shown(chain: Chain, marks: Mapping[int, float], store: Store) -> list[LinkShown]:
    """The artifacts of a chain; images of the data set are put into the store.

    marks: similarity to the start by generation.
    """
    links = []
    for generation, link in enumerate(chain.links):
        if link.source is not None:
            keep_image(link.source, link.digest, store)
        is_image = link.kind == "image" and link.recorded
        links.append(
            LinkShown(
                text=link.text if link.recorded else f"({link.kind} not recorded)",
                image=link.digest if is_image else None,
                similarity=marks.get(generation),
            )
        )
    return links


# -- mean similarities ---------------------------------------------------------------------------


def _curve(run: ChainRun, evaluated: EvaluatedCase) -> CurveShown | None:
    units = _units(run, _scored(evaluated))
    return _shown(similarity_curve(lambda sample: run.show(evaluated.case, sample), units))


def _scored(evaluated: EvaluatedCase) -> set[str]:
    if evaluated.measurement.sizes:  # one score of a set
        return set()
    return {sample for part in evaluated.measurement.scores.values() for sample in part}


def _units(run: ChainRun, samples: set[str]) -> dict[str, str]:
    return {
        sample.id: sample.unit for sample in run.chain_data.dataset.samples if sample.id in samples
    }


def _shown(curve: SimilarityCurve | None) -> CurveShown | None:
    if curve is None:
        return None
    return CurveShown(
        generations=list(curve.generations),
        mean=_rounded(curve.mean),
        low=_rounded(curve.low),
        high=_rounded(curve.high),
        n=curve.samples,
    )


def _rounded(values: tuple[float, ...]) -> list[float]:
    return [round(value, 6) + 0.0 for value in values]


# -- how to get what is missing ------------------------------------------------------------------


def _how_to_get(
    name: str,
    run: ChainRun,
    reference: Measurement,
    known: int,
    samples: int,
    settings: RunSettings,
    nodeid: str,
) -> str:
    """Why chains of the reference's model are not shown, and the command that makes them."""
    if run.assignments.replay is not None or reference.model.get("role") == "replay":
        return f"The {name}'s chains cannot be shown: chains made elsewhere are not in the store."
    if not reference.model.get("step"):
        return (
            f"The {name}'s chains cannot be shown: its file does not say which steps it was "
            "measured with. A baseline that this version accepts (--snapshot-update) does."
        )
    which = f"{known} of {samples}" if known else "none"
    command = _command(nodeid.partition("::")[0], list(_options(run, reference, settings)))
    return (
        f"The store has {which} of the {name}'s chains. Measure its model with this store, then "
        f"repeat this run, which computes nothing twice:\n{command}\n"
        "Or name a store that has them: --cep-shared=DIR or --cep-shared=URL"
    )


def _command(path: str, options: list[tuple[str, str]]) -> str:
    """The command line, or the call of `gate_checkpoint` where that gated the suite file itself."""
    if not path.endswith(".toml"):
        return shlex.join(["pytest", path, *(f"--cep-{name}={text}" for name, text in options)])
    values: dict[str, list[str]] = {}
    for name, text in options:
        values.setdefault(name, []).append(text)
    arguments = [
        f"{name}={texts[0]!r}" if len(texts) == 1 else f"{name}={texts!r}"
        for name, texts in values.items()
    ]
    return f"gate_checkpoint({', '.join([repr(path), *arguments])})"


def _options(
    run: ChainRun, reference: Measurement, settings: RunSettings
) -> Iterator[tuple[str, str]]:
    """The options by which the reference's model is measured as this run measures its own."""
    spec = reference.model.get("spec", "")
    roles = dict(settings.roles)
    if settings.model is None:
        roles |= dict.fromkeys(run.assignments.gated, spec)
    else:
        yield "model", spec
    if settings.role is not None:
        yield "role", settings.role
    yield from roles.items()
    yield from (("encoder", f"{name}={text}") for name, text in settings.encoders.items())
    yield from (("data", f"{name}={place}") for name, place in settings.data.items())
    if settings.samples is not None:
        yield "samples", str(settings.samples)
    if settings.seeds is not None:
        yield "seeds", str(settings.seeds)
    yield "store", str(settings.store)
