"""Runs that have not ended, as a part of the site's first page and as a page each.

A small script fetches the part again; without it the browser loads the page again. A page says in
words that there is no verdict yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from markupsafe import Markup

from pytest_cepbench.report.history.plot import kind_of, when
from pytest_cepbench.report.history.running import ListedRun, RunningRun, RunningWork, RunState
from pytest_cepbench.report.number_format import counted, duration, number, rate
from pytest_cepbench.report.templates import render

SCRIPT = "running.js"

_RELOAD_SECONDS = 5  # without the script


def running_part(
    entries: Sequence[ListedRun], state: str, source: str, *, whole: bool = False
) -> Markup:
    """The part of a page about runs that have not ended. Texts are escaped, and `visible`.

    state: changes when the page around the part has to be loaded again.
    source: address of this part, relative to the page.
    whole: with the cases that are judged, on the page of one run.
    """
    part = render(
        "running_part.html.jinja",
        entries=entries,
        state=state,
        source=source,
        whole=whole,
        address=lambda run: f"runs/{run.run}.html",
        number=number,
        when=when,
        kind_of=kind_of,
        progress_of=_progress,
        pace_of=_pace,
        sign_of_life=_sign_of_life,
    )
    return Markup(part)  # noqa: S704 - the template escapes its texts


def running_head(root: str) -> Markup:
    """What the head of a page needs that has such a part. root: of the site, from the page."""
    return Markup(
        '<noscript><meta http-equiv="refresh" content="{}"></noscript>\n'
        '<script src="{}{}" defer></script>'
    ).format(_RELOAD_SECONDS, root, SCRIPT)


def running_page(part: Markup, root: str, *, several: bool) -> str:
    """A page of nothing else. root: of the site, from the page. several: whether of many runs."""
    return render("running.html.jinja", part=part, head=running_head(root), several=several)


@cache
def running_script() -> str:
    """The script."""
    folder = resources.files("pytest_cepbench.report").joinpath("templates")
    return folder.joinpath(SCRIPT).read_text(encoding="utf-8")


def _progress(run: RunningRun) -> str:
    """How far the run is, without a word that a verdict has."""
    parts = [f"No verdict yet: {run.judged} of {counted(run.expected, 'case')} judged"]
    if run.counts:
        parts.append(", ".join(f"{count} {verdict}" for verdict, count in run.counts.items()))
    if run.skipped:
        parts.append(f"{run.skipped} skipped")
    return "; ".join(parts) + "."


def _pace(work: RunningWork) -> str:
    words = [work.step]
    if work.rate is not None and work.rate > 0:
        words.append(rate(work.rate))
    if work.left is not None:
        words.append(f"{duration(work.left)} left of this case")
    return ", ".join(filter(None, words))


def _sign_of_life(entry: ListedRun) -> str:
    """What is known of the process of a run that does not write any more."""
    if entry.state == RunState.RUNNING:
        return ""
    sign = f"The last sign of life of its process {entry.run.process} was at "
    sign += f"{when(entry.run.written)} UTC"
    if entry.state == RunState.SILENT:
        return f"{sign}; the process is still there."
    return f"{sign}. Run it again: what was computed is in the store."
