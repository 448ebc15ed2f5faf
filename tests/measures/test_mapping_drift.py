"""MCD and SDR by mapping, and the blocks of their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains import Modality, load_link
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.metrics.semantic_drift import fit_drift_rate
from pytest_cepbench.metrics.uncertainty import blocks_of, pseudo_values
from pytest_cepbench.store import Store
from tests.chains.roles import TruncatingEncoder
from tests.measures.fading import RATE
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
    rates, notes = staged.measure("overall-mcd").notes[:2], staged.measure("overall-mcd").notes[2:]
    assert all(rate.startswith("SDR ") for rate in rates)
    (note,) = notes
    assert note.startswith(f"text-to-text: {cut} of {len(texts)} texts were longer than the 12 ")


def test_sdr_is_the_fitted_rate_where_the_curve_tells_one(tmp_path: Path, store: Store) -> None:
    """One number for all chains, with how many it stands for; less decay is better."""
    staged = stage(tmp_path / "suite", _rates(curved=True), store)
    assert list(staged.cases) == ["text-to-text-sdr"]
    measured = staged.measure("text-to-text-sdr")
    fit = fit_drift_rate(GENERATIONS["text-to-text"] + (10, 12, 14), measured.curve)
    assert measured.value == pytest.approx(fit.b, abs=1e-6)
    assert measured.value == pytest.approx(RATE, rel=1e-3)
    assert measured.scores == {"text-to-text": {"all chains": measured.value}}
    assert (measured.n, measured.sizes) == (12, {"text-to-text": 12})
    assert (measured.label, measured.higher_is_better) == ("SDR", False)
    assert measured.notes == (f"SDR text-to-text: {fit}",)


def test_a_curve_that_tells_no_rate_gives_no_number(tmp_path: Path, store: Store) -> None:
    """A perfect model's flat curve has no decay to be measured: an error that says why."""
    staged = stage(tmp_path / "suite", _rates(curved=False), store)
    with pytest.raises(
        MeasurementError,
        match=r"world/text-to-text/sdr: the curve does not tell a drift rate: the curve is flat",
    ):
        staged.measure("text-to-text-sdr")


def _rates(*, curved: bool) -> str:
    """SDR of texts over 14 generations: told by a fading encoder, or of perfect models."""
    text = BOTH.replace("generations = 9", "generations = 14").replace('"both"', '"text"')
    text += '[metrics.sdr.mappings]\ntext-to-text = "encoder"\n'
    if not curved:
        return text.replace("?miss=0.3&recolor=0.2", "")
    roles = {
        '"shapes:?miss=0.3&recolor=0.2"': '"python:tests.measures.fading:describer"',
        'generator = "shapes:"': 'generator = "python:tests.measures.fading:generator"',
        'encoder = "shapes:"': 'encoder = "python:tests.measures.fading:encoder"',
    }
    for old, new in roles.items():
        assert old in text
        text = text.replace(old, new)
    return text


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


HERE = "python:tests.measures.test_mapping_drift"

LONG_SUITE = f"""\
name = "paced"
version = 1
[data]
loader = "{HERE}:LOADER"
[chain]
start = "text"
generations = 14
[prompts]
describe = "describe"
[roles]
describer = "{HERE}:paced"
generator = "{HERE}:paced"
encoder = "{HERE}:paced"
[metrics.sdr.mappings]
text-to-text = "encoder"
[metrics.mcd.mappings]
text-to-text = "encoder"
"""

RETURNS = (2, 4, 6, 8, 10, 12, 14)


class Paced:
    """All roles: a chain that starts as "pace 3 ..." fades three times as fast as "pace 1 ...".

    Its picture has the pace as its red and the number of drawings as its green.
    """

    fingerprint = "paced/1"
    seeded = False

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """The pace, and how often the picture was drawn."""
        colors = [np.asarray(image)[0, 0] for image in images]
        return [f"pace {red} drawn {green} times" for red, green, _ in colors]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """A picture that was drawn once more than the text says."""
        return [Image.new("RGB", (4, 4), (*_read(text), 99)) for text in texts]

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, 2) unit vectors at an angle to the start that grows by the pace."""
        return np.array([_direction(*_read(text)) for text in texts])

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 2) unit vectors; no mapping here compares images."""
        return np.array([_direction(1, 1) for _ in images])


