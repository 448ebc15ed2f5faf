"""Ratings folders: `cepbench agree` and `arena leaderboard` of them, and `rate ask`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.opening.verdict_files import write_battles
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.gate import FreshMeasurement
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.metrics.human_ratings import Grade
from pytest_cepbench.models import RoleName
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite
from tests.cli.conftest import Home
from tests.cli.reports import result_of, write_report
from tests.plugin.project import contents
from tests.ratings.serving import ROOT, request, served, slots
from tests.ratings.studies import BLUE, RED, cast, make_study, side_vote
from tests.studies.toy import write_suite


class Redder:
    """Prefers the answer with the redder image."""

    fingerprint, seeded = "redder/1", False

    def judge(self, battles: list, seeds: list) -> list:  # type: ignore[type-arg]
        """A verdict each."""
        return ["A" if self._red(b.first) > self._red(b.second) else "B" for b in battles]

    def _red(self, answer: list) -> float:  # type: ignore[type-arg]
        image = next(piece for piece in answer if not isinstance(piece, str))
        return float(image.resize((1, 1)).getpixel((0, 0))[0])


@pytest.fixture
def rated(home: Home) -> Ratings:
    """Twelve battles: people prefer red in all, but for two in which both prefer blue."""
    ratings = make_study(home.path / "ratings/may", "pair", 12)
    for number, item in enumerate(ratings.items.values()):
        for name in ("a1", "a2"):
            verdict = "B" if number < 2 else "Tie(A)" if name == "a2" and number < 4 else "A"
            cast(ratings, side_vote(item, name, verdict, seconds=3.0 + number))
    return ratings


def test_agreement_and_who_won_are_printed_and_written(home: Home, rated: Ratings) -> None:
    """Each coefficient with its interval, a row for each annotator, and the same as JSON.

    Each model's win rate over all votes, and how sure it is, likewise. A line of votes that was cut
    off is left out and counted.
    """
    ended = home.command("agree", "people", "ratings/may")

    assert (ended.code, ended.err) == (0, "")
    assert "2 annotators, 12 of 12 items judged, 12 by several" in ended.flat
    assert "equal votes, ties forced verdicts 1.000 - 12" in ended.flat
    assert "equal votes, ties one verdict verdicts 0.833 [0.500, 1.000] 12" in ended.flat
    content = json.loads(Path(".cepbench/agreement/agreement-may.json").read_text())["agreement"]
    assert content["coefficients"][0]["name"] == "Krippendorff's alpha, ordinal"
    assert content["annotators"][0]["votes"] == 12
    with rated.vote_path("a1").open("ab") as file:
        file.write(b'{"v":1,"task":"pair","it')
    ended = home.command("agree", "models", "ratings/may")
    rows = {
        line.split()[0]: line.split()[1:6] for line in ended.out.splitlines() if "SECRET" in line
    }
    content = json.loads(Path(".cepbench/agreement/alignment-may.json").read_text())["alignment"]

    assert (ended.code, ended.err) == (0, "")
    (red,) = (own for own in content["people"] if own["model"] == RED)
    (blue,) = (own for own in content["people"] if own["model"] == BLUE)
    assert red["score"] == pytest.approx(19 / 24)  # 2 battles lost by both, 2 ties of one person
    assert red["items"] == 12
    assert 1 / 2 < red["low"] < red["score"] < red["high"] < 1
    assert (blue["low"], blue["high"]) == pytest.approx((1 - red["high"], 1 - red["low"]))
    shown = [f"[{red['low']:.3f},", f"{red['high']:.3f}]"]
    assert rows[RED] == ["answer", "24", "0.792", *shown]
    assert "the better one is known where the interval leaves out .5" in ended.flat
    assert "1 records of votes that cannot be read are left out" in ended.flat


def test_mistakes_are_told_in_a_line(home: Home, rated: Ratings) -> None:
    """No folder, nothing to compare, two files of one annotator, a wrong option."""
    make_study(home.path / "ratings/words", "describe", 2)
    cases = {
        ("agree", "people", "ratings"): "is no ratings folder",
        ("agree", "people", "ratings/words"): "nobody has judged an item yet",
        ("agree", "models", "ratings/words"): "in which no models are compared",
        ("arena", "leaderboard", "ratings/words"): "'pair' is expected here",
    }
    for argv, message in cases.items():
        home.command(*argv).refused(message, lines=1)
    path = rated.vote_path("a1")
    path.with_name("copy.jsonl").write_bytes(path.read_bytes())
    ended = home.command("agree", "people", "ratings/may")
    ended.refused("both have votes of 'a1'")


def test_votes_are_ranked_as_people_saw_the_sides(home: Home) -> None:
    """So that a leaderboard can tell models from sides."""
    ratings = make_study(home.path / "ratings/may", "pair", 24, annotators=3)
    items = list(ratings.items.values())
    for number, item in enumerate(items):
        verdict = "B" if number % 6 == 0 else "Tie(A)" if number % 6 == 1 else "A"
        swapped = number % 2 == 1
        pressed = {"A": "B", "B": "A", "Tie(A)": "Tie(B)"}[verdict] if swapped else verdict
        cast(ratings, side_vote(item, "a1", pressed, swapped=swapped))
    cast(ratings, side_vote(items[1], "a2", "Tie(A)"))  # as many saw either order: its own
    for name in ("a2", "a3"):
        cast(ratings, side_vote(items[2], name, "B", swapped=True))  # most saw it swapped
    ended = home.command("arena", "leaderboard", "ratings/may")
    assert ended.code == 0, ended.err
    assert "order effect: " in ended.flat
    (row,) = (line.split() for line in ended.out.splitlines() if line.startswith(RED))
    assert row[1] == "1"


def test_a_card_from_people(home: Home, rated: Ratings) -> None:
    """Verdicts of a judge in a file beside the majority of people's votes.

    A judge that is asked on the folder has questions and answers from there; the card is kept, and
    a second time costs no call.
    """
    battles = [
        JudgedBattle(f"SECRET-SAMPLE-{number}", RED.lower(), BLUE.lower(), "A" if number else "B")
        for number in range(12)
    ]
    write_battles(home.path / "judge.json", battles)
    ended = home.command("agree", "judges", "judge.json", "--people=ratings/may")
    card = json.loads(Path(".cepbench/agreement/judge-card-judge.json").read_text())["card"]

    assert ended.code == 0, ended.err
    assert card["people"] == "may"
    assert card["accuracy"] == pytest.approx(11 / 12)
    argv = ("agree", "judges", "--judge=python:tests.cli.test_ratings:Redder", "--on=ratings/may")
    ended = home.command(*argv)
    again = home.command(*argv)
    (kept,) = (home.path / "baselines/judges").iterdir()
    card = json.loads(kept.read_text())["card"]

    assert ended.code == 0, ended.err
    assert "24 verdicts by the judge, 0 from the store" in ended.err
    assert "0 verdicts by the judge, 24 from the store" in again.err
    assert card["accuracy"] == pytest.approx(10 / 12)
    assert card["people"] == "may"
    refused = home.command(*argv, "--data=opening=x")
    refused.refused("--on ratings/may brings questions and answers")


DRIFT = """\
name = "drift"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 2 }
[chain]
start = "both"
generations = 2
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
[encoders]
world = "shapes:"
[metrics.mcd]
parts = "overall"
[metrics.mcd.mappings]
text-to-text = "world"
text-to-image = "world"
image-to-image = "world"
image-to-text = "world"
"""

MODELS = {"fine": "shapes:", "poor": "shapes:?miss=0.4", "odd": "shapes:?recolor=0.5"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of three models of a suite of chains from both starts, and their store."""
    root = tmp_path_factory.mktemp("measured")
    for name, model in MODELS.items():
        own = measure(root, RoleChoices(model, "unified"))
        write_report(root / f"{name}.json", map(result_of, own))
    return root


