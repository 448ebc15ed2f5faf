"""Mistakes around clusters: each is one message, told before anything is collected."""

from __future__ import annotations

import pytest

from tests.plugin.project import Project

RAY = "--cep-engine=ray"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cep-ray-address=auto"], "--cep-ray-address 'auto' is for --cep-engine=ray: give*"),
        ([RAY, "-n", "2"], "--cep-engine=ray starts its own workers: drop -n*"),
        (
            [RAY, "--cep-ray-address=ray://a:10001"],
            "*: Ray cannot connect (ValueError: Ray Client is not supported). Run pytest on a *",
        ),
        (
            [RAY, "--cep-ray-address=localhost:1"],
            "--cep-ray-address 'localhost:1': Ray cannot connect (ConnectionRefusedError: *",
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


@pytest.mark.parametrize("asking", ["--cep-plan", "--collect-only"])
def test_a_run_that_asks_no_model_starts_no_cluster(toy: Project, asking: str) -> None:
    """A plan or a list of cases needs no cluster, whatever the address."""
    result = toy.run_here(RAY, "--cep-ray-address=localhost:1", asking, "--model=shapes:?miss=0")
    assert result.ret == pytest.ExitCode.OK
    assert "model under test: shapes:?miss=0" in result.stdout.str()
    assert "Ray cluster" not in result.stdout.str()
