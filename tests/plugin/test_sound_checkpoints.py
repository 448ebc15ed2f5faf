"""Chains of sounds through the command line, with checkpoints in all roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

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
        f"--model={folders[name]}",
        f"--generator={folders['vits']}",
        f"--encoder={folders['clap']}",
    )
    first = project.run(*options, "--snapshot-update", "--cep-accept-insensitive")
    assert first.ret == 0, first.stdout.str()
    again = project.run(*options)
    assert again.ret == 0, again.stdout.str()
    assert project.effort() == (0, 0)
    assert set(project.verdicts().values()) <= {"held", "inconclusive"}  # its weights are random
    assert len(list(project.path.rglob("*.flac"))) >= 10  # of five samples, and what was made


def test_a_describer_of_images_is_refused_by_name(
    folders: Mapping[str, Path], project: Project
) -> None:
    """Before anything runs."""
    project.suite(SUITE)
    result = project.run(f"--describer={folders['blip']}", "--generator=tones:", "--encoder=tones:")
    assert result.ret != 0
    assert "passed" not in result.parseoutcomes()
    assert "reads no sounds" in " ".join(result.stdout.str().split())


def test_sounds_without_a_frame_are_counted_as_failures(
    folders: Mapping[str, Path], project: Project
) -> None:
    """Ten milliseconds are too short for wav2vec 2.0: a failure of each chain, and no crash."""
    import numpy as np
    import soundfile

    (project.path / "data").mkdir()
    for index in range(3):
        wave = 0.5 * np.sin(np.arange(160) * (0.1 + index / 10))
        soundfile.write(project.path / "data" / f"{index}.wav", wave, 16_000)
    own = 'loader = "sounds"\npath = "data"'
    project.suite(SUITE.replace('loader = "tones"\noptions = { samples_per_category = 1 }', own))
    project.run(f"--model={folders['ctc']}", "--generator=tones:", "--encoder=tones:")
    (case,) = [c for c in project.report()["cases"] if c["metric"] == "failures"]
    assert case["value"] == 1.0
    assert case["failures"] == {"bad-sound": 3}
