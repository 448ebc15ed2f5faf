"""The store in one process: what was put is got, files are remembered, rows that are none."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Detections, Failure, ImageArtifact
from pytest_cepbench.errors import StoreError, StoreVersionError
from pytest_cepbench.store import Result, Store, StoredResult
from pytest_cepbench.store.artifact_files import ArtifactCache
from pytest_cepbench.store.database import FORMAT
from pytest_cepbench.store.rows import (
    _MOST_PROVENANCE,
    MOST_PAYLOAD,
    check_row,
    dated,
    is_sealed,
    pack,
    seal,
    today,
    unpack,
)
from tests.artifacts.files import noise
from tests.store.filling import KEYS, PATIENT, RESULTS, same


@settings(PATIENT, max_examples=20)
@given(st.dictionaries(KEYS, RESULTS, max_size=6))
def test_results_come_back_from_a_store_that_was_closed(results: dict[str, Result]) -> None:
    """Every kind of result survives the file, for the process that wrote it and for the next: texts
    with lone surrogates, vectors bit by bit, boxes with masks and every digit of their floats.
    """
    with TemporaryDirectory() as folder:
        with Store(Path(folder)) as first:
            kept = first.put([StoredResult(key, result) for key, result in results.items()])
            assert kept.keys() == first.get(results).keys() == results.keys()
        with Store(Path(folder)) as second:
            stored = second.get(results)
            assert len(second) == len(results)
    assert all(same(stored[key], results[key]) and same(kept[key], results[key]) for key in results)


def test_the_first_result_counts(store: Store) -> None:
    """A second result under a key is told what the first was, and changes nothing.

    Forgetting makes room under a key and notes the damage.
    """
    assert store.put([StoredResult("k", "first")]) == store.get(["k"]) == {"k": "first"}
    both = store.put([StoredResult("k", "second"), StoredResult("other", "x")])
    assert both == store.get(both) == {"k": "first", "other": "x"}
    store.forget(["k"], why="it was wrong")
    assert store.get(["k", "other"]) == {"other": "x"}
    assert store.damage == ["result k: it was wrong"]
    assert store.put([StoredResult("k", "right")]) == {"k": "right"}


def test_a_failure_or_a_result_counts_in_a_run_whichever_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all of its processes, until it is dropped; other runs see results alone."""
    first, second = Failure("unanswered", "\udc80 no answer"), Failure("exception", "another")
    kept = Failure("unanswered", "? no answer")
    with Store(tmp_path, run="a") as one, Store(tmp_path, run="a") as two:
        assert one.keep_failures({"k": first}) == two.keep_failures({"k": second}) == {"k": kept}
        late = [StoredResult("k", "answered late"), StoredResult("other", "answered")]
        assert two.put(late) == {"k": kept, "other": "answered"}
        assert one.keep_failures({"other": first}) == two.get(["other"]) == {"other": "answered"}
        with Store(tmp_path) as alone, Store(tmp_path, run="b") as other:
            assert alone.get(["k"]) == other.get(["k"]) == {"k": "answered late"}
            assert alone.keep_failures({"new": first}) == {"new": first}
            assert alone.get(["new"]) == {}
            other.keep_failures({"new": first})
        two.drop_failures()
        assert one.get(["k", "new"]) == {"k": "answered late"}
    monkeypatch.setattr("pytest_cepbench.store.store.today", lambda: today() + 40)
    with Store(tmp_path, run="c") as later:
        assert later.index.read("SELECT * FROM notes") == []


def test_images_are_kept_by_their_content(store: Store) -> None:
    """The same image twice is one file; an image that was never stored is None and no damage."""
    image = ImageArtifact(noise())
    digest = store.put_artifact(image)
    assert digest == image.digest == store.put_artifact(ImageArtifact(noise()))
    stored = store.get_image(digest)
    assert stored is not None
    np.testing.assert_array_equal(stored.pixels, image.pixels)
    assert len([path for path in (store.root / "images").rglob("*") if path.is_file()]) == 1
    assert store.get_image("0" * 64) is None
    assert store.damage == []


