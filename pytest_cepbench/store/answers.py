"""Interleaved answers in a store, by their digests.

An answer is kept as a text, the canonical JSON of its steps, and each of its images under a key of
its own, so that pruning, bundles and shared stores keep an answer's images as they keep those of
chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.store.rows import ImageRef, Read, StoredResult, batches, results_under
from pytest_cepbench.store.store import Store

_PART = 500  # texts in memory


def answer_results(answer: Answer, provenance: Mapping[str, str]) -> list[StoredResult]:
    """What is stored of an answer beside the result that made it; its images lie in the store."""
    key = _answer_key(answer.digest)
    return [
        StoredResult(key, answer.to_json(), provenance),
        *(
            StoredResult(_image_key(digest), ImageRef(digest), provenance)
            for digest in sorted(set(answer.images))
        ),
    ]


def put_answers(
    store: Store, answers: Sequence[Answer], provenance: Mapping[str, str] | None = None
) -> None:
    """Store answers whose images are in the store. Raises StoreFullError without space.

    provenance: as in `StoredResult`; its model keeps them from being pruned.
    """
    by_key = {_answer_key(answer.digest): answer for answer in answers}
    missing = by_key.keys() - store.has(by_key)
    if missing:
        made_by = provenance or {}
        store.put([r for key in sorted(missing) for r in answer_results(by_key[key], made_by)])


def get_answers(store: Store, digests: Iterable[str]) -> dict[str, Answer]:
    """The answers of these digests that the store has whole, with all of their images.

    From shared stores too; images are fetched when they are read.
    """
    wanted = set(digests)
    texts = store.get(_answer_key(digest) for digest in wanted)
    answers: dict[str, Answer] = {}
    for digest in wanted:
        text = texts.get(_answer_key(digest))
        if isinstance(text, str):
            answer = _parse(text, digest)
            if answer is not None:
                answers[digest] = answer
    keys = {image: _image_key(image) for answer in answers.values() for image in answer.images}
    present = store.get(keys.values())
    lost = {
        image
        for image, key in keys.items()
        if key not in present or not store.image_path(image).exists()
    }
    return {d: answer for d, answer in answers.items() if not lost.intersection(answer.images)}


def keys_of_answers(read: Read, digests: Iterable[str]) -> dict[str, set[str]]:
    """By digest, the keys under which a store keeps the answer and each of its images.

    Without the answers that it does not have.
    """
    by_key = {_answer_key(digest): digest for digest in digests}
    texts, _ = results_under(read, by_key)
    keys: dict[str, set[str]] = {}
    for key, text in texts.items():
        answer = _parse(str(text), by_key[key])
        if answer is not None:
            keys[by_key[key]] = {key, *map(_image_key, answer.images)}
    return keys


def answers_under(read: Read, keys: Iterable[str]) -> list[str]:
    """Digests of the answers that a store keeps under some of these keys."""
    digests = []
    for part in batches(keys, _PART):
        texts, _ = results_under(read, part)
        for key, text in texts.items():
            # The JSON of an answer is a list; most texts are descriptions.
            if isinstance(text, str) and text.startswith("["):
                with suppress(ValueError):
                    digest = Answer.from_json(text).digest
                    digests += [digest] if _answer_key(digest) == key else []
    return digests


def _parse(text: str, digest: str) -> Answer | None:
    try:
        answer = Answer.from_json(text)
    except ValueError:
        return None
    return answer if answer.digest == digest else None


def _answer_key(digest: str) -> str:
    return digest_json({"answer": digest})


def _image_key(digest: str) -> str:
    return digest_json({"answer image": digest})
