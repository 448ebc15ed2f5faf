"""Fixture of the suites' acceptance tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.suites.project import Project

MakeProject = Callable[..., Project]


@pytest.fixture(scope="module")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> MakeProject:
    """Make a project with copies of these shipped suites."""
    return lambda *suites: Project.create(tmp_path_factory.mktemp("project"), *suites)
