"""Processes beside pytest's own that grow chains for it: the same numbers, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plugin.project import Project, without_effort

MODEL = """\
import os, time
from PIL import Image
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image

class Slow:
    fingerprint, seeded, batch_size = "slow/1", False, 3

    def describe(self, images, prompt, seeds):
        if os.environ.get("DIES") and os.environ["MAIN"] != str(os.getpid()):
            os._exit(9)
        time.sleep(0.1)
        with open(os.environ["LOG"], "a") as log:
            log.write(f"{os.getpid()} {len(images)}\\n")
        return [caption(parse_image(ImageArtifact.from_pil(image))) for image in images]
"""

CONFTEST = """\
import os
os.environ["MAIN"] = str(os.getpid())
"""

ALONE, HELPED = "--cep-helpers=0", "--cep-helpers=1"


@pytest.fixture
def slow(toy: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The toy suite with more samples and a describer that takes its time and notes who asks it."""
    toy.write("slow.py", MODEL)
    toy.write("conftest.py", CONFTEST)
    toy.edit("suite.toml", "samples_per_category = 2", "samples_per_category = 4")
    monkeypatch.setenv("LOG", str(toy.path / "calls.log"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(toy.path), *sys.path]))
    return toy


def start(project: Project, *arguments: str) -> subprocess.Popen[bytes]:
    """A run that accepts what it measures."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--model=python:slow:Slow", "--snapshot-update", *arguments),
    ]
    return subprocess.Popen(
        command, cwd=project.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def asked(project: Project) -> dict[int, int]:
    """Inputs of the describer by the process that asked."""
    log = project.path / "calls.log"
    counts: dict[int, int] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        pid, count = map(int, line.split())
        counts[pid] = counts.get(pid, 0) + count
    return counts


def is_gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within some seconds; a zombie counts as ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def both_at_work(project: Project) -> int:
    """Wait until another process than the run's own has asked the model; its pid."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if len(pids := asked(project)) > 1:
            return list(pids)[1]
        time.sleep(0.02)
    pytest.fail("no helper asked the model")


@pytest.mark.slow
def test_a_helper_changes_nothing_but_the_time(slow: Project) -> None:
    """Numbers and verdicts are those of one process; both worked, and the helper's work is counted.

    Left to itself, a run of a model in Python, or of a few inputs, works alone.
    """
    assert start(slow, "--cep-store=alone", "--cep-baselines=alone").wait(120) == 0
    assert len(asked(slow)) == 1
    calm, inputs = slow.report()["cases"], slow.report()["effort"]["inputs"]
    (slow.path / "calls.log").unlink()
    assert start(slow, HELPED, "--cep-store=helped", "--cep-baselines=helped").wait(120) == 0
    report = slow.report()
    assert len(asked(slow)) == 2
    assert without_effort(report["cases"]) == without_effort(calm)
    assert report["infrastructure"] == []
    own = sum(case["effort"]["inputs"] for case in report["cases"])
    assert own < inputs <= report["effort"]["inputs"]
    assert not (slow.path / ".cepbench" / "runs").exists()


@pytest.mark.slow
def test_what_a_dead_helper_had_is_done_by_the_run(
    slow: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers and exit code are those of a run without the death, which the report tells."""
    monkeypatch.setenv("DIES", "1")
    assert start(slow, HELPED).wait(120) == 0
    report = slow.report()
    assert {case["value"] for case in report["cases"]} == {
        0.0,
        1.0,
    }  # nothing failed, nothing drifted
    assert len(asked(slow)) == 1
    assert (report["verdict"], report["problems"]) == ("passed", [])
    (message,) = report["infrastructure"]
    assert message.startswith(
        "helper1, a process that grew chains beside this one, died (exit code 9)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_helper_ends_with_its_run(slow: Project, end: signal.Signals) -> None:
    """Interrupted or killed, a run leaves no process behind; the next one has what was stored."""
    run = start(slow, HELPED)
    helper = both_at_work(slow)
    run.send_signal(end)
    code = run.wait(60)
    assert code == (pytest.ExitCode.INTERRUPTED if end == signal.SIGINT else -signal.SIGKILL)
    assert is_gone(helper)
    before = sum(asked(slow).values())
    assert before
    assert start(slow, ALONE).wait(120) == 0
    again = sum(asked(slow).values()) - before
    assert 0 < again < 8 * 4 * 2, "what the interrupted run had stored is not asked again"


@pytest.mark.slow
def test_models_without_torch_are_helped_where_it_is_not_installed(toy: Project) -> None:
    """The embedded models need neither torch nor its number of threads."""
    toy.write(
        "conftest.py", "import sys\n\nsys.modules['torch'] = None  # as if it were not there\n"
    )

    ended = toy.pytester.runpytest_subprocess(HELPED, "--snapshot-update")

    assert ended.ret == pytest.ExitCode.OK


def test_a_number_is_expected(toy: Project) -> None:
    """What is neither auto nor a number is a usage error that says so."""
    result = toy.run_here("--cep-helpers=many")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--cep-helpers 'many': auto or a number of processes is expected*"]
    )
