"""Data sets of the hub: pinned by their commit, read from the cache, fetched shard by shard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from pytest_cepbench.errors import DatasetError, SuiteError
from tests.datasets.sources.hub_stub import COMMIT, MOVED, REPO, HubServer, write_cache
from tests.datasets.sources.tables import contents, image_table, load, png, write_parquet

LOCATION = f"hf://datasets/{REPO}"
CARD = b"""---
configs:
- config_name: photos
  data_files:
  - split: test
    path: data/*
---
"""
FETCH = f"hf download {REPO} --repo-type dataset"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A repository of three shards of eight images, in row groups of four."""
    folder = tmp_path_factory.mktemp("shards")
    files = {"README.md": CARD}
    for shard in range(3):
        name = f"data/test-{shard:05}-of-00003.parquet"
        path = write_parquet(folder / f"{shard}.parquet", image_table(8, 8 * shard))
        files[name] = path.read_bytes()
    return files


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of huggingface_hub, offline."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def sizes(files: dict[str, bytes]) -> dict[str, int]:
    """Path -> size, as listings have it."""
    return {path: len(data) for path, data in files.items()}


def test_the_commit_is_what_the_identity_holds(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """A branch is resolved and the note says so; with the commit there is nothing to say."""
    write_cache(cache, shards, tree=sizes(shards))
    dataset = load(tmp_path, LOCATION)
    pinned = load(tmp_path, f"{LOCATION}@{COMMIT}")
    source = f"{LOCATION}@{COMMIT}?config=photos&split=test"
    assert dataset.identity == {"loader": "folder", "version": 1, "source": source}
    assert pinned.identity == dataset.identity
    assert contents(pinned) == contents(dataset)
    assert len(dataset.samples) == 24
    assert dataset.notes[0].startswith(
        f"{LOCATION}: no revision is given; commit {COMMIT} was read"
    )
    assert (
        load(tmp_path, f"{LOCATION}@main").notes[0].startswith(f"{LOCATION}@main: 'main' can move")
    )
    assert pinned.notes == ()


def test_a_moved_branch_is_another_data_set(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """The same files under another commit have another identity."""
    write_cache(cache, shards, tree=sizes(shards))
    before = load(tmp_path, LOCATION)
    write_cache(cache, shards, MOVED, tree=sizes(shards))
    after = load(tmp_path, LOCATION)
    assert contents(before) == contents(after)
    assert before.identity != after.identity


def test_processes_of_a_run_read_one_commit(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """Also one that starts when the branch has moved; the next run reads the new one."""
    write_cache(cache, shards, tree=sizes(shards))
    first = load(tmp_path, LOCATION, run=tmp_path / "run")
    write_cache(cache, shards, MOVED, tree=sizes(shards))
    assert load(tmp_path, LOCATION, run=tmp_path / "run").identity == first.identity
    assert load(tmp_path, LOCATION, run=tmp_path / "next").identity != first.identity


def test_what_is_not_cached_names_the_command(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """A data set, a revision and a shard that offline runs do not find: one line each."""

    def refused(location: str) -> str:
        with pytest.raises(DatasetError) as error:
            load(tmp_path, location)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert refused(LOCATION).endswith(f"(HF_HUB_OFFLINE=1): {FETCH}")
    assert refused(f"{LOCATION}@v1").endswith(f"{FETCH} --revision v1")
    fetched = {path: data for path, data in shards.items() if "00001-of" not in path}
    write_cache(cache, fetched, tree=sizes(shards))
    assert refused(LOCATION).endswith(
        f'{FETCH} --revision {COMMIT} --include "data/test-00001-of-00003.parquet"'
    )


def test_a_cache_that_may_be_partial_is_refused(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """Without a listing, numbers of shards or of rows have to prove that all are there."""
    partial = {path: data for path, data in shards.items() if "00002-of" not in path}
    write_cache(cache, partial, tree=None)
    with pytest.raises(DatasetError, match=r"1 of 3 shards are missing.*test-00002-of-00003"):
        load(tmp_path, LOCATION)
    write_cache(cache, shards, MOVED, tree=None)
    assert len(load(tmp_path, LOCATION).samples) == 24

    loose = {"test.parquet": shards["data/test-00000-of-00003.parquet"]}
    write_cache(cache, loose, "c" * 40, tree=None)
    with pytest.raises(DatasetError, match=r"says whether all of its files are there: hf download"):
        load(tmp_path, LOCATION)
    assert len(load(tmp_path, f"{LOCATION}/test.parquet").samples) == 8

    card = "---\ndataset_info:\n  splits:\n  - name: test\n    num_examples: {}\n---\n"
    for count, commit in ((8, "d" * 40), (9, "e" * 40)):
        files = {**loose, "README.md": card.format(count).encode()}
        write_cache(cache, files, commit, tree=None)
        if count == 8:
            assert len(load(tmp_path, LOCATION).samples) == 8
    with pytest.raises(DatasetError, match="has 8 of the 9 rows that its card tells"):
        load(tmp_path, LOCATION)


def test_splits_and_configurations_are_chosen_in_the_location(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """Behind `?`, or in `[data]`; the location goes first."""
    shard = shards["data/test-00000-of-00003.parquet"]
    parts = [f"{config}/{split}" for config in "ab" for split in ("test", "train")]
    files = {f"{part}-00000-of-00001.parquet": shard for part in parts}
    write_cache(cache, files, tree=sizes(files))
    with pytest.raises(DatasetError, match=r"several configs \(a, b\): choose one with \?config="):
        load(tmp_path, LOCATION)
    with pytest.raises(DatasetError, match=r"several splits \(test, train\)"):
        load(tmp_path, f"{LOCATION}?config=a")
    chosen = load(tmp_path, f"{LOCATION}?config=a&split=test")
    data = 'loader = "folder"\nconfig = "a"\nsplit = "test"'
    in_suite = load(tmp_path, LOCATION, data)
    assert chosen.identity == in_suite.identity
    other = load(tmp_path, f"{LOCATION}?split=train", data)
    assert str(other.identity["source"]).endswith("?config=a&split=train")


def test_released_files_are_read_by_their_own_loader(tmp_path: Path, cache: Path) -> None:
    """MMGenBench's TSV and label index, as its authors publish them; no other file is needed."""
    from base64 import b64encode

    rows = "".join(f"{k}\tq\t{b64encode(png(k)).decode()}\n" for k in range(3))
    files = {
        "MMGenBench-Test.tsv": f"index\tquestion\timage\n{rows}".encode(),
        "labels.json": json.dumps({"Surreal": [0, 2]}).encode(),
    }
    write_cache(cache, files, tree={**sizes(files), "MMGenBench-Domain.tsv": 10**10})
    options = 'file = "MMGenBench-Test.tsv", labels = "labels.json"'
    data = f'loader = "mmgenbench"\noptions = {{ {options} }}'
    dataset = load(tmp_path, LOCATION, data)
    assert [(s.id, s.categories) for s in dataset.samples] == [
        ("000000", ("Surreal",)),
        ("000001", ("unlabelled",)),
        ("000002", ("Surreal",)),
    ]
    assert dataset.identity["source"] == f"{LOCATION}@{COMMIT}"
    with pytest.raises(DatasetError, match="is not in huggingface_hub's cache"):
        load(tmp_path, LOCATION, 'loader = "mmgenbench"')


def test_a_table_on_the_hub_with_a_label_index(tmp_path: Path, cache: Path) -> None:
    """MMGenBench as a table: its options name the TSV, which is not there, and the labels."""
    import pyarrow as pa

    table = pa.table({"index": [0, 1], "image": [png(0), png(1)]})
    files = {
        "test.parquet": write_parquet(tmp_path / "t.parquet", table).read_bytes(),
        "labels.json": json.dumps({"Surreal": [1]}).encode(),
    }
    write_cache(cache, files, tree=sizes(files))
    options = 'file = "MMGenBench-Test.tsv", labels = "labels.json"'
    dataset = load(tmp_path, LOCATION, f'loader = "mmgenbench"\noptions = {{ {options} }}')
    assert [(s.id, s.categories) for s in dataset.samples] == [
        ("000000", ("unlabelled",)),
        ("000001", ("Surreal",)),
    ]


def test_a_folder_of_images_on_the_hub(tmp_path: Path, cache: Path) -> None:
    """The files of the snapshot, whole or not at all; parts of tables mean nothing there."""
    files = {"photos/a.png": png(1), "photos/b.png": png(2)}
    write_cache(cache, files, tree=sizes(files))
    assert [s.id for s in load(tmp_path, f"{LOCATION}/photos").samples] == ["a.png", "b.png"]
    with pytest.raises(SuiteError, match="config and split are about tables"):
        load(tmp_path, f"{LOCATION}/photos?split=test")
    write_cache(cache, {"photos/a.png": png(1)}, MOVED, tree=sizes(files))
    with pytest.raises(DatasetError, match="is not in huggingface_hub's cache"):
        load(tmp_path, LOCATION)
    write_cache(cache, files, "c" * 40, tree=None)
    with pytest.raises(DatasetError, match="the cache is partial"):
        load(tmp_path, LOCATION)


# -- online: a process of its own, against a server on this machine --------------------------------

_LOAD = """
import json, sys
from pathlib import Path
from tests.datasets.sources.tables import contents, load
from pytest_cepbench.errors import CepError
try:
    dataset = load(Path(sys.argv[1]), sys.argv[2], most=2)
    answer = {"identity": dataset.identity, "contents": contents(dataset)}
except CepError as error:
    answer = {"error": str(error)}
print(json.dumps(answer))
"""


@pytest.fixture
def hub(shards: dict[str, bytes]) -> Iterator[HubServer]:
    """A server of the data set, with a branch that can move."""
    moved = {path: data for path, data in shards.items() if path != "README.md"}
    with HubServer({COMMIT: shards, MOVED: moved}).run() as server:
        yield server


def run_online(tmp_path: Path, url: str, location: str, **environment: str) -> dict[str, Any]:
    """What a process with an empty cache of its own loads from the server."""
    result = subprocess.run(
        [sys.executable, "-c", _LOAD, str(tmp_path), location],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "HF_ENDPOINT": url,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "home"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.mark.slow
def test_only_shards_with_chosen_samples_are_fetched(tmp_path: Path, hub: HubServer) -> None:
    """Ids are read by ranges; the same run goes on offline, and a moved branch is seen online."""
    online = run_online(tmp_path, hub.url, LOCATION)
    assert set(online["contents"]) == {"s005", "s008"}  # of the first shard and the second
    fetched = {path for path in hub.fetched() if path.endswith(".parquet")}
    assert fetched == {f"data/test-0000{shard}-of-00003.parquet" for shard in (0, 1)}

    hub.requests.clear()
    assert run_online(tmp_path, hub.url, LOCATION, HF_HUB_OFFLINE="1") == online
    assert hub.requests == []

    hub.head = MOVED
    moved = run_online(tmp_path, hub.url, LOCATION)
    assert moved["contents"] == online["contents"]
    assert MOVED in moved["identity"]["source"]


@pytest.mark.slow
def test_errors_of_the_hub_are_one_line(tmp_path: Path, hub: HubServer) -> None:
    """A repository or a revision that is not there, and a hub that does not answer."""
    assert "has no revision 'v9'" in run_online(tmp_path, hub.url, f"{LOCATION}@v9")["error"]
    absent = run_online(tmp_path, hub.url, "hf://datasets/owner/other")["error"]
    assert "is not on the hub, or is private" in absent
    nowhere = run_online(tmp_path, "http://127.0.0.1:9", LOCATION)["error"]
    assert nowhere.endswith(FETCH)
    assert "\n" not in nowhere