def _read(text: str) -> tuple[int, int]:
    """Pace, and the number of the drawing that comes next."""
    words = text.split()
    return int(words[1]), int(words[3]) + 1


def _direction(pace: int, drawing: int) -> tuple[float, float]:
    similarity = 0.6 * exp(-0.2 * pace * (drawing - 1)) + 0.4
    return similarity, (1 - similarity**2) ** 0.5


def paced() -> Paced:
    """The model of all roles."""
    return Paced()


def _dataset(paces: Sequence[int], clusters: Sequence[str | None]) -> Dataset:
    pairs = enumerate(zip(paces, clusters, strict=True))
    samples = [
        Sample(f"s{n:02}", ("all",), text=f"pace {pace} drawn 0 times, {n}", cluster=cluster)
        for n, (pace, cluster) in pairs
    ]
    return Dataset("paced", {}, tuple(samples))


def unlike() -> Dataset:
    """Twenty-three chains of three paces."""
    return _dataset([1 + n % 3 for n in range(23)], [None] * 23)


def clustered() -> Dataset:
    """Twenty chains, seeds of five prompts."""
    return _dataset([1 + n % 3 for n in range(20)], [f"c{n % 5}" for n in range(20)])


def few() -> Dataset:
    """Three chains."""
    return _dataset([1, 2, 3], [None] * 3)


def one_block_fades() -> Dataset:
    """Four chains, of which only those of block 0 fade at all."""
    names = [f"s{n:02}" for n in range(4)]
    blocks = blocks_of(names)
    return _dataset([2 if blocks[name] == 0 else 0 for name in names], [None] * 4)


def _staged(folder: Path, store: Store, loader: str) -> Staged:
    return stage(folder, LONG_SUITE.replace("LOADER", loader), store)


@pytest.mark.parametrize(("loader", "count"), [("unlike", 10), ("clustered", 2)])
def test_blocks_are_the_rate_without_them(
    tmp_path: Path, store: Store, loader: str, count: int
) -> None:
    """The curve of the other samples is fitted anew; samples of a cluster leave together."""
    staged = _staged(tmp_path, store, loader)
    samples = staged.run.dataset.samples
    block = blocks_of([sample.unit for sample in samples])

    def rate(kept: Sequence[Sample]) -> float:
        paces = [int(str(sample.text).split()[1]) for sample in kept]
        curve = [
            float(np.mean([0.6 * exp(-0.2 * pace * g / 2) + 0.4 for pace in paces]))
            for g in RETURNS
        ]
        rate = fit_drift_rate(RETURNS, curve).b
        assert rate is not None
        return rate

    rests = [rate([s for s in samples if block[s.unit] != sample]) for sample in range(count)]
    values = pseudo_values(rate(samples), rests)
    measured = staged.measure("text-to-text-sdr")
    expected = {str(block): pytest.approx(value, abs=2e-4) for block, value in enumerate(values)}
    assert measured.blocks == {"text-to-text": expected}
    assert np.ptp(values) > 0.005


def test_too_few_chains_make_no_blocks(tmp_path: Path, store: Store) -> None:
    """The rate is there without bounds, and the note says why."""
    measured = _staged(tmp_path, store, "few").measure("text-to-text-sdr")
    assert (measured.value > 0, measured.blocks) == (True, {})
    assert measured.notes[-1] == (
        "no bounds for text-to-text: 3 independent samples make no blocks, at least 4 would"
    )


def test_a_rest_that_tells_no_rate_leaves_no_blocks(tmp_path: Path, store: Store) -> None:
    """Without the only chains that fade the curve is flat: no number is made up for it."""
    measured = _staged(tmp_path, store, "one_block_fades").measure("text-to-text-sdr")
    assert (measured.value > 0, measured.blocks) == (True, {})
    assert measured.notes[-1] == (
        "no bounds for text-to-text: without block 0 the curve does not tell a drift rate: "
        "the curve is flat"
    )
