"""The failure of a step, which takes the place of its artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pytest_cepbench.errors import unknown_name

FailureKind = Literal[
    "empty-text",
    "blank-image",
    "bad-image",
    "nan-image",
    "nan-vector",
    "bad-boxes",
    "refused",
    "unanswered",
    "no-verdict",
    "missing",
    "exception",
]

FAILURE_KINDS: frozenset[str] = frozenset(get_args(FailureKind))


@dataclass(frozen=True)
class Failure:
    """A step that failed: part of the measurement, never dropped.

    kind: one of `FAILURE_KINDS`.
    detail: one line for the reader; untrusted where it quotes a model.
    Raises ValueError for another kind, which the store could not return.
    """

    kind: FailureKind
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise ValueError(unknown_name("kind of failure", self.kind, FAILURE_KINDS))
