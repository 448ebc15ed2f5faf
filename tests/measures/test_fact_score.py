"""facts: whether what is true of a sample is still told and shown, checked apart from its start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact, digest_json
from pytest_cepbench.chains import load_link
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import (
    WORLD_VERSION,
    Scene,
    caption,
    known_scene,
    parse_caption,
    parse_image,
    render,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.questions import scene_facts
from pytest_cepbench.datasets.shapes.scene import COLORS, Color
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.gate import Policy, Verdict, judge, record_of
from pytest_cepbench.metrics.facts import Fact
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace
from tests.suites.world import LOSSY, SUITE, TASKS, Staged, overlapping, stage

METRICS = "[metrics.gc]\n[metrics.facts]\n[metrics.failures]\n"

PERFECT = SUITE.replace(LOSSY, "shapes:")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Staged:
    """The lossy describer and a faultless generator, chains of two iterations."""
    return stage(tmp_path_factory.mktemp("suite"), SUITE + METRICS, store)


def _macro_f1(facts: set[Fact], claimed: set[Fact]) -> float:
    """The score of one artifact, computed from sets."""
    scores = []
    for kind in ("object", "count", "color", "size", "position", "relation"):
        true, said = ({f for f in own if f.kind == kind} for own in (facts, claimed))
        if true or said:
            scores.append(2 * len(true & said) / (len(true) + len(said)))
    return float(np.mean(scores))


def _scores(staged: Staged) -> dict[str, list[float]]:
    """The score of every artifact of each chain, from what is really in it."""
    chain_data = staged.run.data
    scores: dict[str, list[float]] = {}
    for name, chain in chain_data.chains("image", chain_data.dataset.samples).items():
        facts = set(scene_facts(sample_scene(chain.sample)))
        scores[name] = []
        for generation in range(1, 5):
            link = load_link(chain, generation, chain_data.store)
            scene = (
                parse_caption(link)
                if isinstance(link, str)
                else parse_image(ImageArtifact.from_pil(link))
            )
            scores[name].append(_macro_f1(facts, set(scene_facts(scene))))
    return scores


def test_the_score_of_a_chain_is_the_mean_over_its_artifacts(staged: Staged) -> None:
    """Texts and pictures count alike; the course is the mean of each generation."""
    rows = _scores(staged)
    assert len({round(row[-1], 3) for row in rows.values()}) > 3
    measured = staged.measure("overall-facts")
    for category in ("a", "b"):
        members = [sample.id for sample in staged.run.dataset.in_category(category)]
        own = {name: float(np.mean(rows[name])) for name in members}
        assert measured.scores[category] == pytest.approx(own, abs=1e-6)
    assert measured.curve == pytest.approx(np.mean(list(rows.values()), axis=0))
    assert (measured.label, measured.shares, measured.unscored) == ("facts F1", False, {})
    samples = sorted(staged.run.dataset.samples, key=lambda sample: sample.id)
    facts = [[s.id, *map(str, scene_facts(sample_scene(s)))] for s in samples]
    assert measured.identity["facts"] == digest_json(facts)[:16]


def test_the_losing_role_is_the_lossy_one(staged: Staged) -> None:
    """Half-lives by kind, and every lost fact is lost by a description."""
    summary = staged.measure("overall-facts").facts
    assert summary is not None
    assert [kind.kind for kind in summary.kinds] == [
        "object", "count", "color", "size", "position", "relation",
    ]  # fmt: skip
    describer, generator = summary.every.losses
    assert (describer.role, generator.role) == ("describer", "generator")
    assert describer.lost > 5
    assert generator.lost == 0
    assert summary.every.half_life is not None
    assert summary.every.half_life < 4


def test_chains_from_texts_are_checked_from_the_first_picture(tmp_path: Path, store: Store) -> None:
    """Generations 1 to 5, pictures first; the fifth has no text beside it."""
    measured = stage(tmp_path / "suite", TASKS + "[metrics.facts]\n", store).measure(
        "overall-facts"
    )
    assert len(measured.curve) == 5
    assert measured.facts is not None
    assert [loss.role for loss in measured.facts.every.losses] == ["generator", "describer"]


class Coded:
    """A describer and a generator with a code of their own: wrong, and true to themselves.

    Every color is called by the next one's name, and drawn back: texts never name the right color,
    pictures always show it, so that what compares pictures sees no loss.
    """

    fingerprint = "coded/1"
    seeded = False

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """The caption with every color's name replaced by the next one's."""
        scenes = (parse_image(ImageArtifact.from_pil(image)) for image in images)
        return [caption(_shifted(scene, 1)) for scene in scenes]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """The picture of what the code means, always with the same jitter."""
        return [render(_shifted(parse_caption(text), -1), 0).pixels for text in texts]


def _shifted(scene: Scene, by: int) -> Scene:
    def color(name: Color) -> Color:
        return COLORS[(COLORS.index(name) + by) % len(COLORS)]

    return Scene(tuple(replace(thing, color=color(thing.color)) for thing in scene.objects))


CODED = f"python:{__name__}:Coded"


def _gated(folder: Path, store: Store, model: str) -> dict[str, CaseMeasurement]:
    choices = RoleChoices(model=model, role="unified")
    staged = stage(folder, PERFECT + METRICS, store, choices)
    return {metric: staged.measure(f"overall-{metric}") for metric in ("gc", "facts")}


def test_a_pair_that_is_wrong_and_true_to_itself_fails(tmp_path: Path, store: Store) -> None:
    """It says another color for each and draws the right one: GC holds, facts regress."""
    accepted = _gated(tmp_path / "before", store, "shapes:")
    candidate = _gated(tmp_path / "now", store, CODED)
    verdicts = {
        metric: judge(measured, record_of(accepted[metric]), Policy(gate="threshold")).verdict
        for metric, measured in candidate.items()
    }
    assert verdicts == {"gc": Verdict.HELD, "facts": Verdict.REGRESSED}
    summary = candidate["facts"].facts
    assert summary is not None
    colors = next(kind for kind in summary.kinds if kind.kind == "color")
    describer, generator = colors.losses
    # A wrong name may be another object's right one, so a few colors are there by chance.
    assert describer.lost > 0.5 * colors.facts
    assert (generator.lost, generator.regained) == (0, generator.wrong)
    assert all(kind.losses[0].lost == 0 for kind in summary.kinds if kind.kind == "object")


def test_a_chain_that_stopped_has_no_facts_left(tmp_path: Path, store: Store) -> None:
    """Blank answers end chains: what is missing is wrong, and nothing is made up or dropped."""
    text = SUITE.replace(LOSSY, "shapes:?blank=0.5") + METRICS
    staged = stage(tmp_path / "suite", text, store)
    measured = staged.measure("overall-facts")
    scores = {name: s for part in measured.scores.values() for name, s in part.items()}
    chains = staged.run.data.chains("image", staged.run.dataset.samples)
    for name, chain in chains.items():
        whole = 4 if chain.failed_at is None else chain.failed_at - 1
        assert scores[name] == pytest.approx(whole / 4)
    assert sum(measured.failures.values()) == sum(c.failure is not None for c in chains.values())


def without_scenes() -> Dataset:
    """Pictures of which nothing is known."""
    samples = tuple(replace(own, metadata={}, text="a circle") for own in overlapping().samples)
    return Dataset("bare", {}, samples)


def test_what_has_no_facts_is_refused(tmp_path: Path, store: Store) -> None:
    """In one line that names suite, metric and what there is, before a model is asked."""
    bare = SUITE.replace("suites.world:overlapping", "measures.test_fact_score:without_scenes")
    for suite, settings, message in (
        (SUITE, "at = 3", "at = 3, and the chains have 2 iterations"),
        (SUITE, 'start = "text"', "there are no text-first chains"),
        (bare, "", "holds no generated scene"),
    ):
        words = rf"^suite 'world', metric 'facts': .*{message}"
        with pytest.raises(SuiteError, match=words) as raised:
            stage(tmp_path / "suite", f"{suite}[metrics.facts]\n{settings}\n", store)
        assert "\n" not in str(raised.value)


def test_a_sample_is_shown_with_the_facts_it_lost(staged: Staged) -> None:
    """The score of each artifact, and what the first faulty one lacks."""
    rows = _scores(staged)
    name = next(name for name, row in rows.items() if row[0] < 1)
    shown = staged.run.show(staged.cases["overall-facts"], name)
    assert shown is not None
    assert list(shown.marks) == [1, 2, 3, 4]
    assert list(shown.marks.values()) == pytest.approx(rows[name])
    assert shown.remark.startswith("generation 1, a description, lacks ")
    whole = next(name for name, row in rows.items() if set(row) == {1.0})
    kept = staged.run.show(staged.cases["overall-facts"], whole)
    assert kept is not None
    assert kept.remark == ""


def test_what_was_seen_in_pictures_is_stored(tmp_path: Path) -> None:
    """A lost picture is drawn anew; scenes are kept as captions, and a stored one is believed."""
    with Store(tmp_path / "store") as store:
        staged = stage(tmp_path / "suite", SUITE + METRICS, store)
        before = staged.measure("overall-facts")
        chains = list(staged.run.data.chains("image", staged.run.dataset.samples).values())
        links = [chain.links[generation] for chain in chains for generation in (2, 4)]
        keys = [digest_json({"scene": WORLD_VERSION, "image": link.digest}) for link in links]
        kept = store.get(keys)
        seen = [parse_caption(str(kept[key])) for key in keys]
        assert seen == [known_scene(link.digest) for link in links]
        for chain in chains[:3]:
            artifact_path(store.root, chain.links[2].digest).unlink()
        drawn = stage(tmp_path / "suite", SUITE + METRICS, store).measure("overall-facts")
        assert drawn.scores == before.scores
        store.forget(keys, why="a test")
        store.put([StoredResult(key, "no shapes") for key in dict.fromkeys(keys)])
        again = stage(tmp_path / "suite", SUITE + METRICS, store).measure("overall-facts")
    assert again.value < 0.7 * before.value
