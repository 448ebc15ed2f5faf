"""gc, s and sim: which similarities make a score, and whose scores make a value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.chains import load_link
from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.models.rule_based.scene_models import ShapesGenerator
from pytest_cepbench.store import Store
from tests.chains.roles import TruncatingEncoder
from tests.suites.world import SUITE, Staged, stage, vector

METRICS = """\
[metrics.gc]
[metrics.gc1]
kind = "gc"
at = 1
[metrics.s]
[metrics.sim]
[metrics.pooled]
kind = "gc"
pool = "samples"
[groups]
all = ["b", "a"]
"""


def _similarities(staged: Staged) -> dict[str, list[float]]:
    """Cosine to the start at generations 2 and 4 of every sample, computed one by one."""
    chain_data = staged.run.chain_data
    scores = {}
    for name, chain in chain_data.chains("image", chain_data.dataset.samples).items():
        assert chain.failure is None
        start, *later = (vector(load_link(chain, g, chain_data.store)) for g in (0, 2, 4))
        unit = start / np.linalg.norm(start)
        scores[name] = [float(unit @ link / np.linalg.norm(link)) for link in later]
    return scores


def _members(staged: Staged, category: str) -> list[str]:
    return [sample.id for sample in staged.run.dataset.in_category(category)]


@pytest.fixture
def staged(tmp_path: Path, store: Store) -> Staged:
    """The lossy describer, told by five metrics."""
    return stage(tmp_path / "suite", SUITE + METRICS, store)


@pytest.mark.parametrize(
    ("metric", "weights"),
    [("gc", (1 / 3, 2 / 3)), ("gc1", (1, 0)), ("s", (0, 1)), ("sim", (1, 0))],
)
def test_the_score_of_a_chain(staged: Staged, metric: str, weights: tuple[float, ...]) -> None:
    """GC weighs iterations by number, s is the last, SIM the first; some chains have drifted."""
    similarities = _similarities(staged)
    assert len({round(second, 3) for _, second in similarities.values()}) > 3
    for category in ("a", "b"):
        measured = staged.measure(f"{category}-{metric}")
        expected = {
            name: float(np.dot(similarities[name], weights)) for name in _members(staged, category)
        }
        assert measured.scores == {category: pytest.approx(expected, abs=1e-6)}
        assert measured.value == pytest.approx(np.mean(list(expected.values())), abs=1e-6)


def test_sim_counts_a_sample_once_in_the_whole_and_in_each_of_its_patterns(staged: Staged) -> None:
    """MMGenBench: over all samples, whatever number of patterns they are in; groups alike."""
    similarities = _similarities(staged)
    for part in ("overall", "all"):
        measured = staged.measure(f"{part}-sim")
        assert set(measured.scores) == {part}
        assert set(measured.scores[part]) == set(similarities)
        assert measured.n == len(similarities) == 12
        assert measured.value == pytest.approx(
            np.mean([first for first, _ in similarities.values()])
        )
    a, b = (staged.measure(f"{part}-sim") for part in ("a", "b"))
    assert a.n + b.n == 12 + 6


def test_gc_is_the_mean_of_the_categories_unless_samples_are_pooled(staged: Staged) -> None:
    """GenCeption: each category counts alike; `pool = "samples"` asks for the other mean."""
    similarities = _similarities(staged)
    scores = {name: (first + 2 * second) / 3 for name, (first, second) in similarities.items()}
    means = [np.mean([scores[name] for name in _members(staged, part)]) for part in ("a", "b")]
    for part in ("overall", "all"):
        measured = staged.measure(f"{part}-gc")
        assert measured.n == 12 + 6
        assert measured.value == pytest.approx(np.mean(means), abs=2e-6)
    pooled = staged.measure("overall-pooled")
    assert pooled.value == pytest.approx(np.mean(list(scores.values())), abs=2e-6)
    assert pooled.value != pytest.approx(np.mean(means), abs=1e-4)


@pytest.mark.parametrize(("at", "has"), [(0, 2), (3, 2), (-1, 2)])
def test_an_iteration_beyond_the_chain_is_refused(
    tmp_path: Path, store: Store, at: int, has: int
) -> None:
    """By suite, metric and number."""
    text = SUITE + f"[metrics.late]\nkind = 's'\nat = {at}\n"
    with pytest.raises(
        SuiteError, match=f"'world', metric 'late': at = {at}, and the chains have {has} iterations"
    ):
        stage(tmp_path / "suite", text, store)


def test_a_failed_chain_counts_as_zero(tmp_path: Path, store: Store) -> None:
    """From the generation on where it stopped; the failure is counted, the sample is not lost."""
    text = SUITE.replace("shapes:?miss=0.3&recolor=0.2", "shapes:?blank=0.2")
    staged = stage(tmp_path / "suite", text + "[metrics.s]\n[metrics.failures]\n", store)
    measured, rate = staged.measure("overall-s"), staged.measure("overall-failures")
    chains = staged.run.chain_data.chains("image", staged.run.dataset.samples)
    stopped = {name for name, chain in chains.items() if chain.failure is not None}
    assert 0 < len(stopped) < 12
    zeros = {name for part in measured.scores.values() for name, s in part.items() if s == 0.0}
    assert zeros == stopped
    assert measured.failures == rate.failures == {"empty-text": len(stopped)}


class Short(TruncatingEncoder):
    """An encoder of few words, as a `python:` model."""

    fingerprint = "short/1"


def short() -> Short:
    """One that reads sixteen words."""
    return Short(most=16)


def test_texts_that_were_cut_for_the_encoder_are_noted(tmp_path: Path, store: Store) -> None:
    """How many of all that were compared, and by whom; nothing where none was, nor for images."""
    text = SUITE.replace('"image"', '"text"')
    text = text.replace(
        'encoder = "shapes:"',
        'encoder = "python:tests.measures.test_chain_similarity:short"',
    )
    staged = stage(tmp_path / "suite", text + "[metrics.gc]\n", store)
    measured = staged.measure("overall-gc")
    texts = _texts(staged, (0, 2, 4))
    cut = [text for text in texts if len(text.split()) > 16]
    assert 0 < len(cut) < len(texts)
    (note,) = measured.notes
    assert note.startswith(f"{len(cut)} of {len(texts)} texts were longer than the 16 tokens that ")
    assert stage(tmp_path / "other", SUITE + METRICS, store).measure("a-gc").notes == ()


class Sketcher(ShapesGenerator):
    """The world's generator, reading no more than so many words."""

    fingerprint = "sketcher/1"

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """A token a word."""
        return [len(text.split()) for text in texts], 16


