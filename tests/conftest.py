"""Settings of all tests: none of them is timed, and what the processes they start import is compiled once."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no bug
settings.load_profile("untimed")

# Where this is set, each of some hundred pytest processes would compile the package and pytest's
# plugins for itself: a third of their time. `__pycache__` is ignored by git.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
