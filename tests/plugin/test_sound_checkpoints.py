"""Chains of sounds through the command line, with checkpoints in all roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.suites.warm import QUIET, run_pytest
from tests.plugin.project import Project
from tests.tiny import sounds as tiny
from tests.tiny.describers import build_blip

pytest.importorskip("soundfile", reason="sounds need the [audio] extra")

pytestmark = pytest.mark.models

SUITE = """\
name = "speech"
version = 1
[data]
loader = "tones"
options = { samples_per_category = 1 }
[chain]
start = "sound"
iterations = 1
[prompts]
describe = "describe the image"
[gate]
gate = "threshold"
[metrics.gc]
[metrics.failures]
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Tiny checkpoints, built once: before pytester forgets, after each test, what it imported."""
    root = tmp_path_factory.mktemp("models")
    builders = {
        **tiny.DESCRIBERS,
        "vits": tiny.build_vits,
        "clap": tiny.build_clap,
        "blip": build_blip,
    }
    return {name: build(root / name) for name, build in builders.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(tiny.DESCRIBERS))
def test_checkpoints_in_all_roles_are_accepted_and_held(
    folders: Mapping[str, Path], project: Project, name: str
) -> None:
    """Sound to text to sound, compared by CLAP; again, all is in the store."""
    project.suite(SUITE)
    options = (
        f"--model={folders[name]}?max_new_tokens=8",
        f"--generator={folders['vits']}",
        f"--encoder={folders['clap']}",
    )
    printed = project.path / "printed.txt"
    for more in (("--snapshot-update", "--cep-accept-insensitive"), ()):
        code = run_pytest(project.path, [*options, *more, *QUIET], printed)
        assert code == 0, printed.read_text()
    assert project.effort() == (0, 0)
    assert set(project.verdicts().values()) <= {"held", "inconclusive"}  # its weights are random
    assert len(list(project.path.rglob("*.flac"))) >= 10  # of five samples, and what was made
