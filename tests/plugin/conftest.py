"""Fixtures of acceptance tests: a fresh project, one with accepted baselines, the three modes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.plugin.project import INI, MODES, SHAPES, TEST_MODULE, Project, run_plainly


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A user's empty project, free of settings of the environment or of this test's workers."""
    for name in [name for name in os.environ if name.startswith(("CEPBENCH_", "PYTEST_XDIST_"))]:
        monkeypatch.delenv(name)
    made = Project(pytester)
    made.write("pytest.ini", INI)
    return made


@pytest.fixture
def toy(project: Project) -> Project:
    """A project with the toy suite over the embedded world; nothing accepted yet."""
    project.suite(SHAPES)
    return project


@pytest.fixture(scope="session")
def accepted_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy project after its baselines were accepted, made once; only to be copied."""
    root = tmp_path_factory.mktemp("accepted")
    for name, text in {
        "pytest.ini": INI,
        "suite.toml": SHAPES,
        "test_toy.py": TEST_MODULE,
    }.items():
        (root / name).write_text(text)
    assert run_plainly(root, "--snapshot-update") == pytest.ExitCode.OK
    return root


@pytest.fixture
def accepted(project: Project, accepted_root: Path) -> Project:
    """The toy project with accepted baselines, and with every result of theirs in its store."""
    shutil.copytree(accepted_root, project.path, dirs_exist_ok=True)
    return project


@pytest.fixture(params=MODES, ids=str)
def mode(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Arguments for each of the three ways to run."""
    return MODES[request.param]
