"""The metrics that a suite can name under `[metrics]`: tables read strictly, measures made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_cepbench.chains import Modality
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import SuiteError, unknown_name
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.suites.cases import OVERALL, Case, list_parts
from pytest_cepbench.suites.measures.base import Measure, SuiteContext
from pytest_cepbench.suites.measures.chain_similarity import SimilarityMeasure, make_similarity
from pytest_cepbench.suites.measures.failures import make_failures
from pytest_cepbench.suites.measures.feature_sets import make_sets
from pytest_cepbench.suites.measures.geneval_score import make_compliance
from pytest_cepbench.suites.measures.mapping_drift import MappingMeasure, make_mapping
from pytest_cepbench.suites.measures.measure_options import (
    ComplianceTable,
    FailuresTable,
    MappingTable,
    MetricTable,
    SetTable,
    SimilarityTable,
    number_problems,
)
from pytest_cepbench.suites.suite_keys import explain_mismatch

KINDS: Mapping[str, type[MetricTable]] = {
    "gc": SimilarityTable,
    "s": SimilarityTable,
    "sim": SimilarityTable,
    "gc_fid": SetTable,
    "fid": SetTable,
    "kid": SetTable,
    "mcd": MappingTable,
    "sdr": MappingTable,
    "geneval": ComplianceTable,
    "mgg": ComplianceTable,
    "failures": FailuresTable,
}
"""Kind of metric -> its settings."""


def read_table(name: str, raw: Mapping[str, Any]) -> MetricTable:
    """The settings of one metric.

    Raises ValueError for a kind that does not exist, a key that its kind does not have, a value of
    the wrong type, or a tolerance below 0.
    """
    kind = raw.get("kind", name)
    if kind not in KINDS:
        raise ValueError(unknown_name("metric", str(kind), KINDS))
    try:
        table = msgspec.convert(dict(raw), KINDS[kind])
    except msgspec.ValidationError as error:
        msg = f"metric {name!r}: {explain_mismatch(error, KINDS[kind])}"
        raise ValueError(msg) from error
    for problem in number_problems(table):
        msg = f"metric {name!r}: {problem}"
        raise ValueError(msg)
    return table


def make_measures(tables: Mapping[str, MetricTable], stage: SuiteContext) -> dict[str, Measure]:
    """The measures of a suite by name, in the order of its file. Raises SuiteError."""
    made: dict[str, Measure] = {}
    for name, table in tables.items():
        kind = table.kind or name
        if isinstance(table, SimilarityTable):
            made[name] = make_similarity(kind, name, table, stage)
        elif isinstance(table, SetTable):
            made[name] = make_sets(kind, name, table, stage)
        elif isinstance(table, MappingTable):
            made[name] = make_mapping(kind, name, table, stage)
        elif isinstance(table, ComplianceTable):
            made[name] = make_compliance(kind, name, table, stage)
    encoders = _comparing(made)
    for name, table in tables.items():
        if isinstance(table, FailuresTable):
            made[name] = make_failures(name, table, stage, encoders)
    for name, measure in made.items():
        if not measure.plans or any(plan.generations < 1 for plan in measure.plans):
            msg = f"suite {stage.suite!r}, metric {name!r}: there are no chains for it"
            raise SuiteError(msg)
    return {name: made[name] for name in tables}


def list_cases(
    measures: Mapping[str, Measure],
    suite: str,
    dataset: Dataset,
    groups: Mapping[str, Sequence[str]],
) -> list[Case]:
    """Every case of a suite, the same list in every process: part by part, all metrics of each.

    Raises SuiteError for a group that does not fit the data set.
    """
    parts = list_parts(suite, dataset, groups)
    own = dict.fromkeys(part for measure in measures.values() for part in measure.own_parts)
    for part in own:
        if part in parts:
            msg = f"suite {suite!r}: {part!r} is a mapping and cannot be a category or group"
            raise SuiteError(msg)
    whole = parts.pop(OVERALL)
    parts |= dict.fromkeys((*own, OVERALL), whole)
    return [
        Case(CaseKey(suite, part, measure.name), measure.label, categories, measure.pool)
        for part, categories in parts.items()
        for measure in measures.values()
        if _has_case(measure, part, mapping=part in own)
    ]


def _has_case(measure: Measure, part: str, *, mapping: bool) -> bool:
    if mapping:
        return part in measure.own_parts
    return measure.parts == "all" or (measure.parts == "overall" and part == OVERALL)


def _comparing(measures: Mapping[str, Measure]) -> dict[Modality, str]:
    """By start, the encoder that compares artifacts of the start's own modality with it."""
    found: dict[Modality, str] = {}
    for measure in measures.values():
        if isinstance(measure, SimilarityMeasure):
            found.setdefault(measure.plan.start, measure.encoder)
        elif isinstance(measure, MappingMeasure):
            for course in measure.courses.values():
                if all(g % 2 == 0 for g in course.generations):
                    found.setdefault(course.plan.start, course.encoder)
    return found
