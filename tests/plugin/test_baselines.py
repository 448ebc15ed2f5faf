"""Baseline files: names never collide, no run deletes them, and only complete runs write them."""

from __future__ import annotations

import tomllib

import pytest
import syrupy

from tests.plugin.project import REGRESSED, SLOWLY_BOTH, Project, contents
from tests.tiny.common import skip_before

RED, GREEN, BLUE = (200, 10, 10), (10, 200, 10), (10, 10, 200)

SNAPSHOTS = """\
def test_kept(snapshot):
    assert {"a": 1} == snapshot
"""


def test_categories_that_look_alike_keep_apart(project: Project) -> None:
    """`org/sdxl`, `orgsdxl`, `org sdxl` and `ORG/sdxl` each have a baseline file and hold by it."""
    project.photos({
        "org/sdxl/a.png": RED, "orgsdxl/a.png": GREEN, "org sdxl/a.png": BLUE,
        "ORG/sdxl/a.png": RED,
    })  # fmt: skip
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    files = sorted(project.baselines.rglob("*.toml"))
    cases = {tomllib.loads(file.read_text())["case"] for file in files}
    assert cases == {
        f"photos/{part}/gc" for part in ("org/sdxl", "orgsdxl", "org sdxl", "ORG/sdxl", "overall")
    } | {"photos/overall/failures"}
    assert len({file.name.lower() for file in files}) == 6
    assert project.run_here().ret == pytest.ExitCode.OK
    assert set(project.verdicts().values()) == {"held"}


@pytest.mark.slow
@SLOWLY_BOTH
def test_a_users_own_snapshots_still_work(accepted: Project, arguments: tuple[str, ...]) -> None:
    """Beside the gate syrupy creates, holds, fails and prunes other snapshots as it always does."""
    if "-n" in arguments and not hasattr(syrupy, "DeferXDist"):
        pytest.skip("syrupy 4 does not tell unused snapshots of several workers")
    accepted.write("test_own.py", SNAPSHOTS + "\n\n" + SNAPSHOTS.replace("kept", "removed"))
    accepted.write("baselines/old/x.toml", "")  # of a suite that is gone
    before = contents(accepted.baselines)
    own = accepted.path / "__snapshots__" / "test_own.ambr"
    assert accepted.run(*arguments, "--snapshot-update").ret == pytest.ExitCode.OK
    assert own.read_text().count("# name: ") == 2
    accepted.write("test_own.py", SNAPSHOTS)
    unused = accepted.run(*arguments)
    assert unused.ret == pytest.ExitCode.TESTS_FAILED
    unused.stdout.fnmatch_lines(["*1 snapshot unused.*"])
    assert accepted.run(*arguments, "--snapshot-update").ret == pytest.ExitCode.OK
    assert own.read_text().count("# name: ") == 1
    assert accepted.run_here().ret == pytest.ExitCode.OK
    assert contents(accepted.baselines) == before


EVERYWHERE = """\
from syrupy.extensions.amber import AmberSnapshotExtension

class Beside(AmberSnapshotExtension):
    snapshot_dirname = "baselines"

def test_beside(snapshot):
    assert {"a": 1} == snapshot(extension_class=Beside)
"""


@pytest.mark.parametrize(
    "place", ["__snapshots__", pytest.param("baselines", marks=pytest.mark.slow), "named"]
)
def test_syrupy_deletes_no_baseline_that_lies_beside_its_snapshots(
    accepted: Project, place: str
) -> None:
    """It deletes what it finds there and has not written, records of series among it.

    Files that no case uses any more stay as well: people remove them.
    """
    if place != "__snapshots__":
        skip_before("a folder of snapshots with another name", "syrupy", "5.0")
    accepted.write("test_own.py", EVERYWHERE if place == "baselines" else SNAPSHOTS)
    for name in ("series/run.jsonl", "toy/gone-gc-0123456789.toml", "old/x.toml"):
        accepted.write(f"baselines/{name}", "")
    before, folder = contents(accepted.baselines), accepted.path / place
    accepted.baselines.rename(folder)
    arguments = [f"--cep-baselines={folder}", "--snapshot-update"]
    if place == "named":
        arguments.append(f"--snapshot-dirname=./{place}")
    for _ in range(2):
        result = accepted.run_here(*arguments)
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines(["Nothing to accept: no baseline changed"])
        result.stdout.no_fnmatch_line("*deleted*")
    after = contents(folder)
    assert after.pop("test_own.ambr")
    assert after == before


@pytest.mark.slow
def test_new_only_accepts_what_has_no_baseline(accepted: Project) -> None:
    """With `--snapshot-update-new-only` a regression still fails, and then nothing is written."""
    skip_before("--snapshot-update-new-only", "syrupy", "5.3")
    (new,) = (accepted.baselines / "toy").glob("color-gc-*")
    new.unlink()
    old = contents(accepted.baselines)
    refused = accepted.run_here("--snapshot-update-new-only", REGRESSED)
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    assert contents(accepted.baselines) == old
    result = accepted.run_here("-v", "--snapshot-update-new-only")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["*color-gc? ACCEPTED *", "*count-gc? HELD *", "1 baseline written *"]
    )
    assert new.exists()
    assert {k: v for k, v in contents(accepted.baselines).items() if new.name not in k} == old


def test_an_error_in_one_case_accepts_no_other(project: Project) -> None:
    """A run in which one measurement could not be made is not complete.

    That is of the category of a bad file, and of what is averaged over it.
    """
    project.photos({"good/a.png": RED, "bad/a.png": RED})
    (project.path / "photos" / "bad" / "a.png").write_bytes(b"no image")
    result = project.run_here("--snapshot-update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    failed = dict.fromkeys(("bad-gc", "overall-gc", "overall-failures"), "error")
    assert project.verdicts() == failed | {"good-gc": "no-baseline"}
    assert not contents(project.baselines)
    result.stdout.fnmatch_lines(["no baseline was changed: only a complete run *"])
