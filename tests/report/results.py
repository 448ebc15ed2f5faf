"""Results to show, and strategies for them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.gate import Judgement, Measurement, Verdict
from pytest_cepbench.metrics.facts import FactAnswers, summarize_facts
from pytest_cepbench.report.history import FORMAT, HistoryRun, run_record
from pytest_cepbench.report.result import (
    AnswerShown,
    CaseResult,
    ChainShown,
    CurveShown,
    HopShown,
    LinkShown,
    Shown,
    StepShown,
)
from pytest_cepbench.report.writers import RunOutcome
from tests.documents import JUDGED

_MEASURED = ("value", "n", "higher_is_better", "failures", "floor", "model", "identity")

T = TypeVar("T", bound=msgspec.Struct | RunOutcome)


def case_of(**flat: Any) -> CaseResult:
    """A case by the names of all that it nests; `measured` is its whole measurement."""
    judgement = {JUDGED[name]: flat.pop(name) for name in [*flat] if name in JUDGED}
    judgement["verdict"] = Verdict(judgement["verdict"])
    judgement["reasons"] = tuple(judgement.get("reasons", ()))
    shown = {name: flat.pop(name) for name in [*flat] if name in Shown.__struct_fields__}
    own = {name: flat.pop(name) for name in _MEASURED if name in flat}
    measurement = flat.pop("measured", None)
    if own.get("value", 0.0) is None:
        measurement, own = None, {}
    if measurement is None and (
        own.get("value") is not None or own.get("model") or own.get("identity")
    ):
        key = f"{flat['suite']}/{flat['part']}/{flat['metric']}"
        measurement = replace(MEASURED, case=key, metric=flat["label"], n=0, scores={})
    if measurement is not None:
        own["value"] = measurement.value if own.get("value") is None else own["value"]
        measurement = msgspec.structs.replace(measurement, **own)
    return CaseResult(
        judgement=Judgement(**judgement), shown=Shown(**shown), measurement=measurement, **flat
    )


def replace(record: T, **changes: Any) -> T:
    """A record with other fields, those that a case nests by their own names."""
    if isinstance(record, RunOutcome):
        return dataclasses.replace(record, **changes)
    if not isinstance(record, CaseResult):
        return msgspec.structs.replace(record, **changes)
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    measurement, shown = fields.pop("measurement"), fields.pop("shown")
    judged = fields.pop("judgement")
    fields |= {name: getattr(shown, name) for name in shown.__struct_fields__}
    fields |= {old: getattr(judged, new) for old, new in JUDGED.items()}
    if measurement is not None and changes.get("value", record.value) is not None:
        fields |= {name: getattr(measurement, name) for name in _MEASURED}
        fields["measured"] = measurement
    return cast("T", case_of(**(fields | changes)))


FACTS = RunOutcome("failed", "1.2.3", ["model under test: <b>x</b>"], ["a worker <i>died</i>"])
"""A run whose cases are put in."""

MEASURED = Measurement(
    format=2,
    case="toy/color/gc",
    metric="GC@2",
    value=0.5,
    n=1,
    higher_is_better=True,
    model={},
    identity={},
    scores={"color": {"a-sample-of-the-measurement": 0.5}},
)

REGRESSED = case_of(
    nodeid="test_x.py::test_drift[color-gc]",
    suite="toy",
    part="color",
    metric="gc",
    label="GC@2",
    verdict="regressed",
    tolerance=0.01,
    value=0.5,
    baseline=0.75,
    difference=-0.25,
    n=2,
    curve=[0.6, 0.45],
    chains=[
        ChainShown("a.png", 0.5, 0.75, [LinkShown(image="0" * 64), LinkShown(text="a cat")]),
    ],
)

FULL = replace(
    REGRESSED,
    gate="regression",
    alpha=0.0125,
    level=0.003125,
    origins={"gate": "[gate]", "tolerance": "--cep-tolerance", "alpha": "[gate]"},
    p=0.00042,
    low=-0.3125,
    high=-0.1875,
    method="Hall",
    units=16,
    visible=0.0625,
    looks=[25, 50],
    partial=True,
    n=50,
    failures={"empty-text": 3, "blank-image": 1},
    notes=["3 of 50 texts were cut"],
    floor=0.125,
    baseline_floor=0.25,
    warnings=["the measurement is close to what chance gives"],
    anchor=Judgement(
        Verdict.REGRESSED,
        baseline_value=0.8,
        difference=-0.3,
        p=7e-6,
        low=-0.375,
        high=-0.225,
        method="Hall",
    ),
    anchor_tolerance=0.02,
    attribution="Lost 0.2500 over 1 sample: most of it by the describer.",
    hops=[HopShown("image", "describer", 1, 0.2), HopShown("image", "generator", 2, 0.05)],
)
"""Everything that a case can say."""

INVENTED = summarize_facts(
    [
        FactAnswers(
            ("object", "color"),
            np.array([[1, 1, 1, 1], [0, 0, 1, 1]]),
            {"object": np.array([2, 2, 2, 2]), "color": np.array([1, 1, 0, 0])},
        )
    ]
    * 10,
    [f"{i}" for i in range(10)],
    (1, 2, 3, 4),
    ("describer", "generator", "describer", "generator"),
)
"""A describer invents two circles, and calls the red one blue until it looks again."""

ANSWERED = case_of(
    nodeid="test_x.py::test_arena[overall-win_rate]",
    suite="toy",
    part="overall",
    metric="win_rate",
    label="win rate",
    verdict="regressed",
    tolerance=0.05,
    value=0.125,
    baseline=0.5,
    difference=-0.375,
    n=2,
    answers=[
        AnswerShown(
            sample="q1",
            score=0.0,
            baseline=0.5,
            question=[StepShown("draw a cat"), StepShown(image="a" * 64)],
            steps=[StepShown("a dog", "b" * 64)],
            opponent="accepted answer",
            opposing=[StepShown("a cat", "c" * 64), StepShown("the end")],
            verdicts=[
                "new answer shown first: the accepted answer is better",
                "accepted answer shown first: a tie that leans to the new answer",
            ],
        ),
        AnswerShown("q2", 0.25, 0.5, opponent="accepted answer"),
    ],
)
"""A case of battles, with one sample that is shown whole and one that is only named."""

SECRET = "a-sample-of-the-measurement"

FRACTIONS = st.none() | st.floats(-1, 1)

TEXTS = st.text(max_size=30)

CURVES = st.lists(st.tuples(*[st.floats(-1, 1)] * 3), min_size=2, max_size=4).map(
    lambda rows: CurveShown(
        generations=list(range(1, len(rows) + 1)),
        mean=[sorted(row)[1] for row in rows],
        low=[min(row) for row in rows],
        high=[max(row) for row in rows],
        n=7,
    )
)

BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXTS,
    "str | None": st.none() | TEXTS,
    "float": st.floats(-1, 1),
    "float | None": FRACTIONS,
    "int": st.integers(1, 20),
    "int | None": st.none() | st.integers(0, 3),
    "list[str]": st.lists(TEXTS, max_size=2),
}
"""Annotation of a field -> its values. Those that are records in a list are added below."""


def records(kind: type[T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Any record of a kind. fields: strategies of those that have other values than their type."""
    own = {name: BY_TYPE[hint] for name, hint in kind.__annotations__.items() if name not in fields}
    made = st.builds(kind, **own, **fields)
    BY_TYPE[f"list[{kind.__name__}]"] = st.lists(made, max_size=3)
    return made


