"""`cepbench study`: run a study, and show for every case its values, spreads and correlations."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from pytest_cepbench.cli.output import NOT_DONE, Section, Table, tell, write_and_show
from pytest_cepbench.cli.session import measuring, read_question, spent_line
from pytest_cepbench.metrics.correlation import Correlation
from pytest_cepbench.report.number_format import number
from pytest_cepbench.studies import (
    Column,
    Grid,
    Study,
    StudyCell,
    VariantAgreement,
    Weighting,
    prepare_study,
    run_study,
)

_LONGEST_HEAD = 14
"""Variants with longer names stand in tables as #1, #2, ..., explained above."""


def run(arguments: Namespace) -> int:
    """Run a study; exit codes as in `main`."""
    question = read_question(arguments)
    with measuring(arguments.store, question.suite) as (pool, begin):
        prepared = prepare_study(question, pool)
        begin()
        study = run_study(prepared, pool, tell)
    write_and_show(arguments, study, study_page(study), f"{study.study}-{study.suite}")
    return NOT_DONE if study.errors else 0


def study_page(study: Study) -> list[Section]:
    """The sections of a study."""
    heads = _heads(study.variants)
    sections = [_opening(study, heads)]
    if study.words:
        sections.append(_words(study, heads))
    if study.weightings:
        sections += [_weighting(weighting) for weighting in study.weightings]
    else:
        sections += [_grid(study, grid, heads) for grid in study.grids]
    if study.errors:
        lines = [f"{model}, {variant}: {why}" for model, variant, why in study.errors]
        sections.append(Section("could not be measured", tuple(lines)))
    return sections


def _heads(variants: Sequence[Column]) -> dict[str, str]:
    names = [variant.name for variant in variants]
    if max(map(len, names)) <= _LONGEST_HEAD:
        return {name: name for name in names}
    return {name: f"#{i}" for i, name in enumerate(names, 1)}


def _opening(study: Study, heads: dict[str, str]) -> Section:
    lines = [
        f"suite {study.suite}, version {study.version}, {study.samples} samples",
        f"under test: {study.under_test}",
        *(
            f"  {model.spec}" if model.name == model.spec else f"  {model.name} = {model.spec}"
            for model in study.models
        ),
        *_varied(study, heads),
        "models:",
        *(f"  {entry.seat} {entry.spec} ({entry.identity})" for entry in study.players),
        *(f"note: {note}" for note in study.notes),
        *(f"store: {note}: computed again" for note in study.damage),
        spent_line(study.effort),
    ]
    return Section(f"study of {study.study} on {study.suite}", tuple(lines))


def _varied(study: Study, heads: dict[str, str]) -> Iterator[str]:
    if study.study in ("generators", "encoders"):
        yield f"{study.study}:"
        yield from (f"  {heads[variant.name]} = {_whole(variant)}" for variant in study.variants)
    elif len(study.variants) > 1:
        yield f"{study.study}: {', '.join(heads.values())}"


def _whole(column: Column) -> str:
    """Meaning of a column's head: its name as well, where the head is a number."""
    return (
        column.setting if len(column.name) <= _LONGEST_HEAD else f"{column.name}: {column.setting}"
    )


def _words(study: Study, heads: dict[str, str]) -> Section:
    rows = []
    for row in study.words:
        statistics = row.statistics
        share = "-" if statistics.within is None else f"{statistics.within:.0%}"
        numbers = [number(x, decimals=2) for x in (statistics.mean, statistics.std)]
        rows.append((row.model, heads[row.variant], str(statistics.n), *numbers, share))
    head = ("model", "asked for", "texts", "words", "std", "inside")
    return Section("words of the first descriptions", (Table(head, tuple(rows)),))


def _grid(study: Study, grid: Grid, heads: dict[str, str]) -> Section:
    models = [model.name for model in study.models]
    rows = {m: [grid.cell(m, variant.name) for variant in study.variants] for m in models}
    blocks: list[str | Table] = [
        Table(
            ("model", *heads.values()),
            tuple(
                (m, *("error" if c.error else number(c.value) for c in row))
                for m, row in rows.items()
            ),
        )
    ]
    if len(models) > 1:
        blocks.append(_ranks(study, grid, heads))
    blocks += _failed(rows, heads)
    if any(spread.spread is not None for spread in grid.spreads):
        blocks.append(_spreads(study, grid))
    if grid.agreements:
        blocks.append(_agreements(grid.agreements, heads, pairs=study.study != "seeds"))
        if any(spread.mean is None for spread in grid.agreements):
            blocks.append("no coefficient with a column in which all models score the same")
    blocks += [grid.undefined] if grid.undefined else []
    blocks += dict.fromkeys(f"note: {note}" for cell in grid.cells for note in cell.notes)
    return Section(_title(grid), tuple(blocks))


