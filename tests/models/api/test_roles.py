"""The roles over the API: what each reads, and what stands in for answers.

What each asks is pinned in tests/golden/test_requests.py. At the end any JSON, any bytes, any
status that a stranger sends: never a crash.
"""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.errors import ApiError, ModelError
from pytest_cepbench.models.api.responses import (
    check_document,
    classify_response,
    describe_body,
    read_chat,
    read_image,
    read_json,
    read_models,
)
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle, Reply, Usage, VqaQuestion
from tests.models.api.conftest import load
from tests.models.api.fake_server import (
    Answer,
    FakeServer,
    chat_answer,
    document,
    drawn,
    fault,
    likely,
)

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")

BATTLE = Battle(["draw a circle"], ["here:", RED], [BLUE, "done"])


def test_a_drawing_is_an_image_with_its_cost(server: FakeServer) -> None:
    """Of the size that was asked for. An image of another size, and a seed that was not used, are
    recorded.
    """
    model = load(server, "generator", "height=48&width=64&price_image=2")
    server.answer = lambda _: drawn(Image.new("RGB", (64, 48), "blue"))

    (reply,) = model.generate(["a red circle"], [2**32 - 1])

    assert np.array_equal(reply.value, np.full((48, 64, 3), (0, 0, 255), np.uint8))
    assert reply.usage == Usage(1, images=1, cost=2.0)
    assert reply.remarks == ()

    server.answer = lambda seen: (
        fault(400, "Unknown parameter: 'seed'.", "unknown_parameter", "seed")
        if "seed" in seen.body
        else drawn()
    )

    replies = load(server, "generator", "width=16&height=16&concurrency=1").generate(
        ["a", "b"], [7, 8]
    )

    result = [reply.provenance["not honoured"] for reply in replies]
    assert result == ["seed, size 8x8 instead of 16x16"] * 2


def test_what_is_no_image_is_a_failure(server: FakeServer) -> None:
    """It is what the model drew: counted as a bad image and stored, not asked for again, as an
    answer without an image is: a list of nothing, or of something else.
    """
    text = b64encode(b"I cannot draw").decode()
    server.in_turn(*(drawn(data=data) for data in ("%%%", text, "iVBORw0KGgo=", "é")))
    replies = load(server, "generator", "concurrency=1").generate(["a"] * 4, [0] * 4)
    assert [(reply.value.kind, reply.passing) for reply in replies] == [("bad-image", False)] * 4

    odd = [{"data": []}, {"data": [None]}, {"data": [{"b64_json": 3}]}, {"data": "x"}, []]
    server.in_turn(*map(document, odd), chat_answer(), drawn())
    (reply,) = load(server, "generator").generate(["a"], [0])
    assert (reply.usage.retries, reply.value.shape) == (6, (8, 8, 3))


def test_an_image_inside_an_address_is_read_and_others_are_not_fetched(server: FakeServer) -> None:
    """A server could name any address of the local network; that is refused before any request."""
    data = drawn().body.decode().split('"b64_json": "')[1].split('"')[0]
    server.in_turn(document({"data": [{"url": f"data:image/png;base64,{data}"}]}))
    model = load(server, "generator")
    (reply,) = model.generate(["a"], [0])
    assert reply.value.shape == (8, 8, 3)
    assert reply.usage == Usage(1, images=1)  # without a price it costs nothing

    server.answer = lambda _: document({"data": [{"url": f"{server.url}/secret.png"}]})
    with pytest.raises(ModelError, match=r"gives the address of an image .* are not fetched"):
        model.generate(["a"], [0])
    assert not [seen for seen in server.seen if "secret" in seen.path]


FOUR = VqaQuestion("How many cats are in the image?", ("four", "Four", "4"))

YES = VqaQuestion("Is it red?", ("Yes", "yes"))


def _with_tokens(tokens: Any) -> Answer:
    message = {"role": "assistant", "content": "Yes"}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": tokens}}
    return document({"model": "tiny", "choices": [choice]})


def _ask(
    server: FakeServer, *questions: VqaQuestion, query: str = "", piece: object = RED
) -> Reply:
    (reply,) = load(server, "vqa", query).answer([piece], [list(questions)])
    assert isinstance(reply, Reply)
    return reply


def test_the_answer_is_the_mass_of_the_tokens_that_begin_it(server: FakeServer) -> None:
    """With and without a space, in either case; a token of space before it is passed over, the
    first of several tokens counts where the reply is the answer, and what is no logarithm of a
    probability counts nothing.
    """
    others = {"Four": 0.5, " four": 0.2, "4": 0.1, "Five": 0.15}
    server.answer = lambda _: likely("Four", ("\n", {"\n": 1.0}), ("Four", others))

    reply = _ask(server, FOUR)

    assert reply.value == [pytest.approx(0.8)]
    digits = ("1", {"1": 0.9, "ten": 0.05, "2": 0.05}), ("0", {"0": 1.0})  # as Qwen's tokens are
    for wanted, mass in (("10", 0.95), ("12", 0.05)):
        server.in_turn(likely("10", *digits))
        asked = VqaQuestion("How many?", ("ten", wanted))
        assert _ask(server, asked).value == [pytest.approx(mass)]
    for value in (None, "high", 3.0):
        token = {"token": "Yes", "logprob": value}
        server.in_turn(_with_tokens([token | {"top_logprobs": [token, 4]}]))
        assert _ask(server, YES).value == [0.0]