def test_what_killed_processes_left_half_written_is_swept(tmp_path: Path) -> None:
    """Old leftovers go; young ones may still be written and stay, as do folders of file servers."""
    with Store(tmp_path):
        new = tmp_path / "new"
        for name in ("old", "young"):
            (new / name).write_bytes(b"half an image")
        (new / "@eaDir").mkdir()
        for name in ("old", "@eaDir"):
            os.utime(new / name, (1, 1))
    with Store(tmp_path):
        assert {path.name for path in new.iterdir()} == {"young", "@eaDir"}


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    """A store that a newer version wrote is not guessed at: the error says what to do."""
    with Store(tmp_path) as store:
        store.put([StoredResult("k", "text")])
        store.index.read(f"PRAGMA user_version={FORMAT + 1}")
    with pytest.raises(
        StoreVersionError, match=r"(?s)has format 3.*reads format 2.*--cep-store.*delete"
    ):
        Store(tmp_path)
    assert (tmp_path / "index.sqlite").exists()


@pytest.mark.parametrize("way", ["store", "store/images", "store/index.sqlite"])
def test_something_in_the_way_is_explained(tmp_path: Path, way: str) -> None:
    """A file where a folder must be, or a folder where the index must be: the option is named."""
    obstacle = tmp_path / way
    obstacle.parent.mkdir(exist_ok=True)
    if way.endswith("sqlite"):
        obstacle.mkdir()
    else:
        obstacle.write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot be used.*--cep-store"):
        Store(tmp_path / "store")


def aged(path: Path, text: str) -> Path:
    """A file that was last changed long ago."""
    path.write_text(text)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def test_a_files_digest_is_remembered_until_it_changes(store: Store, tmp_path: Path) -> None:
    """Weights of gigabytes are hashed once, by whatever name and in whatever process.

    Folders of users can have any name that the file system takes. Another size, or the same size
    and the same forged time: the digest is computed again. A file that was just written can change
    again within one tick of the clock; what was read from one that was being replaced names neither
    the old nor the new one.
    """
    calls: list[Path] = []

    def compute(path: Path) -> str:
        calls.append(path)
        return path.read_text()

    path = aged(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")), "one")
    (tmp_path / "link").symlink_to(path)
    for name in (path, tmp_path / "link"):
        assert store.file_digest(name, "bytes", compute) == "one"
    with Store(store.root) as other:
        assert other.file_digest(path, "bytes", compute) == "one"
    assert len(calls) == 1
    aged(path, "three")
    assert store.file_digest(path, "bytes", compute) == "three"
    aged(path, "seven")
    assert store.file_digest(path, "bytes", compute) == "seven"
    path.unlink()
    aged(path, "eight")
    assert store.file_digest(path, "bytes", compute) == "eight"

    path = tmp_path / "a"
    path.write_text("one")
    calls.clear()
    for count in (1, 2):
        assert (store.file_digest(path, "bytes", compute), len(calls)) == ("one", count)
    aged(path, "one")

    def replace(changing: Path) -> str:
        aged(changing, "four")
        return "a mixture"

    assert store.file_digest(path, "bytes", replace) == "a mixture"
    assert store.file_digest(path, "bytes", compute) == "four"


def test_many_files_are_looked_up_together(store: Store, tmp_path: Path) -> None:
    """By any name of the same file; what has changed, is gone or was never hashed is left out."""
    same, changed, gone, new = (aged(tmp_path / name, name) for name in ("a", "b", "c", "d"))
    (tmp_path / "link").symlink_to(same)
    for path in (same, changed, gone):
        store.file_digest(path, "bytes", Path.read_text)
    aged(changed, "three")
    gone.unlink()
    asked = [(tmp_path / "link", "bytes"), (tmp_path / "x" / ".." / "a", "bytes")]
    asked += [(same, "pixels"), (changed, "bytes"), (gone, "bytes"), (new, "bytes")]

    assert store.known_digests(asked) == dict.fromkeys(asked[:2], "a")
    loop = store.root / "loop"
    loop.symlink_to(loop)
    assert store.known_digests([(loop, "bytes"), (loop / "x", "bytes")]) == {}


def test_the_oldest_make_room() -> None:
    """No more bytes of pixels are held than allowed; an image over the limit is not held at all."""
    images = [ImageArtifact(noise(4, 5, seed=number)) for number in range(4)]
    recent = ArtifactCache(most=2 * images[0].pixels.nbytes)
    for image in images[:3]:
        recent.add(image)
    assert [recent.get(image.digest) for image in images] == [None, *images[1:3], None]
    recent.add(images[1])
    recent.add(images[3])
    assert [recent.get(image.digest) for image in images] == [None, None, *images[2:]]
    recent.add(ImageArtifact(noise(40, 50)))
    assert all(recent.get(image.digest) is None for image in images)


# -- rows ------------------------------------------------------------------------------------------


def test_wider_vectors_are_kept_as_float32() -> None:
    """Whatever float type an encoder gives, every process reads the same one."""
    values = np.array([1.0, 1 / 3, -2e-30])
    vector = unpack(*pack(values))
    assert isinstance(vector, np.ndarray)
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, values.astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("video", "x", "no such kind"),
        ("failure", "no-such-kind\0why", "no such kind"),
        ("vector", "123", "multiple of element size"),
        ("image", "0" * 63, "no digest"),
        ("image", "../" * 21 + "x", "no digest"),  # it would become the name of a file
        *(("boxes", text, ".") for text in ("", "{}", "[[1]]", '[["cat"]]', "[" * 9999)),
        *(("boxes", f"[{row}]", ".") for row in (
        '["cat",0.5,[0,0,4,4],null]',
        '["cat","0.5",[0,0,4,4],null,null]',
        '["cat",1.5,[0,0,4,4],null,null]',
        '["cat",0.5,[0,0,4],null,null]',
        '["cat",0.5,[0,NaN,4,4],null,null]',
        '["cat",0.5,[4,0,0,4],null,null]',
        '["cat",0.5,[0,0,4,4],[2,2,[5]],null]',
        '["cat",0.5,[0,0,4,4],[2,2,[1.5,2.5]],null]',
        '["cat",0.5,[0,0,4,4],null,7]',
        '[null,0.5,[0,0,4,4],null,null]',
        )),
    ],
)  # fmt: skip
def test_what_was_never_packed_is_no_result(kind: str, payload: str, words: str) -> None:
    """A kind that this version does not know is an error, not a guess; so is a row of boxes that is
    cut, of another shape or impossible, which a store calls damage.
    """
    good = b'[["cat",0.5,[0,0,4,4],[2,2,[1,3]],null]]'
    assert isinstance(unpack("boxes", good), Detections)
    with pytest.raises(ValueError, match=words):  # whose they are depends on the damage to boxes
        unpack(kind, payload.encode())


