"""Digests: stable over versions, equal for equal content only, and apart by kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import (
    ImageArtifact,
    canonical_json,
    digest_bytes,
    digest_json,
    digest_text,
)

ANY_TEXT = st.text(st.characters(codec=None), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_digests_never_change() -> None:
    """Stores and baselines hold digests: a change of any of them makes all of those worthless."""
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert [
        digest_bytes(b"abc"),
        digest_text("abc"),
        digest_json({"b": [1, 2.5, None], "a": "\u00e9"}),
        ImageArtifact(pixels).digest,
    ] == [
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "913e2cec540f72fbae8c1ce3c2e393214917f26b602bd937e7b0d1afa11fce12",
        "84afbf1d4853005f9dd0c81cb1819b53ce86978340764c062160f6e8356665de",
        "bd8da236a1d3d2de1704684a562f09a53cf2834cc14135d0ddb11dca90b6e857",
    ]


@given(st.binary(max_size=60))
def test_the_kinds_have_digests_of_their_own(data: bytes) -> None:
    """The same bytes as a text, as JSON, as an image and as bytes are four different things."""
    text = data.decode("latin-1")
    pixels = np.frombuffer(data.ljust(60, b"\0"), np.uint8).reshape(4, 5, 3)
    digests = {
        digest_bytes(data),
        digest_text(text),
        digest_json(text),
        ImageArtifact(pixels).digest,
    }
    assert len(digests) == 4


@given(st.dictionaries(ANY_TEXT, JSON, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    """A structure is the same however its tables were filled."""
    backwards = dict(reversed(list(value.items())))
    assert canonical_json(value) == canonical_json(backwards)
    assert digest_json(value) == digest_json(backwards)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_enter_no_key(value: float) -> None:
    """NaN differs from itself and cannot name anything."""
    with pytest.raises(ValueError, match="JSON"):
        digest_json({"temperature": value})


@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}, np.float32(0.5), np.arange(2)])
def test_only_built_in_types_enter_a_key(value: object) -> None:
    """Nothing is named by its repr, which may hold an address."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        digest_json([value])


def _sorted(value: Any) -> Any:
    """The structure with its tables in order, so that repr tells 1, 1.0 and True apart."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
