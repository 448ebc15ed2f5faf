"""`--model=replay:PATH`: chains that another tool has generated, gated like any others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.datasets.files import put_table
from tests.plugin.project import EACH_MODE, PHOTOS, Color, Project, assert_one_message
from tests.report.pages import read_page

COLORS: dict[str, Color] = {
    "red.png": (200, 10, 10), "green.png": (10, 200, 10), "blue.png": (10, 10, 200),
}  # fmt: skip

REPLAY = "--model=replay:made"


def _write_chains(project: Project, *, faithful: bool = True) -> Path:
    """Image-first chains of all photos over two iterations, as in the Semantic Drift Protocol."""
    root = project.path / "made" / "image-first"
    photos = project.path / "photos"
    names = list(COLORS)
    for generation in (1, 3):
        rows = [[name, " ".join(map(str, COLORS[name]))] for name in names]
        put_table(root / f"gen-{generation}.csv", [["filename", "caption"], *rows])
        folder = root / f"gen-{generation + 1}"
        folder.mkdir()
        for place, name in enumerate(names):
            source = name if faithful else names[place - 1]
            shutil.copy(photos / source, folder / name)
    return root


@pytest.fixture
def photos(project: Project) -> Project:
    """Three photos and an encoder; there is no describer and no generator."""
    lines = PHOTOS.splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith(("describer", "generator")))
    project.suite(text)
    project.photos(COLORS)
    return project


def test_faithful_chains_are_accepted_and_held(photos: Project) -> None:
    """No model is asked but the encoder; the header says whose chains these are.

    A baseline of chains that were grown here says nothing of them, nor theirs of a model.
    """
    _write_chains(photos)
    first = photos.run_here(REPLAY, "--snapshot-update")
    assert first.ret == pytest.ExitCode.OK
    first.stdout.fnmatch_lines(["cepbench: chains under test: replay:made*"])
    first.stdout.fnmatch_lines(
        ["cepbench: suite photos gates replay replay:made (encoder python:user_models:encoder) *"]
    )
    gc, failures = photos.report()["cases"]
    assert (gc["value"], failures["value"]) == (1.0, 0.0)
    assert gc["model"] == {
        "role": "replay",
        "spec": "replay:made",
        "identity": "layout=sdp version=1",
    }
    assert gc["identity"]["under test"] == "replay"
    assert not {"describer", "generator"} & set(gc["identity"])
    assert photos.run_here(REPLAY).ret == pytest.ExitCode.OK
    assert set(photos.verdicts().values()) == {"held"}
    assert "chains made elsewhere" in photos.report()["cases"][0]["reference_chains"]
    assert photos.effort() == (0, 0)

    grown = [f"--{role}=python:user_models:{role}" for role in ("describer", "generator")]
    assert photos.run_here(*grown, "--snapshot-update").ret == pytest.ExitCode.OK
    result = photos.run_here("-vv", REPLAY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert set(photos.verdicts().values()) == {"incomparable"}
    result.stdout.fnmatch_lines(["  under test: baseline describer, now replay"])


@pytest.mark.slow
@EACH_MODE
def test_chains_that_drift_regress(photos: Project, mode: tuple[str, ...]) -> None:
    """The same numbers in every way to run, with the pictures of the other tool in the report."""
    _write_chains(photos)
    assert photos.run_here(REPLAY, "--snapshot-update").ret == pytest.ExitCode.OK
    shutil.rmtree(photos.path / "made")
    _write_chains(photos, faithful=False)
    assert photos.run(*mode, REPLAY).ret == pytest.ExitCode.TESTS_FAILED
    assert photos.verdicts() == {"overall-gc": "regressed", "overall-failures": "held"}
    chain = photos.report()["cases"][0]["chains"][0]
    assert [link["text"] is None for link in chain["links"]] == [True, False, True, False, True]
    html = (photos.path / ".cepbench" / "report.html").read_text()
    shown = read_page(html).shown_pictures
    # The chains, start and end of each that lost most, and a chain of the case that holds.
    assert len(shown) == 3 * 3 + 3 * 2 + 3
    assert len(set(shown)) == 3
    assert "no longer in the store" not in html


def test_a_mistake_is_one_message(photos: Project) -> None:
    """Before anything is collected."""
    _write_chains(photos)
    for arguments, piece in (
        ([REPLAY, "--generator=shapes:"], "brings its results with it: drop --generator"),
        (["--generator=replay:made"], "'replay:made': chains made elsewhere are given with --mod"),
        (["--model=replay:made?layout=mine"], "unknown layout 'mine'"),
    ):
        assert_one_message(photos.run_here(*arguments), piece)
