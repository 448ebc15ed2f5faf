"""`cepbench compare` on win rates: paired by question where the same answers were battled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.evaluation.run_report import read_report
from tests.cli.conftest import Home
from tests.cli.reports import edit_report
from tests.documents import flat_report
from tests.plugin.project import INI, TEST_MODULE, run_plainly
from tests.suites.answers import ANSWERS, WORSE

CASE = "arena/overall/win_rate"

OPTIONS = (f"--case={CASE}", "--alpha=0.05")


@pytest.fixture(scope="module")
def battled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of the run whose answers were accepted, and of two that battled them."""
    root = tmp_path_factory.mktemp("battled")
    for name, text in {
        "pytest.ini": INI,
        "suite.toml": ANSWERS,
        "test_arena.py": TEST_MODULE,
    }.items():
        (root / name).write_text(text)
    overall = ("-k", "overall-win_rate")
    assert run_plainly(root, "--snapshot-update", "--cep-report=accepted.json", *overall) == 0
    for name, model in {"worse": WORSE, "worst": "shapes:?miss=0.8"}.items():
        run_plainly(root, f"--model={model}", f"--cep-report={name}.json", *overall)
    return root


def case_of(root: Path, name: str) -> dict[str, Any]:
    """The case in a report."""
    (case,) = flat_report(json.loads((root / f"{name}.json").read_text()))["cases"]
    assert isinstance(case, dict)
    return case


def row_of(out: str) -> list[str]:
    """The cells of the case's row in the table."""
    return next(line.split() for line in out.splitlines() if line.startswith(f"{CASE} "))


@pytest.mark.slow
def test_two_runs_against_the_same_answers(home: Home, battled: Path) -> None:
    """The change is the mean over the questions of what one won more than the other."""
    paths = [str(battled / f"{name}.json") for name in ("worse", "worst")]
    ended = home.command("compare", *paths, *OPTIONS, "--html=page.html")
    first, second = (case_of(battled, name) for name in ("worse", "worst"))
    changes = [second["differences"][sample] - d for sample, d in first["differences"].items()]
    row = row_of(ended.out)

    assert ended.code == 0
    assert float(row[4]) == pytest.approx(sum(changes) / len(changes), abs=5e-5)
    assert float(row[4]) == pytest.approx(second["value"] - first["value"], abs=1.1e-4)
    assert row[1] != "incomparable"
    assert int(row[-1]) > 1


@pytest.mark.slow
def test_a_run_against_the_one_that_it_battled(home: Home, battled: Path) -> None:
    """Its own battles against those answers are the comparison."""
    paths = [str(battled / f"{name}.json") for name in ("accepted", "worst")]
    case, row = case_of(battled, "worst"), row_of(home.command("compare", *paths, *OPTIONS).out)
    assert float(row[4]) == pytest.approx(case["difference"], abs=5e-5)
    assert row[1] == case["verdict"] == "regressed"


@pytest.mark.slow
def test_battles_against_other_answers_are_not_paired(home: Home, battled: Path) -> None:
    """Nor those of which the report does not say which answers, or lacks a question."""
    for number, change in enumerate(({"opponents": "0" * 64}, {"opponents": ""}, {"drop": 1})):
        path = home.path / f"other{number}.json"
        path.write_text((battled / "worst.json").read_text())

        def edit(document: dict[str, Any], change: Any = change) -> None:
            (case,) = document["cases"]
            if "drop" in change:
                case["shown"]["differences"].popitem()
            else:
                case["shown"].update(change)

        edit_report(path, edit)
        assert read_report(path).cases
        ended = home.command("compare", str(battled / "worse.json"), str(path), *OPTIONS)
        assert row_of(ended.out)[1] == "incomparable"
        assert "nothing was compared" in ended.out
