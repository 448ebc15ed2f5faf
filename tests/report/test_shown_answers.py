"""Answers that lost most, beside the answers that they battled: on the page, in texts, and read."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report import AnswerShown, CaseResult, StepShown
from pytest_cepbench.report.ci_reports import markdown_summary
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.text import explain
from pytest_cepbench.report.writers import RunFacts, json_document
from tests.report.pages import Page, assert_self_contained, read_page
from tests.report.results import ANSWERED, MEASURED, replace
from tests.test_escapes import hides_nothing

FACTS = RunFacts("failed", "1.2.3", [], [])

IMAGE = ImageArtifact(np.full((30, 60, 3), 200, np.uint8))

ACCEPTED = replace(
    ANSWERED,
    accepted=True,
    measured=replace(MEASURED, answers={"q1": "d" * 64}),
)
"""Its answers become the accepted ones."""


def _asked(result: CaseResult) -> tuple[Page, list[str]]:
    """The page of a case, and the first digits of the images that were read for it."""
    asked: list[str] = []

    def image(digest: str) -> ImageArtifact:
        asked.append(digest[0])
        return IMAGE

    html = html_page(FACTS, [result], image)
    assert_self_contained(html)
    return read_page(html), asked


def _shown(**changes: object) -> CaseResult:
    """The case with its first answer changed."""
    first, *others = ANSWERED.shown.answers
    changed = replace(first, **changes)
    return replace(ANSWERED, answers=[changed, *others])


def test_answers_stand_side_by_side() -> None:
    """The question, then both answers step by step, the verdicts and the score; a second sample is
    only named.
    """
    page, asked = _asked(ANSWERED)
    assert asked == ["a", "b", "c"]
    assert page.values("class").count("answer") == 2
    shown = " ".join(page.text.split())
    parts = [
        "q1 baseline 0.5000, now 0.0000",
        "question", "draw a cat",
        "new answer", "a dog",
        "accepted answer", "a cat", "the end",
        "new answer shown first: the accepted answer is better",
        "q2 baseline 0.5000, now 0.2500",
    ]  # fmt: skip
    rest = shown
    for part in parts:
        assert part in rest, part
        rest = rest.partition(part)[2]


def test_an_answer_that_battled_none_stands_alone() -> None:
    """Truth needs no opponent: there is one column."""
    page, asked = _asked(_shown(opponent="", opposing=[], verdicts=[]))
    assert asked == ["a", "b"]
    assert page.values("class").count("answer") == 1


def test_missing_answers_are_said_to_be_missing() -> None:
    """Why there is none, and that the accepted one is not in the store; a lost image is named."""
    lost = _shown(steps=[], failure="refused: no", opposing=[], remark="it is not in the store")
    text = " ".join(_asked(lost)[0].text.split())
    assert "no answer: refused: no" in text
    assert text.count("it is not in the store") == 2
    gone = read_page(html_page(FACTS, [ANSWERED], lambda _: None)).text
    assert gone.count("no longer in the store") == 3
    assert "a dog" in gone


@pytest.mark.parametrize(
    ("result", "images", "texts"),
    [
        (replace(ANSWERED, verdict="held"), ["a", "b", "c"], 1),
        (replace(ANSWERED, primary=False), [], 1),
        (ACCEPTED, ["a", "b", "c"], 1),
        (replace(ACCEPTED, measured=MEASURED), ["a", "b", "c"], 1),
    ],
    ids=["held", "informational", "replaced answers", "accepted without battles"],
)
def test_calm_cases(result: CaseResult, images: list[str], texts: int) -> None:
    """The only case of a suite shows its samples, also where it holds; cases that cannot fail a run
    have texts alone; answers that replace accepted ones are shown whole.
    """
    page, asked = _asked(result)
    assert asked == images
    assert "q1" in page.text
    assert page.text.count("draw a cat") == texts


def test_all_but_one_calm_case_are_short() -> None:
    """Of a suite that holds the case that lost most shows its answers, the others name them."""
    held = replace(ANSWERED, verdict="held", difference=0.0)
    worse = replace(held, part="worse", difference=-0.01)
    page = read_page(html_page(FACTS, [held, worse], lambda _: None))
    assert page.text.count("draw a cat") == 1
    assert page.text.count("q1") == 2


def test_replaced_answers_are_open() -> None:
    """After acceptance the reader sees old and new answers without a click."""
    html = html_page(FACTS, [ACCEPTED], lambda _: None)
    assert "answers that become the accepted ones" in read_page(html).text
    assert re.search(r"<details[^>]* open [^>]*>\s*<summary>\s*<span class=\"badge accepted", html)


def test_answers_are_stacked_on_phones() -> None:
    """Two columns where there is room for them, one where there is not."""
    html = html_page(FACTS, [ANSWERED], lambda _: None)
    phones = html.partition("@media (max-width: 640px)")[2].partition("</style>")[0]
    assert ".answers { grid-auto-flow: row; }" in phones


BAD = "<script>alert(1)</script>\x1b[2J\u202e| `x` **b** @someone"


@pytest.fixture
def hostile() -> CaseResult:
    """A case whose every text of an answer is hostile."""
    steps = [StepShown(BAD)]
    answer = AnswerShown(BAD, 0.0, 0.5, steps, steps, BAD, [*steps, *steps], [BAD], BAD, BAD)
    return replace(ANSWERED, answers=[answer])


def test_hostile_texts_are_shown_and_not_obeyed(hostile: CaseResult) -> None:
    """On the page, in Markdown and in a terminal."""
    html = html_page(FACTS, [hostile], lambda _: None)
    assert_self_contained(html)
    assert hides_nothing(html, "\n")
    assert read_page(html).text.count("<script>alert(1)</script>") >= 9
    terminal = explain(hostile)
    assert hides_nothing(terminal, "\n")
    markdown = markdown_summary(FACTS, [hostile])
    assert hides_nothing(markdown.replace("@\u200b", "@"), "\n")
    for unescaped in ("<script", "**b**", "`x`", "@someone"):
        assert unescaped not in markdown


def test_a_terminal_has_the_texts_alone() -> None:
    """Short lines below the sample, images named in their place; a sample may be only named."""
    lines = explain(ANSWERED).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  q1 "))
    assert lines[start + 1 : start + 7] == [
        "    question          draw a cat | [image]",
        "    new answer        a dog [image]",
        "    accepted answer   a cat [image] | the end",
        "    verdict           new answer shown first: the accepted answer is better",
        "    verdict           accepted answer shown first: a tie that leans to the new",
        "                      answer",
    ]
    assert lines[start + 7].startswith("  q2 ")
    long = explain(_shown(steps=[StepShown("cat " * 99)])).splitlines()[start : start + 6]
    assert all(len(line) <= 80 for line in long)


def test_equal_texts_are_not_repeated() -> None:
    """Where the images alone differ, that is what there is to see."""
    text = explain(_shown(steps=[StepShown("a cat", "b" * 64), StepShown("the end")]))
    assert "    accepted answer   the same texts" in text
    assert "    new answer        -" in explain(_shown(steps=[]))


def test_markdown_has_the_texts_of_failed_cases() -> None:
    """Folded away below the table, and nothing of cases that pass."""
    text = markdown_summary(FACTS, [ANSWERED])
    assert "answers that lost most</summary>" in text
    assert "  - new answer: a dog \\[image\\]" in text
    assert text.count("q2") == 1  # its loss, among those of the run
    held = replace(ANSWERED, verdict="held")
    assert "answers that lost most" not in markdown_summary(FACTS, [held])


def test_reports_of_before_are_read() -> None:
    """A case without answers, as earlier versions wrote it, has none."""
    document = msgspec.json.decode(json_document(FACTS, [ANSWERED]))
    (case,) = document["cases"]
    assert msgspec.convert(case, CaseResult) == ANSWERED
    del case["shown"]["answers"]
    assert msgspec.convert(case, CaseResult).shown.answers == []
