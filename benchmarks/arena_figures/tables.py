"""The tables of the page of the arena's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.arena_figures.figures import Figure
from benchmarks.arena_figures.power import Needed, SoftNeeded
from benchmarks.arena_figures.rates import RULES
from benchmarks.arena_figures.runs import ArenaRuns
from benchmarks.arena_figures.scores import METHODS, Seen
from benchmarks.arena_figures.soft_worlds import SCORES
from benchmarks.arena_figures.worlds import DESIGNS


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def needed_table(rows: Sequence[Needed]) -> str:
    """A row for each judge, a column for each drop of people's win rate."""
    drops = sorted({row.drop for row in rows})
    by_judge: dict[float, list[Needed]] = {}
    for row in rows:
        by_judge.setdefault(row.accuracy, []).append(row)
    head = ["judge's accuracy", "sees of a drop", *(f"drop of {drop:g}" for drop in drops)]
    return table(
        head,
        [
            [
                f"{accuracy:g}",
                f"{own[0].sees:.2f}",
                *(f"{row.samples:,}" for row in sorted(own, key=lambda row: row.drop)),
            ]
            for accuracy, own in by_judge.items()
        ],
    )


def rates_by_design(figures: Sequence[Figure]) -> str:
    """A row for each design and rule."""
    return _rates(figures, [(f"{design}", f"{design},") for design in DESIGNS], "orders")


def rates_by_judge(figures: Sequence[Figure]) -> str:
    """A row for each accuracy and rule."""
    names = dict.fromkeys(figure.world.split(", order effect")[0] for figure in figures)
    accuracies = dict.fromkeys(name.partition(", ")[2] for name in names)
    return _rates(figures, [(name.split()[-1], f"{name},") for name in accuracies], "accuracy")


def rates_by_score(figures: Sequence[Figure]) -> str:
    """A row for each design, kind of score and rule."""
    kinds = [(design, score) for design in DESIGNS for score in SCORES]
    groups = [(f"{design}, {score}", f"{design}, {score} scores,") for design, score in kinds]
    return _rates(figures, groups, "orders, scores")


def soft_table(rows: Sequence[SoftNeeded]) -> str:
    """A row for each judge; what is shown and needed is that of both orders."""
    by_judge: dict[tuple[float, float, float], dict[str, SoftNeeded]] = {}
    for row in rows:
        judge = row.accuracy, row.order_effect, row.confidence
        by_judge.setdefault(judge, {})[row.design] = row
    head = ["accuracy", "order effect", "confidence", "verdicts see", "soft scores see"]
    ratios = [f"ratio, {design}" for design in DESIGNS]
    return table(
        [*head, "samples, verdicts", "samples, soft", *ratios, "calls, adaptive"],
        [
            [
                *(f"{value:g}" for value in judge),
                f"{own['both'].verdict_sees:.2f}",
                f"{own['both'].soft_sees:.2f}",
                f"{own['both'].verdict_samples:,}",
                f"{own['both'].soft_samples:,}",
                *(f"{own[design].ratio:.2f}" for design in DESIGNS),
                f"{own['adaptive'].calls:.2f}",
            ]
            for judge, own in by_judge.items()
        ],
    )


def _rates(figures: Sequence[Figure], groups: Sequence[tuple[str, str]], head: str) -> str:
    rows = []
    for name, part in groups:
        for rule in RULES:
            own = [f for f in figures if f.rule == rule and part in f.world]
            if own:
                rows.append([name, rule, *_cells(own)])
    heads = ["false failures", "worst", "false passes", "worst", "held if equal"]
    samples = ["samples if equal", "samples at the tolerance"]
    return table([head, "rule", *heads, *samples], rows)


def _cells(own: Sequence[Figure]) -> list[str]:
    def values(what: str, holds: Callable[[Figure], bool]) -> list[float]:
        return [figure.value for figure in own if figure.what == what and holds(figure)]

    def equal(figure: Figure) -> bool:
        return figure.drift == 0

    def dropped(figure: Figure) -> bool:
        return figure.drift > 0

    failures, passes = values("regressed", equal), values("held", dropped)
    return [
        _percent(_mean(failures)),
        _percent(max(failures)),
        _percent(_mean(passes)),
        _percent(max(passes)),
        _percent(_mean(values("held", equal))),
        f"{_mean(values('samples', equal)):.0f}",
        f"{_mean(values('samples', dropped)):.0f}",
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def runs_table(runs: Sequence[ArenaRuns]) -> str:
    """A row for each number of questions."""
    first = runs[0]
    rows = [
        [
            f"{run.questions:,}",
            f"{run.cold.cpu:.1f} s ({run.cold.wall:.1f} s)",
            f"{run.warm.cpu:.1f} s ({run.warm.wall:.1f} s)",
            f"{run.cold.cpu / run.warm.cpu:.1f}",
            f"{run.cold_inputs:,}",
            f"{run.warm_inputs}",
            f"{run.cold.peak:.0f} MB",
            f"{run.warm.peak:.0f} MB",
            f"{run.cold.peak - first.cold.peak:+.0f} MB",
        ]
        for run in runs
    ]
    head = ["questions", "cold, CPU (wall)", "warm, CPU (wall)", "cold / warm", "model inputs cold"]
    return table([*head, "warm", "peak cold", "peak warm", "against the first"], rows)


def seen_table(rows: Sequence[Seen]) -> str:
    """A row for each fault and noise; in each method a share for each number of calls."""
    calls = sorted({row.calls for row in rows})
    cells = {(row.fault, row.noise, row.method, row.calls): row for row in rows}
    head = ["fault", "truth lost", "judge's noise", *METHODS]
    lines = []
    for fault, noise in dict.fromkeys((row.fault, row.noise) for row in rows):
        lost = cells[fault, noise, METHODS[0], calls[0]].lost
        shares = [
            " / ".join(f"{100 * cells[fault, noise, method, count].share:.0f}" for count in calls)
            for method in METHODS
        ]
        lines.append([fault, f"{lost:.3f}", f"{noise:g}", *(f"{share} %" for share in shares)])
    return table(head, lines)


def leaderboard_line(seconds: float) -> str:
    """A sentence."""
    return f"A leaderboard of 14 models and 5,002 battles takes {seconds:.2f} CPU seconds."


def fill_page(page: Path, tables: dict[str, str]) -> None:
    """Put tables between their marks in a page. Raises ValueError where it lacks one."""
    text = page.read_text(encoding="utf-8")
    for name, content in tables.items():
        begin, end = f"<!-- figures: {name} -->\n", "<!-- end -->"
        before, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"{page} has no marks for {name!r}")
        after = rest.partition(end)[2]
        text = f"{before}{begin}\n{content}\n{end}{after}"
    page.write_text(text, encoding="utf-8")