def test_without_probabilities_the_first_word_decides(server: FakeServer) -> None:
    """Right or wrong, and nothing is asked of tokens. A sign is compared as it is; no words would
    be the beginning of every reply.
    """
    sign = VqaQuestion("Which sign?", ("!", " ", "star"))
    model = load(server, "vqa", "logprobs=false")
    for question, right, wrong in (
        (YES, ("Yes", " yes.", "Yes, it is"), ("No", "yesterday")),
        (sign, ("!", "star"), ("a cat", "?", "a star")),
    ):
        for answer in (*right, *wrong):
            server.in_turn(chat_answer(answer))
            (reply,) = model.answer([RED], [[question]])
            assert reply.value == [float(answer in right)], answer
    assert "logprobs" not in server.seen[0].body


def test_all_questions_about_one_piece_are_one_reply(server: FakeServer) -> None:
    """In their order, with the usage of all; one that may pass is asked again with the others."""
    server.answer = lambda seen: chat_answer("yes" if "red" in seen.text else "four")
    model = load(server, "vqa", "logprobs=false")
    first, second = model.answer([RED, "a cat"], [[YES, FOUR], [FOUR]])
    assert (first.value, second.value) == ([1.0, 1.0], [1.0])
    assert (first.usage.requests, second.usage.requests) == (2, 1)

    refused, rejected = chat_answer(None, refusal="no"), fault(400, "no such layout")
    server.answer = lambda seen: refused if "red" in seen.text else rejected
    (failed,) = model.answer([RED], [[YES, FOUR]])
    assert (failed.value.kind, failed.passing) == ("exception", True)


NO_PROBABILITIES = (
    fault(400, "logprobs is not supported by this model", param="logprobs"),
    fault(400, "Unrecognized request argument: top_logprobs"),
    chat_answer("Yes"),
    *(_with_tokens(tokens) for tokens in (None, "x", [None], [{"token": 3}], [{"token": "A"}])),
)


def test_a_server_without_probabilities_says_what_to_do(server: FakeServer) -> None:
    """Whether it refuses the parameter, ignores it or writes anything where they should be: its
    answers in words are another measurement, which the spec has to ask for.
    """
    for number, answer in enumerate(NO_PROBABILITIES, start=1):
        server.in_turn(answer)
        with pytest.raises(
            ModelError, match=r"gives no probabilities of tokens \(.*logprobs=false"
        ):
            _ask(server, YES)
        assert len(server.seen) == number


def test_reasoning_and_tokens_of_something_else_are_no_answer(server: FakeServer) -> None:
    """Neither in words nor by the tokens of it, of which a server lists all. Where the answer is
    not found among the tokens, its first word has to be the first of them.
    """
    words = "<think>Yes? No</think>Yes"
    server.answer = lambda _: chat_answer(words)
    assert _ask(server, YES, query="logprobs=false").value == [1.0]
    server.answer = lambda _: chat_answer("<think>Yes?")
    failure = _ask(server, YES, query="logprobs=false").value
    assert isinstance(failure, Failure)
    assert failure.kind == "only-reasoning"

    sure = {"Yes": 0.75, "No": 0.25}
    tokens = [("<think>", {}), ("No", {"No": 1.0}), ("</think>", {}), ("\n", {}), ("Yes", sure)]
    for text in ("Yes", "<think>No</think>\nYes"):  # given apart, and left in the text
        server.in_turn(likely(text, *tokens))
        assert _ask(server, YES).value == [pytest.approx(0.75)]

    marked = {"\u0120Yes": 0.75, "\u0120No": 0.25}
    server.in_turn(likely("Yes, it is", ("\u0120Yes", marked), (",", {}), ("\u0120it\u0120is", {})))
    assert _ask(server, YES).value == [pytest.approx(0.75)]
    server.in_turn(likely("Yes: it's", ("Yes", sure), (":", {}), ("it\u00e2\u0122s", {})))
    assert _ask(server, YES).value == [pytest.approx(0.75)]
    server.in_turn(likely("Yes: it's", ("No", {"No": 1.0}), ("Yes", sure), ("\u00e2", {})))
    failure = _ask(server, YES).value
    assert isinstance(failure, Failure)
    assert failure.kind == "bad-answer"


# -- judges ----------------------------------------------------------------------------------------


def test_a_verdict_that_was_cut_is_none(server: FakeServer) -> None:
    """What was to follow can turn it; but for a letter that was asked for."""
    for prompt in ("criteria", "letters"):
        judge = load(server, "judge", f"prompt={prompt}")
        for text in ("A", "I weigh both.\nTie (A", "Both are good.\nA", "A is better"):
            server.in_turn(chat_answer(text, ended="length"))
            (reply,) = judge.judge([BATTLE], [0])
            whole = (prompt, text) == ("letters", "A")
            assert (reply.value if whole else reply.value.kind) == ("A" if whole else "no-verdict")


