"""Data sets of the hub: how they are typed, pinned by their commit, and read from the cache; which
of their files are read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from pytest_cepbench.datasets.sample import FileImage
from pytest_cepbench.datasets.sources.hub import HubLocation, parse_hub_location
from pytest_cepbench.datasets.sources.open_table import find_shards, read_configs
from pytest_cepbench.errors import DatasetError, SpecError
from tests.datasets.sources.hub_stub import COMMIT, MOVED, REPO, HubServer, write_cache
from tests.datasets.sources.tables import contents, image_table, load, png, write_parquet

CARD_OF_TWO: dict[str, Any] = {
    "configs": read_configs(
        "d",
        """---
configs:
- config_name: clean
  data_files:
  - split: test
    path: clean/test-*
  - split: train
    path: [clean/train-*]
- config_name: noisy
  data_files: noisy/*.parquet
- config_name: below
  data_dir: noisy
---
""",
    )
}
FOLDERS = [f"{top}/{split}-0.parquet" for top in ("en", "de") for split in ("train", "test")]
FILES = [
    "README.md",
    "clean/test-00000-of-00001.parquet",
    "clean/train-00000-of-00001.parquet",
    "noisy/a.parquet",
]


@pytest.mark.parametrize(
    ("files", "choice", "expected"),
    [
        (["a.parquet"], {}, (0, None, "train")),
        (["data/extra-00000-of-00001.parquet"], {}, (0, None, "extra")),
        (["data/test-00000-of-00001-0123abcd.parquet"], {}, (0, None, "test")),
        (["test/0.parquet", "x.csv"], {}, (0, None, "test")),
        (["val.parquet"], {}, (0, None, "validation")),
        (["latest.parquet"], {}, (0, None, "train")),
        (["default/test/0000.parquet", ".x/y.parquet"], {}, (0, None, "test")),
        (["default/partial-test/0000.parquet"], {}, (0, None, "partial-test")),
        (FILES, CARD_OF_TWO | {"config": "noisy"}, (3, "noisy", "train")),
        (FILES, CARD_OF_TWO | {"config": "below"}, (3, "below", "train")),
        (FILES, CARD_OF_TWO | {"path": "clean", "split": "test"}, (1, None, "test")),
        (FOLDERS, {"config": "en", "split": "train"}, (0, "en", "train")),
        (FOLDERS, {"path": "en", "split": "train"}, (0, None, "train")),
        (FILES, CARD_OF_TWO | {"path": "*/test-*"}, (1, None, "test")),
        (["b.arrow", "a.parquet"], {}, (1, None, "train")),
        (["a-00001-of-00002.arrow"], {"path": "a-00001-of-00002.arrow"}, (0, None, "train")),
    ],
)
def test_the_shards_of_a_choice(
    files: list[str], choice: dict[str, Any], expected: tuple[int, str | None, str]
) -> None:
    """By the card, by the path that is named, and by folders and names."""
    found = find_shards("d", files, **{"configs": {}} | choice)
    assert found.paths == (files[expected[0]],)
    assert (found.config, found.split) == expected[1:]
    note = "d: 1 files of other formats than .parquet are passed over"
    assert found.note == (note if "b.arrow" in files else "")


SHARD = "t-0000{}-of-0000{}.parquet".format


@pytest.mark.parametrize(
    ("files", "choice", "words"),
    [
        ([], {}, r"d has no file that ends in \.parquet, \.arrow"),
        (["a.parquet"], {"path": "x"}, "d has no file under 'x'"),
        (FILES, CARD_OF_TWO, r"several configs \(below, clean, noisy\): choose one with \?conf"),
        (FILES, CARD_OF_TWO | {"config": "nosy"}, "no config 'nosy'; .* Did you mean 'noisy'"),
        (FILES, CARD_OF_TWO | {"config": "clean"}, r"several splits \(test, train\)"),
        (FILES, {}, r"several splits \(test, train\)"),
        (FOLDERS, {"split": "train"}, r"several configs \(de, en\): choose one with \?conf"),
        (["a.parquet"], {"split": "test"}, "no split 'test'; its splits: train"),
        (["a.parquet"], {"config": "x"}, "has one configuration: leave out config=x"),
        (["z.parquet"], CARD_OF_TWO | {"config": "noisy"}, "'noisy' are not there"),
        (
            [SHARD(0, 1), SHARD(0, 2), SHARD(1, 2)],
            {},
            r"the shards 't-\*\.parquet' of 1 and of 2 are there more than once",
        ),
        ([SHARD(0, "1-aa"), SHARD(0, "1-bb")], {}, "of 1 are there more than once"),
        (
            [SHARD(0, "3-a"), SHARD(2, "3-b")],
            {},
            "1 of 3 shards are missing, the first 't-00001-of-00003.parquet'",
        ),
    ],
)
def test_what_is_not_clear_is_one_line(
    files: list[str], choice: dict[str, Any], words: str
) -> None:
    """It lists what there is to choose from."""
    with pytest.raises(DatasetError, match=words) as error:
        find_shards("d", files, **{"configs": {}} | choice)
    assert "\n" not in str(error.value)


