"""gc, s, sim, mcd: what makes a score, floors by chance, encoders that cannot see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.chains import Modality, load_link
from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.models.rule_based.scene_models import ShapesEncoder, ShapesGenerator
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


Vectors = dict[str, list[npt.NDArray[np.float64]]]


def _vectors(
    staged: Staged, start: Modality = "image", generations: Sequence[int] = (2, 4)
) -> Vectors:
    """The unit vectors of every sample's start and artifacts at some generations, one by one."""
    chain_data = staged.run.data
    vectors = {}
    for name, chain in chain_data.chains(start, chain_data.dataset.samples).items():
        rows = [vector(load_link(chain, g, chain_data.store)) for g in (0, *generations)]
        vectors[name] = [row / np.linalg.norm(row) for row in rows]
    return vectors


def _similarities(vectors: Vectors) -> dict[str, list[float]]:
    """Cosine to the start of each later vector of every sample."""
    return {name: [float(start @ row) for row in rows] for name, (start, *rows) in vectors.items()}


def _members(staged: Staged, category: str) -> list[str]:
    return [sample.id for sample in staged.run.dataset.in_category(category)]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Staged:
    """The lossy describer, told by five metrics."""
    return stage(tmp_path_factory.mktemp("suite"), SUITE + METRICS, store)


@pytest.mark.parametrize(
    ("metric", "weights"), [("gc", (1 / 3, 2 / 3)), ("gc1", (1, 0)), ("s", (0, 1)), ("sim", (1, 0))]
)
def test_the_score_of_a_chain(staged: Staged, metric: str, weights: tuple[float, ...]) -> None:
    """GC weighs iterations by number, s is the last, SIM the first; some chains have drifted."""
    similarities = _similarities(_vectors(staged))
    assert len({round(second, 3) for _, second in similarities.values()}) > 3
    for category in ("a", "b"):
        measured = staged.measure(f"{category}-{metric}")
        expected = {
            name: float(np.dot(similarities[name], weights)) for name in _members(staged, category)
        }
        assert measured.scores == {category: pytest.approx(expected, abs=1e-6)}
        assert measured.value == pytest.approx(np.mean(list(expected.values())), abs=1e-6)


def test_wholes_are_means_of_samples_or_of_categories(staged: Staged) -> None:
    """MMGenBench's SIM is over all samples, each once, whatever number of patterns they are in.
    GenCeption's GC is the mean of the categories; `pool = "samples"` asks for the other mean.
    """
    similarities = _similarities(_vectors(staged))
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

    scores = {name: (first + 2 * second) / 3 for name, (first, second) in similarities.items()}
    means = [np.mean([scores[name] for name in _members(staged, part)]) for part in ("a", "b")]
    for part in ("overall", "all"):
        measured = staged.measure(f"{part}-gc")
        assert measured.n == 12 + 6
        assert measured.value == pytest.approx(np.mean(means), abs=2e-6)
    pooled = staged.measure("overall-pooled")
    assert pooled.value == pytest.approx(np.mean(list(scores.values())), abs=2e-6)
    assert pooled.value != pytest.approx(np.mean(means), abs=1e-4)


def test_a_failed_chain_counts_as_zero(tmp_path: Path, store: Store) -> None:
    """From the generation on where it stopped; the failure is counted, the sample is not lost."""
    text = SUITE.replace("shapes:?miss=0.3&recolor=0.2", "shapes:?blank=0.2")
    staged = stage(tmp_path / "suite", text + "[metrics.s]\n[metrics.failures]\n", store)
    measured, rate = staged.measure("overall-s"), staged.measure("overall-failures")
    chains = staged.run.data.chains("image", staged.run.dataset.samples)
    stopped = {name for name, chain in chains.items() if chain.failure is not None}
    assert 0 < len(stopped) < 12
    zeros = {name for part in measured.scores.values() for name, s in part.items() if s == 0.0}
    assert zeros == stopped
    whole = {name: s for part in measured.scores.values() for name, s in part.items()}
    assert measured.curve[-1] == pytest.approx(np.mean(list(whole.values())), abs=1e-6)
    assert measured.failures == rate.failures == {"empty-text": len(stopped)}


