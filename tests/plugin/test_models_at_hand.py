"""What a suite's own models need and is not here: said once, before anything is measured."""

from __future__ import annotations

import sys

import pytest

from tests.plugin.project import SHAPES, Project

DESCRIBER = 'describer = "shapes:"'


@pytest.fixture
def trained(project: Project) -> Project:
    """A project whose suite names a folder beside it as its describer."""
    project.suite(SHAPES.replace(DESCRIBER, 'describer = "./trained"'))
    (project.path / "trained").mkdir()
    return project


def test_a_folder_that_is_not_there_ends_the_collection(trained: Project) -> None:
    """One message for all cases, which names the suite's file and the folder."""
    (trained.path / "trained").rmdir()
    result = trained.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.outlines if "is not there" in line]
    assert len(lines) == 1
    assert "roles.describer = './trained'" in lines[0]
    assert repr(str(trained.path / "suite.toml")) in lines[0]


def test_libraries_that_are_not_there_end_the_collection(
    trained: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message for all cases, with the extra to install; what needs no model goes on as ever."""
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    result = trained.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.outlines if "pytest-cepbench[models]" in line]
    assert len(lines) == 1
    assert lines[0].startswith(
        "suite 'toy': describer trained: this model needs torch, which is not"
    )
    assert trained.run_here("--collect-only").ret == pytest.ExitCode.OK
    assert trained.run_here("--describer=shapes:").ret == pytest.ExitCode.TESTS_FAILED
