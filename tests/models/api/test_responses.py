"""Reading what a stranger sent: any JSON, any bytes, any status; never a crash."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ApiError
from pytest_cepbench.models.api.responses import (
    check_document,
    classify_response,
    describe_body,
    read_chat,
    read_image,
    read_json,
    read_models,
)

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


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ("Unrecognized request argument supplied: seed", "seed"),
        ("guidance_scale is not supported by this model", "guidance_scale"),
        ("unexpected keyword argument 'num_inference_steps'", "num_inference_steps"),
        ("seed and guidance_scale are not supported", "seed"),
        ("the prompt holds an unsupported character", None),
        ("unknown model 'seedling'", None),
        ("seed must be below 2147483648", None),
    ],
)
def test_a_parameter_is_left_out_where_the_words_say_so(words: str, parameter: str | None) -> None:
    """Every server has its own words for it; what is wrong with a value is not one of them."""
    body = json.dumps({"error": {"message": words}}).encode()

    fault = classify_response(400, {}, body, ["num_inference_steps", "guidance_scale", "seed"])

    assert fault.parameter == parameter
    assert fault.kind == ("parameter" if parameter else "rejected")