class Short(TruncatingEncoder):
    """An encoder that reads sixteen words."""

    fingerprint = what = "short/1"

    def __init__(self) -> None:
        super().__init__(most=16)


def test_texts_that_were_cut_for_the_encoder_are_noted(tmp_path: Path, store: Store) -> None:
    """How many of all that were compared, and by whom; nothing where none was, nor for images."""
    text = SUITE.replace('"image"', '"text"')
    text = text.replace(
        'encoder = "shapes:"', 'encoder = "python:tests.measures.test_chain_similarity:Short"'
    )
    staged = stage(tmp_path / "suite", text + "[metrics.gc]\n", store)
    measured = staged.measure("overall-gc")
    chains = staged.run.data.chains("text", staged.run.dataset.samples).values()
    texts = [str(chain.links[g].text) for chain in chains for g in (0, 2, 4) if chain.has(g)]
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
    chains = staged.run.data.chains("image", staged.run.dataset.samples).values()
    drawn = [link.text for chain in chains for link in chain.links if link.text is not None]
    cut = [drawing for drawing in drawn if len(drawing.split()) > 16]
    assert 0 < len(cut) < len(drawn)
    (note,) = measured.notes
    assert note.startswith(f"{len(cut)} of {len(drawn)} prompts were longer than the 16 tokens ")
    assert note.endswith(f"that {generator} reads, and were drawn by their beginning")
    again = stage(tmp_path / "suite", text, store)
    assert again.measure("overall-gc").notes == measured.notes
    assert again.run.data.runner("encoder").tally.inputs == 0


BOTH = SUITE.replace('start = "image"\niterations = 2', 'start = "both"\ngenerations = 9')

GENERATIONS = {
    "text-to-text": (2, 4, 6, 8),
    "text-to-image": (1, 3, 5, 7, 9),
    "image-to-image": (2, 4, 6, 8),
    "image-to-text": (1, 3, 5, 7, 9),
}
"""Of nine: those whose artifacts have the modality that is compared."""


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Staged:
    """Lossy chains from both starts, told by MCD of all mappings."""
    return stage(
        tmp_path_factory.mktemp("suite"), BOTH + "[metrics.mcd]\n[metrics.failures]\n", store
    )


def _curves(drifting: Staged, mapping: str) -> dict[str, list[float]]:
    """Similarity to the start at each generation of a mapping, by sample."""
    start: Modality = "text" if mapping.startswith("text") else "image"
    return _similarities(_vectors(drifting, start, GENERATIONS[mapping]))


@pytest.mark.parametrize("mapping", GENERATIONS)
def test_a_mapping_is_the_mean_over_its_own_generations(drifting: Staged, mapping: str) -> None:
    """Scores, value, course and number of samples against a plain computation; each sample once."""
    curves = _curves(drifting, mapping)
    measured = drifting.measure(f"{mapping}-mcd")
    expected = {name: float(np.mean(curve)) for name, curve in curves.items()}
    assert measured.scores == {mapping: pytest.approx(expected, abs=2e-6)}
    assert measured.value == pytest.approx(np.mean(list(expected.values())), abs=2e-6)
    assert measured.curve == pytest.approx(tuple(np.mean(list(curves.values()), axis=0)))
    assert (measured.n, measured.label, measured.higher_is_better) == (12, "MCD", True)


def test_the_whole_is_the_mean_of_the_mappings(drifting: Staged) -> None:
    """Per sample and altogether, its floor too; there is no one course of four mappings."""
    parts = [drifting.measure(f"{mapping}-mcd") for mapping in GENERATIONS]
    whole = drifting.measure("overall-mcd")
    assert whole.value == pytest.approx(np.mean([part.value for part in parts]), abs=2e-6)
    for name, score in whole.scores["overall"].items():
        own = [next(iter(part.scores.values()))[name] for part in parts]
        assert score == pytest.approx(np.mean(own), abs=2e-6)
    assert whole.floor == pytest.approx(np.mean([part.floor or np.nan for part in parts]), abs=1e-6)
    assert (whole.n, whole.curve) == (12, ())
    assert len({part.value for part in parts}) > 1


