"""Interleaved answers in a store: found by their digests, whole or not at all."""

from __future__ import annotations

import errno
import os
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.errors import StoreError, UnreadError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.answers import (
    answer_results,
    bundle_bytes,
    get_answers,
    put_answers,
)
from tests.artifacts.files import noise


def _answer(store: Store, *numbers: int | None) -> Answer:
    """An answer with an image for each number, and a step without one for None."""
    steps = [
        StoredStep(
            f"step {n}",
            None if n is None else store.put_artifact(ImageArtifact(noise(6, 8, seed=n))),
        )
        for n in numbers
    ]
    return Answer(tuple(steps))


def test_answers_are_found_by_their_digests(tmp_path: Path) -> None:
    """By another process as well; what was never stored is not there."""
    with Store(tmp_path) as store:
        answers = [_answer(store, 1, 2), _answer(store, None), _answer(store, 1, None, 3)]
        put_answers(store, answers)
        put_answers(store, answers)
    with Store(tmp_path) as store:
        found = get_answers(store, [*(answer.digest for answer in answers), "0" * 32])
    assert found == {answer.digest: answer for answer in answers}


def test_an_answer_without_one_of_its_images_is_not_there(tmp_path: Path) -> None:
    """The others, with the same images too, are judged by their own."""
    with Store(tmp_path) as store:
        lacking, whole = _answer(store, 1, 2), _answer(store, 1)
        put_answers(store, [lacking, whole])
        store.artifact_path(lacking.images[1]).unlink()
        assert get_answers(store, [lacking.digest, whole.digest]) == {whole.digest: whole}


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '[["another text",null]]', '[["",null]]'])
def test_an_answer_that_is_not_what_its_digest_says_is_not_there(tmp_path: Path, text: str) -> None:
    """A damaged or forged row is no answer."""
    with Store(tmp_path) as store:
        answer = _answer(store, None)
        (stored,) = answer_results(answer, {})
        store.put([StoredResult(stored.key, text)])
        assert get_answers(store, [answer.digest]) == {}


def test_answers_come_from_a_shared_store(tmp_path: Path) -> None:
    """With their images, so that a candidate battles what another machine accepted."""
    (tmp_path / "team").mkdir()
    with Store(tmp_path / "theirs", publish=tmp_path / "team") as theirs:
        answer = _answer(theirs, 1, 2)
        put_answers(theirs, [answer])
        theirs.flush()
    with Store(tmp_path / "ours", shared=[tmp_path / "team"]) as ours:
        assert get_answers(ours, [answer.digest]) == {answer.digest: answer}
        assert all(ours.get_artifact(digest) is not None for digest in answer.images)


def test_the_same_answers_give_the_same_bytes(tmp_path: Path) -> None:
    """Whenever, and in whatever order; no entry has a date, a user or a system of its own."""
    with Store(tmp_path) as store:
        answers = [_answer(store, 1, 2), _answer(store, None)]
        data = bundle_bytes(answers, store)
        assert bundle_bytes([*reversed(answers), answers[0]], store) == data
        store.artifact_path(answers[0].images[0]).unlink()
        with pytest.raises(StoreError, match=r"^image \w{12} of an answer is damaged or gone: no"):
            bundle_bytes(answers, store)
    with zipfile.ZipFile(BytesIO(data)) as bundle:
        entries = bundle.infolist()
    assert {(each.date_time, each.external_attr) for each in entries} == {
        ((1980, 1, 1, 0, 0, 0), 0o644 << 16)
    }
    images = sorted({digest for answer in answers for digest in answer.images})
    assert [each.filename for each in entries] == [
        "answers.jsonl", *(f"images/{digest}.webp" for digest in images)
    ]  # fmt: skip


def test_an_answer_whose_image_cannot_be_looked_for_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails says nothing of what is on it."""
    stat = Path.stat

    def fail(path: Path, **options: bool) -> os.stat_result:
        if path.suffix == ".webp":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    with Store(tmp_path) as store:
        answer = _answer(store, 1)
        put_answers(store, [answer])
        monkeypatch.setattr(Path, "stat", fail)
        with pytest.raises(UnreadError, match="Input/output error"):
            get_answers(store, [answer.digest])
