"""The images of a data set: read once, chosen by quotas, their labels settled by votes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.construction.folder import choose_images, find_images, members_of
from pytest_cepbench.construction.verification import vote_labels
from pytest_cepbench.errors import DatasetError


def put(folder: Path, *names: str) -> Path:
    """Images named by their levels of grey: `7-a.png` and `7-b.webp` have the same pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        level = int(path.name.partition("-")[0])
        Image.new("RGB", (4, 4), (level,) * 3).save(path, lossless=True)
    return folder


def test_files_of_equal_pixels_are_one_image(tmp_path: Path) -> None:
    """Whatever their format; the others are counted."""
    source = find_images(put(tmp_path, "7-a.png", "7-b.webp", "sub/7-c.bmp", "8-a.png"))

    assert [(r.path, r.same, r.number) for r in source.records] == [
        ("7-a.png", ("7-b.webp", "sub/7-c.bmp"), 0),
        ("8-a.png", (), 1),
    ]


def test_unreadable_files_are_left_out_with_the_reason(tmp_path: Path) -> None:
    """Cut off files, texts with the name of an image, and bombs stop nothing."""
    put(tmp_path, "1-a.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "cut.png").write_bytes((tmp_path / "1-a.png").read_bytes()[:40])
    source = find_images(tmp_path)

    assert [record.path for record in source.records] == ["1-a.png"]
    assert set(source.unreadable) == {"text.png", "cut.png"}
    assert "not an image" in source.unreadable["text.png"]


def test_numbers_stay_where_images_are_added(tmp_path: Path) -> None:
    """New images get the next numbers, whatever their names; one that is gone is refused."""
    before = find_images(put(tmp_path, "5-a.png", "6-a.png")).records
    after = find_images(put(tmp_path, "1-a.png", "5-0.png"), before).records

    assert [(r.path, r.number) for r in after] == [("5-0.png", 0), ("6-a.png", 1), ("1-a.png", 2)]
    assert [r.image for r in after[:2]] == [r.image for r in before]
    (tmp_path / "6-a.png").unlink()
    with pytest.raises(DatasetError, match="begun with other images: 1 of its 2"):
        find_images(tmp_path, before)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    """So are a file, nothing at all, and a folder of unreadable files."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_text("x")

    with pytest.raises(DatasetError, match="no images in"):
        find_images(tmp_path / "empty")
    with pytest.raises(DatasetError, match="1 files hold none that can be read"):
        find_images(tmp_path / "bad")
    with pytest.raises(DatasetError, match="does not exist"):
        find_images(tmp_path / "none")
    with pytest.raises(DatasetError, match="is a file"):
        find_images(tmp_path / "bad" / "x.png")


LABELS = st.dictionaries(
    st.integers(0, 60).map(lambda number: digest_text(str(number))),
    st.lists(st.sampled_from("ABCDE"), max_size=5),
    max_size=40,
)


@given(LABELS, st.integers(1, 12))
def test_every_quota_is_met_and_no_image_is_idle(labels: dict[str, list[str]], quota: int) -> None:
    """A pattern has its quota or all its images; every image has a pattern that needed it."""
    chosen = set(choose_images(labels, quota))

    for images in members_of(labels).values():
        assert len(chosen.intersection(images)) >= min(quota, len(images))
    assert all(labels[image] for image in chosen)
    assert len(chosen) <= quota * len(members_of(labels))


@given(LABELS, st.integers(1, 8), st.integers(0, 5))
def test_a_larger_set_contains_a_smaller_one(
    labels: dict[str, list[str]], quota: int, more: int
) -> None:
    """Whatever the patterns share: what was verified stays of use."""
    small = choose_images(labels, quota)
    large = choose_images(labels, quota + more)

    assert set(small) <= set(large)


def test_the_rarest_pattern_is_filled_first() -> None:
    """An image of a rare pattern counts for the frequent one too."""
    both = digest_text("both")
    labels = {both: ["rare", "often"]} | {digest_text(str(i)): ["often"] for i in range(20)}

    assert choose_images(labels, 1) == [both]


NAMES = ("A", "B", "C")

VOTES = st.frozensets(st.sampled_from(NAMES))


@given(VOTES, st.lists(VOTES, max_size=6))
def test_labels_are_those_of_the_majority(
    model: frozenset[str], people: list[frozenset[str]]
) -> None:
    """Counted by hand; a tie is decided by the people alone, of whom there is an odd number."""
    final = vote_labels(NAMES, model, people)

    for name in NAMES:
        votes = [name in labels for labels in (model, *people)]
        for_it, against = sum(votes), len(votes) - sum(votes)
        if for_it != against:
            assert (name in final.patterns) == (for_it > against)
        else:
            own = votes[1:]
            assert len(own) % 2 == 1
            assert (name in final.patterns) == (2 * sum(own) > len(own))
        assert (name in final.disputed) == (0 < for_it < len(votes))
    assert final.annotators == len(people)
    assert final.changed == (set(final.patterns) != set(model))
