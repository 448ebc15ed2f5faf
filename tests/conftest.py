"""Settings of all tests: none is timed; processes compile once and can be interrupted."""

from __future__ import annotations

import gc
import os
import signal
from importlib import util

# A run of pytest in this process forgets what it imported, and these cannot be imported twice.
import numpy as np  # noqa: F401
import pytest
import scipy.special
import scipy.stats  # noqa: F401

try:
    from hypothesis import settings
except ModuleNotFoundError:
    pass  # `pytest --help` in a clone that was installed without what the tests need
else:
    # Without deadlines: a busy machine is no bug.
    settings.register_profile("short", deadline=None, max_examples=30)
    settings.register_profile("thorough", deadline=None, max_examples=400)
    settings.load_profile("short")

# Where this is set, each of some hundred pytest processes would compile the package and pytest's
# plugins for itself: a third of their time. `__pycache__` is ignored by git.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Runs that are tried here are not those of the CI job that runs the tests, nor as wide as its
# terminal: what they print has each sentence on one line.
for variable in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITLAB_CI", "LINES"):
    os.environ.pop(variable, None)
os.environ["COLUMNS"] = "300"

# A shell has interrupts ignored in what it starts in the background, and processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_MODEL_LIBRARIES = ("torch", "transformers", "diffusers")
"""Those that tests of `models` need; a test that needs others of that extra says so itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the [models] extra where that is not installed."""
    missing = [name for name in _MODEL_LIBRARIES if util.find_spec(name) is None]
    if missing:
        skip = pytest.mark.skip(reason=f"needs the [models] extra ({', '.join(missing)})")
        for item in items:
            if item.get_closest_marker("models"):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of later collections of garbage.

    pytest collects it several times at the end of each run in this process.
    """
    gc.collect()
    gc.freeze()
