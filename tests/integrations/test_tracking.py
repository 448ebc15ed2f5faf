"""Verdicts in experiment trackers, each read back from what the real one wrote."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

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
from tests.docs.markdown import DOCS, column, tables

CASE = GatedCase("shapes/overall/gc", "GC@3", "regressed", True, 0.5, 0.9, -0.4, -0.5, -0.3)

VERDICT = GateVerdict(
    Path("checkpoint-7"), 7, Outcome.REGRESSED, 1, (CASE,), None, Path("r.html"), "", 2.0
)


def test_values_of_a_verdict() -> None:
    """Number and words of the verdict, the page, and of each case its numbers with their bounds."""
    assert values_of(VERDICT) == {
        "cepbench/outcome": -1,
        "cepbench/verdict": "regressed",
        "cepbench/report": str(Path("r.html").absolute()),
        "cepbench/seconds": 2.0,
        "cepbench/shapes/overall/gc/value": 0.5,
        "cepbench/shapes/overall/gc/baseline": 0.9,
        "cepbench/shapes/overall/gc/difference": -0.4,
        "cepbench/shapes/overall/gc/low": -0.5,
        "cepbench/shapes/overall/gc/high": -0.3,
        "cepbench/shapes/overall/gc/verdict": -1,
    }


def test_outcomes_and_verdicts_are_numbers() -> None:
    """For charts: the better, the higher; what was not measured is below all."""
    for outcome, number in zip(Outcome, (1, 0, -1, -2), strict=True):
        assert values_of(replace(VERDICT, outcome=outcome))["cepbench/outcome"] == number
    verdicts = ("improved", "held", "inconclusive", "regressed", "error", "incomparable")
    for verdict, number in zip(verdicts, (2, 1, 0, -1, -2, -2), strict=True):
        values = values_of(replace(VERDICT, cases=(replace(CASE, verdict=verdict),)))
        assert values["cepbench/shapes/overall/gc/verdict"] == number


def test_what_is_not_known_is_left_out() -> None:
    """The first checkpoint is compared with nothing, and a failed one has no numbers."""
    first = replace(
        CASE, verdict="no-baseline", baseline=None, difference=None, low=None, high=None
    )
    values = values_of(replace(VERDICT, outcome=Outcome.ACCEPTED, cases=(first,)))
    assert [name for name in values if "overall" in name] == ["cepbench/shapes/overall/gc/value"]

    failed = values_of(replace(VERDICT, outcome=Outcome.FAILED, cases=()))
    assert failed["cepbench/outcome"] == -2
    assert [name for name in failed if "overall" in name] == []


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


PAGE = DOCS / "training-loop.md"


@pytest.mark.parametrize(("index", "kind"), [(1, Gate), (2, TrainingGate)])
def test_settings_are_documented_with_their_defaults(index: int, kind: type) -> None:
    """Every field in its order; a default that is code is that of the code."""
    rows = tables(PAGE, "Gate inside the training loop")[index]
    fields = [field for field in dataclasses.fields(kind) if field.init]

    assert column(rows) == [field.name for field in fields]
    for row, field in zip(rows, fields, strict=True):
        if field.default not in (None, dataclasses.MISSING, sys.executable) and "`" in row[1]:
            assert row[1].strip("`") == str(field.default)


def test_values_for_trackers_are_documented() -> None:
    """Every name that a tracker is given."""
    page = PAGE.read_text(encoding="utf-8")
    names = [name.replace("shapes/overall/gc", "SUITE/PART/METRIC") for name in values_of(VERDICT)]

    for name in names:
        ending = f"/{name.rpartition('/')[2]}`"
        assert f"`{name}`" in page or f"`{ending}" in page
