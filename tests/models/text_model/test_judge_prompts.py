"""What a judge is shown, in order and of a bounded size, and which of its replies count."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, WINNERS, CriteriaScores
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle, Piece
from pytest_cepbench.models.text_model.judge_prompts import (
    JUDGE_PROMPTS,
    break_up,
    read_named,
    read_scores,
    shrink_image,
)

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (8, 2), "blue")


@pytest.mark.parametrize("name", JUDGE_PROMPTS)
def test_every_piece_is_shown_once_and_in_order(name: str) -> None:
    """Texts and images of question, first and second answer, or of the only one, then the closing
    text; an answer of nothing keeps its place.
    """
    prompt = JUDGE_PROMPTS[name]
    battle = prompt.show(Battle(["q1", RED, "q2"], [BLUE, "a1"], ["b1", RED, RED]))
    single = prompt.show_answer(AnsweredQuestion(["q1", RED], ["a1", BLUE, "a2"]))
    for pieces, images, words in (
        (battle, [RED, BLUE, RED, RED], ("q1", "#", "q2", "a1", "b1")),
        (single, [RED, BLUE], ("q1", "#", "a1", "a2", "Score the answer")),
    ):
        assert [piece for piece in pieces if not isinstance(piece, str)] == images
        text = "".join(piece if isinstance(piece, str) else "#" for piece in pieces)
        places = [text.index(word) for word in words]
        assert places == sorted(places)
    shown = "".join(piece for piece in single if isinstance(piece, str))
    assert not any(word in shown for word in ("Answer B", "OUTPUT_A", "OUTPUT_B", "A is better"))
    empty = "".join(p for p in prompt.show(Battle(["q"], [], ["b"])) if isinstance(p, str))
    assert empty.count("OUTPUT_A>: ") + empty.count("Answer A:") == 1


@given(st.lists(st.text("<a>", max_size=5) | st.just(RED), max_size=8))
def test_no_token_is_left_between_texts(pieces: list[Piece]) -> None:
    """Neither within a text nor over several; nothing but spaces is added, images stay."""
    token = re.compile("<a>|<aa>")
    broken = break_up(token, pieces)

    def joined(shown: list[Piece]) -> str:
        return "".join(piece if isinstance(piece, str) else "#" for piece in shown)

    assert len(broken) == len(pieces)
    for before, after in zip(pieces, broken, strict=True):
        kept = after.replace(" ", "") if isinstance(after, str) else after
        assert kept == before
    assert not token.search(joined(broken))
    assert joined(broken).count(" ") == len(token.findall(joined(pieces)))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 5000))
def test_a_smaller_image_keeps_its_shape(width: int, height: int, max_pixels: int) -> None:
    """At most so many pixels, and sides in proportion to within a pixel."""
    image = shrink_image(Image.new("RGB", (width, height)), max_pixels)

    assert image.width * image.height <= max_pixels
    if width * height <= max_pixels:
        assert image.size == (width, height)
    elif min(image.size) > 1:
        scale = (max_pixels / (width * height)) ** 0.5
        assert abs(image.width - width * scale) <= 1
        assert abs(image.height - height * scale) <= 1


# -- replies ---


VERDICTS = [
    ("A", "A"),
    ("**B.**", "B"),
    ("[[A]]", "A"),
    ("Answer: B", "B"),
    ("A is better", "A"),
    ("__B is better__", "B"),
    ("<OUTPUT_A> is better", "A"),
    ("Tie (A is better)", "Tie(A)"),
    ("Tie(B better)", "Tie(B)"),
    ("Tie: A is better", "Tie(A)"),
    ("My verdict: Tie (B is better).", "Tie(B)"),
    ("\uff22 is better", "B"),
    ('I looked at all steps.\nFinal verdict: "B is better".', "B"),
    ("> Reply with A is better or B is better\n\nB is better", "B"),
    ("<think>B is better? No, A is better.</think>Tie (A is better)", "Tie(A)"),
    ("<think>A</think><think>B is better</think>\nA is better", "A"),
    ("Both are good.\nVerdict: A", "A"),
    ("A is better: its images are sharp.\nB is better", "B"),
    ('{"better_response": "A"}', "A"),
    ('```json\n{"reasoning": "B has colors", "winner": "Tie (A is better)"}\n```', "Tie(A)"),
]

FAILURES = [
    "",
    "Tie",
    "It is a tie.",
    "Tie (A and B are equal)",
    "I cannot decide.\nA",
    "Answer A is vivid.\n\nAnswer B is exact.\n\nAnswer A",
    "A is better\nB is better\nTie (A is better)\nTie (B is better)",
    "Tie (A is better or B is better)",
    "a is a better one",
    "A is better. No, B is better",
    "A is better at texts, B is better at images",
    "A is better\nI am not sure.",
    "I'm sorry, but I can't assist with that.",
    "I do not think that A is better",
    "Either A is better or B is better",
    "A is better?",
    "A is better if you prefer color",
    "<think>A is better",
    "A is better<think>or is it?",
    "<think>A is better</think>",
    "[[C]]",
    '{"better_response": "both"}',
    '{"better_response": "A", "winner": "B"}',
    '{"better_response": ["A"]}',
    '{"better_response": "A"',
    "[" * 100_000,
    '{"a":' * 100_000,
]


def problem_of(scores: CriteriaScores | Failure) -> str:
    """Why a reply does not have all seven scores; empty where it has."""
    if isinstance(scores, Failure):
        return scores.detail
    return "; ".join(dict.fromkeys(failure.detail for failure in scores.failures))


@pytest.mark.parametrize(("text", "winner"), VERDICTS)
def test_the_last_line_is_the_verdict(text: str, winner: str) -> None:
    """However it is wrapped, the verdict that is named is read."""
    assert read_named(JUDGE_PROMPTS["criteria"], text) == winner


@pytest.mark.parametrize("text", FAILURES, ids=lambda text: text[:40])
def test_anything_else_is_a_failure(text: str) -> None:
    """No coin is tossed; what is denied, doubted, asked or quoted is no verdict."""
    result = read_named(JUDGE_PROMPTS["criteria"], text)
    assert isinstance(result, Failure)
    assert result.kind == "no-verdict"


def test_what_is_asked_for_is_read() -> None:
    """What a prompt asks a judge to say, also with full stop, in bold and after reasoning; a letter
    alone or behind a label, since in a sentence it may be the name of an answer.
    """
    for prompt in JUDGE_PROMPTS.values():
        for winner in WINNERS:
            phrase = prompt.phrases[winner]
            for answer in (phrase, f"{phrase}.", f"**{phrase}**", f"<think>B</think>\n\n{phrase}"):
                assert read_named(prompt, answer) == winner
    letters = JUDGE_PROMPTS["letters"]
    for answer in ("C", " C.", "**C**", "Final answer: (C)", "Verdict: C"):
        assert read_named(letters, answer) == "Tie(A)"
    for answer in ("E", "AB", "a", "A is better", "A or C", "it is C", "C?"):
        assert isinstance(read_named(letters, answer), Failure)


@given(
    st.text(st.sampled_from('AB ab().:"*`[]>{}tie<think/>\n isbetter,0123 quality'), max_size=80)
)
def test_any_text_is_a_result_or_a_failure(text: str) -> None:
    """Whatever a model writes is a verdict, scores or a failure, never an exception."""
    result = read_named(JUDGE_PROMPTS["criteria"], text)
    assert result in WINNERS or isinstance(result, Failure)
    assert isinstance(read_scores(text), CriteriaScores | Failure)


FULL = {name: {"score": k + 1, "justification": f"why {name}"} for k, name in enumerate(CRITERIA)}
TEXT = json.dumps(FULL)
OTHER = json.dumps(FULL | {"quality": {"score": 0, "justification": "no"}})
NUMBERS = list(map(float, range(1, 8)))


def values(result: Any) -> list[float | None]:
    """The seven scores of a reply that could be read."""
    assert isinstance(result, CriteriaScores)
    return [result.value(name) for name in CRITERIA]


@pytest.mark.parametrize(
    "reply",
    [
        TEXT,
        f"\n{TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"Here are my scores:\n{TEXT}\nI hope that helps.",
        f"Scores in {{braces}}: {TEXT}",
        f"A stray }} first. {TEXT} }}",
        f"<think>{OTHER}</think>{TEXT}",
        f"{OTHER}</think>\n{TEXT}",
        f"{TEXT}\nTo repeat it: {TEXT}",
        f"[{TEXT}]",
        json.dumps({name: k + 1 for k, name in enumerate(CRITERIA)}),
        json.dumps({name: float(k + 1) for k, name in enumerate(CRITERIA)}),
        json.dumps(FULL | {"overall": {"score": 99}, "remark": "fine"}),
        json.dumps({n: {"score": k + 1, "justification": ["x"]} for k, n in enumerate(CRITERIA)}),
        TEXT.replace("why quality", 'a brace } and a quote \\" and {'),
    ],
)
def test_all_seven_are_read(reply: str) -> None:
    """However the object is wrapped, and in the names of the prompt or of the paper."""
    assert values(read_scores(reply)) == NUMBERS
    assert problem_of(read_scores(reply)) == ""


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I'm sorry, but I can't assist with that.",
        "Correctness: 7, quality: 8",
        TEXT[:-1],
        TEXT[:60],
        f"A brace {{ that stays open. {TEXT}",
        "{}",
        '{"overall": 7}',
        '{"scores": ' + TEXT + "}",
        "7",
        "null",
        f"<think>{TEXT}",
        f"{TEXT}<think>or is it?",
        f"<think>{TEXT}</think>",
        f"{TEXT}\nNo, rather: {OTHER}",
        "{" * 100_000,
        '{"a":' * 100_000,
        '{"quality": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:40],
)
def test_a_reply_without_one_set_of_scores_is_a_failure(reply: str) -> None:
    """Of all criteria: none is guessed, and of two sets neither is taken."""
    result = read_scores(reply)
    assert isinstance(result, Failure)
    assert result.kind == "no-score"
    assert problem_of(result)


def test_a_wrong_number_fails_its_criterion_alone() -> None:
    """It is not clipped, rounded, read out of a text or taken for 0; the others stand. JSON readers
    keep the last of two equal keys, and say nothing.
    """
    whole, bounds = "no whole number", "not from 0 to 10"
    for value, reason in (
        *(({"score": score, "justification": ""}, bounds) for score in (11, -1)),
        *(({"score": score, "justification": ""}, whole) for score in (7.5, "7", True, None)),
        *((value, whole) for value in ({"score": float("nan")}, {"justification": "good"}, [7])),
    ):
        result = read_scores(json.dumps(FULL | {"quality": value}))
        assert values(result) == [*NUMBERS[:3], None, *NUMBERS[4:]]
        assert reason in problem_of(result)
    result = read_scores(json.dumps({n: v for n, v in FULL.items() if n != "preference"}))
    assert values(result) == [*NUMBERS[:4], None, *NUMBERS[5:]]
    assert problem_of(result) == "preference: no score was given"
    twice = read_scores(TEXT[:-1] + ', "quality": {"score": 0, "justification": "no"}}')
    assert values(twice) == [*NUMBERS[:3], None, *NUMBERS[4:]]
    assert "given twice" in problem_of(twice)


@pytest.mark.parametrize("piece", ["{", '{"', '\\"', '"{', '{"quality": {"score": 1', "}{"])
def test_a_long_reply_takes_no_long_time(piece: str) -> None:
    """A model can repeat itself up to its limit; time grows no faster than the text."""
    started = time.process_time()
    assert isinstance(read_scores(piece * 20_000), Failure)
    assert time.process_time() - started < 2
