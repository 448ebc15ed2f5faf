"""Runs on a cluster of two nodes: same numbers as in one process, and losses are told."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# What a run in this process imports is forgotten after the test, and Ray can be imported only once.
ray = pytest.importorskip("ray")
pytest.importorskip("httpx2")

import pytest_cepbench.evaluation.ray_engine  # noqa: E402, F401 - see above
from pytest_cepbench.store import Store  # noqa: E402
from tests.models.api.fake_server import serving  # noqa: E402
from tests.plugin.project import REGRESSED, SHAPES, Project  # noqa: E402
from tests.plugin.ray.conftest import TwoNodes  # noqa: E402
from tests.plugin.test_api_models import play  # noqa: E402
from tests.plugin.test_one_identity import TRAINER  # noqa: E402

pytestmark = pytest.mark.slow

Arguments = tuple[str, ...]


def test_numbers_are_those_of_one_process(accepted: Project, on_cluster: Arguments) -> None:
    """Verdicts and numbers of a worse model are the same; the header names the pools.

    A second run finds everything in the store and asks no model.
    """
    attribution = (
        "--cep-attribute=0"  # follows the chains of the baseline, which lie in another store
    )
    accepted.run_here(REGRESSED, attribution)
    near, effort = accepted.numbers(), accepted.effort()

    result = accepted.run_here(REGRESSED, attribution, *on_cluster)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.numbers() == near
    assert accepted.effort()[1] >= effort[1] - 1
    assert accepted.report()["infrastructure"] == []
    result.stdout.fnmatch_lines(
        [
            "cepbench: Ray cluster at *, 2 nodes: * (1 CPUs, 0 GPUs), * (1 CPUs, 0 GPUs)",
            "cepbench: pools of describer 2 x 0.333 CPU, generator 2 x 0.333 CPU, encoder *",
            "* model loads (* describer, * generator, * encoder*)*, * model inputs (*",
        ]
    )
    assert not ray.is_initialized()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("cepbench-ray")
    ]
    accepted.run_here(REGRESSED, attribution, *on_cluster)
    assert accepted.numbers() == near
    assert accepted.effort() == (0, 0)


@contextmanager
def _losing_a_node(photos: Project, two_nodes: TwoNodes) -> Iterator[list[int]]:
    """Kill a node once both have made a few batches; gives how many were made by then."""
    node = two_nodes.raw.worker_nodes
    (second,) = node
    done: list[int] = []

    def kill() -> None:
        asked: list[int] = []
        until = time.monotonic() + 180  # seconds, of a busy machine too
        while time.monotonic() < until and (len(asked) < 2 or min(asked) < 3):
            time.sleep(0.02)
            folder = photos.path / "asked"
            asked = [path.stat().st_size for path in folder.glob("*")] if folder.exists() else []
        two_nodes.cut_off(second)
        done.append(sum(asked))

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield done
    finally:
        thread.join()
        two_nodes.add()


def test_a_node_may_die_on_the_way(
    photos: Project, two_nodes: TwoNodes, describing: Arguments
) -> None:
    """Its batches go to the other one: same verdicts and numbers; the report names the loss."""
    slow = ("--model=python:cluster_models:slow", "--cep-role=describer")
    photos.run_here(*slow, "--snapshot-update")
    photos.run_here(*slow)
    near = photos.numbers()
    near_inputs = 4 * 6 * 2  # describing: four categories of six, two iterations

    with _losing_a_node(photos, two_nodes) as before:
        result = photos.run_here(slow[0], *describing)

    assert result.ret == pytest.ExitCode.OK
    assert photos.numbers() == near
    assert before[0] * 2 < near_inputs, "the node died too late to matter"
    lines = photos.report()["infrastructure"]
    assert any(re.fullmatch(r"node \S+ left the cluster", line) for line in lines), lines
    (lost,) = (line for line in lines if "lost" in line)
    assert re.match(r"node \S+ lost 1 describer actor in the middle of a batch, which was ", lost)
    result.stdout.fnmatch_lines(["infrastructure: node * left the cluster"])
    assert photos.report()["deaths"] == 0


def test_a_checkpoint_that_is_overwritten_before_actors_load_it_is_refused(
    photos: Project, describing: Arguments
) -> None:
    """It was fingerprinted when the run began; actors load it for the first batch."""
    shutil.copy(Path(__file__).parents[1] / "marked_models.py", photos.path)
    photos.write("weights", "A")
    photos.write("conftest.py", TRAINER)
    photos.run_here("--model=python:marked_models:describer", *describing)

    assert set(photos.verdicts().values()) == {"error"}
    for case in photos.report()["cases"]:
        (reason,) = case["reasons"]
        assert "fingerprint weights B on node" in reason
        assert "weights A elsewhere" in reason
        assert "let no trainer write there meanwhile" in reason
    with Store(photos.path / "far") as store:
        assert len(store) == 0


def test_a_model_behind_a_server_is_asked_from_here(
    project: Project, describing: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key stays with the driver: no node gets it. No request is made twice."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-only-here")
    project.suite(SHAPES)
    with serving() as server:
        server.answer = play
        model = f"--model={server.spec()}", "--cep-role=describer"
        project.run_here(*model, "--snapshot-update")
        project.run_here(*model)
        near, asked = project.numbers(), len(server.seen)

        result = project.run_here(*model, *describing)

        assert result.ret == pytest.ExitCode.OK
        assert project.numbers() == near
        assert len(server.seen) == 2 * asked
        assert {request.headers["authorization"] for request in server.seen} == {
            "Bearer sk-only-here"
        }
