"""The progress of a run: now and then a line among those that pytest writes."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from pytest_cepbench.chains.steps import Progress
from pytest_cepbench.plugin.terminal.live import progress_line
from tests.plugin.project import wait_until
from tests.plugin.scored_project import ScoredProject, scored_suite

SLOW = """\
import time
from pathlib import Path

import scored


class Describer(scored.Describer):
    calls = 0

    def describe(self, images, prompt, seeds):
        self.calls += 1
        until = time.monotonic() + (60 if self.calls > 2 else 0.15)
        while time.monotonic() < until and not Path("seen").exists():
            time.sleep(0.02)
        return super().describe(images, prompt, seeds)
"""
"""Does two calls, so that its pace is known, and the third one when the lines have been seen."""

CONFTEST = "from pytest_cepbench.plugin.terminal import live\n\nlive.PAUSE = 0.2\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("-p", "no:xdist"), r"scored a GC@1  \d+/\d+ samples  .*"),
        (("-v", "-n", "2"), r"gw\d scored (a|b|overall) GC@1  \d+/\d+ samples  .*"),
        (("-q", "-p", "no:xdist"), ""),
    ],
    ids=["single", "workers", "quiet"],
)
def test_a_log_is_told_now_and_then(tmp_path: Path, args: tuple[str, ...], line: str) -> None:
    """A line that says the case, samples done and pace, with nothing behind it; nothing with -q."""
    suite = scored_suite(categories=("a", "b")).replace("scored:Describer", "slow:Describer")
    slow = ScoredProject.make(tmp_path / "slow", suite)
    (slow.path / "slow.py").write_text(SLOW)
    (slow.path / "conftest.py").write_text(CONFTEST)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    log, told = slow.path / "log", re.compile(rf"^cepbench: {line}[a-z]$", re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    with (
        log.open("wb") as file,
        Popen(command, cwd=slow.path, env=clean, stdout=file, stderr=file) as process,
    ):
        if line:
            wait_until(lambda: told.search(log.read_text()) is not None, log)
        (slow.path / "seen").touch()
        assert process.wait(60) == pytest.ExitCode.TESTS_FAILED
    assert bool(told.search(log.read_text())) is bool(line)
    assert not (slow.path / ".cepbench" / "runs").exists()


NOW = Progress(
    "sdp overall MCD",
    samples=5,
    of_samples=100,
    step="generation 3 of 6, describer",
    steps=1234,
    of_steps=1234 + 45942,
    _points=deque([(0.0, 0), (100.0, 1234)]),
)


def test_a_line_says_how_far_a_case_is() -> None:
    """Worker, case, samples, step, rate, time left; whom it waits for; nothing that hides text."""

    def line(worker: str = "gw0", **other: Any) -> str:
        return progress_line(replace(NOW, **other), worker)

    begin = "gw0 sdp overall MCD  5/100 samples  "
    step = "generation 3 of 6, describer  12.3 steps/s"
    assert line() == f"{begin}{step}  1 h 2 min left"
    assert "describer  4.0 s/step  " in line(_points=deque([(0.0, 0), (4.0, 1)]))
    assert line(waiting=True) == f"{begin}waiting for another worker"
    held = line(waiting=True, holder="process 7 (pytest)")
    assert held == f"{begin}waiting for process 7 (pytest)"
    assert line(server="starting vLLM, 35 s") == f"{begin}starting vLLM, 35 s"
    helping = line(case="cases of other workers", samples=0, of_samples=0)
    assert helping == f"gw0 cases of other workers  {step}"
    assert line(cost=1.2345).endswith("1 h 2 min left  cost 1.23")
    assert line("", case="\x1b[2J漢").startswith(r"\x1b[2J漢  5/100")
    assert line(case="") == progress_line(None) == ""
