"""Stores that cannot be used, never with a traceback, and stores that runs share."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from pytest_cepbench.store import uploads
from tests.plugin.project import MODES, SHAPES, Project, assert_one_message, wait_until
from tests.store.buckets import BUCKET, SECRET, Server, SlowFileSystem, serving


def test_a_store_of_another_version_stops_the_run(accepted: Project) -> None:
    """Before a case is measured, whether a model is named or not: no case could use it."""
    folder = accepted.path / ".cepbench" / "store"
    shutil.rmtree(folder)
    folder.mkdir()
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    for arguments in ((), ("--model=shapes:",)):
        assert_one_message(accepted.run_here(*arguments), "format 99", "--cep-store")


SLOW_MODEL = """\
import pathlib, time, user_models

class Slow(user_models.Describer):
    def _tell(self, image):
        pathlib.Path("started").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.05)
        return super()._tell(image)
"""


@pytest.mark.slow
def test_a_run_says_for_which_other_one_it_waits(project: Project) -> None:
    """Quietly too, and from workers: process, store and what to do; then it goes on."""
    project.photos({"red.png": (200, 0, 0), "blue.png": (0, 0, 200)})
    project.write("slow_model.py", SLOW_MODEL)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q",
               "--model=python:slow_model:Slow", "--cep-gate=threshold"]  # fmt: skip
    runs: dict[Path, subprocess.Popen[bytes]] = {}

    def start(name: str, *mode: str) -> Path:
        output = project.path / name
        with output.open("wb") as file:
            runs[output] = subprocess.Popen(
                [*command, *mode, f"--cep-report={name}.json"],
                cwd=project.path,
                stdout=file,
                stderr=file,
            )
        return output

    try:
        first = start("first", *MODES["no-plugin"])
        wait_until((project.path / "started").exists)
        line = f"cepbench: waiting for process {runs[first].pid} on "
        waiting = [start("one", *MODES["no-plugin"]), start("two", *MODES["n2"])]
        wait_until(lambda: all(line in output.read_text() for output in waiting), waiting[-1])
        assert {runs[output].poll() for output in waiting} == {None}
        (project.path / "go").touch()
        assert {run.wait(120) for run in runs.values()} == {pytest.ExitCode.TESTS_FAILED}
    finally:
        for run in runs.values():
            run.kill()
            run.wait()
    for output in waiting:
        said = [text for text in output.read_text().splitlines() if text.startswith(line)]
        assert len(said) == 1
        assert str(project.path / ".cepbench" / "store") in said[0]
        assert "--cep-store" in said[0]
        cases = project.report(f"{output.name}.json")["cases"]
        assert [case["verdict"] for case in cases] == ["no-baseline"] * 2


# -- runs on machines of their own share a bucket or a mounted folder ------------------------------


PLAYED = ("--cep-samples=1", "--model=shapes:", "--cep-role=generator")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """It runs for all tests of this file."""
    with serving() as running:
        yield running


@pytest.fixture
def owner(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The environment of a user with all rights."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server


@pytest.mark.slow
def test_a_second_runner_computes_nothing(project: Project, owner: Server) -> None:
    """What two workers have published, another machine only reads; numbers are the same."""
    project.suite(SHAPES)
    url = f"s3://{BUCKET}/toy"
    first = project.run(
        "-n", "2", *PLAYED, "--cep-store=one", f"--cep-publish={url}", "--snapshot-update"
    )
    assert first.ret == pytest.ExitCode.OK
    first.stdout.fnmatch_lines([f"cepbench: baselines baselines, store one, published to {url}"])
    assert project.effort()[1] > 50
    second = project.run_here(*PLAYED, "--cep-store=two", f"--cep-shared={url}")
    assert second.ret == pytest.ExitCode.OK
    assert project.effort() == (0, 0)
    assert {case["verdict"] for case in project.numbers()} == {"held"}
    for result in (first, second):
        result.stdout.no_fnmatch_line("infrastructure: *")
        assert SECRET not in result.stdout.str() + result.stderr.str()
    # Without the bucket, all is there but the images, which no report has shown.
    third = project.run_here(*PLAYED, "--cep-store=two")
    assert third.ret == pytest.ExitCode.OK
    assert project.effort() == (0, 0)
    for path in (project.path / "two").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
    assert SECRET not in json.dumps(project.report())


def test_a_place_that_fails_on_the_way_is_infrastructure(toy: Project) -> None:
    """The verdicts stand; summary and report say what was not uploaded."""
    module = (toy.path / "test_toy.py").read_text()
    breaks = "import shutil\n\n\ndef test_it_breaks():\n    shutil.rmtree('lib')\n\n\n"
    toy.write("test_toy.py", breaks + module)
    some = ("-k", "breaks or crowded", "--model=shapes:")
    result = toy.run_here(*some, "--cep-publish=lib", "--snapshot-update")
    assert result.ret == pytest.ExitCode.OK
    message = (
        "--cep-publish '*lib': * results were not uploaded (there is no such bucket or folder): "
    )
    result.stdout.fnmatch_lines(
        [f"infrastructure: {message}they stay in the store of this run alone"]
    )
    (warning,) = toy.report()["infrastructure"]
    assert warning.endswith("they stay in the store of this run alone")
    assert not (toy.path / "lib").exists()


@pytest.mark.slow
def test_a_long_upload_at_the_end_is_announced(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal says what the run waits for, and how to skip it."""
    SlowFileSystem.reset()
    monkeypatch.setattr(SlowFileSystem, "blocked", True)
    monkeypatch.setattr(uploads, "_QUIET_SECONDS", 0.0)
    write_line = TerminalReporter.write_line

    def unblock(reporter: TerminalReporter, line: str, **markup: bool) -> None:
        write_line(reporter, line, **markup)
        if "are being uploaded" in line:
            SlowFileSystem.blocked = False

    monkeypatch.setattr(TerminalReporter, "write_line", unblock)
    result = toy.run_here("--model=shapes:", "--cep-publish=slow://lib", "--snapshot-update")
    assert result.ret == pytest.ExitCode.OK
    message = (
        "results are being uploaded to slow://lib; "
        "interrupt it to keep the rest in this store alone"
    )
    result.stdout.fnmatch_lines([f"cepbench: * {message}"])
    result.stdout.no_fnmatch_line("infrastructure: *")
    assert len(SlowFileSystem.held) > 50
    SlowFileSystem.reset()
