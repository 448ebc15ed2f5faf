"""The folder of a gate: copies that nothing of the training changes, and a state that is whole."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations import Gate
from pytest_cepbench.integrations.gate_folder import GateFolder, GateState, Submission
from tests.integrations.folder_model import save
from tests.optional import known


def kept(files: GateFolder, checkpoint: Path) -> Submission:
    """A checkpoint in the folder."""
    return files.keep(Submission(str(checkpoint), checkpoint.name, 1, local=True))


def accepted(files: GateFolder, submission: Submission) -> Submission:
    """The same as the last accepted one."""
    files.change(accepted=submission)
    return submission


def age(*paths: Path) -> None:
    """Set the times of files back, as of a checkpoint that was saved a day ago."""
    for path in paths:
        times = path.stat()
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 86_400 * 10**9))


def test_kept_checkpoint_is_a_copy(tmp_path: Path) -> None:
    """A training that writes into its files in place, and then deletes them, changes nothing of it.

    Sizes and times of change stay as they were, as those of a hard link would not.
    """
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    (checkpoint / "shards").mkdir()
    (checkpoint / "shards" / "model-00001-of-00002.safetensors").write_bytes(b"\x00" * 2**20)
    files = GateFolder(tmp_path / "gate")
    submission = kept(files, checkpoint)
    accepted(files, submission)
    path = files.kept(submission.kept)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert path.name == f"checkpoint-1-{path.name[-12:]}"
    assert {str(file.relative_to(path)) for file in before} == {
        "weights.json", "optimizer.bin", "shards/model-00001-of-00002.safetensors",
    }  # fmt: skip

    save(checkpoint, miss=0.9)
    shutil.rmtree(checkpoint)

    assert files.standing(files.load().accepted) == path
    assert {file: file.read_bytes() for file in before} == before
    assert not any(path.parent.glob(".*"))


def test_second_checkpoint_of_a_name_takes_no_place(tmp_path: Path) -> None:
    """Copies of one name lie side by side; the same files once more are the same copy."""
    checkpoint = save(tmp_path / "latest", miss=0.1)
    files = GateFolder(tmp_path / "gate")
    first = kept(files, checkpoint)
    accepted(files, first)
    second = kept(files, save(checkpoint, miss=0.9))
    again = kept(files, save(tmp_path / "other" / "latest", miss=0.1))

    assert again.kept == first.kept != second.kept
    assert files.unchanged(again) == again
    assert files.standing(files.load().accepted) == files.kept(first.kept)
    for submission, miss in ((first, 0.1), (second, 0.9)):
        weights = Path(files.path(submission), "weights.json")
        assert json.loads(weights.read_text())["miss"] == miss
    assert len(list(files.kept("").iterdir())) == 2

    # A copy whose files are not those of its name is not taken for the checkpoint.
    Path(files.path(first), "weights.json").write_text("{}")
    assert kept(files, tmp_path / "other" / "latest").kept == first.kept
    path = Path(files.path(first))
    assert (path / "weights.json").read_text() != "{}"
    # Times alone are no change: a copy that comes out of a backup is read, and passes.
    path.rename(tmp_path / "backup")
    assert files.standing(first) is None
    (tmp_path / "backup").rename(path)
    age(*path.iterdir())
    fresh = known(files.unchanged(first))
    assert all(stamp for stamp, _ in fresh.files.values())


def test_single_file_is_kept_too(tmp_path: Path) -> None:
    """A checkpoint of one file keeps its name, by which its format is known, and is checked."""
    file = tmp_path / "runs" / "step-7.safetensors"
    file.parent.mkdir()
    file.write_bytes(b"weights")
    gate = Gate(tmp_path / "gate", tmp_path)

    submission = gate.submit(file, step=7)
    accepted(gate.files, submission)
    file.write_bytes(b"others!")

    path = known(gate.accepted)
    assert (path.name, path.read_bytes()) == ("step-7.safetensors", b"weights")
    assert str(path) == gate.files.path(submission) == (tmp_path / "gate/accepted").read_text()
    gate.files.prune()
    assert path.exists()
    path.write_bytes(b"others!")
    with pytest.raises(TrainingGateError, match="changed since it was accepted"):
        _ = gate.accepted


@pytest.mark.parametrize(
    ("change", "old"),
    [("same size", False), ("same size", True), ("new file", True), ("gone", False)],
)
def test_other_files_than_the_accepted_ones_are_seen(
    tmp_path: Path, change: str, old: bool
) -> None:
    """Also with the times of before, and where no stamp can be trusted; and told by `accepted`."""
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    if old:
        age(*checkpoint.iterdir())
    gate = Gate(tmp_path / "gate", tmp_path)
    submission = gate.submit(checkpoint, 1)
    assert all(bool(stamp) == old for stamp, _ in submission.files.values())
    accepted(gate.files, submission)
    path = known(gate.accepted)
    assert path == gate.files.kept(submission.kept)
    assert (tmp_path / "gate/accepted").read_text() == str(path)

    weights = path / "weights.json"
    times = weights.stat()
    if change == "same size":
        weights.write_text(weights.read_text().replace("0.1", "0.9"))
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif change == "new file":
        (path / "adapter_config.json").write_text("{}")
    else:
        weights.unlink()

    with pytest.raises(TrainingGateError, match="changed since it was accepted"):
        _ = gate.accepted
    gate.files.change(running=None)
    assert not (tmp_path / "gate/accepted").exists()


def test_only_named_checkpoints_stay(tmp_path: Path) -> None:
    """What is neither accepted, running, waiting nor the reason of a stop is deleted."""
    files = GateFolder(tmp_path / "gate")
    files.prune()
    submissions = [
        kept(files, save(tmp_path / f"checkpoint-{number}", miss=0.1 * number))
        for number in range(6)
    ]
    files.begin_copy("of a process that was killed")
    accepted(files, submissions[0])
    files.change(running=submissions[1], waiting=(submissions[2],), stopped=submissions[3])

    files.prune()

    assert {path.name for path in files.kept("").iterdir()} == {
        submission.kept for submission in submissions[:4]
    }
    assert (tmp_path / "checkpoint-5").is_dir()  # the training's own is the training's


def test_a_state_that_is_damaged_or_lost_is_an_error(tmp_path: Path) -> None:
    """A gate that forgot what it accepted would accept anything: it does not start. Nor with the
    state of another version, whose copies lie elsewhere.

    Nor without one beside baselines: the next checkpoint would be the first again, and be accepted
    without a comparison. Nothing writes a new state either; the error says what goes on, and that
    does.
    """
    whole = '{"format": 3, "accepted": {"files": []}}'
    for text in ("{", "[]", '{"format": 4}', '{"format": 3}', whole):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(TrainingGateError, match=r"state\.json.*a new folder for its gate"):
            GateFolder(tmp_path).load()
    files = GateFolder(tmp_path / "gate")
    checkpoint = accepted(files, kept(files, save(tmp_path / "checkpoint-1", miss=0.1)))
    (files.baselines / "instrument").mkdir(parents=True)
    (files.baselines / "instrument" / "overall-gc.toml").write_text("")
    state = tmp_path / "gate" / "state.json"
    state.rename(tmp_path / "state.json")

    for use in (files.load, files.prune, lambda: files.change(running=None)):
        with pytest.raises(TrainingGateError) as error:
            use()
        for words in (str(state), f"`rm -r {files.baselines}`", files.path(checkpoint)):
            assert words in str(error.value)
    assert not state.exists()
    (tmp_path / "gate" / "accepted").unlink()
    with pytest.raises(TrainingGateError, match=r"\(the last accepted one\)"):
        files.load()

    shutil.rmtree(files.baselines)
    assert files.load() == GateState()
    (tmp_path / "state.json").rename(state)
    assert files.load().accepted == checkpoint


def test_pytest_compares_with_a_copy_of_the_baselines(tmp_path: Path) -> None:
    """What it writes is no baseline; only the records of series are the ones that stay."""
    files = GateFolder(tmp_path)
    baseline = files.baselines / "instrument" / "series" / "overall-gc.toml"
    record = files.baselines / "series" / "run-1.jsonl"
    for path in (baseline, record):
        path.parent.mkdir(parents=True)
        path.write_text("before")
    files.copy_baselines()
    (files.compared / "left over.toml").write_text("")
    files.copy_baselines()

    copies = {
        path: files.compared / path.relative_to(files.baselines) for path in (baseline, record)
    }
    assert [copy.read_text() for copy in copies.values()] == ["before", "before"]
    for copy in copies.values():
        copy.write_text("after")

    assert (baseline.read_text(), record.read_text()) == ("before", "after")
    assert (files.compared / "series").is_symlink()
    assert not (files.compared / "left over.toml").exists()


@pytest.mark.parametrize("damage", ["no file", "dangling link", "named pipe", "full disk"])
def test_keeping_that_is_cut_off_leaves_what_was_kept(tmp_path: Path, damage: str) -> None:
    """A checkpoint that cannot be copied is not kept in part, so that the training can save; the
    one before stays, and one line says why.
    """
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    files = GateFolder(tmp_path / "gate")
    before = accepted(files, kept(files, checkpoint))
    if damage == "no file":  # a saver in the background writes later
        for path in checkpoint.iterdir():
            path.unlink()
    elif damage == "named pipe":
        os.mkfifo(checkpoint / "pipe")
    elif damage == "full disk":
        (checkpoint / "model.safetensors").write_bytes(bytes(2**20))
    else:
        (checkpoint / "gone").symlink_to(tmp_path / "nowhere")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    words = r"\[Errno 27\][^\n]*$" if damage == "full disk" else ""
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, limits[1]))
        with pytest.raises(
            TrainingGateError, match=rf"checkpoint-1 cannot be kept in \S+: {words}"
        ):
            kept(files, checkpoint)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert files.standing(files.load().accepted) == Path(files.path(before))
    assert [str(path) for path in files.kept("").iterdir()] == [files.path(before)]


def test_checkpoint_that_changes_while_it_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one step and half of the next is a checkpoint of no step."""
    checkpoint = save(tmp_path / "checkpoint-1", miss=0.1)
    files = GateFolder(tmp_path / "gate")
    copystat = shutil.copystat

    def copied(source: Any, target: Any, **options: Any) -> None:
        copystat(source, target, **options)
        if Path(source).name == "weights.json":
            save(checkpoint, miss=0.25)

    monkeypatch.setattr(shutil, "copystat", copied)

    with pytest.raises(TrainingGateError, match="changed while it was copied"):
        kept(files, checkpoint)
    assert list(files.kept("").iterdir()) == []


