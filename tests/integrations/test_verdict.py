"""What a run of pytest comes to, and its verdicts in experiment trackers.

Reports that say nothing are read too, and each tracker's values from what the real one wrote.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.integrations import Gate, GatedCase, GateVerdict, Outcome, TrainingGate
from pytest_cepbench.integrations.tracking import (
    Values,
    active_runs,
    divided,
    to_mlflow,
    to_tensorboard,
    to_wandb,
    track,
    values_of,
)
from pytest_cepbench.integrations.verdict import read_outcome
from tests.docs.markdown import DOCS, column, tables

CASE = GatedCase("shapes/overall/gc", "GC@3", "regressed", True, 0.5, 0.9, -0.4, -0.5, -0.3)

VERDICT = GateVerdict(
    checkpoint=Path("c-7"), step=7, outcome=Outcome.REGRESSED, code=1, cases=(CASE,),
    accepted=Path("c-6"), report=Path("none.html"), output="printed\n\n", seconds=2.0,
)  # fmt: skip


def test_values_of_a_verdict() -> None:
    """Number and words of the verdict, the page, and of each case its numbers with their bounds.

    For charts: the better, the higher; what is not known is left out.
    """
    assert values_of(VERDICT) == {
        "cepbench/outcome": -1,
        "cepbench/verdict": "regressed",
        "cepbench/report": str(Path("none.html").absolute()),
        "cepbench/seconds": 2.0,
        "cepbench/shapes/overall/gc/value": 0.5,
        "cepbench/shapes/overall/gc/baseline": 0.9,
        "cepbench/shapes/overall/gc/difference": -0.4,
        "cepbench/shapes/overall/gc/low": -0.5,
        "cepbench/shapes/overall/gc/high": -0.3,
        "cepbench/shapes/overall/gc/verdict": -1,
    }
    for outcome, number in zip(Outcome, (1, 0, -1, -2), strict=True):
        assert values_of(replace(VERDICT, outcome=outcome))["cepbench/outcome"] == number
    verdicts = ("improved", "held", "inconclusive", "regressed", "error")
    for verdict, number in zip(verdicts, (2, 1, 0, -1, -2), strict=True):
        values = values_of(replace(VERDICT, cases=(replace(CASE, verdict=verdict),)))
        assert values["cepbench/shapes/overall/gc/verdict"] == number
    none = dict.fromkeys(("baseline", "difference", "low", "high"))
    first = replace(CASE, verdict="no-baseline", **none)  # type: ignore[arg-type]
    values = values_of(replace(VERDICT, cases=(first,)))
    assert [name for name in values if "overall" in name] == ["cepbench/shapes/overall/gc/value"]


def test_tracker_that_fails_does_not_fail_the_training(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, and the next tracker gets its values."""
    given: list[int] = []

    def broken(values: Values, step: int) -> None:
        raise ConnectionError("the server is away")

    def interrupted(values: Values, step: int) -> None:
        raise KeyboardInterrupt

    log = lambda values, step: given.append(step)  # noqa: E731
    track(VERDICT, [broken, log])
    track(replace(VERDICT, step=None), [log])

    assert "a verdict could not be logged: ConnectionError: the server is away" in caplog.text
    assert given == [7, 0]
    with pytest.raises(KeyboardInterrupt):
        track(VERDICT, [interrupted])


