"""Baselines as syrupy snapshots: one file per case, compared by the gate, written in two steps.

What syrupy writes under `--snapshot-update` goes to a staging folder and no further; the controller
accepts what was measured when the run is complete, and nothing when a worker died or a case is
missing.
Syrupy gets to know no snapshot that it could call unused, so that no test run ever deletes a
baseline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syrupy.data import SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from pytest_cepbench.errors import UnfitFileError
from pytest_cepbench.files import MOST_TEXT, read_regular
from pytest_cepbench.gate.baseline import SUFFIX, dump_baseline, record_of


class BaselineExtension(SingleFileSnapshotExtension):  # type: ignore[misc] # syrupy is untyped here
    """Syrupy extension for measurements; `bind` makes the class for one case of one run."""

    file_extension = SUFFIX[1:]
    _write_mode = WriteMode.TEXT
    _location: Path
    _staged: Path
    _passes: bool | None = None

    @classmethod
    def bind(cls, location: Path, staged: Path, *, passes: bool | None) -> type[BaselineExtension]:
        """An extension class for one case.

        location: of its baseline.
        staged: where an update is written.
        passes: what the gate says of the measurement beside its baseline; None while updating, when
        only equal text is the same.
        """
        attributes = {"_location": location, "_staged": staged, "_passes": passes}
        return type("BoundBaselineExtension", (cls,), attributes)

    def serialize(self, data: Any, **_: Any) -> str:
        """The baseline text of a Measurement; nothing where the gate has compared it already.

        Syrupy keeps what it is given until the run ends.
        """
        return dump_baseline(record_of(data)) if self._passes is None else ""

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """True where the gate passes, or, while updating, where nothing would change."""
        return bool(serialized_data == snapshot_data) if self._passes is None else self._passes

    def read_snapshot_data_from_location(self, *, snapshot_location: str, **_: Any) -> str | None:
        """The text of an accepted baseline; what is no text or no file differs from any new one.

        Where the gate has compared it already, only whether there is one.
        """
        try:
            if self._passes is not None:
                return "" if Path(snapshot_location).exists() else None
            return read_regular(Path(snapshot_location), MOST_TEXT).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except UnfitFileError:
            return ""

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
        """Stage the new baseline for syrupy's counts; the controller has it from the result."""
        (snapshot,) = snapshot_collection
        cls._staged.parent.mkdir(parents=True, exist_ok=True)
        cls._staged.write_text(snapshot.data, encoding="utf-8")

    @classmethod
    def discovery_dirname(cls, *, test_location: PyTestLocation) -> str:  # noqa: ARG003
        """Folder where syrupy may look for further snapshots; there are none."""
        return str(cls._location.parent)

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """Nothing: what syrupy discovers it may call unused and delete."""
        return SnapshotCollections()

    def delete_snapshots(self, **_: Any) -> None:
        """Do nothing: a baseline is removed by `cepbench prune` or by hand only."""
