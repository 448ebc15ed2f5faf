"""`cepbench rate ask` of suites: items of what runs have left in the store, through its reports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.gate import FreshMeasurement
from pytest_cepbench.metrics.human_ratings import Grade
from pytest_cepbench.models import RoleName
from pytest_cepbench.ratings.folder import Ratings, read_ratings
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite
from tests.cli.conftest import Home
from tests.cli.reports import result_of, write_report
from tests.ratings.voted import cast, side_vote
from tests.studies.toy import write_suite

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
    """Captions of its image and images of its text, by all models, equal ones once."""
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


def test_captions_of_two_runs(runs: Home) -> None:
    """An image and two different captions; of three models each image gets two of them."""
    ratings = rate(runs, "caption", *MODELS)
    pairs = {
        tuple(sorted(s.model for s in ratings.sources if s.item == digest))
        for digest in asked(ratings)
    }
    assert len(asked(ratings)) == 6
    assert len(pairs) > 1
    assert all(len(pair) == 2 for pair in pairs)


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


def test_mistakes_are_told_in_a_line(runs: Home) -> None:
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
        ended = runs.command(*base, *options)
        assert ended.code == 2, (options, ended)
        assert message in ended.err
        assert len(ended.err.splitlines()) == 1


def test_caption_votes_align_with_metrics(runs: Home) -> None:
    """People who prefer the exact captions agree with the metric; the page has each table."""
    ratings = rate(runs, "caption", "fine", "poor", sample=16)
    for digest in asked(ratings):
        item = ratings.items[digest]
        fine = next(s.option for s in ratings.sources if s.item == digest and s.model == "fine")
        verdict = "C1" if item.options[0].option == fine else "C2"
        cast(ratings, side_vote(item, "ada", verdict, task="caption"))
    reports = [f"--report={name}={name}.json" for name in ("fine", "poor")]
    ended = runs.command("agree", "models", "ratings/it", *reports)

    assert ended.code == 0, ended.err
    assert "what people think in ratings/it of drift" in ended.out
    rows = {line.split()[0]: line.split() for line in ended.out.splitlines() if "drift/" in line}
    assert "drift/overall/mcd" in rows
    assert "choices between captions" in ended.out
    again = Path(".cepbench/agreement/alignment-it.json").read_text()
    assert '"within_margin": {' in again


def test_grades_in_both_sections(runs: Home) -> None:
    """The nine cells of all models and of each, and the metric beside people in each section."""
    ratings = rate(runs, "grades", *MODELS)
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
