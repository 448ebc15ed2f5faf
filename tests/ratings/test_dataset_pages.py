"""`cepbench dataset verify` in a browser: labels of images, ticked by keyboard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.cli import main
from tests.construction.scenes import write_scenes
from tests.ratings.serving import ROOT, addresses_of, read_lines, records, see

pytest.importorskip("starlette")

pytestmark = pytest.mark.slow

HOSTILE = "<b onclick='window.hacked = 1'>Count</b><script>window.hacked = 2</script>"


@contextmanager
def verifying(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """The addresses of `cepbench dataset verify`, while it serves."""
    words = ["dataset", "verify", str(folder), "--port=0", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest_cepbench.cli", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            yield addresses_of(list(read_lines(process)))
        finally:
            process.terminate()
            process.communicate(timeout=30)


def answer(page: Any, *keys: str) -> None:
    """Press keys and wait until the answer is saved."""
    see(page)
    with page.expect_response("**/vote") as sent:
        for key in keys:
            page.keyboard.press(key)
    assert sent.value.status == 200


def test_labels_are_ticked_and_counted(
    tmp_path: Path, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markup in a pattern's name is text; what is ticked is the label of the frozen set."""
    monkeypatch.chdir(tmp_path)
    write_scenes(tmp_path / "photos", 16)
    (tmp_path / "names.toml").write_text(
        f'[[pattern]]\nname = "{HOSTILE}"\nsentence = "{HOSTILE}"\n[[pattern]]\nname = "Count"\n'
    )
    words = ["--describer=shapes:", "--patterns=names.toml", "--per-pattern=2", "--out=bench"]
    assert main(["dataset", "patterns", "photos", *words]) == 0
    with verifying(tmp_path / "bench", "--annotators=ada") as addresses:
        page = open_page(addresses["ada"])
        assert page.get_by_text(HOSTILE).first.is_visible()
        assert page.locator("input:checked").count() == 0  # what the model said is not shown
        answer(page, "2", "1", "Enter")
        assert page.evaluate("window.hacked") is None

    (vote, *_) = [v for v in records(tmp_path / "bench/ratings", "ada") if v["kind"] == "item"]
    assert (sorted(vote["ticked"]), vote["unticked"]) == ([HOSTILE, "Count"], [])
    assert main(["dataset", "freeze", "bench", "--unverified"]) == 0
    frozen = (tmp_path / "bench/frozen/bench-images.jsonl").read_text()
    assert frozen.count("hacked = 1") == 1
