"""What a step gives when it gives no artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

FailureKind = Literal[
    "empty-text", "blank-image", "bad-image", "nan-image", "nan-vector", "exception"
]

FAILURE_KINDS: frozenset[str] = frozenset(get_args(FailureKind))


@dataclass(frozen=True)
class Failure:
    """A step that failed: part of the measurement, never dropped.

    kind: what went wrong, one of `FAILURE_KINDS`.
    detail: one line for the reader; untrusted where it quotes a model.
    """

    kind: FailureKind
    detail: str = ""
