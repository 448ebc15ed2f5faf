"""Baselines as syrupy snapshots: one file per case, compared by the gate.

Syrupy counts, and writes nothing: under `--snapshot-update` the controller accepts what was
measured when the run is complete, and nothing when a worker died or a case is missing.
Syrupy gets to know no snapshot that it could call unused, so that no test run ever deletes a
baseline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syrupy.data import SnapshotCollections
from syrupy.exceptions import SnapshotDoesNotExist
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from syrupy.location import PyTestLocation

from pytest_cepbench.errors import UnfitFileError
from pytest_cepbench.files import MOST_TEXT, read_regular
from pytest_cepbench.gate.baseline import dump_baseline, record_of


class BaselineExtension(SingleFileSnapshotExtension):  # type: ignore[misc] # syrupy is untyped here
    """Syrupy extension for measurements; `bind` makes the class for one case of one run.

    `read_snapshot` and `write_snapshot` are overridden as a whole: what they call had other names
    until syrupy 5.
    """

    _location: Path
    _passes: bool | None = None

    @classmethod
    def bind(cls, location: Path, *, passes: bool | None) -> type[BaselineExtension]:
        """An extension class for one case.

        location: of its baseline.
        passes: what the gate says of the measurement beside its baseline; None while updating, when
        only equal text is the same.
        """
        attributes = {"_location": location, "_passes": passes}
        return type("BoundBaselineExtension", (cls,), attributes)

    def serialize(self, data: Any, **_: Any) -> str:
        """The baseline text of a Measurement; nothing where the gate has compared it already.

        Syrupy keeps what it is given until the run ends.
        """
        return dump_baseline(record_of(data)) if self._passes is None else ""

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """True where the gate passes, or, while updating, where nothing would change."""
        return bool(serialized_data == snapshot_data) if self._passes is None else self._passes

    def read_snapshot(self, **_: Any) -> str:
        """The text of an accepted baseline; what is no text or no file differs from any new one.

        Where the gate has compared it already, only whether there is one.
        Raises syrupy's SnapshotDoesNotExist where there is none.
        """
        try:
            if self._passes is None:
                return read_regular(self._location, MOST_TEXT).decode("utf-8", "replace")
        except UnfitFileError:
            return ""
        except FileNotFoundError:
            pass
        else:
            if self._location.exists():
                return ""
        raise SnapshotDoesNotExist

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: Any) -> str:  # noqa: ARG003
        """The case's baseline file, whatever the test is called."""
        return str(cls._location)

    @classmethod
    def write_snapshot(cls, **_: Any) -> None:
        """Do nothing: the controller has the new baseline from the result."""

    @classmethod
    def discovery_dirname(cls, *, test_location: PyTestLocation) -> str:  # noqa: ARG003
        """Folder where syrupy may look for further snapshots; there are none."""
        return str(cls._location.parent)

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """Nothing: what syrupy discovers it may call unused and delete."""
        return SnapshotCollections()

    def delete_snapshots(self, **_: Any) -> None:
        """Do nothing: a baseline is removed by `cepbench prune` or by hand only."""
