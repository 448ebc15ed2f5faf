"""Settings of all tests: none is timed; processes compile once and can be interrupted."""

from __future__ import annotations

import gc
import os
import signal

# A run of pytest in this process forgets what it imported, and these cannot be imported twice.
import numpy as np  # noqa: F401
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


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of later collections of garbage.

    pytest collects it several times at the end of each run in this process.
    """
    gc.collect()
    gc.freeze()