def test_checkpoint_is_named_by_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that ends in no name, or in a link, has the name of its folder. Refused are a path
    with parameters, which would be taken for a model spec, and a folder around the gate's.
    """
    checkpoint = save(tmp_path / "checkpoint-5", miss=0.1)
    (checkpoint / "model").mkdir()
    (tmp_path / "latest").symlink_to(checkpoint)
    gate = Gate(tmp_path / "gate", tmp_path)
    for name, folder in ((".", checkpoint), ("..", checkpoint / "model"), ("latest", tmp_path)):
        monkeypatch.chdir(folder)
        submission = gate.submit(name, step=5)
        assert (submission.name, submission.step) == ("checkpoint-5", 5)
        assert (gate.files.kept(submission.kept) / "weights.json").exists()
    assert gate.submit(checkpoint, step=15).name == "checkpoint-5-step15"
    assert gate.submit(checkpoint).name == "checkpoint-5"

    assert not gate.submit("shapes:?miss=0.1").local
    gate = Gate(checkpoint / "gate", tmp_path)
    with pytest.raises(TrainingGateError, match=r"model=\"\{checkpoint\}\?dtype=float32\""):
        gate.submit(f"{checkpoint}?dtype=float32")
    with pytest.raises(TrainingGateError, match="the checkpoint is empty"):
        gate.submit("")
    with pytest.raises(TrainingGateError, match="is in the checkpoint"):
        gate.submit(checkpoint)
    assert not (checkpoint / "gate").exists()
