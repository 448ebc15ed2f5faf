"""What a case's record shows of collapse and of its texts: attractors, words by generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench import CaseResult, GateResult, gate_checkpoint
from pytest_cepbench.chains import Chain, ChainPlan
from pytest_cepbench.chains.chain import Link
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.evaluation.shown_drift import MOST_EXAMPLES, MOST_WORDS, text_drift
from pytest_cepbench.report import OTHER_WORDS, WordFlowShown

SUITE = """\
name = "small"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 3, seed = 0 }
[chain]
start = "both"
iterations = 2
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
[metrics.retrieval]
[metrics.diversity]
"""

COLLAPSING = "shapes:?collapse=0.5"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose baseline is a perfect describer's."""
    folder = tmp_path_factory.mktemp("drift")
    (folder / "suite.toml").write_text(SUITE.replace('"both"', '"image"'), encoding="utf-8")
    assert gate(folder, "shapes:", update=True).passed
    return folder


def gate(folder: Path, model: str, *, update: bool = False) -> GateResult:
    """A run of the project."""
    return gate_checkpoint(
        folder / "suite.toml", root=folder, model=model, attribute=0, snapshot_update=update
    )


@pytest.fixture(scope="module")
def collapsed(root: Path) -> dict[str, CaseResult]:
    """The cases of a describer that collapses, by part and metric."""
    return {f"{case.part}/{case.metric}": case for case in gate(root, COLLAPSING).cases}


def test_attractors_show_what_fell_into_them(collapsed: dict[str, CaseResult]) -> None:
    """The share of ends, the end in the middle, and starts of its chains, as stored images."""
    (attractor, *_) = collapsed["overall/diversity"].attractors
    assert attractor.chains > 12
    assert attractor.share == pytest.approx(attractor.chains / 24, abs=1e-6)
    assert attractor.origins >= 3
    assert len(attractor.examples) == MOST_EXAMPLES
    assert attractor.center.image is not None
    starts = {end.start.image for end in attractor.examples}
    assert len(starts) == MOST_EXAMPLES
    assert all(end.end.image for end in attractor.examples)
    assert "ends lie in" in collapsed["overall/diversity"].notes[0]
    assert all(
        not case.attractors for name, case in collapsed.items() if name != "overall/diversity"
    )


def test_a_model_that_keeps_everything_has_no_attractor(root: Path) -> None:
    """Of the same suite."""
    cases = {case.metric: case for case in gate(root, "shapes:").cases if case.part == "overall"}
    assert cases["diversity"].attractors == []
    assert cases["diversity"].notes[0].startswith("no attractor")
    (texts,) = cases["gc"].texts
    assert [step.kept for step in texts.steps[1:]] == [
        round(step.words * step.texts) for step in texts.steps[1:]
    ]


def test_texts_stand_beside_those_of_the_baseline(collapsed: dict[str, CaseResult]) -> None:
    """Of the whole suite, and of the first metric's categories; from stores alone."""
    have = {name for name, case in collapsed.items() if case.texts}
    assert {"overall/gc", "overall/retrieval", "overall/diversity", "color/gc"} <= have
    assert "color/retrieval" not in have
    case = collapsed["overall/gc"]
    (texts,), (before,) = case.texts, case.texts_reference
    assert [step.generation for step in texts.steps] == [1, 3]
    assert texts.steps[1].roles == "generator, describer"
    assert texts.steps[1].changed + texts.steps[1].lost > 0
    assert before.steps[1].changed + before.steps[1].lost + before.steps[1].gained == 0
    assert texts.steps[1].kinds["color"][0] > 0
    assert texts.steps[0].scripts == {"Latin": 1.0}
    assert len({flow.before for flow in texts.flows} - {OTHER_WORDS, ""}) <= MOST_WORDS


# -- texts of chains -------------------------------------------------------------------------------


def chain(*texts: str | None, start: str = "text") -> Chain:
    """A chain of these texts, with an image between any two; None for one that is not recorded."""
    links: list[Link] = [Link("image", "i")] if start == "image" else []
    for text in texts:
        links += [Link("text", "" if text is None else text or "empty", text=text)]
        links += [Link("image", "i")]
    return Chain(Sample("s", ("c",)), links)


