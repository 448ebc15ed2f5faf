"""Pipes, devices and endless files in place of a store's own: named, passed over, never awaited."""

from __future__ import annotations

import errno
import os
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.errors import StoreError, UnreadError
from pytest_cepbench.store import ArtifactRef, Store, StoredResult
from pytest_cepbench.store.answers import (
    answer_results,
    bundle_bytes,
    get_answers,
    put_answers,
)
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.shared import MARKER, artifact_names, result_name
from tests.artifacts.files import noise
from tests.disk import small_disk
from tests.special_files import a_link_to_an_endless_device, a_pipe, a_sparse_file
from tests.store.filling import fill, key_of, picture

TEXT = key_of("text 0")

OBJECTS = {"a" * 64: "first", "b" * 64: "second"}


@pytest.mark.parametrize(
    "make",
    [a_pipe, a_link_to_an_endless_device, a_sparse_file],
    ids=lambda make: make.__name__,
)
def test_what_is_no_file_in_the_place_of_a_stores_own(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """An image is damaged: noted, removed, and made again. Results and images of a shared folder
    are noted as damaged; what lies beside them is found.

    A folder that only looks like a shared one is refused by name; an index is not opened.
    """

    def instead(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)

    own = tmp_path / "own"
    fill(own, range(1))
    digest = picture(0).digest
    instead(artifact_path(own, digest))
    with Store(own) as store:
        assert store.get_artifact(digest) is None
        assert len(store.damage) == 1
        assert store.put_artifact(picture(0)) == digest
        assert store.get_artifact(digest) is not None

    shared = tmp_path / "shared"
    with Store(tmp_path / "first", publish=shared) as store:
        assert store.put_artifact(picture(0)) == digest
        store.put([StoredResult(key, value) for key, value in OBJECTS.items()])
        store.put([StoredResult("c" * 64, ArtifactRef(digest))])
    instead(shared / result_name("a" * 64))
    instead(shared / artifact_names(digest)[0])
    with Store(tmp_path / "second", (shared,)) as store:
        assert store.get(OBJECTS) == {"b" * 64: "second"}
        assert store.get_artifact(digest) is None
        assert len(store.damage) == 2
        assert store.remarks == []

    instead(tmp_path / "looks" / MARKER)
    with pytest.raises(StoreError, match="--cep-shared"):
        Store(tmp_path / "third", (tmp_path / "looks",))
    if make is not a_sparse_file:
        instead(tmp_path / "fourth" / INDEX)
        with pytest.raises(StoreError, match="a regular file is expected"):
            Store(tmp_path / "fourth")


def test_a_folder_that_vanishes_while_it_is_used(tmp_path: Path) -> None:
    """An error of the store where something cannot be kept, whatever is asked of it next."""
    root = tmp_path / "store"
    with Store(root) as store:
        store.put([StoredResult("a", "text")])
        root.rename(tmp_path / "elsewhere")
        for act in (
            lambda: store.put_artifact(picture(0)),
            lambda: store.locks.acquire("name", "run"),
        ):
            with pytest.raises(StoreError, match="cannot be used"):
                act()
        assert store.put([StoredResult("b", "text")]) == {"b": "text"}
        assert store.get(["b"]) == {"b": "text"}


def test_a_disk_that_is_full_or_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    """Writing stops with StoreFullError; what was confirmed stays; with room the store goes on.

    A store that cannot be made is an error that names the option, not a traceback.
    """

    def on_disk(options: str, lack: str) -> list[str]:
        with small_disk(tmp_path / lack, options) as disk:
            done = disk.run(sys.executable, "-m", "tests.store.starved", str(disk.place), lack)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert on_disk("size=2m", "room") == [
        "full: StoreFullError True",
        "image: StoreFullError True",
        "half an image: None []",
        "big: StoreFullError True",
        "all or none: {}",
        "confirmed: True True",
        "images: True",
        "nothing left",
        "a new store: StoreFullError True",
        "room again: {'late': 'fits'}",
        "after all: True",
        "damage: []",
        "nearly full: False True",  # deleted, though the index has no room to be written anew
    ]
    assert on_disk("size=1m,ro", "writing") == ["a new store: StoreError True"]


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


def test_answers_are_found_by_their_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process as well, and from a shared store with their images, so that a candidate
    battles what another machine accepted; what was never stored is not there, nor one without one
    of its images: others, with the same images too, are judged by their own. A disk that fails says
    nothing of what is on it.
    """
    team = tmp_path / "team"
    team.mkdir()
    with Store(tmp_path / "theirs", publish=team) as store:
        answers = [_answer(store, 1, 2), _answer(store, None), _answer(store, 1, None, 3)]
        put_answers(store, answers)
        put_answers(store, answers)
    for name, shared in (("theirs", ()), ("ours", (team,))):
        with Store(tmp_path / name, shared) as store:
            found = get_answers(store, [*(answer.digest for answer in answers), "0" * 32])
            assert found == {answer.digest: answer for answer in answers}
            images = [digest for answer in answers for digest in answer.images]
            assert all(store.get_artifact(digest) is not None for digest in images)
    stat = Path.stat

    def fail(path: Path, **options: bool) -> os.stat_result:
        if path.suffix == ".webp":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    with Store(tmp_path / "theirs") as store:
        lacking, whole = _answer(store, 1, 2), _answer(store, 1)
        put_answers(store, [lacking, whole])
        store.artifact_path(lacking.images[1]).unlink()
        assert get_answers(store, [lacking.digest, whole.digest]) == {whole.digest: whole}
        monkeypatch.setattr(Path, "stat", fail)
        with pytest.raises(UnreadError, match="Input/output error"):
            get_answers(store, [whole.digest])


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '[["another text",null]]', '[["",null]]'])
def test_an_answer_that_is_not_what_its_digest_says_is_not_there(tmp_path: Path, text: str) -> None:
    """A damaged or forged row is no answer."""
    with Store(tmp_path) as store:
        answer = _answer(store, None)
        (stored,) = answer_results(answer, {})
        store.put([StoredResult(stored.key, text)])
        assert get_answers(store, [answer.digest]) == {}


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
