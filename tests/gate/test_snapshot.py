"""Where baselines lie, and how staged ones take their place."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.gate import CaseKey
from pytest_cepbench.gate.snapshot import BaselineExtension, accept_staged, baseline_path


def test_each_suite_has_a_folder(tmp_path: Path) -> None:
    """The same part of two suites is two files, and a name cannot leave the folder."""
    paths = [
        baseline_path(tmp_path, CaseKey(suite, part, "gc"))
        for suite in ("one", "two")
        for part in ("color", "../../color", "/etc/color")
    ]
    assert len(set(paths)) == 6
    assert {path.parent for path in paths} == {tmp_path / "one", tmp_path / "two"}
    assert all(path.suffix == ".toml" for path in paths)


def test_staged_baselines_take_their_place(tmp_path: Path) -> None:
    """Each staged file replaces its baseline or is new; others stay, and nothing is left beside."""
    staged, root = tmp_path / "staged", tmp_path / "baselines"
    for folder, name, text in [
        (staged, "color.toml", "new"),
        (staged, "shape.toml", "first"),
        (root, "color.toml", "old"),
        (root, "size.toml", "untouched"),
    ]:
        (folder / "shapes").mkdir(parents=True, exist_ok=True)
        (folder / "shapes" / name).write_text(text)
    assert accept_staged(staged, root) == [
        root / "shapes" / n for n in ("color.toml", "shape.toml")
    ]
    found = {path.name: path.read_text() for path in (root / "shapes").iterdir()}
    assert found == {"color.toml": "new", "shape.toml": "first", "size.toml": "untouched"}


def test_nothing_staged_changes_nothing(tmp_path: Path) -> None:
    """A run that measured nothing accepts nothing, and makes no folder."""
    assert accept_staged(tmp_path / "staged", tmp_path / "baselines") == []
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_any_line_ends_is_kept(tmp_path: Path) -> None:
    """The accepted file has the staged one's text to the last character."""
    staged = tmp_path / "staged" / "shapes" / "x.toml"
    staged.parent.mkdir(parents=True)
    staged.write_text('a = "é"\n', encoding="utf-8")
    (target,) = accept_staged(tmp_path / "staged", tmp_path / "baselines")
    assert target.read_bytes() == staged.read_bytes()


def test_syrupy_finds_nothing_that_it_could_delete() -> None:
    """What syrupy discovers it may call unused: it discovers nothing, and its deleting does nothing."""
    extension = BaselineExtension()
    assert list(extension.discover_snapshots()) == []
    extension.delete_snapshots(snapshot_location="x", snapshot_names=set())
