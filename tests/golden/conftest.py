"""The projects of the plugin's tests: one in which options are read, and one that is accepted."""

from tests.plugin.conftest import accepted_root, project

__all__ = ["accepted_root", "project"]
