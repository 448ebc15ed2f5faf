"""A process that is killed while it uploads."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.sync import inspect_objects
from tests.store.filling import key_of

_MANY = 4000

_WRITER = f"""
import os, signal, sys, time
from pathlib import Path
from pytest_cepbench.store import Store, StoredResult
from tests.store.filling import key_of

own, shared = map(Path, sys.argv[1:])
store = Store(own, publish=shared)
store.put([StoredResult(key_of(str(i)), f"text {{i}}") for i in range({_MANY})])
while not list(shared.glob("results/*/*")):
    time.sleep(0.001)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_run_loses_only_what_was_not_uploaded(tmp_path: Path) -> None:
    """Its own store has everything, the shared one sound objects only."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    command = [sys.executable, "-c", _WRITER, str(own), str(shared)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
    assert ended.returncode == -signal.SIGKILL
    objects = open_objects(shared, "test", writing=False)
    assert objects is not None
    seen = inspect_objects(objects)
    assert seen.sound
    assert 0 < seen.results < _MANY
    with Store(own) as store:
        assert len(store) == _MANY
    uploaded = {name.rpartition("/")[2] for name in objects.list("results")}
    assert uploaded < {key_of(str(i)) for i in range(_MANY)}
    objects.close()
