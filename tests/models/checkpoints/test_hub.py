"""Hub ids: resolved from the cache, and explained where they are nowhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import complete_checkpoint, inspect_checkpoint
from pytest_cepbench.models.spec import parse_spec
from tests.models.checkpoints.test_pipeline_parts import FORMS
from tests.models.files import LLAVA, inspect, write_checkpoint, write_pipeline, write_tensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="hub ids need huggingface_hub"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(cache: Path) -> None:
    """One repository at one commit, known as main and as v2."""
    repository = cache / "models--org--model"
    write_checkpoint(repository / "snapshots" / COMMIT, LLAVA)
    (repository / "refs").mkdir()
    for name in ("main", "v2"):
        (repository / "refs" / name).write_text(COMMIT, encoding="utf-8")


@pytest.mark.parametrize("query", ["", "?revision=v2", f"?revision={COMMIT}"])
def test_a_cached_id_resolves_to_its_commit(cache: Path, query: str) -> None:
    """Branch, tag and commit must lead to the snapshot, and the commit must be recorded."""
    fill(cache)
    checkpoint = inspect("org/model", query)
    assert checkpoint.revision == COMMIT
    assert checkpoint.path == cache / "models--org--model" / "snapshots" / COMMIT
    assert checkpoint.roles == ("describer", "writer")


def test_an_adapter_and_its_base_are_found_in_the_cache(cache: Path, tmp_path: Path) -> None:
    """A base by its hub id, at the revision that the adapter names or another branch's."""
    fill(cache)
    base = cache / "models--org--model" / "snapshots" / COMMIT
    config = {"peft_type": "LORA", "base_model_name_or_path": "org/model", "revision": "v2"}
    adapter = write_checkpoint(
        tmp_path / "adapter", config, "adapter_model.safetensors", index="adapter_config.json"
    )
    for query in ("", "?base=org/model"):
        checkpoint = inspect(adapter, query)
        assert checkpoint.path == base
        assert (checkpoint.repository, checkpoint.revision) == ("org/model", COMMIT)
    repository = cache / "models--org--adapter"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    cached = repository / "snapshots" / COMMIT
    shutil.copytree(adapter, cached)
    (part,) = inspect_checkpoint(parse_spec("org/adapter")).adapters
    assert (part.path, part.revision) == (cached, COMMIT)
    (cache / "models--org--model" / "refs" / "v2").unlink()
    with pytest.raises(CheckpointError, match=r"'org/model' at revision 'v2' is neither"):
        inspect_checkpoint(parse_spec(str(adapter)))


@pytest.mark.parametrize("place", ["org/model", "org/model/fast.safetensors@v2"])
def test_lora_weights_come_from_the_cache(cache: Path, tmp_path: Path, place: str) -> None:
    """By the id alone, or with the file and the revision; another file is asked for."""
    fill(cache)
    snapshot = cache / "models--org--model" / "snapshots" / COMMIT
    for name in ("pytorch_lora_weights.safetensors", "fast.safetensors"):
        write_tensors(snapshot / name, FORMS["kohya"])
    base = write_pipeline(tmp_path / "base")
    (part,) = inspect_checkpoint(parse_spec(f"{base}?lora={place}")).parts
    assert part.path.parent == snapshot
    assert part.path.name == ("fast" if "fast" in place else "pytorch_lora_weights") + (
        ".safetensors"
    )
    with pytest.raises(CheckpointError, match=r"no slow\.safetensors"):
        inspect_checkpoint(parse_spec(f"{base}?lora=org/model/slow.safetensors"))


@pytest.mark.parametrize("target", ["org/other", "org/model?revision=v9", "checkpoints/step-80"])
def test_what_is_nowhere_says_what_was_tried(cache: Path, target: str) -> None:
    """Neither a folder nor cached: the message must name both places and the offline switch."""
    fill(cache)
    with pytest.raises(CheckpointError, match="no folder of this name") as caught:
        inspect_checkpoint(parse_spec(target))
    assert str(cache) in str(caught.value)
    assert "HF_HUB_OFFLINE is set" in str(caught.value)


@pytest.mark.parametrize("reachable", [True, False])
def test_what_loading_reads_is_fetched_where_the_hub_answers(
    cache: Path, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    """Of all files those that loading can read, by their plain names; else the cache serves."""
    import huggingface_hub

    fill(cache)
    names = ["config.json", "model.safetensors", "pytorch_model.bin", "README.md"]
    fetched: list[list[str]] = []

    class Hub:
        def list_repo_files(self, repository: str, revision: str) -> list[str]:
            assert (repository, revision) == ("org/model", COMMIT)
            if not reachable:
                raise OSError
            return names

    spec = parse_spec("org/model")
    checkpoint = inspect_checkpoint(spec)
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)

    def download(_repository: str, revision: str, allow_patterns: list[str]) -> str:
        fetched.append(allow_patterns)
        return revision

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    complete_checkpoint(checkpoint)
    assert fetched == ([["config.json", "model.safetensors"]] if reachable else [])


def test_a_path_is_not_asked_of_the_hub() -> None:
    """What cannot be a hub id must be called a missing folder and nothing else."""
    with pytest.raises(CheckpointError, match="no such folder"):
        inspect_checkpoint(parse_spec("/nowhere/checkpoints/step-80"))
