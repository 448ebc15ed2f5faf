"""People in the place of models, from what they rate to the verdict, by real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.ratings.folder import Ratings, read_ratings
from pytest_cepbench.ratings.records import Vote
from tests.documents import flat_report
from tests.plugin.project import INI, TEST_MODULE
from tests.ratings.voted import cast, side_vote
from tests.suites.answers import ANSWERS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

CASES = ("-k", "overall")

WORSE = "--model=shapes:?miss=0.4"


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder, with this package."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    return subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def verdicts(folder: Path, report: str) -> dict[str, str]:
    """Case -> verdict of a run."""
    cases = flat_report(json.loads((folder / report).read_text()))["cases"]
    return {f"{case['part']}/{case['metric']}": case["verdict"] for case in cases}


def prefer(ratings: Ratings, model: str, annotator: str, leave_out: int = 0) -> None:
    """An annotator prefers the answers of one model, and does not judge some battles."""
    items = [item for item in ratings.items.values() if item.kind == "item"]
    for item in items[leave_out:]:
        option = next(
            source.option
            for source in ratings.sources
            if (source.item, source.model) == (item.item, model)
        )
        verdict = "A" if item.options[0].option == option else "B"
        cast(ratings, side_vote(item, annotator, verdict))


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2")], ids=["one", "two"])
def test_from_a_report_to_a_verdict_of_people(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Accept, run a candidate, rate it, gate it: regressed, and failed while votes are missing."""
    for name, text in {
        "pytest.ini": INI,
        "suite.toml": ANSWERS,
        "test_arena.py": TEST_MODULE,
    }.items():
        (tmp_path / name).write_text(text)
    gate = ("pytest", *workers, *CASES)
    assert run(tmp_path, *gate, "--snapshot-update").returncode == 0
    assert run(tmp_path, *gate, WORSE, "--cep-report=worse.json").returncode == 1
    rated = run(
        tmp_path,
        *("pytest_cepbench.cli", "rate", "ask", "suite.toml", "--kind=pair", "--report=worse.json"),
        *("--out=ratings/may", "--annotators=ada,bob", "--only-write"),
    )
    assert rated.returncode == 0, rated.stderr
    ratings = read_ratings(tmp_path / "ratings/may")
    people = "--judge=human:ratings/may"
    prefer(ratings, "accepted", "ada", leave_out=4)
    changed = run(tmp_path, "pytest_cepbench.cli", "arena", "rejudge", "suite.toml", people)
    assert changed.returncode == 0, changed.stderr
    assert "people's votes human/1 people" in changed.stdout

    partly = run(tmp_path, *gate, "-vv", WORSE, people, "--cep-report=partly.json")
    assert partly.returncode == 1
    judged = verdicts(tmp_path, "partly.json")
    assert judged["overall/judge_failures"] == "regressed"
    assert judged["overall/win_rate"] == "incomparable"
    assert "unanswered" in partly.stdout

    prefer(ratings, "accepted", "bob")
    whole = run(tmp_path, *gate, WORSE, people, "--cep-report=whole.json")
    judged = verdicts(tmp_path, "whole.json")
    assert whole.returncode == 1
    assert judged["overall/win_rate"] == "regressed"
    assert judged["overall/judge_failures"] == "held"

    same = run(tmp_path, *gate, people, "--cep-report=same.json")
    assert same.returncode == 0, same.stdout
    assert verdicts(tmp_path, "same.json")["overall/win_rate"] == "held"