records(LinkShown, image=st.none(), sound=st.none())

records(StepShown, image=st.none())

CHAINS = records(ChainShown)

ANSWERS = records(AnswerShown, opponent=st.sampled_from(["", "accepted answer", "reference"]))

ANCHORS = st.builds(
    Judgement,
    verdict=st.sampled_from(Verdict),
    **dict.fromkeys(("baseline_value", "difference", "low", "high"), FRACTIONS),
)

SETTINGS = st.sampled_from(["gate", "tolerance", "anchor_tolerance", "alpha", "bounds"])

FLAGS = ("primary", "strict", "accepted", "partial", "higher_is_better")

MEASURES = ["value", "baseline", "difference", "low", "high", "visible", "floor", "baseline_floor"]

RESULTS = st.builds(
    case_of,
    **dict.fromkeys(FLAGS, st.booleans()),
    **dict.fromkeys(MEASURES, FRACTIONS),
    **dict.fromkeys(("nodeid", "part", "attribution", "reference_chains"), TEXTS),
    **dict.fromkeys(("notes", "warnings", "reasons"), BY_TYPE["list[str]"]),
    **dict.fromkeys(("tolerance", "anchor_tolerance"), st.floats(0, 1)),
    **dict.fromkeys(("n", "units", "of"), st.integers(0, 1000)),
    **dict.fromkeys(("chains", "requested"), st.lists(CHAINS, max_size=2)),
    **dict.fromkeys(("curve_now", "curve_reference"), st.none() | CURVES),
    suite=st.sampled_from(["toy", "a-b_c"]),
    metric=st.sampled_from(["gc", "failures"]),
    label=st.sampled_from(["GC@3", "failure rate"]),
    verdict=st.sampled_from([verdict.value for verdict in Verdict]),
    gate=st.sampled_from(["regression", "noninferiority", "threshold"]),
    alpha=st.none() | st.floats(1e-6, 0.5),
    origins=st.dictionaries(SETTINGS, TEXTS, max_size=3),
    method=st.sampled_from(["", "t", "BCa", "exact"]),
    looks=st.lists(st.integers(1, 1000), max_size=3),
    failures=st.dictionaries(st.sampled_from(sorted(FAILURE_KINDS)), st.integers(1, 9), max_size=2),
    curve=st.lists(st.floats(-1, 1) | st.floats(0, 1e6), max_size=4),
    refused=st.sampled_from(["", "", "close to chance"]),
    anchor=st.none() | ANCHORS,
    hops=st.lists(records(HopShown, start=st.sampled_from(["image", "text"])), max_size=3),
    answers=st.lists(ANSWERS, max_size=2),
    measured=st.sampled_from([None, MEASURED]),
    damage=st.lists(TEXTS, max_size=1),
    median=st.none() | CHAINS,
    reference=st.sampled_from(["baseline", "anchor"]),
    differences=st.dictionaries(TEXTS, st.floats(-1, 1), max_size=4),
)
"""Anything that a run could report, with texts as hostile as they come."""