def sketcher() -> Sketcher:
    """One that knows no faults."""
    return Sketcher(Degradation())


def test_prompts_that_were_cut_for_the_generator_are_noted(tmp_path: Path, store: Store) -> None:
    """How many of all that were drawn; the same again from the store, where no model is asked."""
    generator = "python:tests.measures.test_chain_similarity:sketcher"
    text = SUITE.replace('generator = "shapes:"', f'generator = "{generator}"') + "[metrics.gc]\n"
    staged = stage(tmp_path / "suite", text, store)
    measured = staged.measure("overall-gc")
    chains = staged.run.chain_data.chains("image", staged.run.dataset.samples).values()
    drawn = [link.text for chain in chains for link in chain.links if link.text is not None]
    cut = [drawing for drawing in drawn if len(drawing.split()) > 16]
    assert 0 < len(cut) < len(drawn)
    (note,) = measured.notes
    assert note.startswith(f"{len(cut)} of {len(drawn)} prompts were longer than the 16 tokens ")
    assert note.endswith(f"that {generator} reads, and were drawn by their beginning")
    again = stage(tmp_path / "suite", text, store)
    assert again.measure("overall-gc").notes == measured.notes
    assert again.run.chain_data.runner("encoder").tally.inputs == 0


def _texts(staged: Staged, generations: Sequence[int]) -> list[Any]:
    chains = staged.run.chain_data.chains("text", staged.run.dataset.samples).values()
    return [chain.links[g].text for chain in chains for g in generations if chain.has(g)]