def test_ratings_of_one_suite_leave_the_other_of_a_folder_alone(tmp_path: Path) -> None:
    """`pytest suites/arena --judge=human:...` gates the rated suite; the other one is an error."""
    folder = tmp_path / "suites/arena"
    folder.mkdir(parents=True)
    other = "import pytest\npytestmark = pytest.mark.cep(suite='other.toml')\n"
    for name, text in {
        "../../pytest.ini": INI,
        "suite.toml": ANSWERS,
        "other.toml": ANSWERS.replace('name = "arena"', 'name = "other"'),
        "test_arena.py": TEST_MODULE,
        "test_other.py": other + TEST_MODULE,
    }.items():
        (folder / name).write_text(text)
    gate = ("pytest", "suites/arena", "-p", "no:xdist", *CASES)
    assert run(tmp_path, *gate, "--snapshot-update").returncode == 0
    run(tmp_path, *gate, WORSE, "--cep-report=worse.json")
    rate = (
        "pytest_cepbench.cli",
        "rate",
        "ask",
        "suites/arena",
        "--kind=pair",
        "--report=worse.json",
    )
    rated = run(tmp_path, *rate, "--out=ratings/may", "--annotators=ada", "--only-write")
    assert rated.returncode == 0, rated.stderr
    prefer(read_ratings(tmp_path / "ratings/may"), "accepted", "ada")
    people = "--judge=human:ratings/may"
    run(tmp_path, "pytest_cepbench.cli", "arena", "rejudge", "suites/arena", people)

    both = run(tmp_path, *gate, people, "--cep-report=both.json")
    assert both.returncode == 1
    cases = flat_report(json.loads((tmp_path / "both.json").read_text()))["cases"]
    verdict = {(c["suite"], c["part"], c["metric"]): c["verdict"] for c in cases}
    assert verdict["arena", "overall", "win_rate"] == "held"
    assert verdict["other", "overall", "win_rate"] == "error"
    assert {v for (suite, _, _), v in verdict.items() if suite == "arena"} == {"held"}
    (reason,) = next(c["reasons"] for c in cases if c["verdict"] == "error")
    assert "holds ratings of the suite 'arena': people have to see the answers of" in reason

    alone = run(tmp_path, "pytest", "suites/arena/test_arena.py", "-p", "no:xdist", *CASES, people)
    assert alone.returncode == 0, alone.stdout


def test_people_describe_photographs(tmp_path: Path) -> None:
    """The commands of docs/people.md: people's words are drawn, accepted, and a bar for models."""
    for name in ("folder", "folder-described"):
        shutil.copytree(ROOT / "suites" / name, tmp_path / "suites" / name)
    (tmp_path / "pytest.ini").write_text(INI)
    samples = load_shapes(samples_per_category=2).samples
    words = {}
    for number, sample in enumerate(samples):
        assert sample.image is not None
        path = tmp_path / f"photos/{number % 2}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = sample.image.load()
        image.to_pil().save(path)
        words[image.digest] = sample.text
    rate = ("pytest_cepbench.cli", "rate", "ask", "suites/folder-described", "--kind=describe")
    data = ("--data", "folder=photos", "--only-write")
    rated = run(tmp_path, *rate, "--out=ratings/words", "--annotators=ada,bob", *data)
    assert rated.returncode == 0, rated.stderr
    ratings = read_ratings(tmp_path / "ratings/words")
    items = [item for item in ratings.items.values() if item.kind == "item"]
    for item in items[1:]:
        text = words[item.question[0].image or ""]
        cast(ratings, Vote(task="describe", item=item.item, annotator="ada", text=text, words=9))

    models = ("-p", "no:xdist", "--generator=shapes:", "--encoder=shapes:")
    gate = (*models, "--cep-data=folder=photos", "--cep-report=report.json")
    people = ("--describer=human:ratings/words", *gate)
    gated = ("pytest", "suites/folder-described", "-v", *people, "--snapshot-update")
    partly = run(tmp_path, *gated)
    assert partly.returncode == 0, partly.stdout
    assert f"{1 / len(items):.4f}" in partly.stdout  # the failure rate
    text = words[items[0].question[0].image or ""]
    cast(ratings, Vote(task="describe", item=items[0].item, annotator="bob", text=text, words=9))
    whole = run(tmp_path, *gated)
    assert whole.returncode == 0, whole.stdout
    model = ("--model=shapes:?miss=0.9", "--cep-role=describer", *gate)
    worse = run(tmp_path, "pytest", "suites/folder-described", *model)
    assert worse.returncode == 1
    assert verdicts(tmp_path, "report.json")["overall/gc"] == "regressed"

    longer = run(tmp_path, "pytest", "suites/folder", *people)
    assert longer.returncode == 1
    cases = flat_report(json.loads((tmp_path / "report.json").read_text()))["cases"]
    assert {case["verdict"] for case in cases} == {"error"}
    assert all("such as suites/folder-described" in case["reasons"][0] for case in cases)
