"""The page of a comparison of several runs, case by case."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_cepbench.gate.compare import Judgement
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.number_format import change_of, counted, number
from pytest_cepbench.report.pages import render
from pytest_cepbench.report.plots import reach_of
from pytest_cepbench.report.view import (
    ForestRow,
    change_of_judgement,
    interval_of,
)
from pytest_cepbench.studies.comparison import ComparedCase, RunComparison

_MOST_SAMPLES = 10

_COLORS = {"held": "green", "improved": "green improved", "regressed": "red regressed"}


def headline(comparison: RunComparison) -> str:
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
        worst = min(regressed, key=change_in_tolerances)
        parts.append(f"regressed in {len(regressed)} of {counted(len(gating), 'gating case')}")
        parts.append(f"worst {worst.second.case} {change_of(_judged(worst))}")
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
    comparisons: Sequence[RunComparison],
    folder: Path,
) -> str:
    """The page. Everything that models, files or users named is escaped, and `visible`.

    comparisons: of runs with the same first one, at least one.
    folder: in which the page will lie, for the addresses of reports.
    """
    shown = [_shown(comparison, place) for place, comparison in enumerate(comparisons)]
    runs = []
    for run in (comparisons[0].first, *(comparison.second for comparison in comparisons)):
        path = Path(run.report).absolute()
        page = path.with_suffix(".html")
        target = os.path.relpath(page if page.is_file() else path, folder)
        runs.append((run, quote(os.fsencode(target))))
    return render(
        "comparison.html.jinja",
        title=f"cepbench: {shown[0]['headline']}",
        shown=shown,
        runs=runs,
        most_samples=_MOST_SAMPLES,
    )


def _shown(comparison: RunComparison, place: int) -> dict[str, Any]:
    """A comparison by the names that `comparison.html` reads.

    forest: the gating cases that were compared, the worst first.
    cases: all of them in the order of the first run: case, address, badge.
    """
    changes = [
        change_of_judgement(_judged(case), case.second.tolerance, _COLORS.get(case.verdict, ""))
        for case in comparison.cases
    ]
    reach = reach_of(change for change in changes if change is not None)
    cases, forest = [], []
    order = {Verdict.REGRESSED: 0, Verdict.INCONCLUSIVE: 1}
    for at, (case, change) in enumerate(zip(comparison.cases, changes, strict=True), 1):
        anchor, judged = f"case-{place + 1}-{at}", _judged(case)
        badge = f"{case.verdict}{'' if case.second.primary else ' informational'}"
        cases.append((case, anchor, badge))
        if case.second.primary and change is not None:
            row = ForestRow(
                case.first.case.replace("/", " "),
                anchor,
                _COLORS.get(case.verdict, ""),
                interval_of(judged, change, reach),
                number(judged.difference, signed=True),
            )
            forest.append((order.get(judged.verdict, 2), change_in_tolerances(case), row))
    forest.sort(key=lambda own: own[:2])
    return {
        "comparison": comparison,
        "headline": headline(comparison),
        "forest": [row for *_, row in forest],
        "cases": cases,
    }


def _judged(case: ComparedCase) -> Judgement:
    return case.judgement or Judgement(Verdict.INCOMPARABLE)


def change_in_tolerances(case: ComparedCase) -> float:
    """The difference of a case in tolerances; 0 where there is none."""
    return in_tolerances(_judged(case).difference, case.second.tolerance)
