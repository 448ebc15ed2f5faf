"""Settings of all tests: none of them is timed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no bug
settings.load_profile("untimed")
