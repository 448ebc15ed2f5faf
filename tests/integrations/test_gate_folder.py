"""The folder of a gate: kept checkpoints survive the training's deletions and its writing over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations import Gate
from pytest_cepbench.integrations.gate_folder import (
    AcceptedCheckpoint,
    GateFolder,
    GateState,
    Submission,
)
from tests.integrations.folder_model import save


def kept(files: GateFolder, checkpoint: Path) -> Submission:
    """A checkpoint in the folder."""
    return files.keep(Submission(str(checkpoint), checkpoint.name, 1, folder=True))


def accepted(files: GateFolder, submission: Submission) -> AcceptedCheckpoint:
    """The same as the last accepted one."""
    name = submission.name
    state = files.change(
        accepted=AcceptedCheckpoint(str(files.kept(name)), name, 1, 0.5, files.files(name))
    )
    assert state.accepted is not None
    return state.accepted


def test_kept_checkpoint_outlives_the_training_s_own(tmp_path: Path) -> None:
    """Its files are hard links, so keeping costs no space until the training deletes its own."""
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    files = GateFolder(tmp_path / "gate")
    accepted(files, kept(files, checkpoint))
    assert (files.kept("checkpoint-1") / "weights.json").samefile(checkpoint / "weights.json")

    shutil.rmtree(checkpoint)

    path = files.checked(files.load().accepted)
    assert path == files.kept("checkpoint-1")
    assert {file.name for file in path.iterdir()} == {"weights.json", "optimizer.bin"}


def test_checkpoint_behind_links_is_kept_itself(tmp_path: Path) -> None:
    """A folder of symbolic links, as a cache has them, is kept as files."""
    blob = save(tmp_path / "blobs", miss=0.1)
    checkpoint = tmp_path / "checkpoint-1"
    checkpoint.mkdir()
    (checkpoint / "weights.json").symlink_to(blob / "weights.json")
    files = GateFolder(tmp_path / "gate")

    kept(files, checkpoint)
    shutil.rmtree(blob)

    assert (files.kept("checkpoint-1") / "weights.json").read_text()


def test_writing_over_an_accepted_checkpoint_is_seen(tmp_path: Path) -> None:
    """Hard links change with the training's file: what is loaded then is not what passed."""
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    files = GateFolder(tmp_path / "gate")
    accepted(files, kept(files, checkpoint))

    save(checkpoint, miss=0.25)

    with pytest.raises(TrainingGateError, match="changed since it was accepted"):
        files.checked(files.load().accepted)


def test_only_named_checkpoints_stay(tmp_path: Path) -> None:
    """What is neither accepted, best, running, waiting nor the reason of a stop is deleted."""
    files = GateFolder(tmp_path / "gate")
    submissions = [
        kept(files, save(tmp_path / f"checkpoint-{number}", miss=0.1)) for number in range(6)
    ]
    accepted(files, submissions[0])
    files.change(running=submissions[1], waiting=(submissions[2],), stopped=submissions[3])

    files.prune()

    assert {path.name for path in files.kept("").iterdir()} == {
        f"checkpoint-{number}" for number in range(4)
    }
    assert (tmp_path / "checkpoint-5").is_dir()  # the training's own is the training's


def test_state_is_what_was_written(tmp_path: Path) -> None:
    """Every field is read back, and the paths lie in small files for the shell."""
    files = GateFolder(tmp_path / "gate")
    assert files.load() == GateState()
    checkpoint = AcceptedCheckpoint("runs/c-1", "c-1", 1, None, {})
    submission = Submission("runs/c-2", "c-2", None, folder=True, accepting=True)

    state = files.change(accepted=checkpoint, best=checkpoint, waiting=(submission,))

    assert files.load() == state == GateState(checkpoint, checkpoint, None, (submission,))
    assert (tmp_path / "gate" / "accepted").read_text() == "runs/c-1"
    assert (tmp_path / "gate" / "best").read_text() == "runs/c-1"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "accepted": 3}'])
def test_damaged_state_is_an_error(tmp_path: Path, text: str) -> None:
    """A gate that forgot what it accepted would accept anything: it does not start."""
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(TrainingGateError, match=r"state\.json"):
        GateFolder(tmp_path).load()


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A file in the place of the folder, one line."""
    (tmp_path / "gate").write_text("")
    files = GateFolder(tmp_path / "gate")

    with pytest.raises(TrainingGateError, match="give the training a new folder"):
        files.change(running=None)
    with pytest.raises(TrainingGateError, match="cannot be kept"):
        kept(files, save(tmp_path / "checkpoint-1", miss=0.1))


def test_keeping_that_is_cut_off_leaves_what_was_kept(tmp_path: Path) -> None:
    """A checkpoint whose file cannot be read is not kept in part; the one before stays."""
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    files = GateFolder(tmp_path / "gate")
    accepted(files, kept(files, checkpoint))
    (checkpoint / "gone").symlink_to(tmp_path / "nowhere")

    with pytest.raises(TrainingGateError, match="cannot be kept"):
        kept(files, checkpoint)

    assert files.checked(files.load().accepted) == files.kept("checkpoint-1")


@pytest.mark.parametrize("name", [".", "..", "latest"])
def test_checkpoint_is_named_by_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path that ends in no name, or in a link, has the name of its folder."""
    checkpoint = save(tmp_path / "checkpoint-5", miss=0.1)
    (checkpoint / "model").mkdir()
    (tmp_path / "latest").symlink_to(checkpoint)
    folders = {".": checkpoint, "..": checkpoint / "model", "latest": tmp_path}
    monkeypatch.chdir(folders[name])
    gate = Gate(tmp_path / "gate", tmp_path)

    submission = gate.submit(name, step=5)

    assert (submission.name, submission.kept) == ("checkpoint-5", True)
    assert (tmp_path / "gate/checkpoints/checkpoint-5/weights.json").exists()
    assert gate.submit(checkpoint, step=15).name == "checkpoint-5-step15"
