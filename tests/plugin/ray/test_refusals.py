"""Mistakes around clusters: each is one message, told before anything is collected."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.plugin.project import Project

RAY = "--cep-engine=ray"


@pytest.fixture
def other_port() -> Iterator[int]:
    """A port where another server listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--cep-ray-address=auto"],
            "--cep-ray-address 'auto' is for --cep-engine=ray: give that as*",
        ),
        (
            ["--cep-ray-pool=encoder:actors=1"],
            "--cep-ray-pool 'encoder:actors=1' is for --cep-engine=*",
        ),
        ([RAY, "-n", "2"], "--cep-engine=ray starts its own workers: drop -n*"),
        (
            [RAY, "--cep-residency=swap"],
            "--cep-residency 'swap': with --cep-engine=ray models stay*",
        ),
        (
            [RAY, "--cep-ray-pool=painter:actors=1"],
            "--cep-ray-pool 'painter:actors=1': a role is *",
        ),
        (
            [RAY, "--cep-ray-pool=encoder:actors=0"],
            "*: 'actors=0' is not understood; actors (1 or *",
        ),
        (
            [RAY, "--cep-ray-pool=encoder:actors=1.5"],
            "*: 'actors=1.5' is not understood; actors (1 *",
        ),
        (
            [RAY, "--cep-ray-pool=encoder:gpus=1.5"],
            "*: 'gpus=1.5' is not understood; actors (1 or *",
        ),
        ([RAY, "--cep-ray-pool=encoder:"], "*: '' is not understood; actors (1 or *"),
        (
            [RAY, "--cep-ray-address=here"],
            "--cep-ray-address 'here': HOST:PORT of the cluster's head *",
        ),
        (
            [RAY, "--cep-ray-address=ray://a:10001"],
            "*: Ray Client is not supported; run pytest on a *",
        ),
        (
            [RAY, "--cep-ray-address=localhost:1"],
            "--cep-ray-address 'localhost:1' does not answer (*",
        ),
    ],
)
def test_mistakes_are_one_message(toy: Project, arguments: list[str], message: str) -> None:
    """What was given, what is wrong with it, and nothing else."""
    pytest.importorskip("ray")
    result = toy.run_here("--model=shapes:", "--cep-role=describer", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.stderr.lines if line.startswith("ERROR: ")]
    assert len(errors) == 1
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert "collected" not in result.stdout.str()


def test_another_server_at_the_address_is_refused(
    toy: Project, other_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would ask it for minutes."""
    pytest.importorskip("ray")
    monkeypatch.setattr("pytest_cepbench.chains.ray.cluster._PROBE_SECONDS", 0.2)
    result = toy.run_here(
        RAY, f"--cep-ray-address=127.0.0.1:{other_port}", "--model=shapes:?miss=0"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *: what answers there is no Ray cluster; its port is 6379 *"]
    )


@pytest.mark.parametrize("asking", ["--cep-plan", "--collect-only"])
def test_a_run_that_asks_no_model_starts_no_cluster(toy: Project, asking: str) -> None:
    """A plan or a list of cases needs no cluster, whatever the address."""
    result = toy.run_here(RAY, "--cep-ray-address=localhost:1", asking, "--model=shapes:?miss=0")
    assert result.ret == pytest.ExitCode.OK
    assert "model under test: shapes:?miss=0" in result.stdout.str()
    assert "Ray cluster" not in result.stdout.str()
