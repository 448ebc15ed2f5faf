"""`cepbench agree people`: how far the annotators of a ratings folder agree."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.cli.output import Section, Table, short, write_and_show
from pytest_cepbench.cli.session import read_count
from pytest_cepbench.metrics.judge_agreement import Agreement, Share
from pytest_cepbench.metrics.uncertainty import Estimate
from pytest_cepbench.ratings.assignment import Order
from pytest_cepbench.ratings.folder import Ratings, Votes, read_ratings, read_votes
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.studies.rating_agreement import (
    AnnotatorRecord,
    RatingAgreement,
    measure_agreement,
)


def agree_people(arguments: Namespace) -> int:
    """Measure, print and write a page; exit codes as in `main`."""
    draws = read_count("--draws", arguments.draws) or 0
    ratings = read_ratings(arguments.ratings)
    votes = read_votes(ratings)
    agreed = measure_agreement(ratings, votes, draws)
    command = arguments.command_line
    name = f"agreement-{ratings.path.resolve().name}"[:120]
    page = list(_people_page(agreed, command, draws, _work_left(ratings, votes)))
    return write_and_show({"agreement": agreed}, page, command, arguments.out, name, "agreement")


def _work_left(ratings: Ratings, votes: Votes) -> list[str]:
    """A line on how long the rest of the study takes, at the pace so far; none where it is done."""
    study = ratings.study
    order = Order(study, list(ratings.items.values()))
    given = Counter(vote.item for vote in votes.counted.values() if vote.kind == "item")
    left = sum(
        max(order.judges(digest) - given[digest], 0)
        for digest, item in ratings.items.items()
        if item.kind == "item"
    )
    if not left:
        return []
    seconds = median(vote.seconds for vote in votes.answers())
    people = len(study.annotators)
    minutes = left * (1 + study.attention + study.repeats) * seconds / people / 60
    line = (
        f"{counted(left, 'answer')} to come: about {minutes:.0f} minutes for each of "
        f"{counted(people, 'annotator')}, at {seconds:.1f} seconds an answer"
    )
    return [line]


def _people_page(
    agreed: RatingAgreement, command: str, draws: int, work_left: Sequence[str]
) -> Iterator[Section]:
    of = f" of {agreed.suite}" if agreed.suite else ""
    title = (
        f"agreement in {agreed.ratings}{of}: {len(agreed.annotators)} annotators, "
        f"{agreed.judged:,} of {agreed.items:,} items judged, {agreed.shared:,} by several"
    )
    lines = [
        f"command: {command}",
        f"intervals: 95 %, {draws} draws of whole items; kind: {agreed.kind}",
        *work_left,
        *agreed.remarks,
    ]
    if not agreed.shared:
        lines.append("no item was judged by several annotators: only repeats and checks tell")
    rows = tuple(
        (
            each.name,
            each.scale,
            estimate_text(each.estimate),
            interval_text(each.estimate),
            str(each.estimate.items),
            each.note,
        )
        for each in agreed.coefficients
    )
    table = Table(("coefficient", "of", "value", "95 % interval", "items", "note"), rows)
    yield Section(title, (*lines, table))
    yield Section("annotators", (_annotators(agreed.annotators),))


def _annotators(annotators: tuple[AnnotatorRecord, ...]) -> Table:
    head = ("annotator", "votes", "skipped", "seconds", "checks", "again")
    return Table(
        head,
        tuple(
            (
                short(each.name),
                str(each.votes),
                str(each.skipped),
                "-" if each.seconds is None else f"{each.seconds:.1f}",
                _of(each.attention),
                _of(each.repeats),
            )
            for each in annotators
        ),
    )


def estimate_text(estimate: Estimate) -> str:
    """A number with three decimals, or a dash."""
    return "-" if estimate.value is None else f"{estimate.value:.3f}"


def interval_text(estimate: Estimate) -> str:
    """Its interval, or a dash."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"[{estimate.low:.3f}, {estimate.high:.3f}]"


def _of(counted: tuple[int, int]) -> str:
    right, total = counted
    return f"{right}/{total}" if total else "-"


_READINGS = {
    "fdt": "ties forced",
    "three_way": "ties one verdict",
    "decided": "both decided",
}


def agreement_table(agreements: Iterable[Agreement]) -> Table:
    """A row for each reading of ties, in percent."""
    head = ("ties", "all", "seen", "unseen", "harmonic mean", "kappa", "chance")
    rows = tuple(
        (
            _READINGS[agreed.reading],
            share(agreed.overall),
            share(agreed.seen),
            share(agreed.unseen),
            percent(agreed.harmonic_mean),
            number(agreed.kappa),
            percent(agreed.chance),
        )
        for agreed in agreements
    )
    return Table(head, rows)


def confusion_table(rows: str, columns: str, confusion: Sequence[Sequence[int]]) -> Table:
    """How often each verdict of one judge met each of another."""
    return Table(
        (f"{rows} \\ {columns}", *WINNERS),
        tuple((winner, *map(str, row)) for winner, row in zip(WINNERS, confusion, strict=True)),
    )


def percent(value: float | None) -> str:
    """A share of one in percent, with two decimals."""
    return "-" if value is None else f"{100 * value:.2f}"


def share(counted: Share) -> str:
    """A share in percent with its interval."""
    if counted.value is None:
        return "-"
    return f"{100 * counted.value:.2f} [{100 * counted.low:.1f}, {100 * counted.high:.1f}]"


def number(value: float | None) -> str:
    """A coefficient with three decimals."""
    return "-" if value is None else f"{value:.3f}"
