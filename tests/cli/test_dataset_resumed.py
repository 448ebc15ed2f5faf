"""`cepbench dataset patterns` after its process was killed: nothing is lost or asked twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.construction.scenes import write_scenes

REPOSITORY = Path(__file__).parents[2]

LOG, KILL = "asked.log", "CEPBENCH_TEST_KILL"

SPEC = "python:tests.cli.test_dataset_resumed:Mortal"


class Mortal:
    """Names one pattern and writes down what it is asked; kills its process where that is said."""

    fingerprint = "mortal/1"
    batch_size = 8
    calls = 0

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[str]:
        """The same of each image."""
        Mortal.calls += 1
        if str(Mortal.calls) == os.environ.get(KILL):
            os.kill(os.getpid(), signal.SIGKILL)
        with Path(LOG).open("a", encoding="utf-8") as log:
            log.writelines(f"{hash_of(image)} {len(prompt)}\n" for image in images)
        return [json.dumps({"image_pattern": ["Count"]}) for _ in images]


def hash_of(image: Any) -> int:
    """Of the pixels."""
    return zlib.crc32(image.tobytes())


def run(
    folder: Path, describer: str = SPEC, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`cepbench dataset patterns` in a process of its own."""
    words = ["dataset", "patterns", "photos", "--out=bench", f"--describer={describer}"]
    return command(folder, *words, "--writer=shapes:", **environment)


def command(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`cepbench` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest_cepbench.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_killed_extraction_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle: the second run asks about the rest, and about no image twice."""
    truth = write_scenes(tmp_path / "photos", 40)
    killed = run(tmp_path, **{KILL: "3"})
    before = (tmp_path / LOG).read_text().splitlines()
    assert not (tmp_path / "bench" / "extract.jsonl").exists()
    resumed = run(tmp_path)
    asked = (tmp_path / LOG).read_text().splitlines()

    assert killed.returncode == -signal.SIGKILL
    assert len(before) == 16
    assert resumed.returncode == 0, resumed.stderr
    assert len(asked) == len(set(asked)) == 2 * len(truth)  # two stages, each image once
    extracted = (tmp_path / "bench" / "extract.jsonl").read_text().splitlines()
    assert {json.loads(line)["image"] for line in extracted} == set(truth)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["model", "sentence"])
def test_labels_are_never_credited_to_a_model_that_was_killed(tmp_path: Path, change: str) -> None:
    """A complete set, then SIGKILL before the first new label: neither verify nor freeze goes on.

    The same command once more repairs it, also with the first model.
    """
    write_scenes(tmp_path / "photos", 16)
    first = SPEC if change == "sentence" else "shapes:?mislabel=0.1"
    assert run(tmp_path, first).returncode == 0
    path = tmp_path / "bench" / "patterns.toml"
    if change == "sentence":
        path.write_text(path.read_text().replace('sentence = "', 'sentence = "Look: '))
    killed = run(tmp_path, **{KILL: "1"})
    freezing = ("dataset", "freeze", "bench", "--unverified")
    refused = command(tmp_path, *freezing)
    verified = command(tmp_path, "dataset", "verify", "bench", "--annotators=ada", "--only-write")
    repaired = run(tmp_path, first)
    frozen = command(tmp_path, *freezing)

    assert killed.returncode == -signal.SIGKILL
    assert (refused.returncode, verified.returncode) == (2, 2)
    for ended in (refused, verified):
        assert "has no chosen.json: finish cepbench dataset patterns first" in ended.stderr
    assert not (tmp_path / "bench" / "ratings").exists()
    assert (repaired.returncode, frozen.returncode) == (0, 0), frozen.stderr
    construction = json.loads((tmp_path / "bench/construction.json").read_text())
    assert construction["models"]["annotate"]["spec"] == first
