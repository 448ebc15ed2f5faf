"""Steps: one input of a role each, with the key that names its result for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.artifacts import ImageArtifact, digest_json, digest_text
from pytest_cepbench.models.protocols import Battle, BoundRole, CountsTokens, Model
from pytest_cepbench.store import Store, StoredResult

STEP_VERSION = 1
"""Enters every key; raised when the same key would come to mean another result."""


@dataclass(frozen=True)
class Step:
    """One input of a role.

    key: names the result for ever.
    seed: of this step.
    load: gives the input when a model needs it: a Pillow image, a text, or an image with queries;
        None when a stored image turned out to be damaged.
    """

    key: str
    seed: int
    load: Callable[[], Any]


def key_of(bound: BoundRole, prompt: str, seed: int, inputs: Sequence[Sequence[str]]) -> str:
    """Key of a step of a role: everything its result depends on.

    inputs: kind and digest of each, in order.
    """
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


def battle_inputs(battle: Battle) -> list[list[str]]:
    """The inputs of a verdict: every text and image, in order, and which part it belongs to."""
    parts = {"question": battle.question, "first": battle.first, "second": battle.second}
    return [
        [part, "text", digest_text(piece)]
        if isinstance(piece, str)
        else [part, "image", ImageArtifact.from_pil(piece).digest]
        for part, pieces in parts.items()
        for piece in pieces
    ]


# Texts that were longer than a model reads are known for ever from when they were encoded or drawn.


def store_truncations(bound: BoundRole, model: Model, texts: Sequence[str], store: Store) -> None:
    """Store which texts a model did not read to the end.

    Before the results that it made of them: those are not asked for again.
    """
    if not isinstance(model, CountsTokens):
        return
    lengths, most = model.text_lengths(texts)
    truncated = [
        StoredResult(_length_key(bound, text), f"{length} of {most}")
        for text, length in zip(texts, lengths, strict=True)
        if length > most
    ]
    if truncated:
        store.put(truncated)


def load_truncations(bound: BoundRole, texts: Iterable[str], store: Store) -> dict[str, str]:
    """The texts that a model did not read to the end, with "tokens of most tokens" of each."""
    keys = {_length_key(bound, text): text for text in texts}
    return {keys[key]: str(lengths) for key, lengths in store.get(keys).items()}


def _length_key(bound: BoundRole, text: str) -> str:
    return key_of(bound, "tokens", 0, [["text", digest_text(text)]])