def test_names_in_a_card_are_what_is_written() -> None:
    """Norwegian is no truth value, and a split may be a number. A card that cannot be read tells
    nothing, so that names of files decide; an entry that cannot be read is refused, since without
    it what it keeps apart would be read as one.
    """
    for text in ("", "# no metadata", "---\n: [\n---\n", "---\n- list\n---\n"):
        assert read_configs("d", text) == {}
    entries = "- config_name: no\n  data_files: a\n- config_name: en\n  data_files: {1: b}\n"
    found = read_configs("d", f"---\nconfigs:\n{entries}---\n")
    assert found == {"no": {"train": ["a"]}, "en": {"1": ["b"]}}
    entries = "- config_name: en\n  data_files: a\n- data_files: b\n"
    with pytest.raises(
        DatasetError, match=r"d: configs of README.md .* `config_name` - at `\$\[1\]"
    ):
        read_configs("d", f"---\nconfigs:\n{entries}---\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://datasets/o/n", HubLocation("o/n")),
        ("hf://datasets/o/n@v1/data/a.parquet", HubLocation("o/n", "v1", "data/a.parquet")),
        ("hf://datasets/o/n/data/*.parquet", HubLocation("o/n", None, "data/*.parquet")),
        ("hf://datasets/o/n@refs/pr/3/a", HubLocation("o/n", "refs/pr/3", "a")),
        ("hf://datasets/o/n@my%2Fbranch", HubLocation("o/n", "my/branch")),
        ("hf://datasets/o/n@v1?config=c&split=s", HubLocation("o/n", "v1", "", "c", "s")),
        ("s3://bucket/x", "cannot be read in place: a path or hf://datasets/OWNER/NAME"),
        ("hf://o/n", "is a model of the hub: hf://datasets/OWNER/NAME"),
        ("hf://datasets/n", "hf://datasets/OWNER/NAME"),
        ("hf://datasets/o/n?slit=x", "unknown parameter 'slit'. Did you mean 'split'"),
        ("hf://datasets/o/n?split=", "split is empty"),
        ("hf://datasets/o/n?split=a&split=b", "split is there twice"),
    ],
)
def test_locations_on_the_hub(text: str, expected: HubLocation | str) -> None:
    """As huggingface_hub and fsspec read them; configuration and split stand behind `?`."""
    if isinstance(expected, HubLocation):
        assert parse_hub_location(text) == expected
        return
    with pytest.raises(SpecError) as error:
        parse_hub_location(text)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


# -- offline: the cache as it lies on disk ---------------------------------------------------------

LOCATION = f"hf://datasets/{REPO}"
CARD = (
    b"---\nconfigs:\n- config_name: photos\n  data_files:\n  - split: test\n    path: data/*\n---\n"
)
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


def sizes(files: Mapping[str, bytes]) -> dict[str, int]:
    """Path -> size, as listings have it."""
    return {path: len(data) for path, data in files.items()}


