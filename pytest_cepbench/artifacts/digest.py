"""Digests of texts, bytes and structures, which name them by their content."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest_bytes(data: bytes) -> str:
    """SHA-256 of the bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_text(text: str) -> str:
    """Digest of a text's UTF-8 bytes; lone surrogates, which some tokenizers emit, are kept."""
    return digest_bytes(b"text\0" + text.encode("utf-8", "surrogatepass"))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, the same for equal values.

    Raises TypeError for anything but built-in types and ValueError for NaN and infinities, so that
    nothing enters a key by its `repr`.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_json(value: Any) -> str:
    """Digest of `canonical_json(value)`."""
    return digest_bytes(canonical_json(value).encode("utf-8"))
