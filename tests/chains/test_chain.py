"""Plans of chains, and what is done to a description before it is drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains.chain import CaptionRules, derive_seed
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    SmallDescriber,
    SmallGenerator,
    grow_and_trace,
    make_runners,
    samples,
)

CLEAN = CaptionRules(clean=True)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a red bus", "a red bus"),
        ('"a red bus"', "a red bus"),
        ("  a red bus \n\n", "a red bus"),
        ('""a red bus""</s>', "a red bus"),
        ("a red bus<|im_end|>", "a red bus"),
        ("<|im_end|>a red <|im_end|>bus<|im_end|>", "a red bus"),
        ("a red bus<|im_end|></s>", "a red bus"),
        # Each once and in its order: what comes to light is not taken off again.
        ("a red bus</s><|im_end|>", "a red bus</s>"),
        ("a red bus</s></s>", "a red bus</s>"),
        ('"a red bus"\n', 'a red bus"'),
        ('  "a red bus"', '"a red bus'),
        ('a red bus "</s>', "a red bus"),
        ("\ta red bus\n\t", "\ta red bus\n\t"),
        ("\n a red bus \n", "\n a red bus"),
        # A quotation at the end loses its last quote.
        ('a sign reading "OPEN"', 'a sign reading "OPEN'),
        ("a sign reading 'OPEN'", "a sign reading 'OPEN'"),
        ("'a red bus'", "'a red bus'"),
        ("\u201ca red bus\u201d", "\u201ca red bus\u201d"),
        ("`a red bus`", "`a red bus`"),
        ('a bus that says "stop" here', 'a bus that says "stop" here'),
        ("a red bus<|eot_id|>", "a red bus<|eot_id|>"),
        ("</s> a bus <eos> at night", "</s> a bus <eos> at night"),
        ('"</s>', ""),
    ],
)
def test_cleaning_is_that_of_the_released_code(text: str, left: str) -> None:
    """What `pre_caption` of MMGenBench's `generate/tools.py` gives for each, to the letter."""
    assert CLEAN.apply(text) == left


@given(st.lists(st.text(alphabet="ab\n,"), max_size=90), st.integers(1, 80))
def test_words_are_counted_between_spaces(words: list[str], most: int) -> None:
    """The first words as they are, line ends within them; a short text is left alone."""
    text = " ".join(words)
    assert CaptionRules(max_words=most).apply(text) == " ".join(text.split(" ")[:most])
    if len(words) <= most:
        assert CaptionRules(max_words=most).apply(text) == text


def test_it_says_what_it_does() -> None:
    """In baselines, where another treatment makes numbers incomparable."""
    assert str(CaptionRules()) == "as they are"
    rules = CaptionRules(clean=True, max_words=70)
    assert str(rules) == "cleaned as by MMGenBench's code, at most 70 words"


def test_the_chain_keeps_the_whole_text_and_draws_the_cut_one(store: Store) -> None:
    """What is compared and shown is what the describer said; the generator gets less."""
    plan = replace(PLAN, generations=2, caption_rules=CaptionRules(clean=True, max_words=2))
    generator = SmallGenerator()
    runners = make_runners(store, SmallDescriber(lambda *_: '"one two three"'), generator)
    (trace,) = grow_and_trace(plan, samples(1), runners)
    assert trace.chain.links[1].text == '"one two three"'
    assert generator.calls == [["draw: one two"]]


def test_a_drawing_is_known_by_the_cut_text_alone(store: Store) -> None:
    """Texts that differ after the cut share one drawing, and a longer cut asks for another."""
    plan = replace(PLAN, generations=2, caption_rules=CaptionRules(max_words=2))
    unseeded: Any = {"generator": {"seeded": False}}
    other: Any = {"describer": {"fingerprint": "another"}, **unseeded}
    longer = replace(plan, caption_rules=CaptionRules(max_words=3))
    for rules, text, only, calls in (
        (plan, "one two three", unseeded, [["draw: one two"]]),
        (plan, "one two four", other, []),
        (longer, "one two four", other, [["draw: one two four"]]),
    ):
        describer, generator = SmallDescriber(lambda *_, text=text: text), SmallGenerator()
        grow_and_trace(rules, samples(1), make_runners(store, describer, generator, only=only))
        assert generator.calls == calls


@pytest.mark.parametrize("generation", [2, 4])
def test_a_text_of_which_nothing_is_left_fails_where_it_would_be_drawn(
    store: Store, generation: int
) -> None:
    """Quotes alone are a text, and an empty drawing order: the chain stops, its neighbors go on."""
    plan = replace(PLAN, caption_rules=CLEAN)
    silent = derive_seed(plan.seed, "s00", generation - 1)

    def tell(_: Any, __: str, seed: int | None) -> str:
        return '"" </s>' if seed == silent else "a text"

    describer = SmallDescriber(tell, seeded=True)
    first, second = grow_and_trace(plan, samples(2), make_runners(store, describer))
    assert second.failure is None
    assert first.failure is not None
    assert (first.failure.kind, first.failed_at) == ("empty-text", generation)
    assert first.failure.detail == "nothing is left of '\"\" </s>'"
    assert len(first.chain.links) == generation
    assert first.similarities[generation // 2 - 1 :] == (0.0,) * (3 - generation // 2)
