"""The results of a study: plain data, from which tables and files are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_cepbench.metrics.correlation import Correlation, Method, shared_ranks
from pytest_cepbench.metrics.length_bands import WordStatistics
from pytest_cepbench.metrics.uncertainty import ModelVariability
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.studies.study_spec import Named, StudyName

SHOWN_DECIMALS = 4
"""Of values in the tables of a study."""


@dataclass(frozen=True)
class Column:
    """A variant: its name in tables, and what was changed in full."""

    name: str
    setting: str


@dataclass(frozen=True)
class StudiedModel:
    """A model that took part: seat, its role, its spec and its identity."""

    seat: str
    spec: str
    identity: str


@dataclass(frozen=True)
class StudyCell:
    """One number: a model under a variant.

    value: None where it could not be measured; error says why.
    n, failures, identity, notes: as in `Measurement`.
    """

    model: str
    variant: str
    value: float | None = None
    n: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class ModelSpread:
    """One model over the variants that could be measured.

    spread: None where those are fewer than two.
    low, high: ends of the confidence interval of the mean; None where the variants are no random
    sample of anything, or all scored the same.
    """

    model: str
    spread: ModelVariability | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class VariantAgreement:
    """The agreement of the variants on the models.

    variants: rows and columns of the matrix.
    matrix: one coefficient for each two variants, over the models; None where a variant scored all
    models the same.
    mean: over all pairs of different variants; None where a pair has no coefficient.
    """

    method: Method
    variants: tuple[str, ...]
    matrix: tuple[tuple[Correlation | None, ...], ...]
    mean: float | None


@dataclass(frozen=True)
class Grid:
    """One case over all models and variants.

    label: the metric's name for people.
    cells: model by model.
    spreads: one per model.
    complete: the models that were measured wherever any was, over which the rest is computed:
    mean_std, mean_range, agreements.
    undefined: why there are no agreements, where there are none.
    """

    part: str
    metric: str
    label: str
    higher_is_better: bool
    cells: tuple[StudyCell, ...]
    spreads: tuple[ModelSpread, ...] = ()
    complete: tuple[str, ...] = ()
    mean_std: float | None = None
    mean_range: float | None = None
    agreements: tuple[VariantAgreement, ...] = ()
    undefined: str | None = None

    def cell(self, model: str, variant: str) -> StudyCell:
        """The cell of a model under a variant."""
        return next(c for c in self.cells if (c.model, c.variant) == (model, variant))

    def ranks(self, variant: str) -> dict[str, int]:
        """Rank of each measured model under a variant: 1 is best, ties share the best of their ranks.

        Values are compared as they are shown, with four decimals; see `shared_ranks`.
        """
        values = {
            cell.model: cell.value
            for cell in self.cells
            if cell.variant == variant and cell.value is not None
        }
        ranks = shared_ranks(
            list(values.values()), higher_is_better=self.higher_is_better, decimals=SHOWN_DECIMALS
        )
        return dict(zip(values, ranks, strict=True))


@dataclass(frozen=True)
class LengthStatistics:
    """The lengths of one model's descriptions in one band."""

    model: str
    variant: str
    statistics: WordStatistics


@dataclass(frozen=True)
class ChainAgreement:
    """One model's GC@T and s(T): values over the part, correlations over its chains.

    chains: how many.
    pearson, spearman: None for fewer than three chains, or where all score the same.
    error: why there is nothing.
    """

    model: str
    weighted: float | None = None
    last: float | None = None
    chains: int = 0
    pearson: Correlation | None = None
    spearman: Correlation | None = None
    error: str | None = None


@dataclass(frozen=True)
class Weighting:
    """GC@T against s(T) in one part.

    weighted, last: names of the two metrics for people.
    rows: one per model.
    models: correlations of the two columns of values over the models; undefined: why there are
    none.
    """

    part: str
    metric: str
    weighted: str
    last: str
    rows: tuple[ChainAgreement, ...]
    models: tuple[Correlation, ...] = ()
    undefined: str | None = None


@dataclass(frozen=True)
class StudyUsage:
    """The work of a study: models loaded, inputs given to them, results from the store.

    usage: what servers counted.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    model_seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Study:
    """A finished study.

    suite, version, file: what was measured on.
    samples: how many.
    confidence: level of the intervals.
    under_test: the role of the models.
    models: those under test.
    variants: the columns.
    players: everybody who took part.
    grids, words, weightings: what was found.
    notes: what a reader should know.
    damage: what the store found broken meanwhile.
    """

    study: StudyName
    suite: str
    version: int
    file: str
    data: Mapping[str, str]
    samples: int
    confidence: float
    under_test: str
    models: tuple[Named, ...]
    variants: tuple[Column, ...]
    players: tuple[StudiedModel, ...]
    grids: tuple[Grid, ...]
    words: tuple[LengthStatistics, ...] = ()
    weightings: tuple[Weighting, ...] = ()
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    effort: StudyUsage = StudyUsage()

    @property
    def errors(self) -> tuple[tuple[str, str, str], ...]:
        """(model, variant, why) of what could not be measured, each once."""
        errors = [
            (cell.model, cell.variant, cell.error)
            for grid in self.grids
            for cell in grid.cells
            if cell.error is not None
        ]
        return tuple(dict.fromkeys(errors))
