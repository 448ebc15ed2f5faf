"""`cepbench rate ask`: new studies, one that is there, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.ratings.folder import read_ratings, read_votes
from tests.cli.conftest import Home
from tests.plugin.project import contents
from tests.ratings.serving import ROOT, request, served, slots
from tests.ratings.studies import make_study

LONG = "two of the many things that were asked for"

LINES = [
    {"question": [f"Question {number}"], "options": [["one"], [f"{LONG} {number}"]]}
    for number in range(30)
]


@pytest.fixture
def items(home: Home) -> str:
    """A file of items of one's own."""
    lines = [*LINES, LINES[0]]  # which is one item
    (home.path / "items.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return "items.jsonl"


def test_a_study_of_items_of_ones_own(home: Home, items: str) -> None:
    """Its folder has the items and checks; items whose answers cannot be damaged are told."""
    ended = home.command(
        "rate", "ask", items, "--kind=pair", "--out=ratings/mine", "--annotators=ann,ben",
        "--only-write", "--overlap=1", "--seed=7",
    )  # fmt: skip
    assert (ended.code, ended.out) == (0, "")
    assert "ratings/mine: 30 items for 2 annotators" in ended.err
    folder = home.path / "ratings" / "mine"
    ratings = read_ratings(folder)
    study = ratings.study
    assert (study.annotators, study.overlap) == (("ann", "ben"), 1)
    assert (study.seed, study.suite) == (7, "")
    kinds = [item.kind for item in ratings.items.values()]
    assert [kinds.count(kind) for kind in ("item", "attention")] == [30, 2]
    text = "".join(
        json.dumps({"question": ["Which?"], "options": [["red"], [f"blue {n}"]]}) + "\n"
        for n in range(20)
    )
    (home.path / "short.jsonl").write_text(text)
    ended = home.command("rate", "ask", "short.jsonl", "--kind=pair", "--out=s", "--only-write")
    assert "0 of 1 attention items: " in ended.err


def test_a_suite_gives_images_to_describe(home: Home) -> None:
    """Its own ones; so many of them, with the probability of the draw."""
    ended = home.command(
        "rate", "ask", ".", "--kind=describe", "--out=ratings/people", "--samples=3", "--only-write"
    )
    assert (ended.code, ended.out) == (0, "")
    ratings = read_ratings(home.path / "ratings" / "people")
    items = [item for item in ratings.items.values() if item.kind == "item"]
    assert len(items) == 3
    assert ratings.study.probability == 3 / int(ratings.study.population)
    assert {item.probability for item in items} == {ratings.study.probability}
    assert {source.suite for source in ratings.sources} == {"toy"}
    assert "this suite describes drawings as well" in ended.err  # it has two iterations


MISTAKES = {
    "items.jsonl": "'items.jsonl' is no ratings folder: of a suite or a file of items",
    "none --kind=pair --out=r": "no suite at 'none'",
    "items.jsonl --kind=pair --out=r --overlap=x": "--overlap 'x'",
    "items.jsonl --kind=pair --out=r --seed=x": "--seed 'x'",
    "items.jsonl --kind=pair --out=r --samples=3": "are of suites",
    "items.jsonl --kind=describe --out=r": "task describe has 0 options",
    ". --kind=pairs --out=r": "Did you mean 'pair'?",
    "items.jsonl --kind=pair --out=suite.toml/r": "could not be written",
    "items.jsonl --kind=pair --out=.": "'.' holds ",
    ". --kind=describe --out=r --report=suite.toml": "--report is of outputs that are rated",
    "ratings --kind=pair": "goes on as it was written: drop --kind",
    "ratings --report=ratings/study.json --data=a=b": "drop --report, --data",
    "ratings --store=elsewhere": "drop --store",
    "ratings --port=x": "--port 'x': a number is expected",
    "ratings --host=0.0.0.0": "say with --name by which one browsers call it",
    "ratings --name=*.example.org": "without port or wildcard",
    "ratings --host=10.255.255.1 --port=0": "of 10.255.255.1 cannot be used",
    f"ratings --host={'é' * 70}": "cannot be used (encoding of hostname failed)",
    "ratings --port=99999": "port 99999 of 127.0.0.1 cannot be used",
}
"""What is asked -> what is said; settings of a study are those that its votes were given under."""


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_line(line: str, home: Home, items: str) -> None:
    """And no folder is left that looks like a study."""
    make_study(home.path / "ratings", "pair", count=1)
    message = MISTAKES[line]
    ended = home.command("rate", "ask", *line.split())
    ended.refused(message, code=1 if message in ("could not be written", "'.' holds ") else 2)
    assert not (home.path / "r" / "study.json").exists()


def test_a_study_is_written_once(home: Home, items: str) -> None:
    """The same command again is refused, with the one that goes on; so is another suite's."""
    command = ("rate", "ask", items, "--kind=pair", "--out=ratings/mine", "--only-write")
    assert home.command(*command).code == 0
    before = contents(home.path / "ratings")
    again = home.command(*command)
    again.refused("is a study already: go on with cepbench rate ask ratings/mine", lines=1)
    other = ("rate", "ask", ".", "--kind=describe", "--out=ratings/mine", "--only-write")
    home.command(*other).refused("is a study already: go on with cepbench rate ask ratings/mine")
    assert home.command("rate", "ask", "ratings/mine", "--only-write").code == 0
    assert contents(home.path / "ratings") == before


@pytest.mark.slow
def test_a_served_study_goes_on_after_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends it with 0; the addresses stay, and so do the votes."""
    import signal

    pytest.importorskip("starlette")
    make_study(tmp_path / "study", "pair")
    seen: list[Any] = []
    for _ in range(2):
        with served(tmp_path / "study") as server:
            address = server.addresses["a1"]
            seen.append(address.split("/a/")[1])
            slot = slots(address)[0]
            body = {"key": f"key-{len(seen):06d}", "slot": slot, "verdict": "A"}
            assert request(address, "vote", body).content["saved"]
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(30) == 0
    assert seen[0] == seen[1]
    assert len(read_votes(read_ratings(tmp_path / "study")).answers()) == 2


@pytest.mark.slow
def test_a_server_is_called_by_its_names_alone(tmp_path: Path) -> None:
    """An address in another network is a warning; requests by other names are refused."""
    pytest.importorskip("starlette")
    make_study(tmp_path / "study", "pair")
    with served(tmp_path / "study", "--host=0.0.0.0", "--name=rate.example.org") as server:
        address = server.addresses["a1"]
        assert address.startswith("http://rate.example.org:")
        for name, status in (("rate.example.org", 200), ("evil.example", 400)):
            assert request(address, headers={"Host": name}).status == status


@pytest.mark.slow
def test_packages_of_the_server_are_missed_before_anything_is_said(tmp_path: Path) -> None:
    """One line, and no address that nobody can open."""
    make_study(tmp_path / "study", "pair")
    script = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from pytest_cepbench.cli import main\n"
        "sys.exit(main(['rate', 'ask', sys.argv[1], '--port=0']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "study")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert 'pip install "pytest-cepbench[pages]"' in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
