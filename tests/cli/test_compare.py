"""`cepbench compare` and `study`: runs case by case and ranked, and models over variants."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.gate.baseline import record_of
from pytest_cepbench.gate.compare import judge
from pytest_cepbench.gate.policy import Policy
from tests.cli.conftest import Home
from tests.cli.reports import (
    CASES,
    GATED,
    Measured,
    edit_report,
    measure_toy,
    result_of,
    results_of,
    write_report,
)
from tests.documents import flat_report
from tests.plugin.project import accept_project, run_plainly
from tests.studies.toy import COLORS, TOY, write_suite
from tests.suites.answers import ANSWERS, WORSE

MODELS = {"best": "shapes:", "mid": "shapes:?miss=0.4", "low": "shapes:?miss=0.95"}


@pytest.fixture
def reports(home: Home, measured: Measured) -> Home:
    """Reports of three models of the toy suite."""
    for name, spec in MODELS.items():
        write_report(home.path / f"{name}.json", results_of(measured(spec)), "passed")
    return home


def test_two_runs(reports: Home, measured: Measured) -> None:
    """The verdict and the numbers are the gate's, had the first run been accepted.

    Samples that lost most are named. Of a run against itself nothing differs, and nothing is said
    to have changed.
    """
    ended = reports.command("compare", "best.json", "low.json", "--alpha=0.5")
    before, now = (
        next(m for m in measured(MODELS[name]) if str(m.key) == "toy/overall/gc")
        for name in ("best", "low")
    )
    expected = judge(now, record_of(before), Policy(tolerance=0.01, alpha=0.5 / CASES))

    assert (ended.code, ended.err) == (0, "")
    row, _ = [line.split() for line in ended.out.splitlines() if line.startswith(f"{now.key} ")]
    shown = [before.value, now.value, expected.difference]
    assert row[1] == expected.verdict
    assert [float(cell) for cell in row[2:5]] == pytest.approx(shown, abs=5e-5)
    assert expected.p is not None
    p = f"{expected.p:.2g}".replace("e-0", "e-")
    assert " ".join(row[5:]) == f"[{expected.low:+.4f}, {expected.high:+.4f}] {p} 16"
    assert "low against best: regressed in" in ended.out
    assert ", worst toy/" in ended.out
    assert f"{now.key} lost most at " in ended.out
    ended = reports.command("compare", "best.json", "again=best.json")
    assert ended.code == 0
    assert f"again against best: regressed in none of {CASES} gating cases" in ended.out
    rows = [line.split() for line in ended.out.splitlines() if line.startswith("toy/")]
    assert [row[4:8] for row in rows if "gc" in row[0]] == [["+0.0000", "same", "model", "-"]] * 9


def test_a_case_holds_where_its_gate_says_so(home: Home, measured: Measured) -> None:
    """By threshold alone the mean decides, as in the run; the bounds stand beside the verdict."""
    rows = {}
    for gate in ("regression", "threshold"):
        for name, spec in (("best", "shapes:"), ("mid", "shapes:?miss=0.1")):
            results = results_of(measured(spec), gate=gate, tolerance=0.15)
            write_report(home.path / f"{name}.json", results, "passed")
        ended = home.command("compare", "best.json", "mid.json", "--case=toy/overall/gc")
        (rows[gate],) = (r for r in ended.out.splitlines() if r.startswith("toy/overall/gc "))
    alike, held = (rows[gate].split() for gate in ("regression", "threshold"))
    assert (alike[1], held[1]) == ("inconclusive", "held")
    assert alike[2:] == held[2:]


def test_what_is_not_paired_says_so(reports: Home) -> None:
    """A case that one run could not measure has no verdict that could pass."""

    def lose(document: dict[str, Any]) -> None:
        document["cases"][0]["measurement"] = None
        document["cases"][0]["judgement"]["verdict"] = "error"
        del document["cases"][1]

    edit_report(reports.path / "low.json", lose)
    ended = reports.command("compare", "best.json", "low.json")
    assert ended.code == 0
    assert "one of the two has no measurement" in ended.out
    assert "1 not compared, 1 more not measured by low" in ended.flat
    assert "only in best: " in ended.out


def test_answers_that_battled_others(reports: Home) -> None:
    """Reports keep no scores of battles: the values stand beside each other, and nothing more."""

    def battle(document: dict[str, Any]) -> None:
        for case in document["cases"]:
            measured = case["measurement"]
            samples = {s for part in measured["scores"].values() for s in part}
            measured["answers"] = dict.fromkeys(samples, "0" * 64)
            measured["scores"] = {
                name: dict.fromkeys(part, 0.5) for name, part in measured["scores"].items()
            }
            measured |= {"value": 0.5, "higher_is_better": True}

    for name in MODELS:
        edit_report(reports.path / f"{name}.json", battle)
    ended = reports.command("compare", "best.json", "mid.json", "low.json")
    assert ended.code == 0
    assert "nothing was compared" in ended.out
    assert "the answers battled others in each run" in ended.out
    assert "rank" not in ended.out


def test_distances_between_sets(home: Home) -> None:
    """They are compared by samples; without their scores there are no bounds, and none passes."""
    for pool in ("samples", "categories"):
        text = f'{GATED}[metrics.fid]\npool = "{pool}"\nparts = "overall"\n'
        for name, spec in (("a", "shapes:?miss=0.1"), ("b", "shapes:?recolor=0.9")):
            results = map(result_of, measure_toy(home.path, spec, text))
            write_report(home.path / f"{name}-{pool}.json", results)
        ended = home.command(
            "compare", f"a-{pool}.json", f"b-{pool}.json", "--case=toy/overall/fid"
        )
        (row,) = [line for line in ended.out.splitlines() if line.startswith("toy/overall/fid")]
        assert (row.split()[-1] == "16") == (pool == "samples")
        assert ("inconclusive" in row) == (pool == "categories")


def test_refused(reports: Home, measured: Measured) -> None:
    """In one line. Other data, or a report that contradicts itself: never a number against
    another's.
    """
    edits: dict[str, Callable[[dict[str, Any]], object]] = {
        "data": lambda run: run["cases"][-2]["measurement"]["identity"].update(data="another"),
        "else": lambda run: run["cases"][-2]["measurement"].update(case="toy/else/gc"),
        "less": lambda run: run["cases"][-2]["measurement"]["scores"].popitem(),
    }
    for name, edit in edits.items():
        path = write_report(reports.path / f"{name}.json", results_of(measured(MODELS["low"])))
        edit_report(path, edit)
    results = results_of(measured("shapes:"))
    write_report(reports.path / "cut.json", results, "incomplete", ["worker gw0 died"])
    write_report(reports.path / "a.json", results[:1])
    write_report(reports.path / "b.json", results[1:])
    for argv, message in (
        (["best.json"], "of two or more runs"),
        (["best.json", "best.json"], "two runs are called 'best': name them, NAME=best.json"),
        (["best.json", "none.json"], "results 'none.json' cannot be read: No such file"),
        (["best.json", "low.json", "--suite=toys"], "no case that is asked for: it has toy/"),
        (["best.json", "low.json", "--alpha=2"], "--alpha 2: a probability"),
        (["best.json", "low.json", "--case=toy/all/*"], "no case that is asked for: it has toy/"),
        (["best.json", "cut.json"], "the run of cut.json is incomplete (worker gw0 died)"),
        (["a.json", "b.json"], "a and b have no case in common: a measured toy, b toy"),
        (["best.json", "data.json"], "were not measured alike (data differ)"),
        (["best.json", "else.json"], "is of case 'toy/else/gc'"),
        (["best.json", "less.json"], "says n = "),
    ):
        reports.command("compare", *argv).refused(message, lines=1)


CASE = "arena/overall/win_rate"


OPTIONS = (f"--case={CASE}", "--alpha=0.05")


def case_of(root: Path, name: str) -> dict[str, Any]:
    """The case in a report."""
    (case,) = flat_report(json.loads((root / f"{name}.json").read_text()))["cases"]
    assert isinstance(case, dict)
    return case


def row_of(out: str) -> list[str]:
    """The cells of the case's row in the table."""
    return next(line.split() for line in out.splitlines() if line.startswith(f"{CASE} "))


