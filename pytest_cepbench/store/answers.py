"""Interleaved answers in a store, by their digests, and in bundles beside baselines.

An answer is kept as a text, the canonical JSON of its steps, and each of its images under a key of
its own, so that pruning, bundles and shared stores keep an answer's images as they keep those of
chains.

A bundle is one zip file with the answers of a baseline. The same answers always give the same
bytes. What is read is checked by its digest, so a bundle from anywhere can add to a store, and
change nothing in it.

answers.jsonl    one answer a line: the canonical JSON of its steps, sorted by digest
images/DIGEST.webp    each image once, lossless
"""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from pytest_cepbench.artifacts import digest_json, encode_image
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.errors import StoreError, UnreadError
from pytest_cepbench.files import open_regular, tells_of_file
from pytest_cepbench.store.artifact_files import MOST_BYTES, is_there, verify_artifact
from pytest_cepbench.store.rows import ArtifactRef, Read, StoredResult, batches, results_under
from pytest_cepbench.store.store import Store

_PART = 500  # texts in memory


def answer_results(answer: Answer, provenance: Mapping[str, str]) -> list[StoredResult]:
    """What is stored of an answer beside the result that made it; its images lie in the store."""
    key = _answer_key(answer.digest)
    return [
        StoredResult(key, answer.to_json(), provenance),
        *(
            StoredResult(_image_key(digest), ArtifactRef(digest), provenance)
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
    Raises UnreadError where it cannot be known whether an image is there.
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
        if key not in present or not is_there(store.artifact_path(image))
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


# -- bundles ---------------------------------------------------------------------------------------


BUNDLE = "answers.zip"
"""Name of a suite's bundle beside its baselines."""

_ANSWERS = "answers.jsonl"

_MOST_TEXT = 2**28
"""Limit of the texts of a bundle, in bytes; those of OpenING's test set take 4 million."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every entry: the earliest that the format knows."""


def bundle_bytes(answers: Iterable[Answer], store: Store) -> bytes:
    """The bundle of answers whose images are in a store.

    Raises StoreError where one of them is not there, or is damaged.
    """
    by_digest = {answer.digest: answer for answer in answers}
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as bundle:
        lines = [by_digest[digest].to_json() for digest in sorted(by_digest)]
        text = "".join(f"{line}\n" for line in lines)
        _add(bundle, _ANSWERS, text.encode("utf-8", "surrogatepass"), zipfile.ZIP_DEFLATED)
        for digest in sorted({d for answer in by_digest.values() for d in answer.images}):
            image = store.get_image(digest)
            if image is None:
                raise StoreError(
                    f"image {digest[:12]} of an answer is damaged or gone: nothing was written"
                )
            _add(bundle, _image_name(digest), encode_image(image), zipfile.ZIP_STORED)
    return stream.getvalue()


def _add(bundle: zipfile.ZipFile, name: str, data: bytes, compression: int) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = compression
    entry.external_attr = 0o644 << 16
    bundle.writestr(entry, data)


def import_bundle(path: Path, store: Store, wanted: Collection[str] | None = None) -> int:
    """Take over answers of a bundle; returns how many.

    wanted: digests of the answers to take; all where None. Raises StoreError for a file that is no
    bundle, and where an image does not match its digest or is missing; UnreadError where it could
    not be read.
    """
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as bundle:
            text = _read(bundle, _ANSWERS, _MOST_TEXT).decode("utf-8", "surrogatepass")
            answers = [Answer.from_json(line) for line in text.split("\n") if line]
            if wanted is not None:
                answers = [answer for answer in answers if answer.digest in wanted]
            for digest in sorted({d for answer in answers for d in answer.images}):
                if store.get_artifact(digest) is None:
                    data = _read(bundle, _image_name(digest), MOST_BYTES)
                    store.put_artifact(verify_artifact(data, digest))
    except (StoreError, UnreadError):
        raise
    except OSError as error:
        if tells_of_file(error) or error.errno in (None, errno.EINVAL):  # a seek to before the file
            raise _damaged(path, error) from error
        raise UnreadError(f"{str(path)!r} could not be read: {error.strerror}") from error
    except Exception as error:
        # Of damaged data zipfile raises errors of zlib and struct, RuntimeError where an entry
        # seems to be encrypted, NotImplementedError of methods and versions, and others.
        raise _damaged(path, error) from error
    put_answers(store, answers)
    return len(answers)


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{str(path)!r} is no bundle of answers, or a damaged one: {error}")


def _read(bundle: zipfile.ZipFile, name: str, most: int) -> bytes:
    """An entry. Raises ValueError for one that unpacks to more than so many bytes."""
    with bundle.open(name) as entry:
        data = entry.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} is larger than {most} bytes")
    return data


def _image_name(digest: str) -> str:
    return f"images/{digest}.webp"
