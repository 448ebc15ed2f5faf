"""Runs killed at random moments: the next goes on, ends with the same numbers, repeats nothing."""

from __future__ import annotations

import collections
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plugin.project import Project

BATCH = 3
KILLS = 6

SLOW = f"""\
import os, time
from PIL import Image
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image

class Slow:
    fingerprint, seeded, batch_size = "slow/1", False, {BATCH}

    def describe(self, images, prompt, seeds):
        time.sleep(0.01)
        seen = [ImageArtifact.from_pil(image) for image in images]
        with open(os.environ["LOG"], "a") as log:
            log.write("".join(f"{{image.digest}}\\n" for image in seen))
        return [caption(parse_image(image)) for image in seen]
"""


def _start(project: Project, log: Path, store: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--cep-store={store}",
        "--model=python:slow:Slow", "--cep-baselines=none",
    ]  # fmt: skip
    return subprocess.Popen(
        command,
        cwd=project.path,
        env={**os.environ, "LOG": str(log)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _calls(log: Path) -> collections.Counter[str]:
    return collections.Counter(log.read_text().split() if log.exists() else [])


@pytest.mark.slow
def test_killed_at_random_and_run_to_the_end(toy: Project) -> None:
    """SIGKILL loses only what was in flight: same numbers, and only those calls repeat."""
    toy.write("slow.py", SLOW)
    toy.edit("suite.toml", "samples_per_category = 2", "samples_per_category = 6")
    (toy.path / "none").mkdir()  # no baselines
    assert _start(toy, toy.path / "calm.log", "calm").wait(120) == pytest.ExitCode.TESTS_FAILED
    calm, numbers = _calls(toy.path / "calm.log"), toy.numbers()
    (toy.path / ".cepbench" / "report.json").unlink()

    log = toy.path / "torn.log"
    chance = random.Random(os.getpid())  # a new pattern in every run; a failure prints it
    waits, killed = [], 0
    for _ in range(KILLS):
        process = _start(toy, log, "torn")
        before = sum(_calls(log).values())
        while sum(_calls(log).values()) == before and process.poll() is None:
            time.sleep(0.005)
        waits.append(chance.uniform(0.0, 0.05))
        time.sleep(waits[-1])
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait(60)
    assert _start(toy, log, "torn").wait(120) == pytest.ExitCode.TESTS_FAILED
    torn = _calls(log)
    context = f"killed after {waits}"
    assert killed, context
    assert toy.numbers() == numbers, context
    assert torn.keys() == calm.keys(), context
    assert set(calm.values()) == {1}
    repeats = sum(torn.values()) - len(torn)
    assert repeats <= killed * BATCH, context
    assert max(torn.values()) <= 1 + killed, context

    assert _start(toy, log, "torn").wait(120) == pytest.ExitCode.TESTS_FAILED
    assert _calls(log) == torn
