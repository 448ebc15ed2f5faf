"""A comparison of runs as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.report.comparison_plot import draw_differences
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.leaderboard_plots import draw_case_leaderboards
from pytest_cepbench.report.number_format import bounds_of, change_of, counted, number, p_value
from pytest_cepbench.report.page_images import ImageSource, PageImages
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.templates import render, source_of
from pytest_cepbench.studies.comparison import CaseLeaderboard, ComparedCase, Comparison

_MOST_SAMPLES = 10


@dataclass(frozen=True)
class ComparisonShown:
    """A comparison on the page.

    headline: its result in a sentence.
    plot: the differences as SVG.
    chains: cases of the second run, whose chains stand beside those of the first.
    """

    comparison: Comparison
    headline: str
    plot: Markup
    chains: Sequence[CaseResult]


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
        parts.append(f"worst {_named(min(regressed, key=change_in_tolerances))}")
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
    comparisons: Sequence[Comparison],
    boards: Sequence[CaseLeaderboard],
    folder: Path,
    chains: Sequence[Sequence[CaseResult]] = (),
    image: ImageSource = lambda _: None,
) -> str:
    """The page. Everything that models, files or users named is escaped, and `visible`.

    comparisons: of runs with the same first one, at least one.
    boards: leaderboards of all of them; none for two runs.
    folder: in which the page will lie, for the addresses of reports.
    chains: of each comparison; none where they are not shown.
    image: gives a stored image by digest, or None when it is gone.
    """
    shown = [
        ComparisonShown(
            comparison,
            headline(comparison),
            Markup(  # noqa: S704 - its texts are escaped
                draw_differences(comparison.cases, headline(comparison))
            ),
            chains[place] if chains else (),
        )
        for place, comparison in enumerate(comparisons)
    ]
    drawing = draw_case_leaderboards("the runs that were compared", boards) if boards else ""
    images, script = PageImages(image), source_of("paired_chains.js")
    return render(
        "comparison.html.jinja",
        images=images,
        pictured=any(_has_links(case) for entry in shown for case in entry.chains),
        chains_style=source_of("paired_chains.css"),
        script=script,
        script_digest=base64.b64encode(sha256(script.encode()).digest()).decode(),
        shown=shown,
        runs=[comparisons[0].first, *(comparison.second for comparison in comparisons)],
        leaderboard=Markup(drawing),  # noqa: S704 - its texts are escaped
        address=lambda report: _address(report, folder),
        worst=_worst,
        number=number,
        bounds_of=bounds_of,
        p_value=p_value,
    )


def _has_links(case: CaseResult) -> bool:
    """Whether any chain of a case is there to be shown."""
    return any(chain.links or chain.baseline_links for chain in case.chains)


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


def change_in_tolerances(case: ComparedCase) -> float:
    """The difference of a case in tolerances; 0 where there is none."""
    difference = None if case.judgement is None else case.judgement.difference
    return in_tolerances(difference, case.second.tolerance)


def _named(case: ComparedCase) -> str:
    judgement = case.judgement
    return case.second.case if judgement is None else f"{case.second.case} {change_of(judgement)}"
