"""`cepbench study`: run a study, and show for every case its values, spreads and correlations."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from itertools import combinations
from operator import itemgetter

from pytest_cepbench.cli.output import (
    NOT_DONE,
    Cell,
    Section,
    Table,
    coefficient,
    tell,
    write_and_show,
)
from pytest_cepbench.cli.session import fixed_roles, measuring, spent_line
from pytest_cepbench.errors import SpecError
from pytest_cepbench.option_values import split_name
from pytest_cepbench.studies.study import (
    FinishedStudy,
    Grid,
    Named,
    StudySpec,
    prepare_study,
    run_study,
)

_SEEDS = 5

_LONGEST_HEAD = 14
"""Variants with longer names stand in tables as #1, #2, ..., explained above."""


def run(arguments: Namespace) -> int:
    """Run a study; exit codes as in `main`."""
    question = _read_question(arguments)
    with measuring(arguments.store, question.suite) as (pool, begin):
        prepared = prepare_study(question, pool)
        begin()
        study = run_study(prepared, pool, tell)
    write_and_show(arguments, study, study_page(study), f"{study.study}-{study.suite}")
    return NOT_DONE if study.errors else 0


def _read_question(arguments: Namespace) -> StudySpec:
    """The question. Raises SpecError and SuiteError naming the option that is wrong."""
    study = arguments.vary
    for option, own in (("seeds", "seeds"), ("encoder-name", "encoders")):
        if getattr(arguments, option.replace("-", "_")) is not None and study != own:
            raise SpecError(f"--{option} is of --vary={own}: drop it")
    if study != "generators" and len(arguments.generator) > 1:
        raise SpecError("--generator is given several times: that is of --vary=generators")

    def named(texts: Sequence[str]) -> tuple[Named, ...]:
        pairs = [split_name(text) for text in texts]
        return tuple(Named(spec if name is None else name, spec) for name, spec in pairs)

    if study == "seeds":
        seeds = map(str, arguments.seeds or range(_SEEDS))
        variants = tuple(Named(seed, seed) for seed in seeds)
    else:
        variants = named(getattr(arguments, study.removesuffix("s")))
    roles, encoders = fixed_roles(arguments, study.removesuffix("s"))
    return StudySpec(
        study=study,
        suite=arguments.suite,
        models=named(arguments.model),
        variants=variants,
        encoder_name=arguments.encoder_name or "encoder",
        role=arguments.role,
        roles=roles,
        encoders=encoders,
        data=dict(arguments.data),
        samples=arguments.samples,
        metrics=arguments.metrics,
        parts=arguments.parts or (),
    )


def study_page(study: FinishedStudy) -> list[Section]:
    """The sections of a study."""
    names = [variant.name for variant in study.variants]
    short = max(map(len, names)) <= _LONGEST_HEAD
    heads = {name: name if short else f"#{i}" for i, name in enumerate(names, 1)}
    sections = [_opening(study, heads), *(_grid(study, grid, heads) for grid in study.grids)]
    if study.errors:
        lines = [f"{model}, {variant}: {why}" for model, variant, why in study.errors]
        sections.append(Section("could not be measured", lines))
    return sections


def _opening(study: FinishedStudy, heads: dict[str, str]) -> Section:
    varied: list[str] = []
    if study.study == "seeds":
        seeds = (seed if seed == head else f"{head} = {seed}" for seed, head in heads.items())
        varied.append(f"seeds: {', '.join(seeds)}")
    else:
        varied.append(f"{study.study}:")
        for variant in study.variants:
            # Where the head is a number the name is said as well.
            named = "" if len(variant.name) <= _LONGEST_HEAD else f"{variant.name}: "
            varied.append(f"  {heads[variant.name]} = {named}{variant.spec}")
    lines = [
        f"suite {study.suite}, version {study.version}, {study.samples} samples",
        f"under test: {study.under_test}",
        *(
            f"  {model.spec}" if model.name == model.spec else f"  {model.name} = {model.spec}"
            for model in study.models
        ),
        *varied,
        "models:",
        *(f"  {entry.seat} {entry.spec} ({entry.identity})" for entry in study.players),
        *(f"note: {note}" for note in study.notes),
        *(f"store: {note}: computed again" for note in study.damage),
        spent_line(study.effort),
    ]
    return Section(f"study of {study.study} on {study.suite}", lines)


def _grid(study: FinishedStudy, grid: Grid, heads: dict[str, str]) -> Section:
    models = [model.name for model in study.models]
    cells = {m: [grid.cell(m, variant.name) for variant in study.variants] for m in models}
    values = [(m, *("error" if c.error else c.value for c in row)) for m, row in cells.items()]
    blocks: list[str | Table] = [Table(("model", *heads.values()), values)]
    if len(models) > 1:  # 1 for the best
        ranks = [grid.ranks(variant.name) for variant in study.variants]
        ranked = [(m, *(own.get(m) for own in ranks)) for m in models]
        blocks.append(Table(("rank", *heads.values()), ranked))
    if any(cell.failures for row in cells.values() for cell in row):
        stopped = [
            (m, *(None if c.error else sum(c.failures.values()) for c in row))
            for m, row in cells.items()
        ]
        blocks.append(Table(("stopped or failed", *heads.values()), stopped))
    if any(spread.spread is not None for spread in grid.spreads):
        blocks.append(_spreads(study, grid))
    if grid.agreements:
        names = grid.agreements[0].variants
        rows: list[tuple[Cell, ...]] = []
        pairs = study.study != "seeds"  # else their mean alone
        order = sorted(combinations(range(len(names)), 2), key=itemgetter(1))
        for first, second in order if pairs else ():
            both = f"{heads[names[first]]} and {heads[names[second]]}"
            rows.append(
                (both, *(coefficient(own.matrix[second][first]) for own in grid.agreements))
            )
        rows.append(("mean of pairs", *(agreement.mean for agreement in grid.agreements)))
        head = ("correlation over models", *(agreement.method for agreement in grid.agreements))
        blocks.append(Table(head, rows))
        if any(agreement.mean is None for agreement in grid.agreements):
            blocks.append("no coefficient with a column in which all models score the same")
    blocks += [grid.undefined] if grid.undefined else []
    blocks += dict.fromkeys(f"note: {note}" for cell in grid.cells for note in cell.notes)
    better = "higher" if grid.higher_is_better else "lower"
    sizes = sorted({cell.n for cell in grid.cells if cell.error is None})
    n = "" if not sizes else f", n = {sizes[0]}"
    n += f" to {sizes[-1]}" if len(sizes) > 1 else ""
    return Section(f"{grid.part} {grid.label} ({better} is better{n})", blocks)


def _spreads(study: FinishedStudy, grid: Grid) -> Table:
    intervals = study.study == "seeds"
    rows: list[list[Cell]] = []
    for row in grid.spreads:
        s = row.spread
        rows.append([row.model, *((s.mean, s.std, s.low, s.high, s.range) if s else [None] * 5)])
        rows[-1] += [row.low, row.high] if intervals else []
    rows.append(["mean of models", "", grid.mean_std, "", "", grid.mean_range])
    rows[-1] += ["", ""] if intervals else []
    bounds = (f"{study.confidence:.0%} from", "to") if intervals else ()
    return Table(("model", "mean", "std", "min", "max", "range", *bounds), rows)
