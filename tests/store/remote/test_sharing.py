"""Stores that share results through objects, in a folder and behind a slow line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pytest_cepbench.store import ArtifactRef, Store, StoredResult
from pytest_cepbench.store.maintenance import inspect
from pytest_cepbench.store.remote import remotes
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.object_store import artifact_names, result_name
from pytest_cepbench.store.remote.sync import inspect_objects, pull
from tests.store.filling import contents, fill, key_of, picture
from tests.store.remote.sharing import PROVENANCE, check_pull, compute, published
from tests.store.remote.slow import SlowFileSystem
from tests.store.strategies import same

TEXT, IMAGE = key_of("text 0"), key_of("image 0")


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where results are shared."""
    return tmp_path / "lib" if request.param == "folder" else f"memory://{uuid4().hex}/lib"


@pytest.fixture
def slow() -> Iterator[type[SlowFileSystem]]:
    """What is behind `slow://lib`."""
    SlowFileSystem.reset()
    yield SlowFileSystem
    SlowFileSystem.reset()


def test_what_one_run_computes_another_finds(tmp_path: Path, place: Path | str) -> None:
    """Every kind of result with provenance, images once looked at; later reads use the copies."""
    results = published(tmp_path / "first", place, range(3))
    with Store(tmp_path / "second", (place,)) as store:
        assert store.has([*results, "absent"]) == results.keys()
        stored = store.get([*results, "absent"])
        assert stored.keys() == results.keys()
        assert all(same(stored[key], results[key]) for key in stored)
        assert not list((tmp_path / "second" / "images").rglob("*.webp"))
        assert store.artifact_path(picture(0).digest).exists()
        image = store.get_artifact(picture(1).digest)
        assert image is not None
        assert image.digest == picture(1).digest
    with Store(tmp_path / "second") as alone:
        stored = alone.get(results)
        assert all(same(stored[key], results[key]) for key in results)
        assert alone.get_artifact(picture(1).digest) is not None
        (provenance,) = set(alone.index.read("SELECT text FROM provenances"))
        assert provenance == ('{"device": "cpu", "model": "aaaaaaaaaaaaaaaa"}',)
        seen = inspect(alone.root, alone.index.read)
        assert (seen.sound, seen.remote) == (True, [picture(2).digest])


def test_a_shared_store_is_only_read(tmp_path: Path) -> None:
    """Who reads one leaves every byte of it alone; who publishes adds, and changes nothing."""
    place = tmp_path / "lib"
    published(tmp_path / "first", place, range(2))
    before = contents(place)
    with Store(tmp_path / "second", (place,)) as store:
        store.put([StoredResult("new", "mine")])
        store.get([TEXT])
    assert contents(place) == before
    with Store(tmp_path / "third", publish=place) as store:
        compute(store, range(3))
    after = contents(place)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {
        *(result_name(key_of(f"{kind} 2")) for kind in ("text", "vector", "image")),
        artifact_names(picture(2).digest)[0],
    }


def test_the_first_that_is_written_counts_for_all(tmp_path: Path, place: Path | str) -> None:
    """A lost race is no error; the run that lost it keeps its own."""
    with (
        Store(tmp_path / "one", publish=place) as first,
        Store(tmp_path / "two", publish=place) as second,
    ):
        for name, store in (("one", first), ("two", second)):
            assert store.put([StoredResult("k" * 64, name)]) == {"k" * 64: name}
            store.flush()
    assert (second.remarks, second.damage) == ([], [])
    with Store(tmp_path / "three", (place,)) as three:
        assert three.get(["k" * 64]) == {"k" * 64: "one"}


def test_the_first_shared_store_that_has_a_result_counts(tmp_path: Path) -> None:
    """In the order in which they are named."""
    places = [f"memory://{uuid4().hex}/lib" for _ in range(2)]
    for place in places:
        with Store(tmp_path / f"of {place[-36:-4]}", publish=place) as store:
            store.put([StoredResult(TEXT, place)])
    for number, order in enumerate((places, places[::-1])):
        with Store(tmp_path / f"reader {number}", tuple(order)) as store:
            assert store.get([TEXT]) == {TEXT: order[0]}


