"""How many helper processes a run has, and what it says of one that died."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.evaluation import helpers
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.helpers import (
    HelperProcesses,
    count_helpers,
    helpers_that_pay,
)
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.models import torch_runtime
from tests.datasets.replay.files import put
from tests.models.files import VIT, write_checkpoint
from tests.studies.toy import TOY, write_suite

GIB = 1 << 30

LARGE = TOY.replace("samples_per_category = 2", "samples_per_category = 20")
"""Its models are to be given 1120 inputs."""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Eight cores, plenty of memory, and no number of threads; tests change it."""
    machine: dict[str, Any] = {"cores": 8, "memory": 64 * GIB}
    monkeypatch.setattr(helpers, "usable_cores", lambda: machine["cores"])
    monkeypatch.setattr(helpers, "free_memory", lambda: machine["memory"])
    for name in ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # as before its import
    monkeypatch.setattr(torch_runtime, "_wanted_threads", [])
    return machine


def _count(folder: Path, suite: str = LARGE, **values: str) -> int:
    """Of a run of all cases of the suite, with nothing in its store. values: of its options."""
    texts = {name: [text] for name, text in values.items()}
    settings = read_settings(texts, dict.fromkeys(texts, "here"), folder)
    path = write_suite(folder, suite)
    evaluator = Evaluator(RunContext(settings))
    for case in evaluator.suites.get(path).cases:
        evaluator.shards.add(path, case, None)
    count = count_helpers(
        settings, evaluator.suites, evaluator.models, evaluator.shards, evaluator.suite_run
    )
    evaluator.close()
    return count


@pytest.mark.parametrize(
    ("cores", "memory", "inputs", "count"),
    [
        (8, 64 * GIB, 1000, 3),
        (2, 64 * GIB, 1000, 1),
        (1, 64 * GIB, 1000, 0),
        (8, 2 * GIB, 1000, 1),
        (8, 2 * GIB - 1, 1000, 0),
        (8, None, 1000, 3),
        (8, 64 * GIB, 999, 0),
    ],
)
def test_a_run_has_as_many_helpers_as_pay(
    cores: int, memory: int | None, inputs: int, count: int
) -> None:
    """At most three, one a core besides the run's own, 2 GiB each, from a thousand inputs on."""
    assert helpers_that_pay(cores, memory, inputs) == count


def test_cores_memory_and_work_of_the_run_are_counted(
    tmp_path: Path, machine: dict[str, Any]
) -> None:
    """The machine as it is, and what the models of the collected cases are to be given."""
    assert _count(tmp_path) == 3
    assert _count(tmp_path, TOY) == 0
    machine["memory"] = 4 * GIB
    assert _count(tmp_path) == 2
    machine["cores"] = 1
    assert _count(tmp_path) == 0


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS"])
def test_threads_that_the_engineer_set_are_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They are meant for this process."""
    monkeypatch.setenv(name, "8")

    assert _count(tmp_path) == 0


def test_a_model_that_is_gone_starts_none(tmp_path: Path) -> None:
    """The case that needs it reports the error."""
    gone = LARGE.replace('encoder = "shapes:"', f'encoder = "{tmp_path / "step-8"}"')

    assert _count(tmp_path, gone) == 0


def test_large_models_have_none(tmp_path: Path) -> None:
    """Each process would load the models; the rule-based ones are small without saying so."""
    step = write_checkpoint(tmp_path / "step-8", VIT)
    write_checkpoint(step, {}, None, index="preprocessor_config.json")

    def encoder(spec: str) -> str:
        return LARGE.replace('encoder = "shapes:"', f'encoder = "{spec}"')

    assert _count(tmp_path, encoder(f"{step}?device=cpu")) == 3
    assert _count(tmp_path, encoder(f"{step}?device=cuda")) == 0


def test_replays_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their chains are there, however much is left to encode."""
    monkeypatch.setattr(helpers, "_WORTH", 1)
    made = put(tmp_path / "made", "image-first/gen-2/a.png")

    assert _count(tmp_path, TOY) == 3
    assert _count(tmp_path, TOY, model=f"replay:{made}") == 0


def test_uploads_and_turns_have_none(tmp_path: Path) -> None:
    """Uploads take longer than the models; models that take turns have the device to themselves."""
    assert _count(tmp_path, publish=str(tmp_path / "lib")) == 0
    assert _count(tmp_path, residency="swap") == 0


def test_a_number_that_was_asked_for_counts(tmp_path: Path, machine: dict[str, Any]) -> None:
    """Whatever the machine is, and however little is to be done."""
    machine["cores"] = 1
    counts = [_count(tmp_path, TOY, helpers=number) for number in ("5", "0", "auto")]

    assert counts == [5, 0, 0]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no memory >&2; echo >&2; exit 9", "died (exit code 9): no memory; its work was"),
        ("kill -KILL $$", "died (killed by signal 9); its work was done here. --cep-helpers=0"),
    ],
    ids=["exit", "signal"],
)
def test_a_helper_that_died_is_reported_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    """The run goes on, and its report names the helper and why it ended."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    processes = HelperProcesses(RunContext(read_settings({}, {}, tmp_path)))
    processes.start(1, [], {})

    assert processes.close() == []
    (text,) = processes.messages
    assert text.startswith("helper1, a process that grew chains beside this one, ")
    assert message in text
    assert processes.close() == []


def test_a_helper_imports_from_where_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that a conftest.py put on the path, and the working folder, whose entry is empty."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nprintf %s "$PYTHONPATH" > "{tmp_path}/path"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "path", ["", "/somewhere/else"])
    monkeypatch.chdir(tmp_path)
    processes = HelperProcesses(RunContext(read_settings({}, {}, tmp_path)))
    processes.start(1, [], {})
    processes.close()

    assert (tmp_path / "path").read_text() == f"{tmp_path}:/somewhere/else"


def test_the_run_and_its_helpers_divide_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the engineer set the number of threads."""
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    processes = HelperProcesses(RunContext(read_settings({}, {}, tmp_path)))
    processes.start(2, [], {})
    assert torch_runtime._wanted_threads == [2]
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    processes.start(1, [], {})

    assert torch_runtime._wanted_threads == [2]
    assert (processes.close(), processes.messages) == ([], [])