@PATIENT
@given(KEYS, RESULTS, st.data())
def test_a_seal_breaks_with_any_bit(key: str, result: Result, data: st.DataObject) -> None:
    """A flipped bit in the payload, the key, the kind or the seal itself is seen."""
    kind, payload = pack(result)
    sealed = seal(key, kind, payload)
    assert is_sealed(key, kind, payload, sealed)
    for spoilt in (payload, sealed):
        if spoilt:
            bit = data.draw(st.integers(0, len(spoilt) * 8 - 1))
            flipped = bytearray(spoilt)
            flipped[bit // 8] ^= 1 << bit % 8
            other = (bytes(flipped), sealed) if spoilt is payload else (payload, bytes(flipped))
            assert not is_sealed(key, kind, *other)
    assert not is_sealed(key[::-1] + "0", kind, payload, sealed)
    assert not is_sealed(key, kind + "s", payload, sealed)


LONG = json.dumps({"prompt": "x" * _MOST_PROVENANCE})


def sealed(kind: str, payload: bytes, provenance: str | None = "{}") -> tuple[Any, ...]:
    """A row under a seal that is right, as an attacker could write it."""
    return "k", kind, payload, provenance, 1.0, seal("k", kind, payload)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (sealed("text", b"good"), None),
        (("k", "text", b"good", "{}", 1.0, b"other"), "its row does not match its seal"),
        (sealed("text", b"good", "[1]"), "its provenance cannot be read"),
        (sealed("text", b"good", "{"), "its provenance cannot be read"),
        (sealed("text", b"good", '{"a": 1}'), "its provenance cannot be read"),
        (sealed("text", b"good", None), "its provenance cannot be read"),
        (sealed("text", b"good", LONG), "its provenance cannot be read"),
        (sealed("program", b"x"), "of a kind that this version does not know"),
        (sealed("image", b"../../../escaped"), "of a kind that this version does not know"),
        (sealed("boxes", b"[" * 100_000), "of a kind that this version does not know"),
        (sealed("text", b"x" * (MOST_PAYLOAD + 1)), "larger than any result is"),
    ],
)
def test_a_row_from_elsewhere_is_checked(row: tuple[Any, ...], problem: str | None) -> None:
    """Each kind of what is wrong with it is said, whatever its seal says."""
    with nullcontext() if problem is None else pytest.raises(ValueError, match=f"^{problem}$"):
        assert check_row(row) is None


def test_a_row_from_elsewhere_was_not_stored_in_the_future() -> None:
    """Or gc would keep it for ever."""
    row = ("k", "text", b"good", "{}", 1e300, b"seal")
    assert dated(row)[4] <= time.time()
    assert dated((*row[:4], 1.0, b"seal"))[4] == 1.0
