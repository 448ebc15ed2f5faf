"""Which part of a pipeline lost: the writer's and the generator's losses, told apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.evaluation.arena_project import ONE_MODEL, PIPELINE, ArenaProject

WIN_RATE, TRUTH = "small-arena/overall/win_rate", "small-arena/overall/truth"

WRITER, GENERATOR = "shapes:?miss=0.3", "shapes:?miss=0.4"

EXACT = {"writer": "shapes:", "generator": "shapes:"}
"""Named by options, both are under test."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ArenaProject:
    """Accepted answers of a writer and a generator that lose nothing."""
    return ArenaProject.make(tmp_path_factory.mktemp("pipeline"), PIPELINE, **EXACT)


def test_costs_are_those_of_pipelines_with_one_part_less(project: ArenaProject) -> None:
    """The generator costs what the baseline's writer with this generator loses; the writer costs
    the rest; together it is what was lost.
    """
    both = project.gate(writer=WRITER, generator=GENERATOR, attribute=20)[TRUTH]
    generator_alone = project.gate(**EXACT | {"generator": GENERATOR})[TRUTH]
    assert [(hop.start, hop.role, hop.generation) for hop in both.shown.hops] == [
        ("question", "writer", 0),
        ("question", "generator", 0),
    ]
    writer_cost, generator_cost = (hop.cost for hop in both.shown.hops)
    measured, alone = both.measurement, generator_alone.measurement
    assert measured is not None
    assert alone is not None
    now = {s: x for part in measured.scores.values() for s, x in part.items()}
    only = {s: x for part in alone.scores.values() for s, x in part.items()}
    (accepted,) = _truths(project)
    lost = [name for name in now if now[name] < accepted[name]]
    assert len(lost) > 10
    assert writer_cost == pytest.approx(sum(only[s] - now[s] for s in lost) / len(lost), abs=1e-5)
    assert generator_cost == pytest.approx(
        sum(accepted[s] - only[s] for s in lost) / len(lost), abs=1e-5
    )
    assert both.shown.attribution.startswith(f"Lost {writer_cost + generator_cost:.4f} over ")
    assert "by the writer" in both.shown.attribution


def _truths(project: ArenaProject) -> list[dict[str, float]]:
    """The truth of the accepted answers by sample."""
    measured = project.gate(**EXACT)[TRUTH].measurement
    assert measured is not None
    return [{s: x for part in measured.scores.values() for s, x in part.items()}]


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"writer": WRITER}, "Lost by the writer; the generator is the baseline's own."),
        ({"generator": GENERATOR}, "Lost by the generator; the writer is the baseline's own."),
    ],
    ids=["writer", "generator"],
)
def test_the_part_that_differs_is_named(
    project: ArenaProject, models: dict[str, str], said: str
) -> None:
    """Where one part differs there is nothing to divide, for truth and for battles."""
    result = project.gate(**EXACT | models)
    for name in (TRUTH, WIN_RATE):
        assert (result[name].verdict, result[name].shown.attribution, result[name].shown.hops) == (
            "regressed", said, [],
        )  # fmt: skip


def test_battles_are_not_judged_again(project: ArenaProject) -> None:
    """Of battles that two parts lost the report names the options that tell them apart, and asks
    the judge nothing.
    """
    case = project.gate(writer=WRITER, generator=GENERATOR)[WIN_RATE]
    assert case.verdict == "regressed"
    assert case.shown.attribution == (
        "Not the baseline's own: the writer and the generator. What each of them costs in battles "
        "takes new verdicts of the judge: run again with the baseline's writer (--writer=SPEC), "
        "then with its generator (--generator=SPEC)."
    )
    assert case.shown.hops == []


def test_one_model_has_no_parts(tmp_path: Path) -> None:
    """An interleaver makes texts and images alone; --cep-attribute=0 says nothing either."""
    project = ArenaProject.make(tmp_path / "one", ONE_MODEL)
    case = project.gate(model="shapes:?miss=0.3")[TRUTH]
    assert (case.verdict, case.shown.attribution) == ("regressed", "")


def test_none_are_divided_where_none_are_asked_for(project: ArenaProject) -> None:
    """attribute=0 leaves the parts alone; fewer samples are fewer samples."""
    models = {"writer": WRITER, "generator": GENERATOR}
    assert project.gate(**models, attribute=0)[TRUTH].shown.attribution == ""
    assert " over 2 samples" in project.gate(**models, attribute=2)[TRUTH].shown.attribution


def test_a_store_without_the_baselines_answers_says_so(
    project: ArenaProject, tmp_path: Path
) -> None:
    """Nothing is guessed: the store that would do is named."""
    moved = ArenaProject(Path(shutil.copytree(project.path, tmp_path / "moved")))
    shutil.rmtree(moved.path / ".cepbench")
    case = moved.gate(writer=WRITER, generator=GENERATOR)[TRUTH]
    assert case.verdict == "regressed"
    assert case.shown.hops == []
    assert case.shown.attribution.startswith("The baseline's answers are not in this run's store")
