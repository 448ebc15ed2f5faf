"""A worker that dies: the run fails, what was reported stays, and no baseline is touched."""

from __future__ import annotations

import shutil

import pytest

from tests.plugin.project import Project, contents

DEATHS = {"exit": "os._exit(1)", "killed": "os.kill(os.getpid(), signal.SIGKILL)"}


def _dies(project: Project, how: str) -> None:
    """Make the first worker that meets the case `crowded` die, once."""
    project.write(
        "conftest.py",
        f"""\
import os, pathlib, signal, pytest

@pytest.fixture(autouse=True)
def death(request):
    mark = pathlib.Path(__file__).with_name("died")
    if "crowded" in request.node.name and not mark.exists():
        mark.touch()
        {DEATHS[how]}
""",
    )


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("update", [[], ["--snapshot-update"]], ids=["gate", "update"])
def test_a_dead_worker_fails_the_run_and_spares_the_baselines(
    accepted: Project, how: str, update: list[str]
) -> None:
    """With and without updating, baselines and anchors stay, byte for byte; none is made or deleted.

    The update would change most baselines, freeze new anchors and leave one old one.
    """
    anchored = next((accepted.baselines / "toy").glob("count-gc-*"))
    (accepted.baselines / "toy" / "anchors").mkdir()
    shutil.copy(anchored, accepted.baselines / "toy" / "anchors")
    unused = accepted.baselines / "toy" / "long-gone-gc-0123456789.toml"
    unused.write_text("an unused file")
    changed = next((accepted.baselines / "toy").glob("color-gc-*"))
    changed.write_text(changed.read_text().replace("Review it", "Look at it"))
    accepted.edit("suite.toml", 'describer = "shapes:"', 'describer = "shapes:?miss=0.3"')
    before = contents(accepted.baselines)
    _dies(accepted, how)
    result = accepted.run("-n", "2", *update)
    assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    result.stdout.fnmatch_lines(["INCOMPLETE: worker gw* died: *"])
    assert contents(accepted.baselines) == before
    document = accepted.report()
    assert document["verdict"] == "incomplete"
    assert 5 <= len(document["cases"]) <= 9
    assert "crowded" not in {case["part"] for case in document["cases"]}


def test_a_dead_worker_accepts_nothing_new(toy: Project) -> None:
    """What the other workers measured of a broken run becomes no baseline either."""
    _dies(toy, "killed")
    result = toy.run("-n", "2", "--snapshot-update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not contents(toy.baselines)
    result.stdout.fnmatch_lines(
        ["no baseline was changed: only a complete run without *", "*1 failed, 9 passed*"]
    )
    assert not contents(toy.path / ".cepbench" / "staged")
