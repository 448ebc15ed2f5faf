"""Disks full or read-only while a run writes, and runs killed at random moments.

Baselines are all old or all new, no verdict is lost; the next run goes on, with the same numbers.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.disk import Disk, small_disk
from tests.plugin.project import Project, contents
from tests.plugin.scored_project import ACCEPT, ScoredProject, model, scored_suite

pytestmark = pytest.mark.slow

CATEGORIES = ("one", "two", "three", "four")

WORSE = model(drop=0.2)

PAGE = 4096

INCOMPLETE = 3
"""The exit code of a run that did not do what it was told."""


@pytest.fixture
def scored(tmp_path: Path) -> ScoredProject:
    """Four categories and the whole, whose results are in the store; nothing is accepted."""
    scored = ScoredProject.make(tmp_path / "project", scored_suite(n=6, categories=CATEGORIES))
    scored.run()
    scored.run(WORSE)
    return scored


def run(scored: ScoredProject, disk: Disk, *args: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the project, in a process that has the disk."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    modes = () if {"-n", "-p"} & set(args) else ("-p", "no:xdist")
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *modes, *args)
    done = disk.run(*command, cwd=scored.path, env=clean)
    sys.stdout.write(done.stdout + done.stderr)  # shown where the test fails
    assert "Traceback" not in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done


def test_an_update_on_a_full_disk_changes_nothing(scored: ScoredProject, tmp_path: Path) -> None:
    """At whichever file it ends: one line with file and reason, exit code, all old bytes kept."""
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        place = f"--cep-baselines={disk.place / 'baselines'}"
        assert run(scored, disk, ACCEPT, place).returncode == 0
        before = contents(disk.seen / "baselines")
        assert len(before) == 5
        for pages in (0, 5):
            ballast = disk.fill(pages * PAGE)
            ended = run(scored, disk, ACCEPT, place, WORSE)
            assert ended.returncode == INCOMPLETE, pages
            (line,) = [
                line for line in ended.stdout.splitlines() if line.startswith("INCOMPLETE: ")
            ]
            assert "nothing was accepted: " in line
            assert "could not be written: No space left on device; none of the" in line
            assert "ACCEPTED" not in ended.stdout.partition("cepbench summary")[2]
            report = json.loads((scored.path / ".cepbench" / "report.json").read_text())
            assert report["verdict"] == "incomplete"
            assert report["headline"].startswith("Incomplete: nothing was accepted: ")
            assert not any(case["accepted"] for case in report["cases"])
            assert contents(disk.seen / "baselines") == before
            ballast.unlink()
        assert run(scored, disk, ACCEPT, place, WORSE).returncode == 0
        after = contents(disk.seen / "baselines")
        assert len(after) == 10  # the accepted ones before have become anchors
        assert all(after[name] != before[name] for name in before)


def test_a_report_that_cannot_be_written_changes_no_verdict(
    scored: ScoredProject, tmp_path: Path
) -> None:
    """One line says so; the report of the run before is not left in its place."""
    scored.accept()
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        report = f"--cep-report={disk.place / 'report.json'}"
        assert run(scored, disk, report).returncode == 0
        assert {path.name for path in disk.seen.iterdir()} == {
            "report.json", "report.html", "report.md",
        }  # fmt: skip
        disk.fill(PAGE)
        ended = run(scored, disk, report, WORSE)
        assert ended.returncode == 1
        assert "REGRESSED" in ended.stdout
        (line,) = [line for line in ended.stdout.splitlines() if line.startswith("no report: ")]
        assert "could not be written: No space left on device" in line
        assert contents(disk.seen).keys() == {"ballast"}
        disk.fill(0)
        ended = run(scored, disk, report)
        assert ended.returncode == 0
        assert "no report: " in ended.stdout


def test_a_half_replaced_folder_is_put_right_by_the_next_run(
    scored: ScoredProject, tmp_path: Path
) -> None:
    """The accepting process was killed in the middle: the next run compares with whole files."""
    scored.accept()
    before = contents(scored.path / "baselines")
    module = scored.path / "conftest.py"
    module.write_text(KILLED)
    ended = scored.run(ACCEPT, WORSE, env={"KILL": "yes"})
    assert ended.code == -9
    assert contents(scored.path / "baselines").keys() > before.keys()
    held = scored.run()
    assert held.code == 0
    assert "a process ended while it replaced" in held.output
    assert set(held.verdicts.values()) == {"held"}
    assert contents(scored.path / "baselines") == before
    assert "a process ended" not in scored.run().output


KILLED = """\
import os, signal, sys
seen = 0
def watch(event, args):
    global seen
    if event == "os.rename" and "baselines" in str(args[1]) and str(args[0]).endswith(".toml.new"):
        seen += 1
        if seen == 4:
            os.kill(os.getpid(), signal.SIGKILL)
if os.environ.get("KILL"):
    sys.addaudithook(watch)
"""


def test_a_store_on_a_full_disk_ends_the_run(tmp_path: Path) -> None:
    """Every case says so, and no worker waits for a lock that another one has kept."""
    scored = ScoredProject.make(tmp_path / "project", scored_suite(n=60, categories=CATEGORIES))
    with small_disk(tmp_path / "disk", "size=4m") as disk:
        store = f"--cep-store={disk.place / 'store'}"
        run(scored, disk, store, WORSE)
        disk.fill(0)
        ended = run(scored, disk, ACCEPT, store, "-n", "2")
    assert ended.returncode == 1
    assert "no space left for the store" in ended.stdout
    assert not (scored.path / "baselines").exists() or not contents(scored.path / "baselines")


# -- killed runs -----------------------------------------------------------------------------------


BATCH, KILLS = 3, 4

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
