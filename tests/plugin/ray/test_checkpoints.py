"""Real checkpoints, built small, on a cluster that the run itself starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.suites.warm import QUIET, run_pytest
from tests.plugin.project import SHAPES, Project
from tests.tiny.describers import build_llava
from tests.tiny.encoders import build_clip
from tests.tiny.generators import DRAW, build_stable_diffusion

pytestmark = [pytest.mark.models, pytest.mark.slow]


@pytest.fixture
def assignments(tmp_path: Path) -> tuple[str, ...]:
    """Arguments that name a checkpoint for each role."""
    for package in ("ray", "torch", "transformers", "diffusers"):
        pytest.importorskip(package)
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        describer = build_llava(tmp_path / "llava")
        generator = build_stable_diffusion(tmp_path / "stable-diffusion")
        encoder = build_clip(tmp_path / "clip")
    return (
        "--cep-role=describer",
        f"--model={describer}?max_new_tokens=8&min_new_tokens=4&batch_size=1",
        f"--generator={generator}?{DRAW['stable-diffusion']}&batch_size=1",
        f"--encoder={encoder}?batch_size=1",
    )


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No more than two cores for what is started here, each with a thread of its own."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:2])
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("_two_cores")
def test_numbers_are_those_of_one_process(project: Project, assignments: tuple[str, ...]) -> None:
    """LLaVA, Stable Diffusion and CLIP, asked one by one: what they make is the same to the bit."""
    # Untrained weights score as chance does. Each actor imports the libraries for itself: there is
    # one of each role.
    arguments = [*assignments, "--cep-accept-insensitive", *QUIET]
    pools = (f"--cep-ray-pool={role}:actors=1" for role in ("describer", "generator", "encoder"))
    project.suite(SHAPES.replace("samples_per_category = 2", "samples_per_category = 1"))
    printed = project.path / "printed.txt"
    seen = []
    for more in (["--snapshot-update"], [], ["--cep-engine=ray", "--cep-store=far", *pools]):
        code = run_pytest(project.path, [*arguments, *more], printed)
        assert code == pytest.ExitCode.OK, printed.read_text()
        seen.append(project.numbers())
    _, near, far = seen
    failures = {case["part"]: case["value"] for case in near if case["metric"] == "failures"}
    assert failures["overall"] < 0.5, "there are no chains to compare"
    assert "cepbench: Ray cluster started for this run, 1 node: " in printed.read_text()
    assert far == near
    assert project.report()["effort"]["inputs"] > 0