# -- runs of a history, as the gate would record them ----------------------------------------------


def origin(number: int, **changes: Any) -> HistoryRun:
    """The facts of a run, the number of its day."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "cases": [],
        "run": f"{number:032x}",
        "started": 1_790_000_000 + 86_400.0 * number,  # a run a day
        "seconds": 60.0,
        "verdict": "passed",
        "report": "",
        "digest": "",
        "host": "host",
        "cepbench": "0.1.0",
    }
    return HistoryRun(**(fields | changes))


def judged(value: float | None, **changes: Any) -> CaseResult:
    """A case of this value, compared with a baseline of 0.75 where there is a value."""
    difference = None if value is None else round(value - 0.75, 6)
    fields: dict[str, Any] = {
        "verdict": "held" if value is not None else "error",
        "value": value,
        "baseline": None if value is None else 0.75,
        "difference": difference,
        "low": None if difference is None else difference - 0.02,
        "high": None if difference is None else difference + 0.02,
        "model": {"role": "describer", "spec": "runs/a", "identity": "a 0123"},
        "identity": {"samples": "50", "prompt": "describe"},
    }
    return replace(FULL, **(fields | changes))


def recorded(number: int, *results: CaseResult, **changes: Any) -> HistoryRun:
    """The line of a run."""
    return run_record(origin(number, **changes), results or [judged(0.75)])
