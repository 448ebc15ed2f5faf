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
    """Names one pattern; writes down what it is asked, and kills its process in the third call."""

    fingerprint = "mortal/1"
    batch_size = 8
    calls = 0

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[str]:
        """The same of each image."""
        Mortal.calls += 1
        if Mortal.calls == 3 and KILL in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        with Path(LOG).open("a", encoding="utf-8") as log:
            log.writelines(f"{hash_of(image)} {len(prompt)}\n" for image in images)
        return [json.dumps({"image_pattern": ["Count"]}) for _ in images]


def hash_of(image: Any) -> int:
    """Of the pixels."""
    return zlib.crc32(image.tobytes())


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    words = ["dataset", "patterns", "photos", "--out=bench", f"--describer={SPEC}"]
    return subprocess.run(
        [sys.executable, "-m", "pytest_cepbench.cli", *words, "--writer=shapes:"],
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
    killed = run(tmp_path, **{KILL: "1"})
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
def test_another_model_after_a_kill_is_told(tmp_path: Path) -> None:
    """The folder knows who was asked before the first answer."""
    write_scenes(tmp_path / "photos", 40)
    run(tmp_path, **{KILL: "1"})
    words = ["dataset", "patterns", "photos", "--out=bench", "--describer=shapes:"]
    other = subprocess.run(
        [sys.executable, "-m", "pytest_cepbench.cli", *words, "--writer=shapes:"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert other.returncode == 0
    assert f"extract: the describer is shapes: now and was {SPEC}" in other.stderr
