"""A comparison of runs as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.report.comparison_plot import draw_differences
from pytest_cepbench.report.leaderboard_plots import draw_case_leaderboards
from pytest_cepbench.report.number_format import between, counted, number
from pytest_cepbench.report.templates import render
from pytest_cepbench.studies.comparison import ComparedCase, Comparison
from pytest_cepbench.studies.leaderboard import CaseLeaderboard

_MOST_SAMPLES = 10

_UNIT = 0.01  # in place of a tolerance of 0, to order cases of different metrics by


@dataclass(frozen=True)
class ComparisonShown:
    """A comparison on the page.

    headline: its result in a sentence.
    plot: the differences as SVG.
    """

    comparison: Comparison
    headline: str
    plot: Markup


def headline(comparison: Comparison) -> str:
    """The result in a sentence, of the cases that could have failed a run."""
    first, second = comparison.first.name, comparison.second.name
    gating = [case for case in comparison.cases if case.second.primary]
    paired = [case for case in gating if case.judgement is not None]
    if not paired:
        return f"nothing was compared: no gating case of {first} and {second} is paired"
    regressed = comparison.of_verdict(Verdict.REGRESSED)
    undecided = comparison.of_verdict(Verdict.INCONCLUSIVE)
    improved = comparison.of_verdict(Verdict.IMPROVED)
    parts = []
    if regressed:
        parts.append(f"regressed in {len(regressed)} of {counted(len(gating), 'gating case')}")
        parts.append(f"worst {_named(min(regressed, key=_in_tolerances))}")
    else:
        parts.append(f"regressed in none of {counted(len(gating), 'gating case')}")
    if undecided:
        parts.append(f"{len(undecided)} undecided")
    if improved:
        parts.append(f"{len(improved)} improved")
    if len(paired) < len(gating):
        parts.append(f"{len(gating) - len(paired)} not compared")
    missing = [case for case in comparison.only_first if comparison.first.cases[case].primary]
    if missing:
        parts.append(f"{len(missing)} more not measured by {second}")
    return f"{second} against {first}: {', '.join(parts)}"


def comparison_page(
    comparisons: Sequence[Comparison], boards: Sequence[CaseLeaderboard], folder: Path
) -> str:
    """The page. Everything that models, files or users named is escaped, and `visible`.

    comparisons: of runs with the same first one, at least one.
    boards: leaderboards of all of them; none for two runs.
    folder: in which the page will lie, for the addresses of reports.
    """
    shown = [
        ComparisonShown(
            comparison,
            headline(comparison),
            Markup(  # noqa: S704 - its texts are escaped
                draw_differences(comparison.cases, headline(comparison))
            ),
        )
        for comparison in comparisons
    ]
    drawing = draw_case_leaderboards("the runs that were compared", boards) if boards else ""
    return render(
        "comparison.html.jinja",
        shown=shown,
        runs=[comparisons[0].first, *(comparison.second for comparison in comparisons)],
        leaderboard=Markup(drawing),  # noqa: S704 - its texts are escaped
        address=lambda report: _address(report, folder),
        worst=_worst,
        number=number,
        between=between,
    )


def _address(report: str, folder: Path) -> str:
    """The address of a report from the page: of its own page, else of its JSON."""
    path = Path(report).absolute()
    page = path.with_suffix(".html")
    return quote(os.fsencode(os.path.relpath(page if page.is_file() else path, folder)))


def _worst(case: ComparedCase) -> list[tuple[str, str, str, str]]:
    """The samples that lost most: id, both scores, and the change."""
    return [
        (
            loser.sample,
            number(loser.baseline),
            number(loser.candidate),
            number(loser.difference, signed=True),
        )
        for loser in case.losers[:_MOST_SAMPLES]
    ]


def _in_tolerances(case: ComparedCase) -> float:
    difference = None if case.judgement is None else case.judgement.difference
    return (difference or 0.0) / (case.second.tolerance or _UNIT)


def _named(case: ComparedCase) -> str:
    judgement = case.judgement
    if judgement is None:
        return case.second.case
    change = number(judgement.difference, signed=True)
    return f"{case.second.case} {change} {between(judgement.low, judgement.high)}"
