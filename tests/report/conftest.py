"""A browser for the report's pages, as tests of ratings have it."""

from tests.ratings.conftest import browser

__all__ = ["browser"]
