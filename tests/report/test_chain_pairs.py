"""Chains beside the baseline's, and the scores of samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report import CaseResult, ChainShown, CurveShown, HopShown, LinkShown
from pytest_cepbench.report.chain_pairs import (
    SampleValue,
    TextPart,
    observed_losses,
    paired_steps,
    sample_values,
    word_differences,
)
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import assert_self_contained, read_page
from tests.report.results import FULL, MEASURED, replace

FACTS = RunFacts("failed", "0", [], [])

START = LinkShown(image="0" * 64)

PAIR = ChainShown(
    "a.png",
    0.25,
    0.75,
    [START, LinkShown(text="a red cat"), LinkShown(image="1" * 64, similarity=0.25)],
    baseline_links=[START, LinkShown(text="a dog"), LinkShown(image="2" * 64, similarity=0.75)],
    first_difference=1,
)

PAIRED = replace(FULL, chains=[PAIR], median=replace(PAIR, sample="b.png"))

NOW = CurveShown([2, 4], [0.5, 0.25], [0.5, 0.25], [0.5, 0.25], 9)

BEFORE = CurveShown([2, 4], [0.75, 0.75], [0.75, 0.75], [0.75, 0.75], 9)


def _picture(_: str) -> ImageArtifact:
    return ImageArtifact.from_pil(Image.new("RGB", (8, 8)))


@given(st.text(), st.text())
def test_parts_make_up_the_texts(before: str, now: str) -> None:
    """No character is lost, and what is not marked as changed is the same in both."""
    old, new = word_differences(before, now)
    assert "".join(part.text for part in old) == before
    assert "".join(part.text for part in new) == now
    kept = ["".join(part.text for part in parts if not part.changed) for parts in (old, new)]
    assert kept[0] == kept[1]


def test_words_that_differ_are_marked() -> None:
    """Whole words, with what surrounds them left alone."""
    assert word_differences("a red cat", "a blue cat") == (
        (TextPart("a ", False), TextPart("red", True), TextPart(" cat", False)),
        (TextPart("a ", False), TextPart("blue", True), TextPart(" cat", False)),
    )


def test_long_texts_are_compared_whole() -> None:
    """A model that repeats itself without end does not hold up the report."""
    long = "cat " * 20_000
    assert word_differences(long, "a dog") == ((TextPart(long, True),), (TextPart("a dog", True),))


def test_steps_are_aligned_by_generation() -> None:
    """The first difference is marked, similarities are subtracted, pictures can be laid over."""
    start, text, image = paired_steps(PAIR)
    assert (start.same, start.first, start.pictured) == (True, False, False)
    assert (text.first, text.pictured) == (True, False)
    assert (image.change, image.first, image.pictured) == (-0.5, False, True)


def test_a_chain_that_stopped_leaves_its_place_empty() -> None:
    """Generations that only one of the chains reached stand beside nothing."""
    (*_, last) = paired_steps(replace(PAIR, links=PAIR.links[:2]))
    assert (last.now, last.change, last.pictured) == (None, None, False)
    assert last.before == PAIR.baseline_links[2]


def test_observed_losses_are_those_since_the_generation_before() -> None:
    """The last hop of each stretch has the loss of all of it."""
    hops = [HopShown("image", "describer", g, 0.1) for g in (1, 2, 3)]
    result = replace(FULL, hops=hops, curve_now=NOW, curve_reference=BEFORE)
    assert observed_losses(result) == [None, 0.25, 0.25]


@pytest.mark.parametrize(
    "change",
    [
        {"curve_reference": None},
        {"curve_reference": replace(BEFORE, n=8)},
        {"hops": [HopShown("image", "describer", 1, 0.1), HopShown("text", "describer", 2, 0.1)]},
    ],
    ids=["unknown", "other-samples", "two-starts"],
)
def test_no_loss_is_claimed_that_was_not_observed(change: dict[str, object]) -> None:
    """Without the same chains on both sides nothing is said of a hop."""
    result = replace(FULL, curve_now=NOW, curve_reference=BEFORE)
    assert set(observed_losses(replace(result, **change))) == {None}


def test_the_page_has_both_rows() -> None:
    """Baseline above candidate with the words that differ, for the losers and the median sample."""
    html = html_page(FACTS, [PAIRED], _picture)
    assert_self_contained(html)
    page = read_page(html)
    assert html.index('<tr class="before">') < html.index('<tr class="now">')
    assert "<del>dog</del>" in html
    assert "<ins>red cat</ins>" in html
    assert "median sample" in page.text
    assert "first difference" in page.text
    assert "-0.5000" in page.text
    assert html.count('class="enlarge" hidden') == 2


def test_the_page_says_how_to_get_missing_chains() -> None:
    """Once for a case, with the command; its own chains are there all the same."""
    alone = replace(PAIR, baseline_links=[], first_difference=None)
    missing = "The store has none.\npytest suites --cep-model=<b>\nOr name a store"
    result = replace(FULL, chains=[alone, replace(alone, sample="c")], reference_chains=missing)
    html = html_page(FACTS, [result], _picture)
    assert html.count("<pre>pytest suites --cep-model=&lt;b&gt;</pre>") == 1
    assert '<tr class="before">' not in html
    assert "<ins>" not in html
    assert html.count('<tr class="now">') == 2


def test_texts_of_models_cannot_write_to_the_page() -> None:
    """What models say is text in every place that it is shown at."""
    evil = "</td><script>alert(1)</script>"
    links = [START, LinkShown(text=evil), LinkShown(text=f"{evil} x")]
    pair = replace(
        PAIR, sample=evil, links=links, baseline_links=[START, LinkShown(text="y")], failure=evil
    )
    differences = {evil: -0.5, "b": 0.0}
    html = html_page(FACTS, [replace(PAIRED, chains=[pair], differences=differences)], _picture)
    assert_self_contained(html)


def _drawn(*results: CaseResult) -> list[str]:
    """The samples of the page whose chains are drawn, in order."""
    page = read_page(html_page(FACTS, list(results), _picture))
    return page.values("data-sample")


def test_a_suite_that_holds_shows_its_worst_and_its_median_sample() -> None:
    """Of the gating case that lost most; the others name their samples alone."""
    held = replace(PAIRED, verdict="held", difference=-0.001)
    held = replace(held, chains=[PAIR, replace(PAIR, sample="second.png")])
    calm = replace(held, part="calm", difference=0.25)
    informational = replace(held, part="told", difference=-0.5, primary=False)
    other = replace(held, suite="other")
    assert _drawn(calm, held, informational, other) == ["a.png", "b.png"] * 2
    text = read_page(html_page(FACTS, [calm, held], _picture)).text
    assert text.count("worst sample") == text.count("median sample") == 1
    assert "second.png" in text


def test_a_suite_that_fails_shows_the_worst_of_what_holds_too() -> None:
    """So that a reviewer sees what good chains look like."""
    held = replace(PAIRED, part="shape", verdict="held", difference=0.0, chains=[])
    assert _drawn(PAIRED, held) == ["a.png", "b.png", "b.png"]


@pytest.mark.parametrize("verdict", ["regressed", "held"])
def test_samples_that_were_asked_for_are_shown(verdict: str) -> None:
    """Whatever the verdict of their case, once each, also where they were only named before."""
    named = ChainShown("named.png", 0.5, 0.75, [])
    asked = [replace(PAIR, sample="named.png"), replace(PAIR, sample="new.png")]
    result = replace(PAIRED, verdict=verdict, chains=[PAIR, named], requested=asked)
    html = html_page(FACTS, [result], _picture)
    assert_self_contained(html)
    assert read_page(html).values("data-sample") == ["a.png", "b.png", "named.png", "new.png"]
    worse = replace(result, part="worse", difference=-0.5)
    assert _drawn(result, replace(worse, requested=[])).count("named.png") == 1


SCORES = {"red": {"a": 0.5, "b": 0.75}, "round": {"a": 0.5, "c": 0.25}}

COMPARED = replace(
    FULL, measured=replace(MEASURED, scores=SCORES), differences={"b": 0.25, "a": -0.25}
)


def test_worst_first() -> None:
    """With all categories of a sample; those that were not compared stand at the end."""
    assert sample_values(COMPARED) == [
        SampleValue("a", ("red", "round"), 0.5, 0.75, -0.25),
        SampleValue("b", ("red",), 0.75, 0.5, 0.25),
        SampleValue("c", ("round",), 0.25, None, None),
    ]


def test_distances_are_better_when_they_are_small() -> None:
    """The baseline of a positive difference is the larger one."""
    first, second, _ = sample_values(replace(COMPARED, higher_is_better=False))
    assert (first.value, first.baseline) == (0.5, 0.25)
    assert (second.value, second.baseline) == (0.75, 1.0)


def test_battles_are_against_one_half() -> None:
    """The record of a battle has one half for each sample, whatever the new answer scored."""
    even = replace(MEASURED, scores={"art": {"q": 0.5}}, answers={"q": "d" * 64})
    (value,) = sample_values(replace(FULL, measured=even, differences={"q": -0.375}))
    assert value == SampleValue("q", ("art",), 0.125, 0.5, -0.375)


@pytest.mark.parametrize(
    ("measured", "differences"),
    [(None, {}), (replace(MEASURED, sizes={"color": 9}), {})],
    ids=["not measured", "a score of a set"],
)
def test_no_sample_has_a_score(measured: object, differences: dict[str, float]) -> None:
    """Where the report has none, and where one score is that of a whole set."""
    assert sample_values(replace(FULL, measured=measured, differences=differences)) == []


def test_differences_without_scores() -> None:
    """Reports of before a measurement was kept have differences alone."""
    (value,) = sample_values(replace(FULL, measured=None, differences={"a": -0.25}))
    assert value == SampleValue("a", (), None, None, -0.25)