def test_whole_stores_are_taken_over(tmp_path: Path, place: Path | str) -> None:
    """A run publishes results, and `pull` takes them over with images, once."""
    check_pull(tmp_path, place)


def test_what_is_wrong_with_a_shared_store_is_listed(tmp_path: Path) -> None:
    """Damaged results and images, and results whose image is gone; `pull` leaves the latter out."""
    place = tmp_path / "lib"
    published(tmp_path / "first", place, range(3))
    (place / result_name(TEXT)).write_bytes(b"noise")
    (place / artifact_names(picture(0).digest)[0]).write_bytes(b"noise")
    (place / artifact_names(picture(1).digest)[0]).unlink()
    objects = open_objects(place, "test", writing=False)
    assert objects is not None
    report = inspect_objects(objects)
    assert (report.results, report.images, report.sound) == (9, 2, False)
    assert report.bytes == sum(len(data) for n, data in contents(place).items() if "/" in n)
    assert len(report.damaged) == 2
    assert report.lost == (key_of("image 1"),)
    with Store(tmp_path / "second") as store:
        merged = pull(store, objects)
    assert (merged.results, merged.images) == (6, 1)
    assert merged.refused == {"its file is not there": 2, "damaged": 2}
    objects.close()


def test_damage_is_noted_once_and_written_over(tmp_path: Path) -> None:
    """A damaged object is as if not there; a run that computes it and publishes mends it."""
    place = tmp_path / "lib"
    results = published(tmp_path / "first", place, range(2))
    row, image = place / result_name(TEXT), place / artifact_names(picture(0).digest)[0]
    row.write_bytes(row.read_bytes().replace(b"a text", b"A text"))
    image.write_bytes((place / artifact_names(picture(1).digest)[0]).read_bytes())
    with Store(tmp_path / "second", publish=place) as store:
        for _ in range(2):
            assert store.get(results).keys() == results.keys() - {TEXT}
            assert store.get_artifact(picture(0).digest) is None
        first, second = store.damage
        assert first == (
            f"result {TEXT[:12]} in --cep-publish {str(place)!r}: its row does not match its seal"
        )
        assert second.startswith(f"image {picture(0).digest[:12]} in --cep-publish")
        store.forget([IMAGE], why="its image is gone")
        assert store.get([IMAGE]) == {}
        compute(store, range(1))
    with Store(tmp_path / "third", (place,)) as store:
        assert store.get(results).keys() == results.keys()
        assert store.get_artifact(picture(0).digest) is not None
        assert store.damage == []


@pytest.mark.parametrize(
    "data",
    [b"", b"\x93\x01\x02\x03", b"\xc1", b"{}", b"\x91" * 100_000],
    ids=lambda data: repr(data)[:20],
)
def test_what_is_no_result_is_damaged(tmp_path: Path, data: bytes) -> None:
    """Nothing that lies under a key is more than bytes until it has proved to be a result."""
    published(tmp_path / "first", tmp_path / "lib", range(1))
    (tmp_path / "lib" / result_name(TEXT)).write_bytes(data)
    with Store(tmp_path / "second", (tmp_path / "lib",)) as store:
        assert store.get([TEXT]) == {}
        assert store.damage == [
            f"result {TEXT[:12]} in --cep-shared {str(tmp_path / 'lib')!r}: it cannot be read"
        ]


def test_left_overs_of_killed_writers_are_swept(tmp_path: Path) -> None:
    """No process reads them, and they go after a day."""
    published(tmp_path / "first", tmp_path / "lib", range(1))
    old, young = tmp_path / "lib" / "new" / "old", tmp_path / "lib" / "new" / "young"
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    published(tmp_path / "second", tmp_path / "lib", range(1))
    assert (old.exists(), young.exists()) == (False, True)


def test_a_folder_of_a_local_store_goes_before(tmp_path: Path) -> None:
    """Shared folders with an index come first, as ever; nothing of them is copied or published."""
    fill(tmp_path / "local", range(1))
    with Store(tmp_path / "own", (tmp_path / "local",), tmp_path / "lib") as store:
        assert store.get([TEXT]) == {TEXT: "a text about 0"}
        assert store.put([StoredResult(TEXT, "mine")]) == {TEXT: "a text about 0"}
        assert len(store) == 0
    assert contents(tmp_path / "lib").keys() == {"cepbench-store.json"}


