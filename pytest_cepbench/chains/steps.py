"""What a role is asked, and the key that names its result for ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.artifacts import ImageArtifact, digest_json, digest_text
from pytest_cepbench.models.protocols import Battle, BoundRole

STEP_VERSION = 1
"""Enters every key; raised when the same key would come to mean another result."""


@dataclass(frozen=True)
class Step:
    """One input of a role.

    key: names the result for ever. seed: of this step. load: gives the input when a model needs
    it: a Pillow image, a text, or an image with queries, or None when a stored image turned out to be
    damaged.
    """

    key: str
    seed: int
    load: Callable[[], Any]


def key_of(bound: BoundRole, prompt: str, seed: int, inputs: Sequence[Sequence[str]]) -> str:
    """Key of a step of a role: everything its result depends on. inputs: kinds, and digests, in order."""
    return digest_json(
        {
            "step": STEP_VERSION,
            "role": bound.role,
            **bound.identity,
            "prompt": prompt,
            "seed": seed if bound.seeded else None,
            "inputs": inputs,
        }
    )


def pieces(battle: Battle) -> list[list[str]]:
    """What a verdict depends on: every text and image, in order, and whose part it is."""
    parts = {"question": battle.question, "first": battle.first, "second": battle.second}
    return [
        [part, "text", digest_text(one)]
        if isinstance(one, str)
        else [part, "image", ImageArtifact.from_pil(one).digest]
        for part, pieces in parts.items()
        for one in pieces
    ]