@pytest.mark.slow
def test_runs_that_battled_the_same_answers(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The change is the mean over the questions of what one won more than the other; beside the run
    that was battled, the own battles against its answers.

    Battles against other answers are not paired, nor those of which the report does not say which
    answers, or lacks a question.
    """
    battled, overall = tmp_path_factory.mktemp("battled"), ("-k", "overall-win_rate")
    accept_project(battled, ANSWERS, "test_arena", "--cep-report=accepted.json", *overall)
    for name, spec in {"worse": WORSE, "worst": "shapes:?miss=0.8"}.items():
        run_plainly(battled, f"--model={spec}", f"--cep-report={name}.json", *overall)
    paths = [str(battled / f"{name}.json") for name in ("worse", "worst")]
    ended = home.command("compare", *paths, *OPTIONS)
    first, second = (case_of(battled, name) for name in ("worse", "worst"))
    changes = [second["differences"][sample] - d for sample, d in first["differences"].items()]
    row = row_of(ended.out)

    assert ended.code == 0
    assert float(row[4]) == pytest.approx(sum(changes) / len(changes), abs=5e-5)
    assert float(row[4]) == pytest.approx(second["value"] - first["value"], abs=1.1e-4)
    assert row[1] != "incomparable"
    assert int(row[-1]) > 1

    paths[0] = str(battled / "accepted.json")
    row = row_of(home.command("compare", *paths, *OPTIONS).out)
    assert float(row[4]) == pytest.approx(second["difference"], abs=5e-5)
    assert row[1] == second["verdict"] == "regressed"
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


def test_page_and_files(reports: Home) -> None:
    """Two comparisons with the first, models with ranks in each metric, then each metric's
    differences; files hold the same.
    """
    runs = ("low.json", "best.json", "third=mid.json")
    ended = reports.command("compare", *runs, "--out=boards")
    assert ended.out.startswith(reports.command("compare", *runs).out)
    assert "best against low" in ended.out
    assert "third against low" in ended.out
    alone = reports.command("compare", *runs, "--case=toy/overall/gc")
    assert alone.out.startswith("leaderboard of toy: 3 models\n")
    document = json.loads((reports.path / "boards/leaderboard.json").read_text("utf-8"))

    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"^best +1-2 ", ended.out, re.MULTILINE)
    assert re.search(r"^low +2-3 ", ended.out, re.MULTILINE)
    assert "toy/overall/gc: GC@" in ended.out
    board = document["cases"][0]
    assert [model["model"] for model in board["models"]] == ["best", "third", "low"]
    assert board["models"][0]["rank_high"] == board["models"][2]["rank_low"] == 2
    assert board["models"][2]["difference"] < board["models"][1]["difference"] < 0
    assert document["command"] == (
        "cepbench compare low.json best.json third=mid.json --out=boards"
    )


# -- `cepbench study`: what it prints and writes was measured --------------------------------------


FEW = "--samples=1"

GENERATORS = ("--generator=world=shapes:", "--generator=moving=shapes:?move=0.3")


def rows(grid: dict[str, Any]) -> dict[str, list[float]]:
    """Model -> its values over the variants."""
    columns: dict[str, list[float]] = {}
    for cell in grid["cells"]:
        columns.setdefault(cell["model"], []).append(cell["value"])
    return columns


def line(text: str, start: str) -> list[str]:
    """The numbers of the first line that begins so."""
    row = next(line for line in text.splitlines() if line.startswith(start))
    return row[len(start) :].split()


def test_generators(home: Home) -> None:
    """Pearson of two generators over three models, recomputed; every pair is a line."""
    ended = home.study("generators", ".", *GENERATORS, "--generator=shapes:?resize=0.4", FEW)
    grid = home.grid("generators")
    table = rows(grid)
    spreads = [[spread["spread"][name] for name in ("std", "range")] for spread in grid["spreads"]]
    assert [grid["mean_std"], grid["mean_range"]] == pytest.approx(np.mean(spreads, axis=0))
    columns = np.array([table[model] for model in "abc"]).T
    expected = np.corrcoef(columns)
    (pearson,) = [a for a in home.grid("generators")["agreements"] if a["method"] == "pearson"]
    coefficients = [[cell["value"] for cell in row] for row in pearson["matrix"]]
    assert np.array(coefficients) == pytest.approx(expected)
    assert pearson["mean"] == pytest.approx((expected.sum() - 3) / 6)
    assert ended.code == 0
    assert "#3 = shapes:?resize=0.4: generator shapes:?resize=0.4" in ended.out
    assert line(ended.out, "#1 and #3")[0] == f"{expected[0, 2]:.4f}"


def test_encoders(home: Home) -> None:
    """The chains are grown once; only the second encoder is asked again."""
    colors = f"--encoder=colors={COLORS}"
    ended = home.study("encoders", ".", "--encoder=world=shapes:", colors, "--metrics=gc")
    assert ended.code == 0
    assert line(ended.out, "world and colors") != []
    players = {(entry["seat"], entry["spec"]) for entry in home.document("encoders")["players"]}
    assert ("encoder", COLORS) in players
    roles = [cell["identity"]["encoder"] for cell in home.grid("encoders")["cells"]]
    assert len(set(roles)) == 2


def test_a_failing_cell_is_shown_and_the_rest_is_measured(home: Home) -> None:
    """Exit code 1, "error" in the cell, the reason below, everything else as ever."""
    ended = home.study("generators", ".", *GENERATORS, "--generator=dead=shapes:?blank=1", FEW)
    assert ended.code == 1
    assert line(ended.out, "a   ")[2] == "error"
    assert "a, dead: all 8 chains failed at the generator (shapes:?blank=1)" in ended.out
    cells = home.grid("generators")["cells"]
    assert [cell["value"] is None for cell in cells] == [False, False, True] * 3
    assert "Traceback" not in ended.out + ended.err


def test_samples_and_parts(home: Home) -> None:
    """The options of the gate mean here what they mean there; what is written stays out of git.

    Where the files cannot be written, the tables are shown all the same, and the code is 1.
    """
    argv = (".", "--seeds=0,1764317533000000000", FEW, "--parts=crowded", "--metrics=gc")
    ended = home.study("seeds", *argv)
    assert "seeds: #1 = 0, #2 = 1764317533000000000" in ended.out
    grids = home.document("seeds")["grids"]
    assert [(g["part"], g["cells"][0]["n"]) for g in grids] == [("crowded", 1), ("overall", 8)]
    assert (home.path / ".cepbench" / ".gitignore").read_text() == "*\n"
    ended = home.study("seeds", *argv, "--out=suite.toml")
    assert ended.code == 1
    assert "mean of pairs" in ended.out
    assert ended.err.splitlines()[-1].startswith("cepbench: the results could not be written to")


def test_the_suite_can_be_a_file_elsewhere(home: Home, tmp_path_factory: Any) -> None:
    """A TOML file of any name will do, and modules beside it are found."""
    place: Path = tmp_path_factory.mktemp("suites")
    (place / "models_beside.py").write_text(
        "from pytest_cepbench.datasets.shapes import Degradation\n"
        "from pytest_cepbench.models.rule_based.scene_models import ShapesDescriber\n"
        "class Blind(ShapesDescriber):\n"
        "    fingerprint = 'blind/1'\n"
        "def blind():\n"
        "    return Blind(Degradation(recolor=1.0))\n"
    )
    (place / "other.toml").write_text(TOY)
    model = "--model=blind=python:models_beside:blind"
    ended = home.study("seeds", str(place / "other.toml"), "--seeds=0,1", FEW, models=[model])
    assert ended.code == 0
    assert home.document("seeds")["file"] == str(place / "other.toml")


WRITERS = (
    "--role=writer",
    "--model=a=shapes:?miss=0.1",
    "--model=b=shapes:?miss=0.5",
    "--model=c=shapes:",
)
DRAWERS = ("--generator=exact=shapes:", "--generator=moves=shapes:?move=0.3")


@pytest.mark.slow
def test_generators_behind_a_writer(home: Home) -> None:
    """The same texts, drawn by each generator, battle the reference answers and are ranked."""
    write_suite(home.path, ANSWERS.replace("[answer]", '[answer]\n[arena]\nagainst = "gold"'))
    ended = home.study("generators", ".", "--store=own", *DRAWERS, models=WRITERS)
    assert ended.code == 0
    study = json.loads((home.path / ".cepbench/studies/generators-arena.json").read_text("utf-8"))
    grids = {grid["metric"]: grid for grid in study["grids"]}
    assert {*grids} == {"win_rate", "truth", "failures", "judge_failures"}
    assert {model["seat"] for model in study["players"]} == {"writer", "generator", "judge"}
    for metric in ("win_rate", "truth"):
        values = {(c["model"], c["variant"]): c["value"] for c in grids[metric]["cells"]}
        assert all(values[model, "exact"] > values[model, "moves"] for model in "abc")
        assert all(values["c", name] > values["b", name] for name in ("exact", "moves"))
        pearson = grids[metric]["agreements"][0]["matrix"][0][1]["value"]
        columns = [[values[model, name] for model in "abc"] for name in ("exact", "moves")]
        assert pearson == pytest.approx(np.corrcoef(columns)[0, 1])
    asked = study["effort"]["inputs"]
    home.study("generators", ".", "--store=own", *DRAWERS, models=WRITERS)
    study = json.loads((home.path / ".cepbench/studies/generators-arena.json").read_text("utf-8"))
    assert study["effort"]["inputs"] == 0 < asked


@pytest.mark.slow
def test_seeds_of_answers(home: Home) -> None:
    """Without accepted answers no win rate is made up: it is left out, and said so."""
    write_suite(home.path, ANSWERS)
    ended = home.study("seeds", ".", "--seeds=0,1,2")
    assert ended.code == 0
    assert "note: win_rate, judge_failures left out: accepted answers are needed" in ended.out
    study = json.loads((home.path / ".cepbench/studies/seeds-arena.json").read_text("utf-8"))
    grids = {grid["metric"]: grid for grid in study["grids"]}
    assert {*grids} == {"truth", "failures"}
    values = {(c["model"], c["variant"]): c["value"] for c in grids["truth"]["cells"]}
    assert len({values["a", seed] for seed in "012"}) == 3
