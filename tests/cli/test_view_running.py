"""`cepbench view` while runs go on: real runs of pytest, and a real server that shows them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_cepbench.report.history.running import ListedRun, RunState, list_running
from tests.cli.serving import get, served
from tests.plugin.scored_project import ScoredProject, scored_suite
from tests.plugin.terminal import wait_for
from tests.report.browser import chromium, dumped

ROOT = Path(__file__).parents[2]

PATIENCE = 300.0
"""Seconds for a run to start or to end, on a machine that does much else."""

SLOW = """\
import time
from pathlib import Path

import scored


class Describer(scored.Describer):
    def describe(self, images, prompt, seeds):
        late = scored._read(images[0])[0] >= 1000
        until = time.monotonic() + (600 if late else 0)
        while time.monotonic() < until and not Path("go-on").exists():
            time.sleep(0.05)
        return super().describe(images, prompt, seeds)
"""
"""Describes the samples of the first category, and the others when it is told to."""

SUITE = scored_suite(
    n=16, categories=("a", "b"), rest='[metrics.gc]\n[gate]\ngate = "threshold"\n'
).replace("scored:Describer", "slow:Describer")


@pytest.fixture
def project(tmp_path: Path) -> ScoredProject:
    """A project without baselines, whose cases fail, and whose second case waits."""
    project = ScoredProject.make(tmp_path / "project", SUITE)
    (project.path / "slow.py").write_text(SLOW)
    return project


@contextmanager
def going_on(project: ScoredProject, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run of pytest in a process of its own, which is killed at the end if it is still there."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH", "PYTEST"))}
    modes = () if "-n" in args else ("-p", "no:xdist")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *modes, *args]
    with subprocess.Popen(
        command,
        cwd=project.path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def listed(project: ScoredProject) -> list[ListedRun]:
    """The runs of the project that have not ended."""
    return list_running(project.path / ".cepbench" / "history")


def judged(project: ScoredProject, count: int = 1) -> Callable[[], bool]:
    """Whether a run has judged so many cases."""
    return lambda: any(entry.run.judged == count for entry in listed(project))


@pytest.mark.slow
def test_a_run_is_shown_until_its_report_is(project: ScoredProject) -> None:
    """What is judged, what fails and how far it is; then the report, under the same address."""
    with going_on(project, "--cep-report=r.json", "-n", "2") as run:
        wait_for(judged(project), PATIENCE)
        wait_for(lambda: any("b GC" in work.case for work in listed(project)[0].run.work), 20)
        (entry,) = listed(project)
        address = f"/runs/{entry.run.run}.html"
        with served(project.path) as port:
            page, own = get(port, "/")[1], get(port, address)[1]
            assert entry.state == RunState.RUNNING
            for text in (page, own):
                assert "No verdict yet: 1 of 3 cases judged; 1 no-baseline." in text
                assert "scored/a/gc" in text
                assert re.search(r"scored b GC@1</b> \d+ of 16 samples", text)
                assert "passed" not in text.partition("<body>")[2]
            assert f'href="{address[1:]}"' in page
            assert get(port, f"/running/{entry.run.run}")[0] == 200

            (project.path / "go-on").touch()
            assert run.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED
            assert listed(project) == []
            assert not (project.path / ".cepbench" / "history" / "running").exists()
            assert get(port, f"/running/{entry.run.run}")[0] == 404
            assert get(port, address) == (200, (project.path / "r.html").read_text())
            assert "History of 1 run" in get(port, "/")[1]


@pytest.mark.slow
def test_a_browser_follows_by_itself(project: ScoredProject) -> None:
    """The script of the page loads the report when there is one. The browser's time runs fast."""
    browser = chromium()
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=36000000")
    with going_on(project) as run:
        wait_for(judged(project), PATIENCE)
        (entry,) = listed(project)
        with served(project.path) as port:
            address = f"http://127.0.0.1:{port}/runs/{entry.run.run}.html"
            (project.path / "go-on").touch()
            seen = dumped([browser, *flags, "--dump-dom", address])
        run.wait(PATIENCE)
    assert '<h1 class="banner' in seen
    assert "No verdict yet" not in seen


@pytest.mark.slow
def test_a_killed_run_has_no_verdict(project: ScoredProject) -> None:
    """At once it is one that ended, beside another that goes on, and it stays one."""
    with going_on(project) as killed, going_on(project) as other:
        wait_for(lambda: len(listed(project)) == 2, PATIENCE)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(30)
        states = {entry.run.process: entry.state for entry in listed(project)}
        assert states == {killed.pid: RunState.ENDED, other.pid: RunState.RUNNING}
        with served(project.path) as port:
            page = get(port, "/")[1]
        assert page.count("ended without a verdict") == 1
        assert "passed" not in page.partition("<body>")[2]

        (project.path / "go-on").touch()
        assert other.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED
        (entry,) = listed(project)
        assert (entry.run.process, entry.state) == (killed.pid, RunState.ENDED)


@pytest.mark.slow
def test_a_run_that_is_not_to_be_recorded_leaves_nothing(project: ScoredProject) -> None:
    """Nor does one whose history cannot be written, which ends as it would have."""
    history = project.path / ".cepbench" / "history"
    history.parent.mkdir()
    history.touch()
    with going_on(project, "--cep-history=off") as off, going_on(project) as unwritten:
        time.sleep(3)
        (project.path / "go-on").touch()
        assert off.wait(PATIENCE) == unwritten.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED
    assert history.read_bytes() == b""
