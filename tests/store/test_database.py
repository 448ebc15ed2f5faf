"""The index's file: several processes that open it at once."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from pytest_cepbench.store.database import _enter_wal


def test_a_new_index_waits_for_whoever_has_the_file(tmp_path: Path) -> None:
    """SQLite itself does not wait there, whatever its time-out says."""
    path = tmp_path / "index.sqlite"
    with (
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection,
    ):
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.1, other.execute, ["COMMIT"])
        release.start()
        _enter_wal(connection)
        release.join()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
