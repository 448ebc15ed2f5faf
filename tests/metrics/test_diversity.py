"""Diversity of sets, retrieval of starts, lengths and words of texts, constant answers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.diversity import (
    Gallery,
    MostFrequentAnswer,
    kept_length,
    most_common,
    repeated_share,
    spread_of_directions,
    spread_of_vectors,
    vendi_scores,
    words_of,
)
from tests.optional import known

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(2, 24)
FEW = settings(max_examples=40)


def drawn(n: int, dimension: int, seed: int) -> Array:
    """Vectors of many lengths, not centred."""
    random = np.random.default_rng(seed)
    return (random.standard_normal((n, dimension)) + 0.3) * random.uniform(0.1, 90, (n, 1))


def cosine(a: Array, b: Array) -> float:
    """By its definition."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def vendi_score(vectors: Array) -> float:
    """The score of all vectors."""
    return vendi_scores(vectors, np.empty(0, dtype=np.intp), 0)[0]


@FEW
@given(seed=SEEDS, n=SIZES, dimension=st.integers(1, 30))
def test_the_score_is_its_definition(seed: int, n: int, dimension: int) -> None:
    """By the smaller of two matrices: exponential of the entropy of the eigenvalues of the whole
    kernel matrix over n; from 1 for equal items to n for orthogonal ones.
    """
    vectors = drawn(n, dimension, seed)
    kernel = np.array([[cosine(a, b) for a in vectors] for b in vectors]) / n
    eigenvalues = [value for value in np.linalg.eigvalsh(kernel) if value > 1e-12]
    expected = np.exp(-sum(value * np.log(value) for value in eigenvalues))
    assert vendi_score(vectors) == pytest.approx(expected, rel=1e-8)
    assert vendi_score(np.eye(n)) == pytest.approx(n)
    assert vendi_score(np.ones((n, 3))) == pytest.approx(1.0)


@FEW
@given(seed=SEEDS, n=st.integers(6, 24), dimension=st.sampled_from([3, 40]))
def test_leaving_a_block_out_is_measuring_the_rest(seed: int, n: int, dimension: int) -> None:
    """With more and with fewer vectors than dimensions."""
    vectors = drawn(n, dimension, seed)
    blocks = np.arange(n) % 3
    rests = [vectors[blocks != block] for block in range(3)]
    vendi, without = vendi_scores(vectors, blocks, 3)
    assert vendi == vendi_score(vectors)
    assert without == pytest.approx(list(map(vendi_score, rests)), rel=1e-7)


def test_too_few_vectors_and_vectors_without_direction_are_refused() -> None:
    """One item has no diversity, nor what a block leaves of all, and one start no competitor; zeros
    and NaN have no angle. Other shapes and unknown starts are refused too.
    """
    with pytest.raises(TooFewError, match="at least 2"):
        vendi_score(np.ones((1, 3)))
    for bad in (0.0, np.nan, np.inf):
        vectors = np.ones((3, 2))
        vectors[1] = bad
        with pytest.raises(ValueError, match="zero or not finite"):
            vendi_score(vectors)
    with pytest.raises(ValueError, match="expected"):
        vendi_score(np.ones(3))
    with pytest.raises(TooFewError, match="1 of 3"):
        vendi_scores(np.eye(3), np.array([0, 0, 1]), 2)
    for starts, names, words in (
        (np.eye(2), ["x", "x"], "at least 2 different starts, got 1"),
        (np.eye(2), ["x"], "expected"),
        (np.array([[1.0, 0.0], [0.0, 0.0]]), ["x", "y"], "zero or not finite"),
    ):
        with pytest.raises(ValueError, match=words):
            Gallery.of(starts, names)
    gallery = Gallery.of(np.eye(2), ["x", "y"])
    for outputs, names, words in (
        (np.eye(2), ["x", "z"], "1 starts are not in the gallery, such as 'z'"),
        (np.array([[np.nan, 1.0]]), ["x"], "zero or not finite"),
        (np.eye(2), ["x"], "expected"),
    ):
        with pytest.raises(ValueError, match=words):
            gallery.top_1(outputs, names)
    assert gallery.top_1(np.empty((0, 2)), []).tolist() == []


@FEW
@given(seed=SEEDS, n=st.integers(2, 40), dimension=st.integers(2, 9))
def test_it_is_the_nearest_neighbour_by_cosine(seed: int, n: int, dimension: int) -> None:
    """Whatever the lengths; no ties in vectors from a continuous law."""
    starts, outputs = (drawn(n, dimension, seed), drawn(n, dimension, seed + 1))
    names = [f"s{i}" for i in range(n)]
    nearest = [np.argmax([cosine(output, start) for start in starts]) for output in outputs]
    found = Gallery.of(starts, names).top_1(outputs, names).tolist()
    assert found == [float(place == own) for own, place in enumerate(nearest)]


@FEW
@given(seed=SEEDS, n=st.integers(2, 30))
def test_an_encoder_of_one_vector_scores_chance_never_perfect(seed: int, n: int) -> None:
    """All starts are tied, so each has its fair share of a draw among them."""
    vectors = np.repeat(drawn(1, 4, seed), n, axis=0) * np.linspace(1, 2, n)[:, None]
    gallery = Gallery.of(vectors, list(range(n)))
    assert gallery.top_1(vectors, list(range(n))).tolist() == pytest.approx([1 / n] * n)
    assert gallery.ceiling().tolist() == pytest.approx([1 / n] * n)


