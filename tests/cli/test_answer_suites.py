"""Commands that work on chains, given a suite that asks for answers: one line, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pytest_cepbench.store import Store
from tests.cli.conftest import Home
from tests.cli.reports import result_of, write_report
from tests.studies.toy import write_suite
from tests.suites.answers import ANSWERS, prepare

REFUSED = "cepbench: suite 'arena' asks for interleaved answers: "


@pytest.mark.parametrize(
    ("argv", "who"),
    [
        (
            ["study", "--vary=encoders", ".", "--encoder=shapes:", "--encoder=a/b"],
            "a study of encoders",
        ),
        (["calibrate", "."], "calibrate and doctor"),
        (["doctor", "."], "calibrate and doctor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_chains_are_needed(home: Home, argv: list[str], who: str) -> None:
    """Before any model is asked: nothing is announced and nothing written."""
    write_suite(home.path, ANSWERS)
    ended = home.command(*argv, "--model=shapes:?miss=0.1")
    assert ended.code != 0
    assert ended.out == ""
    assert ended.err == f"{REFUSED}{who} can measure chains alone\n"


WRITERS = (
    "--role=writer",
    "--model=a=shapes:?miss=0.1",
    "--model=b=shapes:?miss=0.5",
    "--model=c=shapes:",
)
GENERATORS = ("--generator=exact=shapes:", "--generator=moves=shapes:?move=0.3")


def test_generators_behind_a_writer(home: Home) -> None:
    """The same texts, drawn by each generator, battle the reference answers and are ranked."""
    write_suite(home.path, ANSWERS.replace("[answer]", '[answer]\n[arena]\nagainst = "gold"'))
    ended = home.study("generators", ".", *GENERATORS, models=WRITERS)
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
    home.study("generators", ".", *GENERATORS, models=WRITERS)
    study = json.loads((home.path / ".cepbench/studies/generators-arena.json").read_text("utf-8"))
    assert study["effort"]["inputs"] == 0 < asked


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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["seeds", ".", "--metrics=win_rate"], "'arena': win_rate: accepted answers are needed"),
        (["seeds", ".", "--metrics=gc"], "unknown metric 'gc'"),
        (["generators", ".", *GENERATORS], "nothing is drawn for 'shapes:?miss=0.1', the inter"),
        (["generators", ".", *GENERATORS[:1]], "compares at least two: got exact"),
        (["generators", ".", *GENERATORS, "--role=generator"], "which the study of generators ex"),
        (["seeds", ".", "--role=describer"], "the describer under test has no role in suite"),
        (["seeds", ".", "--judge=nobody/"], "nobody"),
    ],
)
def test_a_mistake_in_a_study_of_answers(home: Home, argv: list[str], message: str) -> None:
    """One line before any model is asked."""
    write_suite(home.path, ANSWERS)
    ended = home.study(*argv, models=["--model=shapes:?miss=0.1"])
    ended.refused(message, lines=1)
    assert ended.out == ""


def test_measured_answers_are_accepted_from_a_report(home: Home) -> None:
    """With the digest of every answer, and a score of one half for each."""
    with Store(home.path / "store") as store:
        worse = prepare(home.path, store, model="shapes:?miss=0.3")
        measured = worse.measure()
    write_report(home.path / "r.json", [result_of(measured)])
    ended = home.command("accept", "r.json", "--reason=meant")
    assert ended.code == 0
    assert "20 answers replaced" in ended.out
    (path,) = (home.path / "baselines").rglob("overall-win-rate-*.toml")
    text = path.read_text(encoding="utf-8")
    assert "value = 0.5\n" in text
    assert all(f'"{digest}"' in text for digest in measured.answers.values())
