"""Label files: written and read back, and what is refused in them, each with one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import LabelError, SpecError
from pytest_cepbench.gate.labels.label_file import (
    BattleDigests,
    Contestant,
    LabelFile,
    draw_battles,
    label_path,
    population_digest,
    read_label_file,
    read_label_files,
)
from tests.gate.labels.build import battles, drawn_file


def written(folder: Path, count: int = 8) -> Path:
    """A label file of twenty battles."""
    file = drawn_file(folder / "labels.jsonl", battles({"a": 10, "b": 10}), count)
    file.path.write_text(file.dump(), encoding="utf-8")
    return file.path


@given(st.dictionaries(st.sampled_from([f"a/{i}" for i in range(9)]), st.floats(0, 1)))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, labels: Any) -> None:
    """Draw, battles, probabilities and labels come back as they were."""
    path = tmp_path_factory.mktemp("labels") / "x.jsonl"
    file = drawn_file(path, battles({"a": 9}), 4, labels)
    path.write_text(file.dump(), encoding="utf-8")
    again = read_label_file(path)
    assert again == file
    assert again.dump() == file.dump()


def test_the_same_battles_have_the_same_file(tmp_path: Path) -> None:
    """Its name is of their digest, and it lies beside the baselines."""
    path = label_path(tmp_path / "baselines", "arena", "ab" * 32)
    assert path == tmp_path / "labels" / "arena" / "abababababababab.jsonl"
    assert read_label_files(path.parent) == []


def _changed(number: int, **fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        lines[number] |= fields

    return change


def _disagree(lines: list[dict[str, Any]]) -> None:
    lines.append(lines[-1] | {"score": 0.25})


def _second_draw(lines: list[dict[str, Any]]) -> None:
    lines.append(lines[0])


def _no_draw(lines: list[dict[str, Any]]) -> None:
    del lines[0]


def _twice(lines: list[dict[str, Any]]) -> None:
    lines.append(lines[1] | {"probability": 0.125})


@pytest.mark.parametrize(
    ("change", "line", "why"),
    [
        (_changed(1, probability=0.0), 2, "a probability lies in (0, 1], got 0"),
        (_changed(1, probability=1.5), 2, "a probability lies in (0, 1], got 1.5"),
        (_changed(-1, score=1.25), 17, "a score in [0, 1] of people is expected, got 1.25"),
        (_changed(-1, votes=0), 17, "a score in [0, 1]"),
        (_disagree, 18, "its battle has the label 1, and 0.25 here"),
        (_second_draw, 18, "a second draw"),
        (_no_draw, 1, "the draw is expected first"),
        (_twice, 18, "the sample a/"),
        (_changed(0, count=-1), 1, "at least one battle is drawn, got -1"),
        (_changed(0, count=0), 1, "at least one battle is drawn, got 0"),
        (_changed(0, v=2), 1, "format 2 is not known here"),
        (_changed(0, drawn="yesterday"), 1, "'yesterday', no time"),
        (_changed(0, drawn="2026-11-20T10:00:00"), 1, "no time of ISO 8601"),
        (_changed(0, type="lottery"), 1, "damaged"),
        (_changed(-1, winner="first"), 17, "damaged"),
        (_changed(-1, score=None), 17, "damaged"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], None], line: int, why: str
) -> None:
    """A probability of 0, labels that disagree, a damaged line: one sentence, with a remedy."""
    path = written(tmp_path)
    lines = [json.loads(text) for text in path.read_text("utf-8").splitlines()]
    change(lines)
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with pytest.raises(LabelError) as caught:
        read_label_file(path)
    assert f"{path}, line {line}: " in str(caught.value)
    assert why in str(caught.value)
    assert "restore it from version control" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{\n", b"\xff\xfe\n", b'{"type":"draw"}\n', b"[1]\n"])
def test_what_is_no_label_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, half a line, bytes that are no UTF-8, and other JSON."""
    path = tmp_path / "labels.jsonl"
    path.write_bytes(content)
    with pytest.raises(LabelError, match="restore it") as caught:
        read_label_file(path)
    assert "\n" not in str(caught.value)


