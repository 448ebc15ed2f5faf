"""The projects of the acceptance tests, which the action and the samples gate."""

from tests.plugin.conftest import accepted, accepted_root, project

__all__ = ["accepted", "accepted_root", "project"]