def _ranks(study: Study, grid: Grid, heads: dict[str, str]) -> Table:
    """The rank of each model under each variant, 1 for the best."""
    ranks = [grid.ranks(variant.name) for variant in study.variants]
    rows = (
        (model.name, *(str(own.get(model.name, "-")) for own in ranks)) for model in study.models
    )
    return Table(("rank", *heads.values()), tuple(rows))


def _title(grid: Grid) -> str:
    better = "higher" if grid.higher_is_better else "lower"
    sizes = sorted({cell.n for cell in grid.cells if cell.error is None})
    n = "" if not sizes else f", n = {sizes[0]}"
    n += f" to {sizes[-1]}" if len(sizes) > 1 else ""
    return f"{grid.part} {grid.label} ({better} is better{n})"


def _failed(rows: dict[str, list[StudyCell]], heads: dict[str, str]) -> Iterator[str | Table]:
    """Table of chains that stopped, where any did."""
    if any(cell.failures for row in rows.values() for cell in row):
        counted = tuple((m, *(_count(cell) for cell in row)) for m, row in rows.items())
        yield Table(("chains that stopped", *heads.values()), counted)


def _count(cell: StudyCell) -> str:
    return "-" if cell.error else str(sum(cell.failures.values()))


def _spreads(study: Study, grid: Grid) -> Table:
    intervals = study.study == "seeds"
    rows: list[tuple[str, ...]] = []
    for row in grid.spreads:
        spread = row.spread
        figures = (spread.mean, spread.std, spread.low, spread.high, spread.range) if spread else ()
        ends = (row.low, row.high) if intervals else ()
        rows.append((row.model, *map(number, figures or [None] * 5), *map(number, ends)))
    means = ("mean of models", "", number(grid.mean_std), "", "", number(grid.mean_range))
    rows.append((*means, *(("", "") if intervals else ())))
    level = f"{study.confidence:.0%}"
    bounds = (f"{level} from", "to") if intervals else ()
    return Table(("model", "mean", "std", "min", "max", "range", *bounds), tuple(rows))


def _agreements(
    agreements: Sequence[VariantAgreement], heads: dict[str, str], *, pairs: bool
) -> Table:
    """One row per pair of variants with every coefficient, and their means."""
    names = agreements[0].variants
    rows = []
    if pairs:
        for i in range(len(names)):
            for j in range(i):
                cells = [_correlation(agreement.matrix[i][j]) for agreement in agreements]
                rows.append((f"{heads[names[j]]} and {heads[names[i]]}", *cells))
    rows.append(("mean of pairs", *(number(agreement.mean) for agreement in agreements)))
    return Table(
        ("correlation over models", *(agreement.method for agreement in agreements)), tuple(rows)
    )


def _correlation(correlation: Correlation | None) -> str:
    """The coefficient with its interval, where it has one."""
    if correlation is None:
        return "-"
    if correlation.low is None or correlation.high is None:
        return number(correlation.value)
    return f"{correlation.value:.4f} [{correlation.low:.2f}, {correlation.high:.2f}]"


def _weighting(weighting: Weighting) -> Section:
    rows = tuple(
        (row.model, "error", "error", "-", "-", "-")
        if row.error
        else (
            row.model,
            number(row.weighted),
            number(row.last),
            str(row.chains),
            _correlation(row.pearson),
            _correlation(row.spearman),
        )
        for row in weighting.rows
    )
    blocks: list[str | Table] = [
        Table(("model", weighting.weighted, weighting.last, "chains", "pearson", "spearman"), rows)
    ]
    if weighting.models:
        over = tuple((c.method, str(c.n), _correlation(c)) for c in weighting.models)
        blocks.append(Table(("correlation over models", "models", "coefficient"), over))
    blocks += [weighting.undefined] if weighting.undefined else []
    return Section(
        f"{weighting.part} {weighting.weighted} against {weighting.last} ({weighting.metric})",
        tuple(blocks),
    )
