"""Roles on different devices in whole runs: at the same time, with the numbers of roles in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plugin.project import MODES, Project, without_effort

MODELS = """\
import os, threading, time
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets import shapes

NOW, LOCK = [], threading.Lock()

class Waiting:
    fingerprint, seeded, batch_size = "waiting/1", False, 2

    def answer(self, role, inputs, make):
        with LOCK:
            NOW.append(role)
            with open(os.environ["LOG"], "a") as log:
                log.write(f"{role} {len(inputs)} {len(NOW)} {threading.current_thread().name}\\n")
        until = time.monotonic() + 120 * os.path.exists("hold")
        while time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.01)
        with LOCK:
            NOW.remove(role)
        return [make(value) for value in inputs][: len(inputs) - os.path.exists("lose")]

def scene_of(image):
    return shapes.parse_image(ImageArtifact.from_pil(image))

class Describer(Waiting):
    device = "cuda:0"
    def describe(self, images, prompt, seeds):
        return self.answer("describer", images, lambda image: shapes.caption(scene_of(image)))

class Generator(Waiting):
    device, seeded = "cuda:1", True
    def generate(self, texts, seeds):
        draw = lambda given: shapes.render(shapes.parse_caption(given[0]), given[1]).pixels
        return self.answer("generator", list(zip(texts, seeds)), draw)

class Encoder(Waiting):
    device = "cuda:2"
    def encode_images(self, images):
        return self.answer("encoder", images, lambda image: shapes.features(scene_of(image)))
    def encode_texts(self, texts):
        raise NotImplementedError
"""

ROLES = ("describer", "generator", "encoder")

SAMPLES = 8 * 4

STEPS = SAMPLES * 7
"""Inputs of a run: two iterations, and the encoder at three generations."""


@pytest.fixture
def rooms(toy: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The toy suite with models on three devices, which wait in each call and note who else does.

    In the presence of a file `hold` a call lasts for minutes; of a file `lose`, it loses a result.
    """
    toy.write("rooms.py", MODELS)
    toy.edit("suite.toml", "samples_per_category = 2", "samples_per_category = 4")
    for role in ROLES:
        toy.edit("suite.toml", f'{role} = "shapes:"', f'{role} = "python:rooms:{role.title()}"')
    monkeypatch.setenv("LOG", str(toy.path / "calls.log"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(toy.path), *sys.path]))
    return toy


def calls(project: Project) -> list[tuple[str, int, int, str]]:
    """The calls so far: role, inputs, how many roles were in a call with it, and its thread."""
    log = project.path / "calls.log"
    lines = log.read_text().splitlines() if log.exists() else []
    rows = (line.split(" ", 3) for line in lines)
    return [(role, int(inputs), int(at_once), thread) for role, inputs, at_once, thread in rows]


def at_once(project: Project) -> int:
    """The most roles that were in a call at the same time; the calls are forgotten."""
    most = max(at_once for *_, at_once, _ in calls(project))
    (project.path / "calls.log").unlink()
    return most


@pytest.mark.slow
def test_numbers_are_those_of_roles_in_turns(rooms: Project) -> None:
    """Also what was counted: inputs, loads, and results from the store."""
    reports, hits = [], []
    ways = {"auto": [], "off": ["--cep-overlap=off"], "swap": ["--cep-residency=swap"]}
    for name, way in ways.items():
        accept = f"--cep-baselines={name}"
        result = rooms.run(f"--cep-store={name}", accept, "--snapshot-update", *way)
        assert result.ret == 0
        report = rooms.report()
        spent = report["effort"]
        reports.append((without_effort(report["cases"]), report["verdict"], spent["inputs"]))
        hits.append(spent["hits"])
        assert sum(inputs for _, inputs, *_ in calls(rooms)) == STEPS
        assert at_once(rooms) > 1 if name == "auto" else at_once(rooms) == 1
    assert reports[0] == reports[1] == reports[2]
    assert hits[0] == hits[1]  # with swap, chains are read once more


@pytest.mark.slow
def test_two_workers_share_the_work(rooms: Project) -> None:
    """No input is computed twice, and roles overlap in each of them."""
    result = rooms.run(*MODES["n2"], "--snapshot-update")
    assert result.ret == 0
    assert sum(inputs for _, inputs, *_ in calls(rooms)) == STEPS
    assert at_once(rooms) > 1


def test_an_error_of_a_model_is_the_one_of_roles_in_turns(rooms: Project) -> None:
    """Same verdicts and the same words, whichever thread met it."""
    rooms.write("lose", "")
    told = []
    for overlap in ("auto", "off"):
        result = rooms.run_here(f"--cep-overlap={overlap}", f"--cep-store={overlap}")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        told.append([case["reasons"] for case in rooms.report()["cases"]])
        assert set(rooms.verdicts().values()) == {"error"}
    assert told[0] == told[1]
    assert "returned 1 results for 2 inputs" in told[0][0][0]


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_what_was_stored_stays_where_a_run_ends_early(
    rooms: Project, end: signal.Signals, tmp_path: Path
) -> None:
    """Calls that would last for minutes end at once; the next run does the rest, and passes."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--snapshot-update", "--cep-helpers=0"),
    ]
    output = tmp_path / "output.txt"
    with output.open("w") as stream:
        run = subprocess.Popen(command, cwd=rooms.path, stdout=stream, stderr=subprocess.STDOUT)
        until = time.monotonic() + 60
        while len(calls(rooms)) < 20 and time.monotonic() < until:
            time.sleep(0.01)
        rooms.write("hold", "")
        held = 0.0
        while held < 1 and time.monotonic() < until:  # until all devices are in a call
            before = len(calls(rooms))
            time.sleep(0.2)
            held = held + 0.2 if len(calls(rooms)) == before else 0.0
        started = time.monotonic()
        run.send_signal(end)
        code = run.wait(60)
    assert code == (pytest.ExitCode.INTERRUPTED if end == signal.SIGINT else -signal.SIGKILL)
    assert time.monotonic() - started < 20
    assert "Exception in thread" not in output.read_text()
    (rooms.path / "hold").unlink()
    made = sum(inputs for _, inputs, *_ in calls(rooms))
    (rooms.path / "calls.log").unlink()
    assert rooms.run("--snapshot-update").ret == 0
    again = sum(inputs for _, inputs, *_ in calls(rooms))
    in_flight = 3 * 2 + 3 * 2  # a batch in each model's call, and one on its way to the store
    assert STEPS - made <= again <= STEPS - made + in_flight


def test_what_can_be_said_about_it(toy: Project) -> None:
    """Any other value is a usage error that names those that there are."""
    result = toy.run_here("--cep-overlap=on")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--cep-overlap 'on': one of auto, off is expected*"])