def test_active_runs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of libraries that are imported, and only while a run of theirs is active.

    With what they offer in their place, because the tests' environment has none of them.
    """
    run = object()
    current: list[object] = [None]
    modules = {
        "wandb": SimpleNamespace(run=None),
        "mlflow": SimpleNamespace(active_run=lambda: current[0]),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert active_runs() == []

    modules["wandb"].run = current[0] = run
    assert active_runs() == [to_wandb, to_mlflow]
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace())  # while it is being imported
    assert active_runs() == [to_wandb]


@pytest.mark.models
def test_tensorboard_reads_the_verdict(tmp_path: Path) -> None:
    """Scalars and texts of an event file."""
    pytest.importorskip("tensorboard", reason="needs the dependency group integrations")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        track(VERDICT, [to_tensorboard(writer)])

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert {name: events.Scalars(name)[0].value for name in events.Tags()["scalars"]} == (
        pytest.approx(divided(values_of(VERDICT))[0])
    )
    (text,) = events.Tensors("cepbench/verdict/text_summary")
    assert (text.step, text.tensor_proto.string_val) == (7, [b"regressed"])


def test_settings_are_documented_with_their_defaults() -> None:
    """Every field in its order; a default that is code is that of the code."""
    _, *settings = tables(DOCS / "training-loop.md", "Gate inside the training loop")
    for kind, rows in zip((Gate, TrainingGate), settings, strict=True):
        fields = [field for field in dataclasses.fields(kind) if field.init]
        assert column(rows) == [field.name for field in fields]
        for row, field in zip(rows, fields, strict=True):
            if field.default not in (None, dataclasses.MISSING, sys.executable) and "`" in row[1]:
                assert row[1].strip("`") == str(field.default)


def case(verdict: str = "held", **fields: Any) -> dict[str, Any]:
    """A case of a JSON report."""
    return {
        "suite": "shapes", "part": "overall", "metric": "gc", "label": "GC@3",
        "primary": True, "accepted": False,
        "measurement": {"higher_is_better": True, "value": 0.9},
        "judgement": {
            "verdict": verdict, "baseline_value": 0.8, "difference": 0.1, "low": 0.05,
            "high": 0.15,
        },
        **fields,
    }  # fmt: skip


def write(path: Path, *cases: dict[str, Any], verdict: str = "passed", schema: int = 2) -> Path:
    """A JSON report."""
    path.write_text(json.dumps({"schema": schema, "verdict": verdict, "cases": cases}))
    return path


@pytest.mark.parametrize(
    ("code", "verdicts", "outcome"),
    [
        (0, ["held"], Outcome.ACCEPTED),
        (0, ["improved", "held"], Outcome.ACCEPTED),
        (0, ["held", "inconclusive"], Outcome.INCONCLUSIVE),
        (0, ["held", "regressed"], Outcome.FAILED),
        (0, ["held", "no-baseline"], Outcome.FAILED),
        (0, ["held", "error"], Outcome.FAILED),
        (1, ["held", "inconclusive"], Outcome.INCONCLUSIVE),
        (1, ["held", "regressed"], Outcome.REGRESSED),
        (1, ["held", "incomparable"], Outcome.FAILED),
        (1, ["inconclusive", "no-baseline"], Outcome.FAILED),
        (1, ["held"], Outcome.FAILED),
        (2, ["regressed"], Outcome.FAILED),
        (-9, ["held"], Outcome.FAILED),
    ],
)
def test_outcome_follows_exit_code_and_verdicts(
    tmp_path: Path, code: int, verdicts: list[str], outcome: Outcome
) -> None:
    """Only a passed run accepts; whatever did not measure is `failed`, never accepted."""
    undecided = "inconclusive" in verdicts
    document = "failed" if code else "undecided" if undecided else "passed"
    report = write(tmp_path / "r.json", *map(case, verdicts), verdict=document)

    assert read_outcome(code, report, first=False)[0] is outcome


def test_what_is_no_pass(tmp_path: Path) -> None:
    """Exit code 0 alone accepts nothing: the report must hold a judged case. Another verdict,
    --snapshot-update in an ini file, no case that can fail: no pass.

    Only the first of a training accepts what it measures, whatever its cases say of samples.
    """
    path = tmp_path / "r.json"
    for text, reason in (
        (None, "wrote no report"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"schema": 3}', "schema 3, and 2 is expected"),
        ('{"schema": 2, "verdict": "passed", "cases": []}', "no case was judged"),
        ('{"schema": 2, "verdict": "passed", "cases": [{}]}', "cannot be read"),
    ):
        if text is not None:
            path.write_text(text)
        outcome, cases, why = read_outcome(0, path, first=True)
        assert (outcome, cases) == (Outcome.FAILED, ())
        assert reason in why
    assert read_outcome(0, write(path, case(), verdict="failed"), first=True)[0] == "failed"
    assert read_outcome(0, write(path, case(primary=False)), first=False)[0] == "failed"
    outcome, cases, why = read_outcome(0, write(path, case(accepted=True)), first=False)
    assert outcome is Outcome.FAILED
    assert "remove --snapshot-update" in why
    report = write(path, case("inconclusive", accepted=True))
    assert read_outcome(0, report, first=True)[0] is Outcome.ACCEPTED
    with path.open("wb") as file:  # more is not read into the memory of a training
        file.truncate(2**30 + 1)
    assert "at most 1,073,741,824 are expected" in read_outcome(0, path, first=False)[2]


def test_verdict_in_words() -> None:
    """A line for the log, and a summary for the engineer who finds the training stopped.

    A verdict is true where the training may go on: `if gate(checkpoint):` is no pass for a
    regression, as it is for any other object.
    """
    assert VERDICT.line == (
        "gate: step 7, c-7: regressed, GC@3 0.5000 (-0.4000); worse than tolerated in 1 of 1 "
        "cases, shapes/overall/gc: go on from c-6, see none.html"
    )
    assert VERDICT.value == 0.5
    assert VERDICT.summary == (
        "printed\nc-7: regressed, the training stops here\nlast accepted checkpoint: c-6\n"
        "report: none was written"
    )
    assert replace(VERDICT, outcome=Outcome.FAILED, cases=()).line == (
        "gate: step 7, c-7: failed; printed: mend it, and gate this checkpoint again"
    )
    cases = (replace(CASE, verdict="inconclusive"),)
    undecided = replace(VERDICT, outcome=Outcome.INCONCLUSIVE, code=0, cases=cases)
    assert "; 1 of 1 cases have too few samples to tell: add --cep-inc" in undecided.line
    cases = (replace(CASE, baseline=None),)
    begun = replace(VERDICT, outcome=Outcome.ACCEPTED, code=0, cases=cases).line
    assert "; the first one, held to nothing: give TrainingGate(start=...)" in begun
    for outcome, code, passes in (
        ("accepted", 0, True), ("inconclusive", 0, True), ("inconclusive", 1, False),
        ("regressed", 1, False), ("failed", 4, False),
    ):  # fmt: skip
        verdict = replace(VERDICT, outcome=Outcome(outcome), code=code)
        assert bool(verdict) == (not verdict.stops) == passes
