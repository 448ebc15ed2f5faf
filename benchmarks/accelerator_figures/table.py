"""The figures of an accelerator as Markdown, for docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.accelerator_figures.setting import Figure


def markdown_table(figures: Sequence[Figure], machine: str) -> str:
    """A table with a row for each figure, under the machine's name."""
    return "\n".join((machine, "", *_rows(figures))) + "\n"


def _rows(figures: Sequence[Figure]) -> Iterator[str]:
    yield "| part | figure | goal | measured | |"
    yield "|---|---|---|---|---|"
    part = ""
    for figure in figures:
        shown = "" if figure.part == part else figure.part
        part = figure.part
        yield f"| {shown} | {figure.name} | {figure.goal} | {_value(figure)} | {figure.note} |"


def _value(figure: Figure) -> str:
    if figure.value is None:
        return "not measured"
    if float(figure.value).is_integer() or abs(figure.value) >= 100:
        number = f"{figure.value:.0f}"
    else:
        number = f"{figure.value:.3g}"
    return f"{number} {figure.unit}".replace(" x", "").strip()
