"""MCD by mapping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.chains import Modality, load_link
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.store import Store
from tests.chains.roles import TruncatingEncoder
from tests.suites.world import SUITE, Staged, stage, vector

BOTH = SUITE.replace('start = "image"\niterations = 2', 'start = "both"\ngenerations = 9')

GENERATIONS = {
    "text-to-text": (2, 4, 6, 8),
    "text-to-image": (1, 3, 5, 7, 9),
    "image-to-image": (2, 4, 6, 8),
    "image-to-text": (1, 3, 5, 7, 9),
}
"""Of nine: those whose artifacts have the modality that is compared."""


@pytest.fixture
def staged(tmp_path: Path, store: Store) -> Staged:
    """Lossy chains from both starts, told by MCD of all mappings."""
    return stage(tmp_path / "suite", BOTH + "[metrics.mcd]\n[metrics.failures]\n", store)


def _curves(staged: Staged, mapping: str) -> dict[str, list[float]]:
    """Similarity to the start at each generation of a mapping, by sample, computed one by one."""
    start: Modality = "text" if mapping.startswith("text") else "image"
    chain_data = staged.run.chain_data
    scores = {}
    for name, chain in chain_data.chains(start, chain_data.dataset.samples).items():
        assert len(chain.links) == 10
        first = vector(load_link(chain, 0, chain_data.store))
        later = [vector(load_link(chain, g, chain_data.store)) for g in GENERATIONS[mapping]]
        scores[name] = [
            float(first @ link / np.linalg.norm(first) / np.linalg.norm(link)) for link in later
        ]
    return scores


@pytest.mark.parametrize("mapping", GENERATIONS)
def test_a_mapping_is_the_mean_over_its_own_generations(staged: Staged, mapping: str) -> None:
    """Scores, value, course and number of samples against a plain computation; each sample once."""
    curves = _curves(staged, mapping)
    measured = staged.measure(f"{mapping}-mcd")
    expected = {name: float(np.mean(curve)) for name, curve in curves.items()}
    assert measured.scores == {mapping: pytest.approx(expected, abs=2e-6)}
    assert measured.value == pytest.approx(np.mean(list(expected.values())), abs=2e-6)
    assert measured.curve == pytest.approx(tuple(np.mean(list(curves.values()), axis=0)))
    assert (measured.n, measured.label, measured.higher_is_better) == (12, "MCD", True)


def test_the_whole_is_the_mean_of_the_mappings(staged: Staged) -> None:
    """Per sample and altogether; there is no one course of four mappings."""
    parts = [staged.measure(f"{mapping}-mcd") for mapping in GENERATIONS]
    whole = staged.measure("overall-mcd")
    assert whole.value == pytest.approx(np.mean([part.value for part in parts]), abs=2e-6)
    for name, score in whole.scores["overall"].items():
        own = [next(iter(part.scores.values()))[name] for part in parts]
        assert score == pytest.approx(np.mean(own), abs=2e-6)
    assert (whole.n, whole.curve) == (12, ())
    assert len({part.value for part in parts}) > 1


def test_mappings_that_are_named_have_their_own_encoders(tmp_path: Path, store: Store) -> None:
    """Only the named ones are measured, each with its encoder, which the baseline names."""
    text = BOTH + (
        '[encoders]\nother = "python:tests.measures.test_mapping_drift:wordy"\n'
        '[metrics.mcd.mappings]\ntext-to-text = "other"\nimage-to-image = "encoder"\n'
    )
    staged = stage(tmp_path / "suite", text, store)
    assert list(staged.cases) == ["text-to-text-mcd", "image-to-image-mcd", "overall-mcd"]
    measured = staged.measure("overall-mcd")
    assert measured.identity["metric"] == "mcd/1 text-to-text by other, image-to-image by encoder"
    assert "other" in measured.identity["other"] or "wordy" in measured.identity["other"]
    assert "shapes" in measured.identity["encoder"]
    assert readers_of(staged.run.measures["mcd"].required_features(None)) == ("other", "encoder")
    images = staged.measure("image-to-image-mcd").identity
    assert images["metric"] == "mcd/1 image-to-image by encoder"
    assert "other" not in images


def test_a_mapping_without_a_generation_is_refused(tmp_path: Path, store: Store) -> None:
    """A single drawing never comes back to a text."""
    text = BOTH.replace("generations = 9", "generations = 1") + "[metrics.mcd]\n"
    with pytest.raises(SuiteError, match=r"'text-to-text' has no generation in chains of 1"):
        stage(tmp_path / "suite", text, store)


class Wordy(TruncatingEncoder):
    """An encoder that reads a few words, as a `python:` model."""

    fingerprint = "wordy/1"
    what = "wordy"


def wordy() -> Wordy:
    """One that reads twelve words."""
    return Wordy(most=12)


def test_texts_that_were_cut_are_noted_with_their_mapping(tmp_path: Path, store: Store) -> None:
    """The starts count as well; a mapping that compares by another encoder has no such note."""
    text = BOTH + (
        '[encoders]\nother = "python:tests.measures.test_mapping_drift:wordy"\n'
        '[metrics.mcd.mappings]\ntext-to-text = "other"\nimage-to-text = "encoder"\n'
    )
    staged = stage(tmp_path / "suite", text, store)
    chains = staged.run.chain_data.chains("text", staged.run.dataset.samples).values()
    texts = [str(chain.links[g].text) for chain in chains for g in (0, 2, 4, 6, 8)]
    cut = sum(len(text.split()) > 12 for text in texts)
    assert cut > 0
    *rates, note = staged.measure("overall-mcd").notes
    assert [rate.partition(":")[0] for rate in rates] == ["SDR text-to-text", "SDR image-to-text"]
    assert note.startswith(f"text-to-text: {cut} of {len(texts)} texts were longer than the 12 ")


@pytest.mark.parametrize(
    ("start", "mappings", "message"),
    [
        ("both", 'text-to-smell = "encoder"', "unknown mapping 'text-to-smell'"),
        ("both", 'text-to-sound = "encoder"', "mapping 'text-to-sound': its chains make images"),
        ("text", 'image-to-text = "encoder"', "no image-first chains .*start = text"),
        ("image", 'text-to-text = "encoder"', "no text-first chains .*start = image"),
    ],
)
def test_a_mapping_that_the_suite_cannot_have_is_refused(
    tmp_path: Path, store: Store, start: str, mappings: str, message: str
) -> None:
    """Names that do not exist, and mappings of chains that are not played."""
    text = BOTH.replace('"both"', f'"{start}"') + f"[metrics.mcd.mappings]\n{mappings}\n"
    with pytest.raises(SuiteError, match=f"suite 'world', metric 'mcd': .*{message}"):
        stage(tmp_path / "suite", text, store)


def test_a_sample_is_shown_by_the_chain_of_the_mapping(staged: Staged) -> None:
    """With its similarities where they were measured; the whole shows the first mapping's."""
    sample = staged.run.dataset.samples[0].id
    for case, mapping in {
        "image-to-text-mcd": "image-to-text",
        "overall-mcd": "text-to-text",
    }.items():
        shown = staged.run.show(staged.cases[case], sample)
        assert shown is not None
        assert shown.chain.links[0].kind == mapping.split("-")[0]
        assert tuple(shown.marks) == GENERATIONS[mapping]
        assert list(shown.marks.values()) == pytest.approx(_curves(staged, mapping)[sample])
