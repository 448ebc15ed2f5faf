"""What drifts in the texts, and attractors, on the page: tables, the flow, hostile words."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_cepbench.report import (
    OTHER_WORDS,
    AttractorShown,
    CaseResult,
    EndShown,
    LinkShown,
    TextDriftShown,
    TextStepShown,
    WordFlowShown,
)
from pytest_cepbench.report.html_page import html_page
from pytest_cepbench.report.text_drift import (
    FLOW_WIDTH,
    attractor_cases,
    label_of,
    text_drifts,
    word_flow,
)
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import Page, assert_self_contained, read_page
from tests.report.results import REGRESSED

HOSTILE = '<script>alert("x")</script>\u202e\x1b[31m'

FLOWS = [
    WordFlowShown(OTHER_WORDS, OTHER_WORDS, 900),
    WordFlowShown("red", "red", 40),
    WordFlowShown("red", "blue", 12),
    WordFlowShown("blue", "blue", 8),
    WordFlowShown("small", "", 5),
    WordFlowShown("", "猫", 3),
]

FELL = EndShown("s1", LinkShown(text="the start of s1"), LinkShown(text="the end of s1"))

STEPS = [
    TextStepShown(1, None, "describer", 60, 15.0, scripts={"Latin": 1.0}),
    TextStepShown(
        3, 1, "generator, describer", 58, 14.0, kept=800, changed=100, lost=100, gained=20,
        kinds={"color": [30, 10, 10, 5], "other": [770, 90, 90, 15]}, repeated=0.25,
        scripts={"Latin": 0.75, "Han": 0.25}, refusals=2,
    ),
]  # fmt: skip

TEXTS = TextDriftShown("image", STEPS, 1, 3, 58, FLOWS)

WORDS = st.sampled_from(["red", "blue", OTHER_WORDS, "", "猫", "a" * 40])


def html_of(*results: CaseResult) -> str:
    """The page of results, as text."""
    return html_page(RunFacts("failed", "0", [], []), results, lambda _: None)


def page_of(*results: CaseResult) -> Page:
    """The page of results, read strictly."""
    html = html_of(*results)
    assert_self_contained(html)
    return read_page(html)


def test_the_page_shows_texts_once_for_a_suite() -> None:
    """Of the case with most samples, with the reference's shares in the same table."""
    small = replace(REGRESSED, texts=[replace(TEXTS, chains=3)], n=3)
    large = replace(REGRESSED, part="overall", n=60, texts=[TEXTS], texts_reference=[TEXTS])
    drifts = text_drifts([small, large])
    assert [drift.result.n for drift in drifts] == [60]
    page = page_of(small, large)
    assert page.text.count("what drifts in the texts") == 1
    for shown in (
        "80.0%",
        "10.0%",
        "25.0%",
        "Latin 75%, Han 25%",
        "(60.0%)",
        "red became blue: 12",
    ):
        assert shown in page.text
    assert "900 other words that stayed are not drawn" in page.text
    rows = drifts[0].rows
    assert [[row.who for row in step] for step in rows] == [["now", "baseline"]] * 2
    assert page.text.count("generator, describer") == 1


def test_words_of_a_kind_are_kept_changed_lost_and_new() -> None:
    """Each beside the reference's: a color that changed is not one that vanished."""
    result = replace(REGRESSED, texts=[TEXTS], texts_reference=[TEXTS])
    color, other = text_drifts([result])[0].kinds
    assert (color.kind, other.kind) == ("color", "other")
    (step,) = color.steps
    assert step.steps == "1 \N{RIGHTWARDS ARROW} 3"
    assert step.cells == (
        ("60.0%", "60.0%"), ("20.0%", "20.0%"), ("20.0%", "20.0%"), ("10.0%", "10.0%"),
    )  # fmt: skip
    (alone,) = text_drifts([replace(result, texts_reference=[])])[0].kinds[0].steps
    assert {before for _, before in alone.cells} == {""}


def test_languages_have_a_column_where_they_are_known() -> None:
    """Beside the scripts; without an identifier there is no column."""
    told = replace(TEXTS, steps=[replace(STEPS[1], languages={"de": 0.5, "en": 0.25})])
    assert "de 50%, en 25%" in page_of(replace(REGRESSED, texts=[told])).text
    assert "language" not in page_of(replace(REGRESSED, texts=[TEXTS])).text.split()


def test_no_text_has_no_numbers() -> None:
    """Where all chains stopped before a text there is nothing to count: no zero stands for it."""
    gone = TextStepShown(5, 3, "generator, describer", 0, 0.0)
    result = replace(REGRESSED, texts=[replace(TEXTS, steps=[*STEPS, gone])])
    ((row,),) = text_drifts([result])[0].rows[2:]
    assert (row.length, row.repeated, row.refusals, row.scripts) == ("-",) * 4
    assert [row.share(0), row.step.texts] == ["-", 0]