def test_equal_starts_are_one_and_different_starts_of_one_vector_share() -> None:
    """Equal content is no competitor; content that the encoder cannot tell apart is."""
    a, b = [1.0, 0.0], [0.0, 1.0]
    vectors = np.array([a, a, b])
    duplicate = Gallery.of(vectors, ["x", "x", "y"])
    assert duplicate.top_1(vectors, ["x", "x", "y"]).tolist() == [1.0, 1.0, 1.0]
    assert duplicate.chance == 0.5
    tied = Gallery.of(vectors, ["x", "z", "y"])
    assert tied.top_1(vectors, ["x", "z", "y"]).tolist() == [0.5, 0.5, 1.0]
    assert tied.ceiling().tolist() == [0.5, 0.5, 1.0]
    # A cosine that is larger by the rounding of float32 decides nothing.
    starts = np.array([[1.0, 0.0], [1.0, 1e-9]], dtype=np.float64)
    gallery = Gallery.of(starts, ["x", "y"])
    assert gallery.top_1(starts, ["x", "y"]).tolist() == [0.5, 0.5]
    apart = Gallery.of(np.array([[1.0, 0.0], [1.0, 0.01]]), ["x", "y"])
    assert apart.top_1(np.array([[1.0, 0.0], [1.0, 0.01]]), ["x", "y"]).tolist() == [1.0, 1.0]


WORDS = st.lists(st.sampled_from(["red", "blue", "dog", "on", "a"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two Dogs, don't run!", ["two", "dogs", "don't", "run"]),
        ("a well-known  cafe\u0301", ["a", "well-known", "caf\u00e9"]),
        ("一只 cat 坐", ["一", "只", "cat", "坐"]),
        ("ひらカタ", ["ひ", "ら", "カ", "タ"]),
        ("안녕 하세요", ["안녕", "하세요"]),
        ("\u202e\x1b[31m ...", ["31m"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_or_single_ones_where_no_spaces_are(
    text: str, words: list[str]
) -> None:
    """Case, punctuation, accents' forms and control characters make no other words."""
    assert words_of(text) == words


@given(WORDS, st.integers(1, 5))
def test_repetition_counts_n_grams_that_were_there(words: list[str], n: int) -> None:
    """Against a plain loop."""
    seen: set[tuple[str, ...]] = set()
    repeated = count = 0
    for start in range(len(words) - n + 1):
        gram = tuple(words[start : start + n])
        repeated += gram in seen
        seen.add(gram)
        count += 1
    expected = repeated / count if count else 0.0
    assert repeated_share(" ".join(words), n) == pytest.approx(expected)
    assert 0.0 <= repeated_share(" ".join(words), n) < 1.0
    with pytest.raises(ValueError, match="at least 1 word"):
        repeated_share("a", 0)


@given(WORDS, WORDS)
def test_length_is_kept_alike_in_both_directions(first: list[str], later: list[str]) -> None:
    """Half as long and twice as long lose the same; equal lengths lose nothing."""
    one, other = " ".join(first), " ".join(later)
    assert kept_length(one, other) == kept_length(other, one)
    assert kept_length(one, one) == 1.0
    assert 0.0 <= kept_length(one, other) <= 1.0
    assert kept_length("a b", "a b c d") == 0.5
    assert kept_length("a b", "") == 0.0


def test_spreads_of_vectors() -> None:
    """Equal ones have none, also in half precision, and for numbers that a mean would round.

    Of thousands the last may be the one that differs. A cosine cannot see that a vector is twice as
    long; a distance can.
    """
    for kind in (np.float16, np.float32, np.float64):
        rows = np.full((7, 5), 0.1, dtype=kind)
        assert spread_of_directions(rows) == pytest.approx(0.0, abs=1e-15)
        assert spread_of_vectors(rows) == 0.0
    ones = np.ones((2501, 4))
    ones[-1, 0] = 1.5
    assert spread_of_vectors(ones) == pytest.approx(0.25)
    assert spread_of_directions(ones) > 0.1
    longer = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    assert spread_of_directions(longer) < 1e-15
    assert spread_of_vectors(longer) == pytest.approx(2.0)


def test_nearly_all_answers_alike_are_constant() -> None:
    """More than nine in ten, of four different inputs or more. An input that comes again adds
    nothing: 24 samples of one image are no 24 images.
    """
    for alike, of, constant, text in (
        (24, 24, True, "all 24"),
        (23, 24, True, "23 of 24"),
        (22, 24, True, "22 of 24"),
        (21, 24, False, "21 of 24"),
        (4, 4, True, "all 4"),
        (3, 3, False, "all 3"),
    ):
        common = known(most_common([(i, "same" if i < alike else i) for i in range(of)]))
        assert (common.constant, str(common)) == (constant, text)
    again = most_common([("a", 1), ("a", 1), ("b", 1), ("c", 2)])
    assert again == MostFrequentAnswer(answer=1, count=2, of=3)
    assert most_common([]) is None
