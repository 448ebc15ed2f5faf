"""The job users come for, from the command line: accept a checkpoint, gate the next one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import Checkpoint
from tests.acceptance.suites.project import Run, assert_none_lost

pytestmark = [pytest.mark.models, pytest.mark.slow]

INI = """\
[pytest]
filterwarnings =
    error
    ignore:Module already imported:pytest.PytestAssertRewriteWarning
"""
"""Strict; the one exception is for a plugin of this environment that the warm libraries import."""

SUITES = Path(__file__).parents[2] / "suites"


class CommandLine:
    """Runs `pytest suites/folder` in a folder of its own, as a user's CI would."""

    def __init__(self, folder: Path, fixed: list[str]) -> None:
        self.folder = folder
        self.fixed = fixed
        shutil.copytree(SUITES / "folder", folder / "suites" / "folder")
        (folder / "pytest.ini").write_text(INI)

    def __call__(self, *arguments: str) -> Run:
        """A run that finds the model libraries imported."""
        return Run.of(self.folder, "suites", *self.fixed, *arguments)


@pytest.fixture(scope="module")
def gate(
    tmp_path_factory: pytest.TempPathFactory, photos: Path, checkpoint: Checkpoint
) -> CommandLine:
    """The command with generator, encoder and data fixed, and a first checkpoint accepted.

    That run is as it is typed: a process that imports everything for itself.
    """
    fixed = [
        f"--generator={checkpoint('generator', 'stable-diffusion')}",
        f"--encoder={checkpoint('encoder', 'clip')}",
        f"--cep-data=folder={photos}",
        "--cep-tolerance=0.001",
    ]
    command = CommandLine(tmp_path_factory.mktemp("user"), fixed)
    model = f"--model={checkpoint('describer', 'llava')}"
    chance = "--cep-accept-insensitive"  # an untrained checkpoint is often at it
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "suites", *fixed, model, "--snapshot-update", chance],
        cwd=command.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return command


def test_unchanged_checkpoint_holds_without_one_model_call(
    gate: CommandLine, checkpoint: Checkpoint
) -> None:
    """Accepted again: every case keeps what it can lose, no model is loaded, nothing computed."""
    code, output, report = gate(f"--model={checkpoint('describer', 'llava')}")

    assert code == 0, output
    assert_none_lost(report["cases"])
    assert sum(case["effort"]["inputs"] for case in report["cases"]) == 0
    assert sum(case["effort"]["loads"] for case in report["cases"]) == 0
    assert "model under test: " in output


def test_other_checkpoint_is_gated_against_the_accepted_one(
    gate: CommandLine, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """A checkpoint of other weights is measured anew, never served the accepted one's answers."""
    import torch
    from safetensors.torch import load_file, save_file

    spec, _, parameters = checkpoint("describer", "llava").partition("?")
    other = Path(shutil.copytree(spec, tmp_path / "other"))
    weights = load_file(other / "model.safetensors")
    head = next(name for name in weights if "lm_head" in name)
    weights[head] = weights[head][torch.arange(len(weights[head]) - 1, -1, -1)].clone()
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})

    code, output, report = gate(f"--model={other}?{parameters}")

    verdicts = {case["part"] + "/" + case["metric"]: case["verdict"] for case in report["cases"]}
    assert sum(case["effort"]["inputs"] for case in report["cases"]) > 0
    assert sum(case["effort"]["hits"] for case in report["cases"]) > 0  # the photographs' vectors
    assert set(verdicts.values()) <= {"held", "inconclusive", "regressed"}, output
    assert code == (1 if "regressed" in verdicts.values() else 0)
    differences = [case["difference"] for case in report["cases"] if case["metric"] == "gc"]
    assert any(difference != 0 for difference in differences)


def test_checkpoint_that_draws_nan_never_passes(
    gate: CommandLine, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """A generator whose decoder gives NaN fails every chain: no verdict on the describer."""
    from tests.tiny.generators import poison_decoder

    spec, _, parameters = checkpoint("generator", "stable-diffusion").partition("?")
    broken = Path(shutil.copytree(spec, tmp_path / "broken"))
    poison_decoder(broken)

    code, output, report = gate(
        f"--model={checkpoint('describer', 'llava')}", f"--generator={broken}?{parameters}"
    )

    assert code == 1
    assert {case["verdict"] for case in report["cases"]} == {"error"}
    assert "nan-image" in output


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("model.safetensors", "weights"),
        ("pickle", "allow_pickle"),
    ],
)
def test_damaged_checkpoint_is_a_usage_error(
    gate: CommandLine, checkpoint: Checkpoint, tmp_path: Path, spoil: str, message: str
) -> None:
    """A folder without weights, or with pickles alone, stops the run at once."""
    spec = checkpoint("describer", "llava").partition("?")[0]
    folder = Path(shutil.copytree(spec, tmp_path / "spoilt"))
    weights = folder / "model.safetensors"
    if spoil == "pickle":
        weights.rename(folder / "pytorch_model.bin")
    else:
        weights.unlink()

    code, output, _ = gate(f"--model={folder}")

    assert code == pytest.ExitCode.USAGE_ERROR
    assert message in output
    assert "Traceback" not in output