def test_each_start_has_its_own_texts() -> None:
    """A suite with both chains shows both."""
    both = replace(REGRESSED, texts=[TEXTS, replace(TEXTS, start="text")])
    assert [drift.texts.start for drift in text_drifts([both])] == ["image", "text"]
    assert page_of(both).text.count("what drifts in the texts") == 2


def test_texts_that_are_not_there_are_not_shown() -> None:
    """Recorded chains without texts, and results of before."""
    empty = replace(TEXTS, steps=[TextStepShown(1, None, "describer", 0, 0.0)], flows=[])
    assert text_drifts([replace(REGRESSED, texts=[empty]), REGRESSED]) == []
    one = replace(TEXTS, steps=STEPS[:1], flows=[])
    page = page_of(replace(REGRESSED, texts=[one]))
    assert "what drifts in the texts" in page.text
    assert "words from generation" not in page.text


@given(st.lists(st.builds(WordFlowShown, WORDS, WORDS, st.integers(1, 500)), min_size=1))
def test_a_flow_is_inside_of_its_picture_and_loses_nothing(flows: list[WordFlowShown]) -> None:
    """Every occurrence is in a bar of each side, bars do not overlap, coordinates are inside."""
    unique = list({(flow.before, flow.after): flow for flow in flows}.values())
    unique = [flow for flow in unique if flow.before or flow.after] or [FLOWS[1]]
    flow = word_flow(unique)
    total = sum(one.count for one in unique)
    for side in (flow.before, flow.after):
        assert sum(word.count for word in side) + flow.omitted == total
        edges = [(word.y, word.y + word.height) for word in side]
        assert all(low[1] <= high[0] + 1e-6 for low, high in pairwise(edges))
        assert all(0 <= low < high <= flow.height for low, high in edges)
    for band in flow.bands:
        numbers = [float(number) for number in re.findall(r"[\d.]+", band.path)]
        assert all(0 <= number <= max(FLOW_WIDTH, flow.height) for number in numbers)


def test_flows_say_in_words_what_became_of_a_word() -> None:
    """For pointers and readers: each band has a title."""
    assert [label_of(flow) for flow in FLOWS[1:]] == [
        "red kept: 40", "red became blue: 12", "blue kept: 8", "small lost: 5", "猫 gained: 3",
    ]  # fmt: skip
    page = page_of(replace(REGRESSED, texts=[TEXTS]))
    assert "small lost: 5" in page.text


def test_kinds_of_change_differ_without_color() -> None:
    """What changed is hatched, what was lost or gained has lines of its own."""
    text = html_of(replace(REGRESSED, texts=[TEXTS]))
    assert re.search(r'<path class="changed" d="[^"]+" fill="url\(#hatch-', text)
    assert "stroke-dasharray: 1 2" in text
    assert "stroke-dasharray: 6 3" in text


@pytest.mark.parametrize("where", ["word", "text", "sample", "script"])
def test_hostile_words_are_shown_as_text(where: str) -> None:
    """Escaped, with nothing hidden, in tables, SVG and attractors."""
    texts = TEXTS
    link = LinkShown(text="a cat")
    end = EndShown("s1", link, link)
    if where == "word":
        texts = replace(TEXTS, flows=[WordFlowShown(HOSTILE, "cat", 3)])
    elif where == "text":
        link = LinkShown(text=HOSTILE)
    elif where == "sample":
        end = EndShown(HOSTILE, link, link)
    else:
        texts = replace(TEXTS, steps=[replace(STEPS[1], scripts={HOSTILE: 1.0})])
    attractor = AttractorShown(3, 0.5, 3, link, [end])
    page = page_of(replace(REGRESSED, texts=[texts], attractors=[attractor]))
    assert len(page.scripts) == 1
    assert "alert" in page.text
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text


def test_attractors_are_shown_once_where_two_metrics_have_them() -> None:
    """Vendi score and pairwise distance find the same ones."""
    link = LinkShown(text="a cat")
    attractor = AttractorShown(30, 0.5, 12, link, [EndShown("s1", link, link)])
    first = replace(REGRESSED, metric="diversity", attractors=[attractor])
    second = replace(first, metric="spread")
    other = replace(first, metric="dino", attractors=[replace(attractor, examples=[])])
    assert [case.metric for case in attractor_cases([REGRESSED, first, second, other])] == [
        "diversity",
        "dino",
    ]
    page = page_of(replace(first, attractors=[replace(attractor, examples=[FELL])]), second)
    assert "the end of s1" in page.text
    page = page_of(first, second)
    assert page.text.count("where different starts end alike") == 1
    assert "30 chains ended here, whose starts lie in 12 clusters" in page.text
