"""The project of the plugin's tests, in which options are read."""

from tests.plugin.conftest import project

__all__ = ["project"]
