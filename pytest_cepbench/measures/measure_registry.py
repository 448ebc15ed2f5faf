"""The metrics a suite can name under `[metrics]`: tables read strictly, measures made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.errors import MeasurementError, SuiteError, did_you_mean, unknown_name
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.measures.base import (
    Against,
    AnswerContext,
    Measure,
    MeasureBase,
    MetricTable,
    SuiteContext,
    number_problems,
    plans_of,
)
from pytest_cepbench.measures.cases import OVERALL, Case, list_parts

if TYPE_CHECKING:
    from pytest_cepbench.measures.answer_measures import AnswerMeasure


class MetricKinds(Mapping[str, type[MetricTable]]):
    """Kind of metric -> its settings; the module of a kind is imported when it is first used.

    A suite names a few kinds, and each brings formulas, facts and worlds of its own.
    places: kind -> "module settings measure", names in this folder.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, kind: str) -> type[MetricTable]:
        settings: type[MetricTable] = self._named(kind, 1)
        return settings

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def make(self, kind: str, name: str, table: MetricTable, context: object) -> Any:
        """The measure of a table. Raises SuiteError for settings that do not fit the suite."""
        return self._named(kind, 2)(kind, name, table, context)

    def _named(self, kind: str, place: int) -> Any:
        names = self._places[kind].split()
        return getattr(import_module(f"pytest_cepbench.measures.{names[0]}"), names[place])


FAILURES = "failures"
"""The kind of metric that depends on the others of its suite, and is made last."""

KINDS = MetricKinds(
    {
        "gc": "chain_similarity SimilarityTable SimilarityMeasure",
        "s": "chain_similarity SimilarityTable SimilarityMeasure",
        "sim": "chain_similarity SimilarityTable SimilarityMeasure",
        "gc_fid": "set_measures SetTable DistanceMeasure",
        "fid": "set_measures SetTable DistanceMeasure",
        "kid": "set_measures SetTable DistanceMeasure",
        "mcd": "chain_similarity MappingTable SimilarityMeasure",
        "geneval": "geneval_score GenevalTable GenevalMeasure",
        "mgg": "geneval_score GenevalTable GenevalMeasure",
        "soft_tifa_gm": "soft_tifa SoftTifaTable SoftTifaMeasure",
        "soft_tifa_am": "soft_tifa SoftTifaTable SoftTifaMeasure",
        "facts": "fact_score FactsTable FactsMeasure",
        FAILURES: "text_quality FailuresTable FailureMeasure",
        "diversity": "set_measures SimilarityTable DiversityMeasure",
        "retrieval": "chain_similarity SimilarityTable RetrievalMeasure",
        "repetition": "text_quality RepetitionTable TextMeasure",
        "length": "text_quality TextTable TextMeasure",
    }
)
"""The metrics of suites of chains."""

ANSWER_KINDS = MetricKinds(
    {
        "win_rate": "battle_measures MetricTable WinRateMeasure",
        "no_image": "answer_measures LackTable LackMeasure",
        "no_text": "answer_measures LackTable LackMeasure",
        "failures": "answer_measures MetricTable AnswerFailuresMeasure",
        "step_gap": "answer_measures MetricTable StepGapMeasure",
        "truth": "answer_measures TruthTable TruthMeasure",
        "judge_failures": "battle_measures MetricTable JudgeFailuresMeasure",
        "criteria": "answer_measures CriteriaTable CriteriaMeasure",
        "agreement": "answer_measures AgreementTable AgreementMeasure",
    }
)
"""The metrics of suites that ask for interleaved answers."""

_LOWER_IS_BETTER = frozenset(
    (
        "fid", "gc_fid", "kid", "failures", "repetition",
        "answer-failures", "judge_failures", "no_image", "no_text", "step_gap",
    )
)  # fmt: skip
"""What identities of measures begin with whose numbers are losses; of all others more is better."""


def read_table(
    name: str, raw: Mapping[str, Any], kinds: Mapping[str, type[MetricTable]] = KINDS
) -> MetricTable:
    """The settings of one metric.

    kinds: those that the suite can have.
    Raises ValueError for a kind that does not exist, a key that its kind does not have, a value of
    the wrong type, or a tolerance below 0.
    """
    kind = raw.get("kind", name)
    if kind not in kinds:
        raise ValueError(unknown_name("metric", str(kind), kinds))
    try:
        table = msgspec.convert(dict(raw), kinds[kind])
    except msgspec.ValidationError as error:
        raise ValueError(f"metric {name!r}: {explain_mismatch(error, kinds[kind])}") from error
    for problem in number_problems(table):
        raise ValueError(f"metric {name!r}: {problem}")
    return table


def higher_is_better(identity: str) -> bool:
    """The direction of a metric, where its suite is not at hand.

    identity: of the measure, as it stands in baselines and reports.
    """
    return identity.partition("/")[0] not in _LOWER_IS_BETTER


def make_measures(tables: Mapping[str, MetricTable], context: SuiteContext) -> dict[str, Measure]:
    """The measures of a suite by name, in the order of its file. Raises SuiteError."""
    made: dict[str, Measure] = {}
    kinds = {name: table.kind or name for name, table in tables.items()}
    for name in sorted(tables, key=lambda name: kinds[name] == FAILURES):
        made[name] = KINDS.make(kinds[name], name, tables[name], context)
        for start, encoder in made[name].compares:
            context.encoders.setdefault(start, encoder)
    for name, measure in made.items():
        plans = plans_of(measure.required_features(None))
        if not plans or any(plan.generations < 1 for plan in plans):
            raise SuiteError(
                f"suite {context.suite!r}, metric {name!r}: there are no chains for it"
            )
    return {name: made[name] for name in tables}


