"""Published files that are wrong: one message with file, row and field, and no verdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cepbench.models.protocols import RoleName
from tests.acceptance.suites import data
from tests.acceptance.suites.conftest import MakeProject
from tests.acceptance.suites.project import Cast
from tests.datasets.test_mmgenbench import coded, write_table

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Wrong:
    """One mistake in the data of a suite.

    write: writes the whole data set. spoil: makes the mistake. pieces: what the message must hold.
    """

    suite: str
    name: str
    write: Callable[[Path], Path]
    spoil: Callable[[Path], object]
    pieces: Sequence[str]


def rewrite(file: str, old: str, new: str, encoding: str = "utf-8") -> Callable[[Path], object]:
    """Replace a piece of a text file, which must be there."""

    def spoil(root: Path) -> None:
        text = (root / file).read_text(encoding="utf-8")
        assert old in text
        (root / file).write_bytes(text.replace(old, new).encode(encoding))

    return spoil


def cells(*rows: tuple[int, str]) -> Callable[[Path], object]:
    """MMGenBench's table with these indices and images instead."""
    return lambda root: write_table(root / "MMGenBench-Test.tsv", rows)


IMAGE = coded(data.picture(0))

GEN_0 = "text-first/gen-0.csv"

LABELS = "MMGenBench-Test-label-index.json"

MISTAKES = {
    "index twice": Wrong(
        "mmgenbench", "mmgenbench", data.write_mmgenbench, cells((7, IMAGE), (7, IMAGE)),
        ["MMGenBench-Test.tsv, row 2 (line", "column 'index': 7 is there twice"],
    ),
    "not base64": Wrong(
        "mmgenbench", "mmgenbench", data.write_mmgenbench,
        cells(*((i, IMAGE) for i in (0, 7, 12, 31)), (40, "not base64!")),
        ["MMGenBench-Test.tsv, row 5 (line", "column 'image'"],
    ),
    "label that points nowhere": Wrong(
        "mmgenbench", "mmgenbench", data.write_mmgenbench,
        lambda root: (root / LABELS).write_text(json.dumps({"Anime": [7, 99]})),
        [LABELS, "pattern 'Anime': no row has index '99'"],
    ),
    "latin-1": Wrong(
        "sdp", "sdp", data.write_sdp, rewrite(GEN_0, "yellow", "caf\u00e9", "latin-1"),
        ["gen-0.csv, row 3 (line", "column 'caption': not UTF-8: save the file as UTF-8"],
    ),
    "path that leads out": Wrong(
        "sdp", "sdp", data.write_sdp, rewrite(GEN_0, "0001.png", "../0001.png"),
        ["gen-0.csv, row 1 (line 2), column 'filename': '../0001.png' leads out of the folder"],
    ),
    "caption without an image": Wrong(
        "sdp", "sdp", data.write_sdp,
        lambda root: (root / "image-first" / "gen-0" / "0002.png").unlink(),
        ["captions without an image, or images without a caption: '0002'"],
    ),
    "listed twice": Wrong(
        "sdp", "sdp", data.write_listed, rewrite("nd400.jsonl", "test_00002", "test_00001"),
        ["nd400.jsonl, line 2: image_id 'test_00001' is there twice"],
    ),
    "listed image that is gone": Wrong(
        "sdp", "sdp", data.write_listed,
        lambda root: (root / "docci" / "images" / "test_00001.jpg").unlink(),
        ["1 of the 4 pairs listed in", "'docci test_00001: no file test_00001.jpg'"],
    ),
    "path that leads out of a copy": Wrong(
        "sdp", "sdp", data.write_listed,
        rewrite("nocaps/nocaps_val_4500_captions.json", "beef04", "../beef04"),
        ["captions.json, images[0].file_name: '../beef04.jpg' leads out of the folder"],
    ),
    "category without images": Wrong(
        "mmeception", "mme", data.write_mme,
        lambda root: shutil.rmtree(root / "OCR"),
        ["no images for 1 of the 14 MME categories: OCR"],
    ),
    "clause without a class": Wrong(
        "geneval", "geneval-r", lambda root: data.write_rewritten(root / "geneval-r.jsonl"),
        lambda file: file.write_text(file.read_text().replace('"class": "dog"', '"class": 3', 1)),
        ["geneval-r.jsonl, line 1: include[0]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_nothing_is_gated(
    wrong: Wrong, make_project: MakeProject, tmp_path: Path
) -> None:
    """Exit code, file, row and field, without a traceback; no baseline is written.

    Not even of the parts that the mistake leaves whole.
    """
    place = wrong.write(tmp_path / "data")
    wrong.spoil(place)
    project = make_project(wrong.suite)
    roles: tuple[RoleName, ...] = ("generator", "encoder", "detector")
    named = dict.fromkeys(("text", "cross", "image", "inception", "color"), "shapes:")
    cast = Cast("shapes:", dict.fromkeys(roles, "shapes:"), named, {wrong.name: place})

    module = f"suites/{wrong.suite}/test_{wrong.suite}.py"
    deselect = [f"--deselect={module}::test_domain", f"--deselect={module}::test_tasks"]
    run = project.run(cast, "--snapshot-update", *deselect)

    assert run.code not in (pytest.ExitCode.OK, pytest.ExitCode.INTERNAL_ERROR), run.output
    shown = " ".join(run.output.split())
    for piece in wrong.pieces:
        assert piece in shown
    assert "Traceback" not in run.output
    assert not run.report.get("cases") or "error" in run.verdicts
    assert not list(project.folder.glob("baselines/**/*.toml"))
