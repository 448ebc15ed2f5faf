"""Rows of the store: what goes in comes out, and a seal breaks with any bit."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detections
from pytest_cepbench.store import Result
from pytest_cepbench.store.rows import (
    _MOST_PROVENANCE,
    MOST_PAYLOAD,
    check_row,
    dated,
    is_sealed,
    pack,
    seal,
    unpack,
)
from tests.store.filling import KEYS, PATIENT, RESULTS


def test_wider_vectors_are_kept_as_float32() -> None:
    """Whatever float type an encoder gives, every process reads the same one."""
    values = np.array([1.0, 1 / 3, -2e-30])
    vector = unpack(*pack(values))
    assert isinstance(vector, np.ndarray)
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, values.astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("video", "x", "no such kind"),
        ("failure", "no-such-kind\0why", "no such kind"),
        ("vector", "123", "multiple of element size"),
        ("image", "0" * 63, "no digest"),
        ("image", "../" * 21 + "x", "no digest"),  # it would become the name of a file
        *(("boxes", text, ".") for text in ("", "{}", "[[1]]", '[["cat"]]', "[" * 9999)),
        *(("boxes", f"[{row}]", ".") for row in (
        '["cat",0.5,[0,0,4,4],null]',
        '["cat","0.5",[0,0,4,4],null,null]',
        '["cat",1.5,[0,0,4,4],null,null]',
        '["cat",0.5,[0,0,4],null,null]',
        '["cat",0.5,[0,NaN,4,4],null,null]',
        '["cat",0.5,[4,0,0,4],null,null]',
        '["cat",0.5,[0,0,4,4],[2,2,[5]],null]',
        '["cat",0.5,[0,0,4,4],[2,2,[1.5,2.5]],null]',
        '["cat",0.5,[0,0,4,4],null,7]',
        '[null,0.5,[0,0,4,4],null,null]',
        )),
    ],
)  # fmt: skip
def test_what_was_never_packed_is_no_result(kind: str, payload: str, words: str) -> None:
    """A kind that this version does not know is an error, not a guess; so is a row of boxes that is
    cut, of another shape or impossible, which a store calls damage.
    """
    good = b'[["cat",0.5,[0,0,4,4],[2,2,[1,3]],null]]'
    assert isinstance(unpack("boxes", good), Detections)
    with pytest.raises(ValueError, match=words):  # whose they are depends on the damage to boxes
        unpack(kind, payload.encode())


@PATIENT
@given(KEYS, RESULTS, st.data())
def test_a_seal_breaks_with_any_bit(key: str, result: Result, data: st.DataObject) -> None:
    """A flipped bit in the payload, the key, the kind or the seal itself is seen."""
    kind, payload = pack(result)
    sealed = seal(key, kind, payload)
    assert is_sealed(key, kind, payload, sealed)
    for spoilt in (payload, sealed):
        if spoilt:
            bit = data.draw(st.integers(0, len(spoilt) * 8 - 1))
            flipped = bytearray(spoilt)
            flipped[bit // 8] ^= 1 << bit % 8
            other = (bytes(flipped), sealed) if spoilt is payload else (payload, bytes(flipped))
            assert not is_sealed(key, kind, *other)
    assert not is_sealed(key[::-1] + "0", kind, payload, sealed)
    assert not is_sealed(key, kind + "s", payload, sealed)


LONG = json.dumps({"prompt": "x" * _MOST_PROVENANCE})


def sealed(kind: str, payload: bytes, provenance: str | None = "{}") -> tuple[Any, ...]:
    """A row under a seal that is right, as an attacker could write it."""
    return "k", kind, payload, provenance, 1.0, seal("k", kind, payload)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (sealed("text", b"good"), None),
        (("k", "text", b"good", "{}", 1.0, b"other"), "its row does not match its seal"),
        (sealed("text", b"good", "[1]"), "its provenance cannot be read"),
        (sealed("text", b"good", "{"), "its provenance cannot be read"),
        (sealed("text", b"good", '{"a": 1}'), "its provenance cannot be read"),
        (sealed("text", b"good", None), "its provenance cannot be read"),
        (sealed("text", b"good", LONG), "its provenance cannot be read"),
        (sealed("program", b"x"), "of a kind that this version does not know"),
        (sealed("image", b"../../../escaped"), "of a kind that this version does not know"),
        (sealed("boxes", b"[" * 100_000), "of a kind that this version does not know"),
        (sealed("text", b"x" * (MOST_PAYLOAD + 1)), "larger than any result is"),
    ],
)
def test_a_row_from_elsewhere_is_checked(row: tuple[Any, ...], problem: str | None) -> None:
    """Each kind of what is wrong with it is said, whatever its seal says."""
    with nullcontext() if problem is None else pytest.raises(ValueError, match=f"^{problem}$"):
        assert check_row(row) is None


def test_a_row_from_elsewhere_was_not_stored_in_the_future() -> None:
    """Or gc would keep it for ever."""
    row = ("k", "text", b"good", "{}", 1e300, b"seal")
    assert dated(row)[4] <= time.time()
    assert dated((*row[:4], 1.0, b"seal"))[4] == 1.0