def left(why: str) -> str:
    """What is said of a result that was not uploaded."""
    line = f"--cep-publish slow://lib: 1 result was not uploaded ({why})"
    return f"{line}: they stay in the store of this run alone"


# -- behind a slow line ----------------------------------------------------------------------------


def test_a_step_of_64_costs_one_round_trip(tmp_path: Path, slow: type[SlowFileSystem]) -> None:
    """All keys are asked for at once; missing ones are not asked for again, unless long after."""
    keys = [key_of(f"text {i}") for i in range(64)]
    with Store(tmp_path / "first", publish="slow://lib") as store:
        store.put([StoredResult(key, "there") for key in keys[:32]])
    slow.delay = 0.2
    with Store(tmp_path / "second", ("slow://lib",)) as store:
        slow.asked.clear()
        started = time.perf_counter()
        assert store.get(keys).keys() == set(keys[:32])
        assert time.perf_counter() - started < 64 * slow.delay / 8
        assert len(slow.asked) == 64
        assert store.get(keys).keys() == store.has(keys) == set(keys[:32])
        assert len(slow.asked) == 64
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remotes, "_ABSENT_SECONDS", 0.0)
            store.get(keys)
        assert len(slow.asked) == 96


def test_images_are_there_before_results_that_name_them(
    tmp_path: Path, slow: type[SlowFileSystem]
) -> None:
    """A readable result has its image; a result whose image is not uploaded is not either."""
    with Store(tmp_path / "first", publish="slow://lib") as store:
        compute(store, range(2))
        store.put([StoredResult("9" * 64, ArtifactRef("f" * 64))])
    order = [path.removeprefix("lib/") for path in slow.written]
    for i in range(2):
        image = order.index(artifact_names(picture(i).digest)[0])
        assert image < order.index(result_name(key_of(f"image {i}")))
    assert result_name("9" * 64) not in order
    assert store.remarks == [left("its file is not in the local store")]


def test_nothing_else_leaves(tmp_path: Path, slow: type[SlowFileSystem]) -> None:
    """Images without a result, such as those of data sets shown in reports, and notes stay here."""
    with Store(tmp_path / "first", publish="slow://lib") as store:
        store.put_artifact(picture(5))
        store.note("batch", "32")
        store.file_digest(Path(__file__), "bytes", lambda _: "0" * 64)
        store.put([StoredResult(TEXT, "a text", PROVENANCE)])
    assert slow.held.keys() == {"lib/cepbench-store.json", f"lib/{result_name(TEXT)}"}