TEXT_FIRST = ChainPlan("text", 4, "describe", "{description}")
IMAGE_FIRST = ChainPlan("image", 4, "describe", "{description}")


def test_words_of_text_first_chains_are_followed_from_the_start() -> None:
    """By generation and roles; what a chain that stopped does not have is left out."""
    drift = text_drift(
        TEXT_FIRST,
        [chain("a red dog", "a blue dog", "a blue dog"), chain("a red cat", "a cat")],
    )
    assert [(s.generation, s.since, s.roles, s.texts) for s in drift.steps] == [
        (0, None, "", 2),
        (2, 0, "generator, describer", 2),
        (4, 2, "generator, describer", 1),
    ]
    assert [(s.kept, s.changed, s.lost, s.gained) for s in drift.steps[1:]] == [
        (4, 1, 1, 0),
        (3, 0, 0, 0),
    ]
    assert drift.steps[1].kinds["color"] == [0, 1, 1, 0]
    assert (drift.first, drift.last, drift.chains) == (0, 4, 1)
    assert WordFlowShown("red", "blue", 1) in drift.flows
    assert sum(flow.count for flow in drift.flows) == 3


def test_texts_without_spaces_and_empty_ones_are_counted() -> None:
    """Chinese by its letters, scripts by share; nothing divides by nothing."""
    drift = text_drift(IMAGE_FIRST, [chain("一只红猫", "一只蓝猫", start="image")])
    assert drift.steps[1].changed == 1
    assert drift.steps[1].words == 4.0
    assert drift.steps[1].scripts == {"Han": 1.0}
    nothing = text_drift(IMAGE_FIRST, [chain("...", "?", start="image")])
    assert (nothing.flows, nothing.steps[1].words, nothing.steps[1].scripts) == ([], 0.0, {})


@pytest.mark.slow
def test_languages_are_told_where_a_metric_asks_for_one(tmp_path: Path) -> None:
    """A report does not depend on what is installed beside: by script, nothing is identified."""
    pytest.importorskip("py3langid")
    for name, table, told in (("script", "", False), ("code", 'expected = "en"\n', True)):
        folder = tmp_path / name
        folder.mkdir()
        text = SUITE.replace('"both"', '"image"').replace(
            "[metrics.diversity]\n", f"[metrics.language]\n{table}"
        )
        (folder / "suite.toml").write_text(text, encoding="utf-8")
        result = gate(folder, "shapes:", update=True)
        steps = [step for case in result.cases for drift in case.texts for step in drift.steps]
        assert {bool(step.languages) for step in steps if step.texts} == {told}


def test_chains_without_recorded_texts_have_no_steps_with_texts() -> None:
    """Other tools' layouts leave texts out."""
    drift = text_drift(IMAGE_FIRST, [chain(None, None, start="image")])
    assert [step.texts for step in drift.steps] == [0, 0]
    assert drift.flows == []
    assert text_drift(IMAGE_FIRST, []).chains == 0


def test_refusals_and_repetition_are_told_by_generation() -> None:
    """Statistics of the later texts."""
    loop = "a dog and " * 20
    drift = text_drift(
        IMAGE_FIRST,
        [chain("a dog", loop, start="image"), chain("a cat", "I'm sorry, I can't", start="image")],
    )
    assert [step.refusals for step in drift.steps] == [0, 1]
    assert drift.steps[1].repeated > 0.4
    assert drift.steps[0].repeated == 0.0


def test_a_flow_names_few_words_and_counts_all_others_together() -> None:
    """Function words last; a word of thousands of letters is cut."""
    before = " ".join(f"w{i}" for i in range(30)) + " the " + "x" * 5000
    after = " ".join(f"v{i}" for i in range(30)) + " the " + "y" * 5000
    drift = text_drift(IMAGE_FIRST, [chain(before, after, start="image")])
    words = {word for flow in drift.flows for word in (flow.before, flow.after)}
    assert OTHER_WORDS in words
    assert len(words) <= MOST_WORDS + 2
    assert "the" not in words
    assert max(map(len, words)) <= 40
    assert sum(flow.count for flow in drift.flows) == 32
