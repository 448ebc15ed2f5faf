"""Gates on data sets that are read where they lie: in tables, and on the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="data in place needs the [data] extra")

from huggingface_hub import constants

from tests.datasets.sources.hub_stub import COMMIT, MOVED, REPO, write_cache
from tests.datasets.sources.tables import image_table, write_parquet
from tests.plugin.project import PHOTOS, Project


@pytest.fixture
def photos(project: Project) -> Project:
    """The photo project, whose photos are to be given."""
    project.suite(PHOTOS.replace('path = "photos"\n', ""))
    project.photos({})
    return project


@pytest.mark.slow
def test_a_moved_branch_is_incomparable(
    photos: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where its files are the same; the report tells the commit, and how to pin it."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    files = {"test.parquet": write_parquet(tmp_path / "t.parquet", image_table(4)).read_bytes()}
    sizes = {"test.parquet": len(files["test.parquet"])}
    write_cache(cache, files, tree=sizes)
    data = f"--cep-data=folder=hf://datasets/{REPO}"
    assert photos.run_here(data, "--snapshot-update").ret == pytest.ExitCode.OK
    result = photos.run_here(data)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"cepbench: *no revision is given; commit {COMMIT} was read*"])
    write_cache(cache, files, MOVED, tree=sizes)
    assert photos.run_here(data).ret != pytest.ExitCode.OK
    assert set(photos.verdicts().values()) == {"incomparable"}
    assert photos.run_here(f"{data}@{COMMIT}").ret == pytest.ExitCode.OK
