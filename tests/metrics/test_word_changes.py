"""Words that texts lose, gain and change: alignment, totals, kinds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.text_statistics import words_of
from pytest_cepbench.metrics.word_changes import KindChanges, kind_of, word_changes

TEXTS = st.lists(st.sampled_from(["red", "blue", "dog", "on", "a", "猫"]), max_size=12).map(
    " ".join
)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_every_word_is_kept_changed_lost_or_gained(pairs: list[tuple[str, str]]) -> None:
    """Nothing is counted twice, nothing is left out."""
    changes = word_changes(pairs)
    kept, changed = changes.kept.total(), changes.changed.total()
    assert changes.texts == len(pairs)
    assert kept + changed + changes.lost.total() == sum(len(words_of(old)) for old, _ in pairs)
    assert kept + changed + changes.gained.total() == sum(len(words_of(new)) for _, new in pairs)
    kinds = changes.by_kind().values()
    assert sum(kind.kept for kind in kinds) == kept
    assert sum(kind.lost for kind in kinds) == changes.lost.total()


@given(st.lists(TEXTS, max_size=4))
def test_equal_texts_keep_every_word(texts: list[str]) -> None:
    """No change of any sort."""
    changes = word_changes((text, text) for text in texts)
    assert changes.kept == changes.before == changes.after
    assert changes.changed == changes.lost == changes.gained == {}


def test_a_word_in_place_of_another_is_a_change() -> None:
    """Runs of equal length are changes word by word, others are lost and gained."""
    changes = word_changes(
        [
            ("a small red circle top left", "a small blue circle top left"),
            ("a red dog and a cat", "a red dog"),
            ("a cat", "a very big cat"),
        ]
    )
    assert dict(changes.changed) == {("red", "blue"): 1}
    assert dict(changes.lost) == {"and": 1, "a": 1, "cat": 1}
    assert dict(changes.gained) == {"very": 1, "big": 1}
    assert changes.by_kind()["color"] == KindChanges(kept=1, changed=1)


def test_kinds_of_words() -> None:
    """The words that tell facts have a kind, all others are other."""
    assert [kind_of(word) for word in ("red", "three", "small", "left", "dog", "红")] == [
        "color", "count", "size", "place", "other", "other",
    ]  # fmt: skip


def test_long_texts_are_aligned_by_their_beginning() -> None:
    """A loop of 100,000 words costs no more than 400."""
    changes = word_changes([("dog " * 100_000, "cat " * 100_000)])
    assert changes.before.total() == changes.changed.total() == 400
