"""Runs that start a server for their model: once for all processes, and never when it is warm."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.models.serving.stand_ins import StandIn, is_alive, make_stand_in
from tests.plugin.project import PHOTOS, Project

# The client imports its transport late, and tells errors by their classes: after a run in this
# process, which forgets what it imported, they would be of classes that the client does not know.
pytest.importorskip("httpx2").AsyncClient()

COLORS = {f"{name}/{n}.png": (40 * n, 90, 10 * len(name)) for name in "ab" for n in range(4)}


@pytest.fixture
def photos(project: Project) -> Project:
    """A project with photos of two categories."""
    project.suite(PHOTOS)
    project.photos(COLORS)
    return project


@pytest.fixture
def engine(project: Project) -> StandIn:
    """The checkpoint under test, and the interpreter whose vLLM serves it."""
    return make_stand_in(project.path / "served")


@pytest.mark.slow
def test_a_served_checkpoint_is_gated_and_a_warm_run_starts_no_server(
    photos: Project, engine: StandIn
) -> None:
    """The header names it, the server ends with the run, and results are reused."""
    arguments = (f"--describer={engine.spec()}", "--snapshot-update")
    first = photos.run("-p", "no:xdist", *arguments)

    assert first.ret == pytest.ExitCode.OK
    first.stdout.fnmatch_lines(["*LlavaForConditionalGeneration on vLLM*"])
    assert len(engine.starts) == 1
    assert not is_alive(engine.starts[0]["pid"])
    (log,) = (photos.path / ".cepbench" / "servers").iterdir()
    assert "serving" in log.read_text()
    assert not (photos.path / ".cepbench" / "runs").exists()

    again = photos.run("-p", "no:xdist", f"--describer={engine.spec()}")
    assert again.ret == pytest.ExitCode.OK
    assert photos.effort() == (0, 0)
    assert len(engine.starts) == 1


@pytest.mark.slow
def test_workers_share_one_server(photos: Project, engine: StandIn) -> None:
    """Whichever needs it first starts it; it outlives that worker's work, and ends with the run."""
    engine.behave(slow=0.5)
    result = photos.run("-n", "2", f"--describer={engine.spec()}", "--snapshot-update")

    assert result.ret == pytest.ExitCode.OK
    assert len(engine.starts) == 1
    assert not is_alive(engine.starts[0]["pid"])
    workers = {case["effort"]["worker"] for case in photos.report()["cases"]}
    assert workers == {"gw0", "gw1"}


@pytest.mark.slow
def test_a_killed_run_leaves_no_server(photos: Project, engine: StandIn) -> None:
    """SIGKILL of pytest in the middle of its work, and a server that does not heed SIGTERM."""
    engine.behave(seconds=0.2, child=True, deaf=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        f"--describer={engine.spec('concurrency=1')}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=photos.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        _wait_for_start(engine, run)
        time.sleep(0.3)
        run.send_signal(signal.SIGKILL)
    engine.wait_for_end()


def _wait_for_start(engine: StandIn, run: subprocess.Popen[bytes]) -> None:
    while not engine.starts:
        assert run.poll() is None
        time.sleep(0.05)
