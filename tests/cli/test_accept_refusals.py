"""`cepbench accept` refuses, by name, what is no whole, sound measurement, and writes nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.gate import FreshMeasurement
from pytest_cepbench.measures import KINDS, SuiteContext
from pytest_cepbench.measures.measure_registry import higher_is_better
from pytest_cepbench.measures.text_quality import TextTable, make_texts
from pytest_cepbench.report.result import ModelShown
from tests.cli.accepting import WORSE, accept, by_name
from tests.cli.conftest import Ended, Home
from tests.cli.reports import (
    CASES,
    Measured,
    altered,
    edit_report,
    result_of,
    write_report,
)
from tests.plugin.project import contents

BASELINES = Path(__file__).parents[2] / "baselines"

Edit = Callable[[dict[str, Any]], object]
"""Changes the document of a report."""


def refused(home: Home, ended: Ended, *message: str) -> None:
    """Exit code 1, one line for each reason, no table, no file."""
    assert (ended.code, ended.out) == (1, "")
    lines = ended.err.splitlines()
    assert len(lines) == len(message)
    for line, piece in zip(lines, message, strict=True):
        assert line.startswith("cepbench: nothing is accepted: ")
        assert piece in line
    assert not (home.path / "baselines").exists()


def test_an_incomplete_run(home: Home, measured: Measured) -> None:
    """It can update no baseline, not even those of the cases that it judged."""
    results = [result_of(measurement) for measurement in measured()]
    ended = accept(home, results, verdict="incomplete", problems=["worker 'gw0' crashed"])
    refused(home, ended, "the run is incomplete: worker 'gw0' crashed")
    ended = accept(home, results, "--case=overall/gc", verdict="incomplete")
    refused(home, ended, "the run is incomplete")


def test_a_run_in_which_a_worker_died(home: Home, measured: Measured) -> None:
    """Its verdicts stand, as its cases were judged again; a baseline must come of a calm run."""
    results = [result_of(measurement) for measurement in measured()]
    refused(home, accept(home, results, deaths=2), "2 workers died in the run, and baselines are")


def test_no_case(home: Home) -> None:
    """A run that judged nothing."""
    refused(home, accept(home, [], verdict="failed"), "the run judged no case")


def test_cases_that_were_not_measured(home: Home, measured: Measured) -> None:
    """Each is named with its reason; none of the others is accepted either."""
    color, count, *rest = measured()
    broken = result_of(color, verdict="error", measured=None, reasons=["no \x1b[31mGPU"])
    also = result_of(count, verdict="error")
    ended = accept(home, [broken, also, *map(result_of, rest)])
    refused(
        home,
        ended,
        "toy/color/gc: it was not measured: no \\x1b[31mGPU",
        "toy/count/gc: it was not",
    )


def test_a_look_at_a_part(home: Home, measured: Measured) -> None:
    """A case that was decided early has scores of a part of its samples only."""
    ended = accept(home, [result_of(measured()[0], partial=True)])
    refused(
        home, ended, "toy/color/gc: it was decided before all samples were looked at: run again"
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("value", 0.123, "says value = 0.123"),
        ("n", 3, "says n = 3"),
        ("case", "toy/count/gc", "is of case 'toy/count/gc'"),
        ("scores", {}, "holds no scores"),
        ("format", 1, "has format 1, this version writes"),
        ("format", 99, "has format 99, this version writes"),
        ("noise", {"seeds": 2, "units": 2, "sd": -1.0, "value_sd": 0.0}, "sd = -1.0"),
    ],
)
def test_measurements_that_contradict_themselves(
    home: Home, measured: Measured, field: str, value: object, message: str
) -> None:
    """A report that was edited, or cut, is not believed."""
    report = write_report(home.path / "r.json", [result_of(measured()[0])])

    def spoil(document: dict[str, Any]) -> None:
        document["cases"][0]["measurement"][field] = value

    edit_report(report, spoil)
    refused(home, home.command("accept", "r.json", "--reason=x"), message)


def _of(record: str, name: str, value: object) -> Edit:
    return lambda document: document["cases"][0][record].__setitem__(name, value)


EDITS: dict[str, tuple[Edit, str]] = {
    "problems": (
        lambda document: document.update(verdict="passed", problems=["2 tests did not report"]),
        "the run is incomplete: 2 tests did not report",
    ),
    "verdict of the run": (
        lambda document: document.update(verdict="passed"),
        "the report says that the run is passed, and its cases that it is failed",
    ),
    "direction": (
        _of("measurement", "higher_is_better", False),
        "lower is better, which it is not of gc/1",
    ),
    "value": (
        _of("measurement", "value", 0.123),
        "the measurement says value = 0.123 and its scores",
    ),
    "n": (_of("measurement", "n", 200), "the measurement says n = 200"),
    "two specs": (
        lambda document: document["cases"][1]["measurement"]["model"].update(spec="another"),
        "the describer of suite toy is shapes: in ",
    ),
    "no verdict": (_of("judgement", "verdict", "incomplete"), "toy/color/gc: it was not measured"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_reports_that_were_edited(home: Home, measured: Measured, edit: str) -> None:
    """What a report says has to agree with itself, and the direction is that of the metric."""
    results = [result_of(measurement) for measurement in measured()]
    report = write_report(home.path / "r.json", results)
    change, message = EDITS[edit]
    edit_report(report, change)
    ended = home.command("accept", "r.json", "--reason=x")
    assert (ended.code, ended.out) == (1, "")
    assert message in ended.err
    assert all(
        line.startswith("cepbench: nothing is accepted: ") for line in ended.err.splitlines()
    )
    assert not (home.path / "baselines").exists()


def test_two_models_in_one_role(home: Home, measured: Measured) -> None:
    """Of a role that was not under test as well: both specs are named, with a test of each."""
    generators = [ModelShown("generator", spec, "f" * 64, "x") for spec in ("shapes:", "other")]
    results = [
        result_of(measurement, models=[generator])
        for measurement, generator in zip(measured(), generators, strict=False)
    ]
    ended = accept(home, results)
    refused(home, ended, "generator of suite toy is shapes: in test_toy.py::test_drift[color-gc]")


def test_a_word_that_is_no_verdict(home: Home, measured: Measured) -> None:
    """One line, for every command that reads a report."""
    report = write_report(home.path / "r.json", [result_of(measured()[0])])
    edit_report(report, _of("judgement", "verdict", "great"))
    ended = home.command("accept", "r.json", "--reason=x")
    assert ended.code == 2
    assert "Invalid enum value 'great' - at `$.cases[0].judgement.verdict`" in ended.err


def test_directions_are_those_of_the_metrics() -> None:
    """As every accepted baseline of this repository has it, and statistics of texts say."""
    for path in BASELINES.rglob("*.toml"):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        assert higher_is_better(table["identity"]["metric"]) == table["higher_is_better"], path
    plan = ChainPlan("text", 2, "describe", "{description}")
    context = SuiteContext("suite", {"text": plan}, {})
    for kind in ("length", "repetition"):
        settings = KINDS[kind]()
        assert isinstance(settings, TextTable)
        measure = make_texts(kind, kind, settings, context)
        assert higher_is_better(measure.identity) == measure.higher_is_better


def test_several_tests_of_one_case(home: Home, measured: Measured) -> None:
    """Equal measurements are one; others contradict each other."""
    measurement, other = measured()[0], measured(WORSE)[0]
    assert measurement.value != other.value
    refused(
        home, accept(home, [result_of(measurement), result_of(other)]), "measured different things"
    )
    assert accept(home, [result_of(measurement), result_of(measurement)]).code == 0
    assert len(contents(home.path / "baselines")) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--reason= "], "--reason is empty"),
        (["--case=overall/gcc"], "unknown case 'overall/gcc'. Did you mean 'toy/overall/gc'?"),
        (["--case="], "unknown case ''"),
        (["--case=suite/verdict"], "unknown case 'suite/verdict'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    home: Home, measured: Measured, argv: list[str], message: str
) -> None:
    """Nothing is written; the verdict of a whole suite is no case that has a baseline."""
    verdict = result_of(measured()[0], part="suite", metric="verdict", measured=None)
    ended = accept(home, [*map(result_of, measured()), verdict], *argv)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cepbench: ")
    assert ended.err.count("\n") == 1
    assert message in ended.err
    assert not (home.path / "baselines").exists()


def test_a_reason_is_required(home: Home) -> None:
    """Without one the command does not begin."""
    (home.path / "r.json").write_text("{}")
    ended = home.command("accept", "r.json")
    assert ended.code == 2
    assert "the following arguments are required: --reason" in ended.err


def test_the_verdict_of_a_suite_is_passed_over(home: Home, measured: Measured) -> None:
    """It measures nothing of its own."""
    verdict = result_of(measured()[0], part="suite", metric="verdict", measured=None)
    assert accept(home, [*map(result_of, measured()), verdict]).code == 0
    assert len(contents(home.path / "baselines")) == CASES


def _blind(measured: Measured) -> FreshMeasurement:
    """A measurement of the lossy model whose value is all but what chance gives."""
    measurement = by_name(measured(WORSE))["overall/gc"]
    return altered(measurement, floor=measurement.value - 0.001)


def test_what_lies_at_chance(home: Home, measured: Measured) -> None:
    """It would see nothing: each such case is named, and none of the others is accepted either."""
    good, blind = altered(measured(WORSE)[0], floor=0.1), _blind(measured)
    ended = accept(home, [result_of(good), result_of(blind)])
    refused(home, ended, f"{blind.key}: {blind.value:.4g} of a range from ")
    assert "sees nothing; --accept-insensitive accepts it all the same" in ended.err


def test_what_cannot_fail_a_run_may_lie_at_chance(home: Home, measured: Measured) -> None:
    """An informational case lets no checkpoint pass: it is remarked on."""
    blind = _blind(measured)
    ended = accept(home, [result_of(blind, primary=False)])
    assert ended.code == 0
    flat = " ".join(ended.out.split())
    assert f"warning: {blind.key}: {blind.value:.4g} of a range from " in flat


@pytest.mark.parametrize("option", ["--accept-insensitive", "--cep-accept-insensitive"])
def test_it_can_be_asked_for(home: Home, measured: Measured, option: str) -> None:
    """In pytest's spelling too; what the set-up can see stands under the table."""
    ended = accept(home, [result_of(_blind(measured))], option)
    assert ended.code == 0
    assert "can see a drop of at most 0.001" in " ".join(ended.out.split())
