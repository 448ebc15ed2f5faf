"""The projects of the acceptance tests, for the reports that their runs write."""

from tests.plugin.conftest import accepted, accepted_root, project, toy

__all__ = ["accepted", "accepted_root", "project", "toy"]
