"""Image files of every kind through the whole pipe, and images that are read where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.artifacts.files import png_header
from tests.plugin.project import PHOTOS, Project
from tests.special_files import a_link_to_an_endless_device, a_pipe, a_pointer, a_sparse_file

RED, BLUE = (200, 10, 10), (10, 10, 200)


def test_every_bad_file_is_named_at_once(project: Project) -> None:
    """Among good photos, each unusable file is listed with what is wrong, and nothing passes."""
    project.photos({"red.png": RED, "blue.png": BLUE})
    folder = project.path / "photos"
    cut = (folder / "red.png").read_bytes()
    (folder / "cut.png").write_bytes(cut[: len(cut) // 2])
    (folder / "empty.webp").write_bytes(b"")
    (folder / "text.jpg").write_text("not a picture")
    (folder / "huge.png").write_bytes(png_header(50_000, 50_000))
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, BLUE)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    for make in (a_pipe, a_link_to_an_endless_device, a_pointer, a_sparse_file):
        make(folder / f"{make.__name__}.png")
    (folder / "circle.png").symlink_to("circle.png")
    result = project.run_here("-vv", "--snapshot-update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert set(project.verdicts().values()) == {"error"}
    result.stdout.fnmatch_lines(
        [
            "error: photos, overall, * (the measurement could not be made)",
            "  10 of 12 samples cannot be used:",
            "  a_link_to_an_endless_device.png: cannot be read: it is a device, and a regular *",
            "  a_pipe.png: cannot be read: it is a named pipe, and a regular file is expected",
            "  a_pointer.png: cannot be read: it is a pointer of Git LFS to a file that was not *",
            "  a_sparse_file.png: cannot be read: it has 32,212,254,720 bytes, and at most *",
            "  circle.png: cannot be read: Too many levels of symbolic links",
            "  cut.png: damaged: *",
            "  empty.webp: not an image of a known format *",
            "  huge.png: too large to decode*",
            "  moving.gif: animated or multi-page (2 frames): *",
            "  text.jpg: not an image of a known format *",
        ]
    )
    assert project.effort() == (0, 0)
    assert not list(project.baselines.rglob("*.toml"))


# -- data in place: in tables, and on the hub ------------------------------------------------------


@pytest.mark.slow
def test_a_moved_branch_is_incomparable(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where its files are the same; the report tells the commit, and how to pin it."""
    pytest.importorskip("pyarrow", reason="data in place needs the [data] extra")
    from huggingface_hub import constants

    from tests.datasets.sources.hub_stub import COMMIT, MOVED, REPO, write_cache
    from tests.datasets.sources.tables import image_table, write_parquet

    project.suite(PHOTOS.replace('path = "photos"\n', ""))
    project.photos({})
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    files = {"test.parquet": write_parquet(tmp_path / "t.parquet", image_table(4)).read_bytes()}
    sizes = {"test.parquet": len(files["test.parquet"])}
    write_cache(cache, files, tree=sizes)
    data = f"--cep-data=folder=hf://datasets/{REPO}"
    assert project.run_here(data, "--snapshot-update").ret == pytest.ExitCode.OK
    result = project.run_here(data)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"cepbench: *no revision is given; commit {COMMIT} was read*"])
    write_cache(cache, files, MOVED, tree=sizes)
    assert project.run_here(data).ret != pytest.ExitCode.OK
    assert set(project.verdicts().values()) == {"incomparable"}
    assert project.run_here(f"{data}@{COMMIT}").ret == pytest.ExitCode.OK