def test_mappings_that_are_named_have_their_own_encoders(tmp_path: Path, store: Store) -> None:
    """Only the named ones are measured, each with its encoder, which the baseline names."""
    text = BOTH + (
        '[encoders]\nother = "python:tests.measures.test_chain_similarity:Short"\n'
        '[metrics.mcd.mappings]\ntext-to-text = "other"\nimage-to-image = "encoder"\n'
    )
    staged = stage(tmp_path / "suite", text, store)
    assert list(staged.cases) == ["text-to-text-mcd", "image-to-image-mcd", "overall-mcd"]
    measured = staged.measure("overall-mcd")
    assert measured.identity["metric"] == "mcd/1 text-to-text by other, image-to-image by encoder"
    assert measured.identity["other"].startswith("short/1 ")
    assert "shapes" in measured.identity["encoder"]
    assert readers_of(staged.run.measures["mcd"].required_features(None)) == ("other", "encoder")
    images = staged.measure("image-to-image-mcd").identity
    assert images["metric"] == "mcd/1 image-to-image by encoder"
    assert "other" not in images


MCD, NAMED = "[metrics.mcd]\n", "[metrics.mcd.mappings]\n"


@pytest.mark.parametrize(
    ("suite", "metric", "message"),
    [
        *((SUITE, f"[metrics.mcd]\nkind = 's'\nat = {at}\n",
           f"at = {at}, and the chains have 2 iterations") for at in (0, 3, -1)),
        (BOTH.replace("= 9", "= 1"), MCD, r"'text-to-text' has no generation in chains of 1"),
        (BOTH, f'{NAMED}text-to-smell = "encoder"\n', "unknown mapping 'text-to-smell'"),
        (BOTH, f'{NAMED}text-to-sound = "encoder"\n',
         "mapping 'text-to-sound': its chains make images"),
        (BOTH.replace('"both"', '"text"'), f'{NAMED}image-to-text = "encoder"\n',
         "no image-first chains .*start = text"),
        (BOTH.replace('"both"', '"image"'), f'{NAMED}text-to-text = "encoder"\n',
         "no text-first chains .*start = image"),
        (BOTH, f"{MCD}pool = 'categories'\n", "pool = 'categories': MCD is of samples"),
    ],
)  # fmt: skip
def test_what_the_chains_cannot_give_is_refused(
    tmp_path: Path, store: Store, suite: str, metric: str, message: str
) -> None:
    """By suite, metric and number: iterations beyond the chain; a text that a single drawing never
    comes back to; names that do not exist, and mappings of chains that are not played. No mean of
    categories is made of mappings.
    """
    stage(tmp_path / "suite", f"{BOTH}{MCD}pool = 'samples'\n", store)
    with pytest.raises(SuiteError, match=f"suite 'world', metric 'mcd': .*{message}"):
        stage(tmp_path / "suite", suite + metric, store)


def test_a_sample_is_shown_by_the_chain_of_the_mapping(drifting: Staged) -> None:
    """With its similarities where they were measured; the whole shows the first mapping's."""
    sample = drifting.run.dataset.samples[0].id
    for case, mapping in {
        "image-to-text-mcd": "image-to-text",
        "overall-mcd": "text-to-text",
    }.items():
        shown = drifting.run.show(drifting.cases[case], sample)
        assert shown is not None
        assert shown.chain.links[0].kind == mapping.split("-")[0]
        assert tuple(shown.marks) == GENERATIONS[mapping]
        assert list(shown.marks.values()) == pytest.approx(_curves(drifting, mapping)[sample])


def _by_hand(vectors: Vectors, members: Sequence[str], weights: Sequence[float]) -> float:
    """The mean over all ordered pairs of different samples, none of which start alike here."""
    scores = [
        float(sum(w * (vectors[i][0] @ vectors[j][t + 1]) for t, w in enumerate(weights)))
        for i in members
        for j in members
        if i != j
    ]
    return float(np.mean(scores))


