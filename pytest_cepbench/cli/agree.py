"""`cepbench agree models` and `people`: how people, and metrics with people, agree."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.cli.judges import number, run_judges
from pytest_cepbench.cli.output import Section, Table, coefficient, percent, short, write_and_show
from pytest_cepbench.errors import SpecError
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.gate import Measurement
from pytest_cepbench.gate.baseline import record_of
from pytest_cepbench.metrics.human_ratings import GRADES
from pytest_cepbench.metrics.uncertainty import DRAWS, FEWEST_ITEMS, Estimate
from pytest_cepbench.option_values import split_name
from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.studies.rating_agreement import (
    METHODS,
    MetricAlignment,
    RatingAgreement,
    RatingAlignment,
    measure_agreement,
    measure_alignment,
)

__all__ = ["run_judges", "run_models", "run_people"]


def run_people(arguments: Namespace) -> int:
    """Measure, print and write a page; exit codes as in `main`."""
    ratings = read_ratings(arguments.ratings)
    votes = read_votes(ratings)
    agreed = measure_agreement(ratings, votes)
    draws = f"{DRAWS} draws of whole items, of {FEWEST_ITEMS} or more"
    lines = [f"intervals: 95 %, {draws}; kind: {agreed.kind}"]
    lines += agreed.remarks
    if not agreed.shared:
        lines.append("no item was judged by several annotators: only repeats and checks tell")
    name = f"agreement-{ratings.path.resolve().name}"
    write_and_show(arguments, {"agreement": agreed}, _people_page(agreed, lines), name)
    return 0


def _people_page(agreed: RatingAgreement, lines: Sequence[str]) -> Iterator[Section]:
    of = f" of {agreed.suite}" if agreed.suite else ""
    title = (
        f"agreement in {agreed.ratings}{of}: {len(agreed.annotators)} annotators, "
        f"{agreed.judged:,} of {agreed.items:,} items judged, {agreed.shared:,} by several"
    )
    rows = tuple(
        (
            each.name,
            each.scale,
            number(each.estimate.value),
            interval_text(each.estimate),
            str(each.estimate.items),
            each.note,
        )
        for each in agreed.coefficients
    )
    table = Table(("coefficient", "of", "value", "95 % interval", "items", "note"), rows)
    yield Section(title, (*lines, table))

    def of_total(counted: tuple[int, int]) -> str:
        right, total = counted
        return f"{right}/{total}" if total else "-"

    rows = tuple(
        (
            short(each.name),
            str(each.votes),
            str(each.skipped),
            "-" if each.seconds is None else f"{each.seconds:.1f}",
            of_total(each.attention),
            of_total(each.repeats),
        )
        for each in agreed.annotators
    )
    head = ("annotator", "votes", "skipped", "seconds", "checks", "again")
    yield Section("annotators", (Table(head, rows),))


def interval_text(estimate: Estimate) -> str:
    """Its interval, or a dash."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"[{estimate.low:.3f}, {estimate.high:.3f}]"


# -- models ----------------------------------------------------------------------------------------

_WON = (
    "score: share of the votes that a model won, a tie being one half; of two models the better "
    "one is known where the interval leaves out .5"
)

_SCORE = {
    "pair": _WON,
    "caption": _WON,
    "grades": "score: mean of the grades, Poor 0, Medium .5, Good 1",
}

_SAMPLES = (
    "within items: Spearman's correlation of the metric's and people's differences between the "
    "outputs of an item; preferred: how often the metric prefers what people prefer"
)

_MODELS = "correlation of the models' means, with Fisher's 95 % intervals: wide over few models"

_MARGIN = "a difference of at most .01 counts as comparable (MMGenBench, C.4)"


def run_models(arguments: Namespace) -> int:
    """Measure, print and write a page; exit codes as in `main`."""
    ratings = read_ratings(arguments.ratings)
    runs: dict[str, list[Measurement]] = {}  # name -> what the run measured
    for text in arguments.report:
        given, path = split_name(text)
        report = read_report(Path(path))
        measured = [record_of(c.measurement) for c in report.cases if c.measurement is not None]
        if not measured:
            raise SpecError(
                f"{path} has no measurement: the report of a run that measured is needed"
            )
        name = given or measured[0].model.get("spec", path)
        if name in runs:
            raise SpecError(f"two runs are of {name!r}: name them, --report NAME={path}")
        runs[name] = measured
    aligned = measure_alignment(ratings, read_votes(ratings), runs)
    name = f"alignment-{ratings.path.resolve().name}"
    write_and_show(arguments, {"alignment": aligned}, _models_page(aligned), name)
    return 0


def _models_page(aligned: RatingAlignment) -> Iterator[Section]:
    of = f" of {aligned.suite}" if aligned.suite else ""
    lines = [_SCORE[aligned.kind], *aligned.remarks]
    lines += [f"nobody rated the model of the run {name}" for name in aligned.unmatched]
    if aligned.constant:
        lines.append(f"the same for all rated outputs: {', '.join(aligned.constant)}")
    head = ("model", "outputs", "votes", "score", "95 % interval", "mean rank", *GRADES)
    rows: list[tuple[str, ...]] = [
        (
            short(own.model),
            own.section,
            str(own.votes),
            f"{own.score:.3f}",
            interval_text(Estimate(own.score, own.low, own.high, own.items)),
            "-" if own.rank is None else f"{own.rank:.2f}",
            *(map(percent, own.grades) if own.grades else "-" * len(GRADES)),
        )
        for own in aligned.people
    ]
    people = Table(head, rows)
    yield Section(f"what people think in {aligned.ratings}{of}", (*lines, people))
    for name, table in aligned.inconsistency.items():
        rows = [(grade, *map(str, row)) for grade, row in zip(GRADES, table.counts, strict=True)]
        whose = "all models" if name == "all" else name
        line = f"{table.total} pairs of grades, {percent(table.inconsistent)} % differ"
        counts = Table(("understanding \\ generation", *GRADES), tuple(rows))
        yield Section(f"grades of {whose} in both sections", (line, counts))
    yield from _metric_pages(aligned.metrics)


def _metric_pages(metrics: Sequence[MetricAlignment]) -> Iterator[Section]:
    """How metrics agree with people: over samples, over models, over captions."""
    over_samples: list[tuple[str, ...]] = []
    over_models: list[tuple[str, ...]] = []
    captions: list[tuple[str, ...]] = []
    for m in metrics:
        place = m.case, m.section
        over_samples.append((*place, str(m.items), *_both(m.samples), *_both(m.direction)))
        if m.models:
            over_models.append((*place, *(coefficient(own, 3) for own in m.models)))
        if (own := m.within_margin) is not None:
            shares = [
                f"{percent(each.share)} ({each.right}/{each.total})"
                for each in (own.votes, own.majorities)
            ]
            captions.append((m.case, str(own.items), *shares, str(own.without_majority)))
    if over_samples:
        head = ("case", "outputs", "items", "within items", "interval", "preferred", "interval")
        yield Section("metrics over samples", (_SAMPLES, Table(head, over_samples)))
    if over_models:
        table = Table(("case", "outputs", *METHODS), over_models)
        yield Section("metrics over models", (_MODELS, table))
    if captions:
        table = Table(("case", "items", "votes", "majorities", "without majority"), captions)
        yield Section("choices between captions", (_MARGIN, table))


def _both(estimate: Estimate | None) -> tuple[str, str]:
    return ("-", "-") if estimate is None else (number(estimate.value), interval_text(estimate))
