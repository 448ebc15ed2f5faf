"""Commands that work on chains, given a suite that asks for answers: one line, and nothing else."""

from __future__ import annotations

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
        (["study", "--vary=seeds", "."], "a study"),
        (["study", "--vary=lengths", "."], "a study"),
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


def test_answers_are_not_measured_again(home: Home) -> None:
    """What was accepted are the answers themselves: there is no luck in a score to be rid of."""
    write_suite(home.path, ANSWERS)
    with Store(home.path / "store") as store:
        measured = prepare(home.path, store).measure()
    write_report(home.path / "r.json", [result_of(measured)])
    ended = home.command("accept", "r.json", "--reason=best of five", "--remeasure=.")
    assert ended.code != 0
    assert ended.err == f"{REFUSED}--remeasure can measure chains alone\n"
    assert not (home.path / "baselines").exists()


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