def test_a_place_that_stops_answering_is_left(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on with its own store, asks no more, and says once what it could not do."""
    monkeypatch.setattr("pytest_cepbench.store.remote.bucket._RETRY_PAUSE", 0.0)
    monkeypatch.setattr(remotes, "_RETRY_PAUSE", 0.0)
    with Store(tmp_path / "own", publish="slow://lib") as store:
        store.put([StoredResult(TEXT, "before")])
        store.flush()
        slow.broken = True
        for name in ("one", "two"):
            asked = len(slow.asked)
            assert store.get([key_of(name), TEXT]) == {TEXT: "before"}
            assert store.get_artifact(picture(7).digest) is None
            store.put([StoredResult(key_of(name), name)])
            store.flush()
        assert len(slow.asked) == asked
        assert store.get([key_of("two")]) == {key_of("two"): "two"}
    assert store.remarks == [
        "--cep-publish slow://lib: it does not answer; this run does not read it any more",
        *[left("it does not answer")] * 2,
    ]
    assert store.damage == []


def test_what_is_here_is_not_asked_for(tmp_path: Path, slow: type[SlowFileSystem]) -> None:
    """No request for results that the own store has; one for each that it lacks."""
    Store(tmp_path / "other", publish="slow://lib").close()
    with Store(tmp_path / "own", ("slow://lib",), "slow://other") as store:
        store.put([StoredResult(TEXT, "mine")])
        store.flush()
        slow.asked.clear()
        assert store.get([TEXT]) == {TEXT: "mine"}
        assert store.has([TEXT]) == {TEXT}
        assert slow.asked == []
        assert store.has([TEXT, key_of("lacking")]) == {TEXT}
        lacking = result_name(key_of("lacking"))
        assert sorted(slow.asked) == [f"lib/{lacking}", f"other/{lacking}"]


@pytest.mark.parametrize("failures", [0, 2])
def test_a_failure_that_passes_costs_a_pause_and_no_result(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Both rounds of an object fail at first, the next succeeds; without a failure, no pause."""
    monkeypatch.setattr("pytest_cepbench.store.remote.bucket._RETRY_PAUSE", 0.0)
    monkeypatch.setattr(remotes, "_RETRY_PAUSE", 0.05 if failures else 60.0)
    with Store(tmp_path / "own", publish="slow://lib") as store:
        slow.failures = failures
        store.put([StoredResult(TEXT, "a text")])
        store.flush(30.0)
        assert store.remarks == []
        assert slow.failures == 0
    assert f"lib/{result_name(TEXT)}" in slow.held


@pytest.mark.slow
def test_the_end_waits_for_uploads_as_long_as_it_may(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it waits; where the time is over, what is left is counted."""
    monkeypatch.setattr(remotes, "_QUIET_SECONDS", 0.01)
    line: list[int] = []
    with Store(tmp_path / "own", publish="slow://lib") as store:
        slow.delay = 0.3
        store.put([StoredResult(key_of(str(i)), "text") for i in range(100)])
        store.flush(waiting=line.append)
        assert line == [100]
        assert len(slow.held) == 101
        slow.delay = 3.0
        store.put([StoredResult(TEXT, "text")])
        started = time.perf_counter()
        store.flush(0.1)
    assert time.perf_counter() - started < slow.delay
    assert store.remarks == [left("not done within 0.1 s")]


@pytest.mark.slow
def test_an_interrupt_ends_the_waiting(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while results are being uploaded leaves the rest, and does not end the run."""
    monkeypatch.setattr(remotes, "_QUIET_SECONDS", 0.01)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with Store(tmp_path / "own", publish="slow://lib") as store:
        slow.delay = 3.0
        store.put([StoredResult(TEXT, "text")])
        store.flush(waiting=interrupt)
    assert store.remarks == [left("interrupted")]


@pytest.mark.slow
def test_a_place_that_takes_nothing_any_more_is_left_in_the_end(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the end of a run nor one that is far ahead waits for it without end."""
    monkeypatch.setattr(remotes, "_QUIET_SECONDS", 0.01)
    monkeypatch.setattr(remotes, "_PATIENCE", 0.3)
    monkeypatch.setattr(remotes, "_MOST_WAITING", 1)
    with Store(tmp_path / "own", publish="slow://lib") as store:
        slow.delay = 3.0
        started = time.perf_counter()
        for name in ("one", "two"):
            store.put([StoredResult(key_of(name), name)])
        ahead = time.perf_counter()
        store.put([StoredResult(key_of("three"), "three")])
        assert time.perf_counter() - ahead >= 0.3  # while one is uploaded and one waits
        store.flush()
    assert time.perf_counter() - started < slow.delay
    (remark,) = store.remarks
    assert "3 results were not uploaded (nothing was uploaded for" in remark


_MANY = 4000

_WRITER = f"""
import os, signal, sys, time
from pathlib import Path
from pytest_cepbench.store import Store, StoredResult
from tests.store.filling import key_of

own, shared = map(Path, sys.argv[1:])
store = Store(own, publish=shared)
store.put([StoredResult(key_of(str(i)), f"text {{i}}") for i in range({_MANY})])
while not list(shared.glob("results/*/*")):
    time.sleep(0.001)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_run_loses_only_what_was_not_uploaded(tmp_path: Path) -> None:
    """Its own store has everything, the shared one sound objects only."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    command = [sys.executable, "-c", _WRITER, str(own), str(shared)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
    assert ended.returncode == -signal.SIGKILL
    objects = open_objects(shared, "test", writing=False)
    assert objects is not None
    seen = inspect_objects(objects)
    assert seen.sound
    assert 0 < seen.results < _MANY
    with Store(own) as store:
        assert len(store) == _MANY
    uploaded = {name.rpartition("/")[2] for name in objects.list("results")}
    assert uploaded < {key_of(str(i)) for i in range(_MANY)}
    objects.close()