def test_a_label_twice_counts_once(tmp_path: Path) -> None:
    """Equal lines, as two branches that were merged leave them."""
    path = written(tmp_path)
    text = path.read_text("utf-8")
    path.write_text(text + text.splitlines()[-1] + "\n", encoding="utf-8")
    assert len(read_label_file(path).labels) == 8


def test_two_draws_of_the_same_battles_are_refused(tmp_path: Path) -> None:
    """Between two of them the better one could be chosen."""
    first = read_label_file(written(tmp_path))
    fewer = drawn_file(tmp_path / "z.jsonl", battles({"a": 10, "b": 10}), 4)
    fewer.path.write_text(fewer.dump(), encoding="utf-8")
    assert isinstance(first, LabelFile)
    with pytest.raises(LabelError, match="two draws of the same battles"):
        read_label_files(tmp_path)


SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 30), min_size=1, max_size=5)


@given(SIZES, st.data())
def test_so_many_are_drawn_and_at_least_two_of_each_category(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    """Categories get shares by their sizes; probabilities are what was drawn by what there is."""
    count = data.draw(st.integers(2 * len(sizes), sum(sizes.values())))
    drawn = draw_battles(battles(sizes), count)
    per_category = Counter(sample.split("/")[0] for sample in drawn)
    assert len(drawn) == count
    for name, size in sizes.items():
        assert per_category[name] >= 2
        own = {drawn[s] for s in drawn if s.split("/")[0] == name}
        assert own == {round(per_category[name] / size, 9)}
    fair = {name: count * size / sum(sizes.values()) for name, size in sizes.items()}
    if all(share >= 2 for share in fair.values()):
        assert all(abs(per_category[name] - fair[name]) < 1 for name in sizes)


@given(st.permutations(battles({"a": 6, "b": 9})))
def test_the_order_of_the_battles_has_no_say(own: list[Contestant]) -> None:
    """The same battles give the same draw on every machine."""
    assert draw_battles(own, 7) == draw_battles(battles({"a": 6, "b": 9}), 7)


def test_other_answers_are_another_draw() -> None:
    """One other answer changes which battles are drawn: nothing can be kept for the next model."""
    sizes = {"a": 100}
    before, after = battles(sizes), battles(sizes)
    last = after[-1]
    after[-1] = Contestant(
        BattleDigests(last.battle.question, "0" * 64, last.battle.opponent),
        last.sample,
        last.category,
        last.unit,
    )
    assert population_digest(before) != population_digest(after)
    assert draw_battles(before, 30).keys() != draw_battles(after, 30).keys()


def test_every_battle_is_as_likely() -> None:
    """Over many populations each battle of a category is drawn in its share of the draws."""
    counts: Counter[str] = Counter()
    for model in range(400):
        counts.update(draw_battles(battles({"a": 10}, f"model {model}"), 3).keys())
    assert all(80 <= counts[f"a/{i}"] <= 160 for i in range(10))


def test_a_unit_is_drawn_whole() -> None:
    """Seeds of one question come together."""
    own = [
        Contestant(contestant.battle, f"{contestant.sample}#{seed}", "a", contestant.sample)
        for contestant in battles({"a": 8})
        for seed in range(3)
    ]
    drawn = draw_battles(own, 4)
    per_unit = Counter(sample.split("#")[0] for sample in drawn)
    assert sorted(per_unit.values()) == [3, 3, 3, 3]


@pytest.mark.parametrize(("count", "why"), [(31, "there are 30"), (5, "give at least 6")])
def test_too_many_and_too_few_are_refused(count: int, why: str) -> None:
    """More than there are, and fewer than two of each category."""
    with pytest.raises(SpecError, match=why):
        draw_battles(battles({"a": 10, "b": 10, "c": 10}), count)
