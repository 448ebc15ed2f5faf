"""Baselines as syrupy snapshots: one file per case, compared by the gate, written in two steps.

What a run measures under `--snapshot-update` is staged first; the controller moves it into the
baseline folder when the run is complete, and throws it away when a worker died or a case is missing.
Syrupy is told of no snapshot that it could find unused, so that no test run ever deletes a baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from syrupy.data import SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from pytest_cepbench.gate.baseline import dump_baseline
from pytest_cepbench.gate.measurement import CaseKey

SUFFIX = ".toml"


def baseline_path(root: Path, key: CaseKey) -> Path:
    """Where the baseline of a case lies below the baseline folder."""
    return root / key.suite / f"{key.file_stem}{SUFFIX}"


class BaselineExtension(SingleFileSnapshotExtension):  # type: ignore[misc] # syrupy is untyped here
    """Syrupy extension for measurements; `bind` makes the class for one case of one run."""

    file_extension = SUFFIX[1:]
    _write_mode = WriteMode.TEXT
    _location: Path
    _staged: Path
    _matches: Callable[[str], bool]

    @classmethod
    def bind(
        cls, location: Path, staged: Path, matches: Callable[[str], bool] | None
    ) -> type[BaselineExtension]:
        """An extension class for one case.

        location: of its baseline. staged: where an update is written. matches: whether the
        baseline's text lets the measurement pass; None while updating, when only equal text does.
        """
        attributes: dict[str, Any] = {"_location": location, "_staged": staged}
        if matches is not None:
            attributes["_matches"] = staticmethod(matches)
        return type("BoundBaselineExtension", (cls,), attributes)

    def serialize(self, data: Any, **_: Any) -> str:
        """The baseline text of a Measurement."""
        return dump_baseline(data)

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """Whether the gate passes, or, while updating, whether nothing would change."""
        rule = getattr(self, "_matches", None)
        if rule is None:
            return bool(serialized_data == snapshot_data)
        return bool(rule(snapshot_data))

    def read_snapshot_data_from_location(self, *, snapshot_location: str, **_: Any) -> str | None:
        """The text of an accepted baseline; bytes that are no text differ from any new one."""
        try:
            return Path(snapshot_location).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: Any) -> str:  # noqa: ARG003
        """The case's baseline file, whatever the test is called."""
        return str(cls._location)

    @classmethod
    def matches_test_location(
        cls,
        *,
        test_location: PyTestLocation,  # noqa: ARG003
        snapshot_location: str,
    ) -> bool:
        """Baselines belong to cases, not to test files."""
        return snapshot_location == str(cls._location)

    @classmethod
    def write_snapshot_collection(
        cls,
        *,
        snapshot_collection: SnapshotCollection,
        name_order: dict[str, int] | None = None,  # noqa: ARG003
    ) -> None:
        """Stage the new baseline; the controller accepts or drops it."""
        (snapshot,) = snapshot_collection
        cls._staged.parent.mkdir(parents=True, exist_ok=True)
        cls._staged.write_text(snapshot.data, encoding="utf-8")

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """Nothing: what syrupy discovers it may call unused and delete."""
        return SnapshotCollections()

    def delete_snapshots(self, **_: Any) -> None:
        """Baselines are removed by people only."""


def accept_staged(staged: Path, root: Path) -> list[Path]:
    """Move every staged baseline into the baseline folder, each at once; returns where they are."""
    accepted = []
    for path in sorted(staged.rglob(f"*{SUFFIX}")):
        target = root / path.relative_to(staged)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written beside the target first: the staging folder may lie on another file system.
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        fresh.replace(target)
        accepted.append(target)
    return accepted