@pytest.fixture
def runs(home: Home, measured: Path) -> Home:
    """A copy of them, in which the command is run."""
    shutil.copytree(measured, home.path, dirs_exist_ok=True)
    return home


def measure(folder: Path, choices: RoleChoices, text: str = DRIFT) -> Iterator[FreshMeasurement]:
    """Every case of a suite, with the store beside it."""
    prepared = load_prepared_suite(write_suite(folder, text), choices, {})
    with Store(folder / "store") as store:
        run = prepared.run(ModelPool(store))
        for case in prepared.cases:
            yield run.measure(case)


def rate(home: Home, kind: str, *names: str, sample: int = 6) -> Ratings:
    """A study of some of the runs, written by the command."""
    reports = [f"--report={name}={name}.json" for name in names]
    ended = home.command(
        "rate", "ask", "suite.toml", f"--kind={kind}", "--out=ratings/it", "--store=store",
        f"--samples={sample}", "--annotators=ada,bob", "--only-write", *reports,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return read_ratings(home.path / "ratings/it")


def asked(ratings: Ratings) -> list[str]:
    """The items without those whose answer is known."""
    return [digest for digest, item in ratings.items.items() if item.kind == "item"]


def test_both_sections_of_a_sample_are_graded(runs: Home) -> None:
    """Captions of its image and images of its text, by all models, equal ones once.

    The page has the nine cells of all models and of each, and the metric beside people in each
    section.
    """
    ratings = rate(runs, "grades", *MODELS)
    sections: dict[str, set[tuple[bool, bool]]] = {}
    for source in ratings.sources:
        item = ratings.items[source.item]
        texts = item.question[0].text is None, item.options[0].parts[0].text is None
        sections.setdefault(source.sample, set()).add(texts)

    assert len(sections) == 6
    assert any(both == {(True, False), (False, True)} for both in sections.values())
    assert {source.model for source in ratings.sources} == set(MODELS)
    assert ratings.study.population == 16
    assert ratings.study.probability == 6 / 16
    grade: dict[str, Grade] = {"fine": "good", "poor": "poor", "odd": "medium"}
    for digest in asked(ratings):
        options = ratings.items[digest].options
        models = [
            min(s.model for s in ratings.sources if (s.item, s.option) == (digest, own.option))
            for own in options
        ]
        order = sorted(range(len(options)), key=lambda n: list(grade).index(models[n]))
        grades = {str(n): grade[model] for n, model in enumerate(models)}
        vote = Vote(
            task="grades", item=digest, annotator="ada", grades=grades, ranking=tuple(order)
        )
        cast(ratings, vote)
    reports = [f"--report={name}={name}.json" for name in MODELS]
    ended = runs.command("agree", "models", "ratings/it", *reports)

    assert ended.code == 0, ended.err
    assert "grades of all models in both sections" in ended.out
    assert "grades of fine in both sections" in ended.out
    assert "metrics over models" in ended.out
    assert {"understanding", "generation"} <= set(ended.out.split())
    twice = runs.command("agree", "models", "ratings/it", *reports[:1] * 2)
    twice.refused("two runs are of 'fine': name them, --report NAME=fine.json", lines=1)


def test_captions_of_two_runs(runs: Home) -> None:
    """An image and two different captions; of three models each image gets two of them.

    People who prefer the exact captions agree with the metric; the page has each table.
    """
    ratings = rate(runs, "caption", *MODELS)
    models_of = {
        digest: [s.model for s in ratings.sources if s.item == digest] for digest in asked(ratings)
    }
    assert len(models_of) == 6
    assert len(set(map(frozenset, models_of.values()))) > 1
    assert {len(models) for models in models_of.values()} == {2}
    for digest in models_of:
        item = ratings.items[digest]
        own = [source for source in ratings.sources if source.item == digest]
        better = min(own, key=lambda source: list(MODELS).index(source.model))
        verdict = "C1" if item.options[0].option == better.option else "C2"
        cast(ratings, side_vote(item, "ada", verdict, task="caption"))
    reports = [f"--report={name}={name}.json" for name in MODELS]
    ended = runs.command("agree", "models", "ratings/it", *reports)

    assert ended.code == 0, ended.err
    assert "what people think in ratings/it of drift" in ended.out
    assert "choices between captions" in ended.out
    assert "drift/overall/mcd 6 100.00 (6/6)" in ended.flat
    written = Path(".cepbench/agreement/alignment-it.json").read_text()
    assert '"within_margin": {' in written


def test_images_to_describe_grow_chains(runs: Home) -> None:
    """People as the describer: their texts are drawn and compared; missing ones are failures."""
    ratings = rate(runs, "describe", sample=16)
    words = load_shapes(samples_per_category=1).samples[0].text
    described = asked(ratings)[:-2]
    for item in described:
        cast(ratings, Vote(task="describe", item=item, annotator="ada", text=words, words=7))
    text = DRIFT.replace('"both"', '"image"').partition("text-to-text")[0]
    suite = f'{text}image-to-image = "world"\n'
    cases = measure(runs.path, RoleChoices(roles={"describer": f"human:{ratings.path}"}), suite)
    (measured,) = [own for own in cases if str(own.key) == "drift/overall/mcd"]
    assert measured.failures == {"unanswered": 16 - len(described)}
    assert 0 < measured.value < 1


def test_only_what_is_under_test_is_graded(runs: Home) -> None:
    """Of runs of describers, whose generator is not even named here, the captions alone."""
    text = DRIFT.replace('generator = "shapes:"\n', "")
    for name, model in MODELS.items():
        roles: dict[RoleName, str] = {"generator": "shapes:"}
        own = measure(runs.path, RoleChoices(model, "describer", roles), text)
        write_report(runs.path / f"{name}.json", map(result_of, own))
    ratings = rate(runs, "grades", *MODELS)
    shown = [ratings.items[digest].question[0].text for digest in asked(ratings)]
    assert len(shown) == 6
    assert set(shown) == {None}


def test_reports_that_cannot_be_rated_are_told_in_a_line(runs: Home) -> None:
    """No report, a report of another suite, a kind that the suite has not, no store."""
    base = ("rate", "ask", "suite.toml", "--out=ratings/it", "--only-write")
    other = runs.path / "other.json"
    other.write_text((runs.path / "fine.json").read_text().replace('"drift', '"drifts'))
    cases = {
        ("--kind=grades", "--store=store"): "give --report REPORT for each of them",
        ("--kind=grades", "--report=fine.json", "--store=store"): "at least 2 runs are compared",
        ("--kind=pair", "--report=fine.json", "--store=store"): "is of chains: the kind caption",
        ("--kind=grades", "--report=other.json", "--store=store"): "is of the suite drifts",
        ("--kind=grades", "--report=fine.json", "--store=nowhere"): "there is no such store",
        ("--kind=verify", "--report=fine.json", "--store=store"): "cepbench dataset verify",
    }
    for options, message in cases.items():
        runs.command(*base, *options).refused(message, lines=1)


# -- `cepbench rate ask`: new studies, one that is there, and what is refused ----------------------


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
    """Its folder has the items and checks; items whose answers cannot be damaged are told.

    The same command again is refused, with the one that goes on; so is another suite's.
    """
    command = (
        "rate", "ask", items, "--kind=pair", "--out=ratings/mine", "--annotators=ann,ben",
        "--only-write", "--overlap=1", "--seed=7",
    )  # fmt: skip
    ended = home.command(*command)
    assert (ended.code, ended.out) == (0, "")
    assert "ratings/mine: 30 items for 2 annotators" in ended.err
    before = contents(home.path / "ratings")
    again = home.command(*command)
    again.refused("is a study already: go on with cepbench rate ask ratings/mine", lines=1)
    other = ("rate", "ask", ".", "--kind=describe", "--out=ratings/mine", "--only-write")
    home.command(*other).refused("is a study already: go on with cepbench rate ask ratings/mine")
    assert home.command("rate", "ask", "ratings/mine", "--only-write").code == 0
    assert contents(home.path / "ratings") == before
    ratings = read_ratings(home.path / "ratings" / "mine")
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


@pytest.mark.slow
def test_a_served_study_goes_on_after_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends it with 0; the addresses stay, and so do the votes.

    A server is called by its names alone: an address in another network is a warning; requests by
    other names are refused.
    """
    import signal

    pytest.importorskip("starlette")
    make_study(tmp_path / "study", "pair")
    seen: list[Any] = []
    for options in ((), ("--host=0.0.0.0", "--name=rate.example.org")):
        with served(tmp_path / "study", *options) as server:
            address = server.addresses["a1"]
            if options:
                assert address.startswith("http://rate.example.org:")
                for name, status in (("rate.example.org", 200), ("evil.example", 400)):
                    assert request(address, headers={"Host": name}).status == status
            seen.append(address.split("/a/")[1])
            slot = slots(address)[0]
            body = {"key": f"key-{len(seen):06d}", "slot": slot, "verdict": "A"}
            assert request(address, "vote", body).content["saved"]
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(30) == 0
    assert seen[0] == seen[1]
    assert len(read_votes(read_ratings(tmp_path / "study")).answers()) == 2


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
