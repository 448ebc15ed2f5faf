"""How many helper processes a run has, and how it tells of one that died."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation import helpers
from pytest_cepbench.evaluation.helpers import HelperProcesses, count_helpers
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Eight cores, plenty of memory, and enough to do for helpers; tests change it."""
    machine: dict[str, Any] = {"cores": 8, "memory": 64 * GIB, "threads": False, "inputs": 1000}
    monkeypatch.setattr(helpers, "usable_cores", lambda: machine["cores"])
    monkeypatch.setattr(helpers, "free_memory", lambda: machine["memory"])
    monkeypatch.setattr(helpers, "threads_set_by_user", lambda: machine["threads"])

    def forecast(*_: object) -> object:
        if machine["inputs"] is None:
            msg = "the checkpoint is gone"
            raise CepError(msg)
        return SimpleNamespace(needs=[SimpleNamespace(inputs=machine["inputs"])])

    monkeypatch.setattr(helpers, "forecast", forecast)
    return machine


def _count(*, small: bool = True, scheme: str = "", replay: object = None, **values: str) -> int:
    texts = {name: [text] for name, text in values.items()}
    settings = read_settings(texts, dict.fromkeys(texts, "here"), Path())
    role = SimpleNamespace(spec=SimpleNamespace(scheme=scheme))
    assignments = SimpleNamespace(replay=replay, roles={"describer": role})
    suites: Any = SimpleNamespace(get=lambda _: SimpleNamespace(assignments=assignments))
    models: Any = SimpleNamespace(
        runner=lambda _: SimpleNamespace(bound=SimpleNamespace(small=small))
    )
    shards: Any = SimpleNamespace(cases=[(Path("suite.toml"), object(), None)])
    return count_helpers(settings, suites, models, shards, lambda _: SimpleNamespace())  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 3),
        ({"cores": 2}, 1),
        ({"cores": 1}, 0),
        ({"memory": 2 * GIB}, 1),
        ({"memory": 2 * GIB - 1}, 0),
        ({"memory": None}, 3),
        ({"threads": True}, 0),
        ({"inputs": 999}, 0),
        ({"inputs": None}, 0),
    ],
)
def test_a_run_has_as_many_helpers_as_pay(
    machine: dict[str, Any], changes: dict[str, Any], count: int
) -> None:
    """At most three, one a core besides the run's own, 2 GiB each, for a thousand inputs or more."""
    machine.update(changes)

    assert _count() == count


def test_large_models_replays_uploads_and_turns_have_none() -> None:
    """Each process would load the models; the rule-based ones are small without saying so."""
    assert _count(small=False) == 0
    assert _count(small=False, scheme="shapes") == 3
    assert _count(replay=object()) == 0
    assert _count(publish="lib") == 0
    assert _count(residency="swap") == 0


def test_a_number_that_was_asked_for_counts(machine: dict[str, Any]) -> None:
    """Whatever the machine is."""
    machine.update(cores=1, inputs=0)

    assert (_count(helpers="5"), _count(helpers="0"), _count(helpers="auto")) == (5, 0, 0)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no memory >&2; echo >&2; exit 9", "died (exit code 9): no memory; its work was"),
        ("kill -KILL $$", "died (killed by signal 9); its work was done here. --cep-helpers=0"),
    ],
    ids=["exit", "signal"],
)
def test_a_helper_that_died_is_told_of_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    """The run goes on, and its report names the helper and why it ended."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(helpers, "set_threads", lambda _: None)
    processes = HelperProcesses(RunContext(read_settings({}, {}, tmp_path)))
    processes.start(1, [], {})

    assert processes.close() == []
    (told,) = processes.messages
    assert told.startswith("helper1, a process that grew chains beside this one, ")
    assert message in told
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
    monkeypatch.setattr(helpers, "set_threads", lambda _: None)
    monkeypatch.chdir(tmp_path)
    processes = HelperProcesses(RunContext(read_settings({}, {}, tmp_path)))
    processes.start(1, [], {})
    processes.close()

    assert (tmp_path / "path").read_text() == f"{tmp_path}:/somewhere/else"


def test_the_run_and_its_helpers_divide_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any]
) -> None:
    """Unless the engineer set the number of threads."""
    threads: list[int | None] = []
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    monkeypatch.setattr(helpers, "set_threads", threads.append)
    processes = HelperProcesses(RunContext(read_settings({}, {}, tmp_path)))
    processes.start(2, [], {})
    machine["threads"] = True
    processes.start(1, [], {})

    assert threads == [2]
    assert (processes.close(), processes.messages) == ([], [])
