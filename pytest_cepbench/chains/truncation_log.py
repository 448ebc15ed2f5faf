"""Texts that were longer than a model reads: known for ever from when they were encoded or drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains.steps import key_of
from pytest_cepbench.models.protocols import BoundRole, CountsTokens, Model
from pytest_cepbench.store import Store, StoredResult


def note_cuts(bound: BoundRole, model: Model, texts: Sequence[str], store: Store) -> None:
    """Store which texts were cut, before what the model made of them: that is not asked again."""
    if not isinstance(model, CountsTokens):
        return
    lengths, most = model.text_lengths(texts)
    cut = [
        StoredResult(_key(bound, text), f"{length} of {most}")
        for text, length in zip(texts, lengths, strict=True)
        if length > most
    ]
    if cut:
        store.put(cut)


def known_cuts(bound: BoundRole, texts: Iterable[str], store: Store) -> dict[str, str]:
    """Those of the texts that the model did not read to the end -> "tokens of most tokens"."""
    keys = {_key(bound, text): text for text in texts}
    return {keys[key]: str(found) for key, found in store.get(keys).items()}


def _key(bound: BoundRole, text: str) -> str:
    return key_of(bound, "tokens", 0, [["text", digest_text(text)]])
