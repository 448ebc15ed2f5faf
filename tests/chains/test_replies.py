"""Results that come with something to be told: what they took, where they are from, what to say."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainModels, RoleRunner, Step
from pytest_cepbench.chains.growth import ChainGroup
from pytest_cepbench.chains.steps import Progress, key_of
from pytest_cepbench.models.protocols import CUT, Reply, Usage
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.rows import WITH_PROVENANCE
from tests.chains.roles import (
    PLAN,
    SmallDescriber,
    SmallGenerator,
    bound,
    describe_image,
    draw_text,
    samples,
)

REMARK = "temperature=0 was not honoured"


def _replying(image: Any, prompt: str, seed: int | None) -> Reply:
    usage = Usage(requests=1, input_tokens=30, output_tokens=4, cost=0.5)
    text = describe_image(image, prompt, seed)
    return Reply(text, usage, {"server": "m-1"}, remarks=(REMARK,))


def _drawing(text: str, seed: int | None) -> Reply:
    return Reply(draw_text(text, seed), Usage(requests=2, retries=1, images=1))


def _models(
    store: Store, describe: Any, draw: Any = draw_text
) -> tuple[RoleRunner, RoleRunner, ChainModels]:
    describer = RoleRunner(bound("describer", SmallDescriber(describe)), store)
    generator = RoleRunner(bound("generator", SmallGenerator(draw)), store)
    return describer, generator, ChainModels(describer, generator, store)


def test_replies_count_as_the_results_in_them(tmp_path: Path) -> None:
    """The chains are those of bare results; usage and remarks are summed, provenance is stored."""
    with Store(tmp_path / "plain") as store:
        expected = [
            chain.links[-1].digest
            for chain in ChainGroup(PLAN, samples(3), _models(store, describe_image)[2]).chains
        ]
    with Store(tmp_path / "replies") as store:
        describer, generator, models = _models(store, _replying, _drawing)
        describer.progress = progress = Progress()
        actual = [chain.links[-1].digest for chain in ChainGroup(PLAN, samples(3), models).chains]
    assert actual == expected
    assert progress.cost == 3.0
    assert describer.tally.usage == Usage(6, 0, 180, 24, 0, 3.0)
    assert generator.tally.usage == Usage(12, 6, 0, 0, 6)
    assert list(describer.tally.remarks) == [REMARK]
    database = sqlite3.connect(tmp_path / "replies" / "index.sqlite")
    rows = database.execute(f"SELECT text FROM {WITH_PROVENANCE}").fetchall()
    database.close()
    servers = [json.loads(text).get("server") for (text,) in rows]
    assert servers.count("m-1") == 6
    assert servers.count(None) == 6


def _thinking(image: Any, prompt: str, seed: int | None) -> str:
    return f"<think>\nblue?\n</think>\n\n{describe_image(image, prompt, seed)}"


def test_reasoning_is_stored_and_neither_drawn_nor_compared(tmp_path: Path) -> None:
    """The chains are those of the answers alone, in the first run and out of the store."""
    with Store(tmp_path / "plain") as store:
        group = ChainGroup(PLAN, samples(2), _models(store, describe_image)[2])
        expected = [[link.digest for link in chain.links] for chain in group.chains]
    with Store(tmp_path / "thinking") as store:
        for describe in (_thinking, None):  # the second asks no model
            describer, generator, models = _models(store, describe)
            group = ChainGroup(PLAN, samples(2), models)
            chains = group.chains
            assert [[link.digest for link in chain.links] for chain in chains] == expected
            assert not [text for call in _calls(generator) for text in call if "think" in text]
            keys = [str(link.key) for chain in chains for link in chain.links if link.text]
            whole = store.get(keys)
            assert all("blue?" in str(text) for text in whole.values())
            assert describer.text_notes(keys, "texts")[0][0].startswith("4 of 4 texts came with")


def _calls(runner: RoleRunner) -> list[list[str]]:
    model = runner.bound.load()
    assert isinstance(model, SmallGenerator)
    return model.calls


def test_stored_texts_of_any_age_are_read_without_reasoning(store: Store) -> None:
    """What an earlier version has stored under the same key is no other answer."""
    runner = RoleRunner(bound("describer", SmallDescriber()), store)
    steps = [Step(f"{i:064}", 0, lambda: None) for i in range(3)]
    texts = ("<think>a</think>one", "two", "<think>a")
    store.put([StoredResult(step.key, text) for step, text in zip(steps, texts, strict=True)])

    one, two, failed = runner.ask("describe", steps, "a word")

    assert (one, two) == ("one", "two")
    assert isinstance(failed, Failure)
    assert failed.kind == "only-reasoning"
    assert runner.stored(steps) == [one, two, failed]


@pytest.mark.parametrize(
    "changes", [{"params": {"reasoning": "keep"}}, {"adapter": "human/1"}], ids=str
)
def test_reasoning_can_be_a_part_of_the_text(store: Store, changes: dict[str, Any]) -> None:
    """Where the parameter says so, under another key; and what people write is their answer."""
    plain = bound("describer", SmallDescriber(_thinking))
    runner = RoleRunner(bound("describer", SmallDescriber(_thinking), **changes), store)
    image = Image.new("RGB", (4, 4))
    step = Step(runner.key("p", 0, "image", "d"), 0, lambda: image)

    (text,) = runner.ask("describe", [step], "p")

    assert str(text).startswith("<think>")
    assert step.key != key_of(plain, "p", 0, [["image", "d"]])
    assert runner.text_notes([step.key], "texts") == ([], [])


def test_cut_texts_are_counted_out_of_the_store(store: Store) -> None:
    """By what is kept beside them, so in later runs too; also one that is a failure."""

    def describe(*_: object) -> Reply:
        return Reply("a red circle that", provenance=CUT)

    runner = RoleRunner(bound("describer", SmallDescriber(describe)), store)
    whole = RoleRunner(bound("describer", SmallDescriber()), store)
    image = Image.new("RGB", (4, 4))
    steps = [Step(f"{i:064}", 0, lambda: image) for i in range(4)]
    runner.ask("describe", steps[:1], "a word")
    whole.ask("describe", steps[1:], "a word")

    _, (warning,) = whole.text_notes([step.key for step in steps], "texts")

    assert warning.startswith("1 of 4 texts were cut at the limit of their length")


def test_a_text_of_megabytes_is_drawn_and_compared_by_its_beginning(store: Store) -> None:
    """The store keeps it whole, and the notes count it; a shorter one stays as it is."""
    texts = iter(["word " * 1_000_000, "word " * 20_000])
    runner = RoleRunner(bound("describer", SmallDescriber(lambda *_: next(texts))), store)
    image = Image.new("RGB", (4, 4))
    steps = [Step(f"{i:064}", 0, lambda: image) for i in range(2)]

    long, short = runner.ask("describe", steps, "a word")

    assert (long, short) == (("word " * 20_000), "word " * 20_000)
    assert len(str(store.get([steps[0].key])[steps[0].key])) == 5_000_000
    (note,), _ = runner.text_notes([step.key for step in steps], "texts")
    assert note.startswith("1 of 2 texts were longer than 100,000 characters")
