"""Stores and files that cannot be used, met from the command line: never a traceback."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.project import PHOTOS, SLOWLY_BOTH, Project, assert_one_message


def _newer_store(project: Project) -> None:
    folder = project.path / ".cepbench" / "store"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize("arguments", [(), ("--model=shapes:",)], ids=["suite", "named"])
def test_a_store_of_another_version_stops_the_run(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """Before a case is measured, whether a model is named or not: no case could use it."""
    _newer_store(accepted)
    assert_one_message(accepted.run(*arguments), "format 99", "--cep-store")


SLOW_MODEL = """\
import pathlib, time, user_models

class Slow(user_models.Describer):
    def _tell(self, image):
        pathlib.Path("started").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.05)
        return super()._tell(image)

def describer():
    return Slow("honest")
"""


def _until(is_so: Callable[[], bool], shown: Path | None = None) -> None:
    """Wait for something that comes in seconds on an idle machine.

    shown: a file that says why it did not come.
    """
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until, shown and shown.read_text()
        time.sleep(0.05)


@pytest.mark.slow
@SLOWLY_BOTH
def test_a_run_says_for_which_other_one_it_waits(
    project: Project, arguments: tuple[str, ...]
) -> None:
    """Quietly too, and from workers: process, store and what to do; then it goes on."""
    project.suite(PHOTOS)
    project.photos({"red.png": (200, 0, 0), "blue.png": (0, 0, 200)})
    project.write("slow_model.py", SLOW_MODEL)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q",
               "--model=python:slow_model:describer", "--cep-gate=threshold"]  # fmt: skip
    output = project.path / "output"
    first = second = None
    try:
        first = subprocess.Popen(
            [*command, "-p", "no:xdist", "--cep-report=first.json"],
            cwd=project.path,
            stdout=subprocess.DEVNULL,
        )
        _until((project.path / "started").exists)
        with output.open("w") as file:
            second = subprocess.Popen(
                [*command, *arguments], cwd=project.path, stdout=file, stderr=file
            )
        line = f"cepbench: waiting for process {first.pid} on "
        _until(lambda: line in output.read_text(), output)
        assert second.poll() is None
        (project.path / "go").touch()
        assert first.wait(120) == second.wait(120) == pytest.ExitCode.TESTS_FAILED
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.wait()
    said = [text for text in output.read_text().splitlines() if text.startswith(line)]
    assert len(said) == 1
    assert str(project.path / ".cepbench" / "store") in said[0]
    assert "--cep-store" in said[0]
    assert project.verdicts() == {"overall-gc": "no-baseline", "overall-failures": "no-baseline"}
