"""The data of a study: its settings, and its results, from which tables and files are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.datasets.sources.hub import DataPlace
from pytest_cepbench.errors import SpecError
from pytest_cepbench.measures import ENCODER
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.metrics.correlation import Correlation, Method, shared_ranks
from pytest_cepbench.metrics.diversity import WordStatistics
from pytest_cepbench.metrics.uncertainty import ModelVariability
from pytest_cepbench.models.protocols import RoleName, Usage
from pytest_cepbench.suites.model_options import Part

StudyName = Literal["seeds", "generators", "encoders", "lengths", "weighting"]

SHOWN_DECIMALS = 4
"""Of values in the tables of a study."""

_VARIANT_OPTIONS = {
    "seeds": "write --seeds=0,1,2,3,4",
    "generators": "give --generator several times",
    "encoders": "give --encoder several times",
}
"""How to name what a study compares; the studies that are not here choose it themselves."""


@dataclass(frozen=True)
class Named:
    """A model spec and its name in tables."""

    name: str
    spec: str


@dataclass(frozen=True)
class StudySpec:
    """One study of one suite.

    study: which.
    suite: the suite's file.
    models: those under test, each a row.
    variants: the seeds, generators or encoders that are compared; other studies have their own.
    seat: the encoder that `encoders` exchanges: "encoder", or the name of a further one.
    role: of the models under test; detected where None.
    roles, encoders: specs that hold for all models, as in `RoleChoices`.
    data: data set name -> path or URL.
    samples: most of each category.
    metrics: names of the suite's metrics; all when None.
    parts: categories, groups or mappings that are shown beside the whole suite.
    Raises SpecError for a study without models or with fewer than two variants, for names that do
    not tell rows or columns apart, and for a model that is there under two names.
    """

    study: StudyName
    suite: Path
    models: tuple[Named, ...]
    variants: tuple[Named, ...] = ()
    seat: str = ENCODER
    role: Part | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, DataPlace] = field(default_factory=dict)
    samples: int | None = None
    metrics: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models:
            raise SpecError("no model is given: name at least one with --model")
        _require_distinct("model", self.models)
        _require_distinct(self.study.removesuffix("s"), self.variants)
        if self.study in _VARIANT_OPTIONS and len(self.variants) < 2:
            names = ", ".join(variant.name for variant in self.variants) or "none"
            raise SpecError(
                f"a study of {self.study} compares at least two: got {names}; "
                f"{_VARIANT_OPTIONS[self.study]}"
            )

    @property
    def shown_parts(self) -> tuple[str, ...]:
        """The parts that are shown: the whole suite first."""
        return tuple(dict.fromkeys((OVERALL, *self.parts)))


def _require_distinct(what: str, entries: Sequence[Named]) -> None:
    names, specs = [entry.name for entry in entries], [entry.spec for entry in entries]
    for entry in entries:
        if specs.count(entry.spec) > 1:  # it would agree with itself, and raise every correlation
            raise SpecError(f"the {what} {entry.spec!r} is given twice: give it once")
        if names.count(entry.name) > 1:
            raise SpecError(
                f"two are called {entry.name!r}, each {what} needs a name of its own: NAME=SPEC"
            )


@dataclass(frozen=True)
class Column:
    """A variant: its name in tables, and what was changed in full."""

    name: str
    setting: str


@dataclass(frozen=True)
class StudiedModel:
    """A model of a study. seat: its role, or the name of a further encoder."""

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
        """Rank of each measured model under a variant: 1 is best, ties share their best rank.

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
    models: correlations of the two columns of values over the models.
    undefined: why there are none.
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
    """The work of a study.

    loads: of models.
    inputs: that models were given.
    hits: results from the store.
    model_seconds: inside the models.
    usage: what servers counted.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    model_seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def of(cls, counts: CallCounts) -> StudyUsage:
        """The same counts as plain data."""
        return cls(counts.loads, counts.inputs, counts.hits, counts.seconds, counts.usage)


@dataclass(frozen=True)
class FinishedStudy:
    """A finished study.

    suite, version, file: name, version and file of the suite.
    data: identity of the data set.
    samples: their number, each counted once for each of its seeds.
    confidence: level of the intervals.
    under_test: the role of the models.
    models: those under test.
    variants: the columns.
    players: all models that were called, those of the other roles too.
    grids, words, weightings: the results.
    notes: on the suite, a sentence each.
    damage: entries that the store found damaged and computed again.
    effort: the work that it took.
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