ANSWERED = AnsweredQuestion(["draw a circle", RED], ["here:", BLUE, "done"])

SCORES = {name: {"score": 7, "justification": f"for {name}"} for name in CRITERIA}


def _values(reply: Reply) -> list[float | None]:
    assert isinstance(reply.value, CriteriaScores), reply.value
    return [reply.value.value(name) for name in CRITERIA]


NO_FORM = (
    fault(400, "Unsupported parameter: 'response_format'", param="response_format"),
    fault(400, "'response_format.type' : must be 'json_object' or 'text'"),
    fault(400, "This response_format type is unavailable now"),
    fault(400, "Invalid schema: 'enum' is not permitted", param="response_format"),
    fault(422, "guided_json is not allowed with this model"),
)


def test_a_server_without_structured_output_is_asked_by_the_prompt(server: FakeServer) -> None:
    """Once refused it is not sent again; nothing is remarked, since the prompt says the form. The
    seven scores are read, each with its justification, of a server that has it as of others.
    """
    server.answer = lambda _: chat_answer(json.dumps(SCORES))
    (reply,) = load(server, "judge").score_answers([ANSWERED], [0])
    assert _values(reply) == [7.0] * 7
    assert reply.value.by_criterion["quality"].justification == "for quality"
    assert ["response_format" in seen.body for seen in server.seen] == [True]
    for refusal in NO_FORM:
        server.seen.clear()
        server.in_turn(refusal, chat_answer(f"Here you are: {json.dumps(SCORES)}"))
        judge = load(server, "judge")
        replies = [judge.score_answers([ANSWERED], [0])[0] for _ in range(2)]
        assert [_values(reply) for reply in replies] == [[7.0] * 7] * 2
        assert ["response_format" in seen.body for seen in server.seen] == [True, False, False]
        assert replies[1].remarks == ()
        assert replies[1].value.by_criterion["quality"].justification == "for quality"


_NAMES = st.sampled_from(
    [
        "choices", "message", "content", "refusal", "finish_reason", "usage", "prompt_tokens",
        "completion_tokens", "model", "data", "b64_json", "url", "error", "detail", "code", "type",
        "param", "loc", "msg", "id", "system_fingerprint", "text",
    ]
)  # fmt: skip
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["content_filter", "length", "data:image/png;base64,AAAA", "http://a/b", "AAAA"]
    )
)
DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=25,
)
CHATS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"message": DOCUMENTS, "finish_reason": _LEAVES}))},
    optional={"usage": DOCUMENTS, "model": _LEAVES, "system_fingerprint": _LEAVES},
)
DRAWINGS = st.fixed_dictionaries(
    {"data": st.lists(DOCUMENTS, max_size=2)}, optional={"usage": DOCUMENTS}
)


@pytest.mark.slow
@settings(max_examples=150)
@given(DOCUMENTS | CHATS | DRAWINGS)
def test_any_document_is_an_answer_or_none(document: Any) -> None:
    """What comes out is a text, pixels or a failure; counts are counts, and reports are texts."""
    for read in (read_chat, read_image):
        with contextlib.suppress(ApiError):
            answer = read(document)
            assert isinstance(answer.value, str | Failure | np.ndarray)
            counts = answer.usage.input_tokens, answer.usage.output_tokens
            assert all(type(count) is int and count >= 0 for count in counts)
            assert all(isinstance(text, str) for text in answer.provenance.values())
    assert all(isinstance(name, str) for name in read_models(document))
    with contextlib.suppress(ApiError):
        check_document(document)


@given(
    DOCUMENTS.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=40),
    st.integers(300, 599),
    st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text(max_size=9)),
)
def test_any_refusal_has_words_and_a_kind(
    body: bytes, status: int, headers: dict[str, str]
) -> None:
    """Whatever a fault's body is, it is told; a parameter is only left out if it was sent."""
    fault = classify_response(status, headers, body, ["seed"])

    assert isinstance(fault.words, str)
    assert fault.parameter in (None, "seed")
    assert fault.wait is None or fault.wait >= 0
    assert isinstance(describe_body(body), str)
    read_json(body)


def test_a_parameter_is_left_out_where_the_words_say_so() -> None:
    """Every server has its own words for it; what is wrong with a value is not one of them."""
    sent = ["num_inference_steps", "guidance_scale", "seed"]
    for words, parameter in (
        ("Unrecognized request argument supplied: seed", "seed"),
        ("guidance_scale is not supported by this model", "guidance_scale"),
        ("unexpected keyword argument 'num_inference_steps'", "num_inference_steps"),
        ("seed and guidance_scale are not supported", "seed"),
        ("the prompt holds an unsupported character", None),
        ("unknown model 'seedling'", None),
        ("seed must be below 2147483648", None),
    ):
        body = json.dumps({"error": {"message": words}}).encode()
        fault = classify_response(400, {}, body, sent)
        assert fault.parameter == parameter
        assert fault.kind == ("parameter" if parameter else "rejected")