def make_answer_measures(
    tables: Mapping[str, MetricTable], suite: str, against: Against
) -> dict[str, AnswerMeasure]:
    """The measures of a suite of answers by name, in the order of its file. Raises SuiteError."""
    kinds = {name: table.kind or name for name, table in tables.items()}
    of_kind = {kind: [name for name in kinds if kinds[name] == kind] for kind in kinds.values()}
    win_rates, scored = of_kind.get("win_rate", []), "criteria" in of_kind
    if against == "accepted" and "judge_failures" in of_kind and not win_rates and not scored:
        raise SuiteError(
            f"suite {suite!r}: {of_kind['judge_failures'][0]} counts the verdicts of a win_rate "
            "and the scores of criteria: add [metrics.win_rate] or [metrics.criteria]"
        )
    if "agreement" in of_kind:  # judges are under test, on answers that are there
        wrong = [name for name in kinds if kinds[name] not in ("agreement", "judge_failures")]
        if wrong:
            raise SuiteError(
                f"suite {suite!r}: with agreement the judge is under test, and {wrong[0]} is of "
                "models that answer: leave one of them out"
            )
        if against != "gold":
            raise SuiteError(f'suite {suite!r}: agreement needs against = "gold" under [arena]')
    win_rate = win_rates[0] if against == "accepted" and win_rates else ""
    # Reference answers were battled for judge_failures alone before there were scores.
    judged = bool(win_rates) or (against == "gold" and not scored)
    context = AnswerContext(against, win_rate, judged=judged, scored=scored)
    return {
        name: ANSWER_KINDS.make(kinds[name], name, table, context) for name, table in tables.items()
    }


def tests_judges(tables: Mapping[str, MetricTable]) -> bool:
    """Whether a suite of these metrics has judges under test, on answers that are there."""
    return any((table.kind or name) == "agreement" for name, table in tables.items())


def list_cases(
    measures: Mapping[str, MeasureBase],
    suite: str,
    dataset: Dataset,
    groups: Mapping[str, Sequence[str]],
) -> list[Case]:
    """Every case of a suite, the same list in every process: part by part, all metrics of each.

    Raises SuiteError for a group or a metric that does not fit the data set.
    """
    for measure in measures.values():
        try:
            measure.check_data((dataset.whole or dataset).samples)
        except MeasurementError as error:
            raise SuiteError(f"suite {suite!r}, metric {measure.name!r}: {error}") from error
    parts = list_parts(suite, dataset, groups)
    own = dict.fromkeys(part for measure in measures.values() for part in measure.own_parts)
    for part in own:
        if part in parts:
            raise SuiteError(
                f"suite {suite!r}: {part!r} is a mapping, and cannot be a category or group"
            )
    whole = parts.pop(OVERALL)
    parts |= dict.fromkeys((*own, OVERALL), whole)
    labels: dict[str, str] = {}
    for measure in measures.values():  # of several with the same all but the first add their name
        taken = measure.label in labels.values()
        labels[measure.name] = f"{measure.label} [{measure.name}]" if taken else measure.label
    cases = []
    for part, categories in parts.items():
        for measure in measures.values():
            if part in own:
                there = part in measure.own_parts
            else:
                there = measure.parts == "all" or part == OVERALL
            if there:
                key = CaseKey(suite, part, measure.name)
                cases.append(Case(key, labels[measure.name], categories, measure.pool))
    return cases


# -- messages on keys and words that no table has, with the nearest that one has -------------------

_UNKNOWN = re.compile(
    r"(?:Object contains unknown field `(?P<key>.*?)`|Invalid enum value '(?P<word>.*?)')"
    r"(?: - at `\$(?P<path>.*)`)?"
)


def explain_mismatch(error: Exception, table: type) -> str:
    """The message of a table that does not fit its type, with the key or the words that would.

    error: what reading TOML or converting it raised. table: the msgspec type that was expected.
    """
    text = str(error)
    match = _UNKNOWN.fullmatch(text)
    if match is None:
        return text
    # A path such as `.gate.bounds` or `.cases[...].gate`, as msgspec writes it.
    at: Any = table
    for key, _ in re.findall(r"\.(\w+)|(\[.*?\])", match["path"] or ""):
        at = get_type_hints(at)[key] if key else get_args(at)[-1]
        if NoneType in get_args(at):  # of what may be left out: the type where it is there
            types = [part for part in get_args(at) if part is not NoneType]
            at = types[0] if len(types) == 1 else at
    if match["key"] is not None:
        known = [field.encode_name for field in msgspec.structs.fields(at)]
        return f"{text}.{did_you_mean(match['key'], known)}"
    known = _words_of(at)
    near = did_you_mean(match["word"], known) or f" Expected: {', '.join(known)}"
    return f"{text}.{near}"


def _words_of(table: Any) -> list[str]:
    """The words of a Literal, also within a union or an alias."""
    if get_origin(table) is Literal:
        return [word for word in get_args(table) if isinstance(word, str)]
    return [word for part in get_args(table) for word in _words_of(part)]