def test_the_commit_is_what_the_identity_holds(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """A branch is resolved and the note says so; a branch that moved is another data set, but not
    for a process of a run that has begun.
    """
    write_cache(cache, shards, tree=sizes(shards))
    dataset = load(tmp_path, LOCATION, run=tmp_path / "run")
    pinned = load(tmp_path, f"{LOCATION}@{COMMIT}")
    source = f"{LOCATION}@{COMMIT}?config=photos&split=test"
    assert dataset.identity == {"loader": "folder", "version": 1, "source": source}
    assert pinned.identity == dataset.identity
    assert contents(pinned) == contents(dataset)
    assert len(dataset.samples) == 24
    assert f"no revision is given; commit {COMMIT} was read" in dataset.notes[0]
    assert "'main' can move" in load(tmp_path, f"{LOCATION}@main").notes[0]
    assert pinned.notes == ()

    write_cache(cache, shards, MOVED, tree=sizes(shards))
    moved = load(tmp_path, LOCATION, run=tmp_path / "next")
    assert contents(moved) == contents(dataset)
    assert moved.identity != dataset.identity
    assert load(tmp_path, LOCATION, run=tmp_path / "run").identity == dataset.identity


def test_other_formats_are_read_from_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its files are links to blobs, wherever it lies; one to another place leads out."""
    cache = tmp_path / "snapshots" / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    line = (
        b'{"id": "a", "category": "c", "verdict": "A", "question": [{"image": "q.png"}], '
        b'"first": [{"text": "x"}], "second": [{"text": "y"}]}\n'
    )
    files = {"battles.jsonl": line, "q.png": png(1)}
    snapshot = write_cache(cache, files, tree=sizes(files))
    data = 'loader = "judged-battles"'
    for place in (LOCATION, snapshot):
        (image,) = load(tmp_path, place, data).samples[0].question
        assert isinstance(image, FileImage)
        assert image.load().size == (4, 4)
    (snapshot / "q.png").unlink()
    (tmp_path / "q.png").write_bytes(png(2))
    (snapshot / "q.png").symlink_to(tmp_path / "q.png")
    with pytest.raises(DatasetError, match="is a link out of"):
        load(tmp_path, snapshot, data)


def test_what_is_not_cached_names_the_command(
    tmp_path: Path, cache: Path, shards: dict[str, bytes]
) -> None:
    """A data set, a revision, a shard that offline runs do not find, and a cache without a listing:
    one line each.
    """

    def refused(location: str) -> str:
        with pytest.raises(DatasetError) as error:
            load(tmp_path, location)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert refused(LOCATION).endswith(f"(HF_HUB_OFFLINE=1): {FETCH}")
    assert refused(f"{LOCATION}@v1").endswith(f"{FETCH} --revision v1")
    fetched = {path: data for path, data in shards.items() if "00001-of" not in path}
    write_cache(cache, fetched, tree=sizes(shards))
    assert f"{FETCH} --revision {COMMIT} --include" in refused(LOCATION)
    write_cache(cache, shards, MOVED, tree=None)
    assert refused(LOCATION).endswith(f"{FETCH} --revision {MOVED}")


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
def test_shards_are_fetched_once(tmp_path: Path, shards: dict[str, bytes]) -> None:
    """The same run goes on offline, and a moved branch is seen online; errors are one line."""
    without_card = {path: data for path, data in shards.items() if path != "README.md"}
    extra = {**shards, "data/train-00000-of-00001.parquet": b"not fetched"}
    marks = {"photos [2]/train [1].parquet": shards["data/test-00000-of-00003.parquet"]}
    with HubServer({COMMIT: marks}).run() as hub:  # names are no patterns
        assert len(run_online(tmp_path / "marks", hub.url, LOCATION)["contents"]) == 2
    with HubServer({COMMIT: extra, MOVED: without_card}).run() as hub:
        online = run_online(tmp_path, hub.url, f"{LOCATION}/data?split=test")
        assert set(online["contents"]) == {"s005", "s008"}
        assert hub.fetched() == set(shards)

        hub.requests.clear()
        again = run_online(tmp_path, hub.url, f"{LOCATION}/data?split=test", HF_HUB_OFFLINE="1")
        assert again == online
        assert hub.requests == []

        hub.head = MOVED
        moved = run_online(tmp_path, hub.url, LOCATION)
        assert moved["contents"] == online["contents"]
        assert MOVED in moved["identity"]["source"]

        assert "has no revision 'v9'" in run_online(tmp_path, hub.url, f"{LOCATION}@v9")["error"]
        absent = run_online(tmp_path, hub.url, "hf://datasets/owner/other")["error"]
        assert "is not on the hub, or is private" in absent
    nowhere = run_online(tmp_path / "else", "http://127.0.0.1:9", LOCATION)["error"]
    assert nowhere.endswith(FETCH)
    assert "\n" not in nowhere
