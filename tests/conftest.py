"""Settings of all tests, a store, and the projects that plugin and pages are tried in.

No test is timed; processes compile once and can be interrupted.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

# A run of pytest in this process forgets what it imported, and these cannot be imported twice.
import numpy as np  # noqa: F401
import pytest
import scipy.special
import scipy.stats  # noqa: F401

try:
    from hypothesis import settings
except ModuleNotFoundError:
    pass  # `pytest --help` in a clone that was installed without what the tests need
else:
    # Without deadlines: a busy machine is no bug.
    settings.register_profile("short", deadline=None, max_examples=30)
    settings.register_profile("thorough", deadline=None, max_examples=400)
    settings.load_profile("short")

# Where this is set, each of some hundred pytest processes would compile the package and pytest's
# plugins for itself: a third of their time. `__pycache__` is ignored by git.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Runs that are tried here are not those of the CI job that runs the tests, nor as wide as its
# terminal: what they print has each sentence on one line.
for variable in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "LINES"):
    os.environ.pop(variable, None)
os.environ["COLUMNS"] = "300"

# A shell has interrupts ignored in what it starts in the background, and processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if TYPE_CHECKING:  # the light tests import nothing of the package
    from pytest_cepbench.store import Store
    from tests.plugin.project import Project

_MODEL_LIBRARIES = ("torch", "transformers", "diffusers")
"""Those that tests of `models` need; a test that needs others of that extra says so itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the [models] extra where that is not installed."""
    missing = [name for name in _MODEL_LIBRARIES if util.find_spec(name) is None]
    if missing:
        skip = pytest.mark.skip(reason=f"needs the [models] extra ({', '.join(missing)})")
        for item in items:
            if item.get_closest_marker("models"):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of later collections of garbage.

    pytest collects it several times at the end of each run in this process.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    from pytest_cepbench.store import Store

    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A user's empty project, free of settings of the environment or of this test's workers."""
    from tests.plugin.project import INI, Project

    for name in [name for name in os.environ if name.startswith(("CEPBENCH_", "PYTEST_XDIST_"))]:
        monkeypatch.delenv(name)
    made = Project(pytester)
    made.write("pytest.ini", INI)
    return made


@pytest.fixture
def toy(project: Project) -> Project:
    """A project with the toy suite over the embedded world; nothing accepted yet."""
    from tests.plugin.project import SHAPES

    project.suite(SHAPES)
    return project


@pytest.fixture(scope="session")
def accepted_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy project after its baselines were accepted, made once; only to be copied."""
    from tests.plugin.project import SHAPES, accept_project

    root = tmp_path_factory.mktemp("accepted")
    accept_project(root, SHAPES, "test_toy")
    return root


@pytest.fixture
def accepted(project: Project, accepted_root: Path) -> Project:
    """The toy project with accepted baselines, and with every result of theirs in its store."""
    shutil.copytree(accepted_root, project.path, dirs_exist_ok=True)
    return project