@pytest.mark.parametrize(
    ("metric", "weights"), [("gc", (1 / 3, 2 / 3)), ("s", (0, 1)), ("sim", (1, 0))]
)
def test_the_floor_is_the_score_of_others(
    staged: Staged, metric: str, weights: tuple[float, ...]
) -> None:
    """Of a category: all pairs of its samples; of a group and all of GC: the categories' mean."""
    vectors = _vectors(staged)
    floors = {c: _by_hand(vectors, _members(staged, c), weights) for c in ("a", "b")}
    for category, floor in floors.items():
        measured = staged.measure(f"{category}-{metric}")
        assert measured.floor == pytest.approx(floor, abs=1e-6)
        assert measured.floor is not None
        assert measured.floor < measured.value
    if metric != "sim":
        for part in ("all", "overall"):
            mean = np.mean(list(floors.values()))
            assert staged.measure(f"{part}-{metric}").floor == pytest.approx(mean, abs=1e-6)


def test_floors_of_a_whole_of_samples_and_of_one(staged: Staged) -> None:
    """SIM counts every sample once: against those that share its first category. One sample has no
    floor, which is said; it has its score all the same.
    """
    vectors = _vectors(staged)
    homes: dict[str, list[str]] = {}
    for sample in staged.run.dataset.samples:
        homes.setdefault(sample.categories[0], []).append(sample.id)
    total = sum(_by_hand(vectors, own, (1, 0)) * len(own) for own in homes.values())
    measured = staged.measure("overall-sim")
    assert measured.floor == pytest.approx(total / 12, abs=1e-6)
    measured = staged.run.measure(staged.cases["a-gc"], 1)
    assert measured.floor is None
    assert measured.n == 1
    assert any("no two samples start differently" in note for note in measured.notes)


class Blind(ShapesEncoder):
    """One direction for all images, of a length that depends on the image."""

    fingerprint = "blind/1"
    noise = 0.0

    def encode_images(self, images: Sequence[Any]) -> npt.NDArray[np.float64]:
        """(n, 8)."""
        rng = np.random.default_rng(0)
        rows = np.ones((len(images), 8)) + self.noise * rng.normal(size=(len(images), 8))
        return rows * np.arange(1, len(images) + 1)[:, None]


class NearlyBlind(Blind):
    """The same, up to the rounding of its numbers."""

    fingerprint = "nearly blind/1"
    noise = 1e-6


def _with_encoder(name: str) -> str:
    return SUITE.replace('encoder = "shapes:"', f'encoder = "python:{__name__}:{name}"')


@pytest.mark.parametrize("name", ["Blind", "NearlyBlind"])
def test_an_encoder_of_one_vector_measures_nothing(tmp_path: Path, store: Store, name: str) -> None:
    """It would give every checkpoint a perfect score: an error that says who sees nothing. Samples
    of one picture are one picture: an encoder that tells it so is right.
    """
    staged = stage(tmp_path / "suite", _with_encoder(name) + METRICS, store)
    for case in ("a-gc", "overall-sim", "overall-s"):
        with pytest.raises(
            MeasurementError, match=rf"{name} gives one vector for \d+ images that differ"
        ):
            staged.measure(case)
    measured = staged.run.measure(staged.cases["a-gc"], 1)
    assert measured.value == pytest.approx(1.0)
    samples = staged.run.looked_at(staged.cases["a-gc"], 1)
    chains = staged.run.data.chains("image", samples)
    assert len({chain.links[0].digest for chain in chains.values()}) == 1


def test_each_modality_is_looked_at_apart(tmp_path: Path, store: Store) -> None:
    """Texts that are told apart do not hide that images are not."""
    text = (
        _with_encoder("HalfBlind").replace('start = "image"', 'start = "both"') + "[metrics.mcd]\n"
    )
    text = text.replace("python:tests.suites.world:overlapping", "shapes") + (
        "[data.options]\nsamples_per_category = 2\n"
    )
    staged = stage(tmp_path / "suite", text, store)
    for part in ("text-to-image", "image-to-text", "overall"):
        with pytest.raises(MeasurementError, match=r"HalfBlind gives one vector for \d+ images"):
            staged.measure(f"{part}-mcd")
    assert staged.measure("text-to-text-mcd").floor is not None


class HalfBlind(ShapesEncoder):
    """Texts are told apart, images are not."""

    fingerprint = "half blind/1"

    def encode_images(self, images: Sequence[Any]) -> npt.NDArray[np.float64]:
        """(n, D)."""
        return np.ones((len(images), super().encode_texts(["nothing"]).shape[1]))
