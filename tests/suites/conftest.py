"""The project of the acceptance tests, for suites that are run from outside this repository."""

from tests.plugin.conftest import project

__all__ = ["project"]
