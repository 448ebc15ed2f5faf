"""A good and a bad checkpoint beside plugins that teams have installed, with workers and without.

`tox -e plugins` installs them; elsewhere what is not installed is skipped.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.plugin.project import SHAPES, TEST_MODULE
from tests.plugin.scored_project import Ended, ScoredProject

INI = """\
[pytest]
addopts = --strict-markers -p no:cacheprovider
filterwarnings =
    error
    default::pytest.PytestAssertRewriteWarning
"""
"""Strict. The warning is of plugins that are named like a module, as `html` is."""

SUITE = (
    SHAPES.replace("samples_per_category = 2", "samples_per_category = 1")
    .replace("iterations = 2", "iterations = 1")
    .replace('describer = "shapes:"', 'describer = "python:flickering:Describer"')
)

FLICKERING = """\
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image

class Describer:
    seeded, batch_size = False, 8

    def __init__(self, bad=False):
        self.bad, self.fingerprint = bad, f"flickering/1 {bad}"

    def describe(self, images, prompt, seeds):
        if Path("down").exists():
            raise RuntimeError("no answer")
        seen = [caption(parse_image(ImageArtifact.from_pil(image))) for image in images]
        return ["a red circle" if self.bad else text for text in seen]
"""
"""Describes well or badly; not at all while there is a file `down`."""

UP_AGAIN = """\
from collections import Counter
from pathlib import Path

tries = Counter()

def pytest_runtest_call(item):
    tries[item.nodeid] += 1
    if tries[item.nodeid] > 1:
        Path("down").unlink(missing_ok=True)
"""
"""A conftest.py with which the server comes back for the second attempt at a test."""

DIES_ONCE = """\
import os
from pathlib import Path

def pytest_runtest_call(item):
    if not Path("died").exists():
        Path("died").touch()
        os._exit(7)
"""
"""A conftest.py with which the first worker that runs a test dies over it."""

PLUGINS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "flaky": (("flaky",), ("--force-flaky", "--max-runs=2")),
    "pytest-cov": (("pytest_cov",), ("--cov=flickering", "--cov-report=")),
    "pytest-html": (
        ("metadata", "html_fixtures", "html"),
        ("--html=page.html", "--self-contained-html"),
    ),
    "pytest-randomly": (("randomly",), ("--randomly-seed=3",)),
    "pytest-repeat": (("repeat",), ("--count=2",)),
    "pytest-rerunfailures": (("rerunfailures",), ("--reruns=1",)),
    "pytest-split": (("pytest-split",), ("--splits=1", "--group=1")),
    "pytest-sugar": (("sugar",), ("--force-sugar",)),
    "pytest-timeout": (("timeout",), ("--timeout=100",)),
}
"""Distribution -> names of its plugins, and arguments with which they do something."""

RETRIES = ("flaky", "pytest-rerunfailures")

WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one", "two"])


def run(toy: ScoredProject, *args: str, plugins: tuple[str, ...] | None = ()) -> Ended:
    """Run pytest. plugins: names of the only ones to load; all installed ones where None."""
    if plugins is None:
        ended = toy.run("-p", "no:cacheprovider", *args)  # xdist is among them
    else:
        named = [word for name in ("syrupy", "cepbench", *plugins) for word in ("-p", name)]
        ended = toy.run(*named, *args, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    sys.stdout.write(ended.output + ended.errors)  # shown where the test fails
    return ended


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """A project with baselines, and a store that knows the accepted model; only to be copied."""
    toy = ScoredProject(tmp_path_factory.mktemp("toy"))
    files = {
        "pytest.ini": INI,
        "suite.toml": SUITE,
        "test_toy.py": TEST_MODULE,
        "flickering.py": FLICKERING,
    }
    for name, text in files.items():
        (toy.path / name).write_text(text)
    assert run(toy, "--snapshot-update").code == pytest.ExitCode.OK
    return toy


@pytest.fixture
def toy(accepted: ScoredProject, tmp_path: Path) -> ScoredProject:
    """A copy of it."""
    return accepted.copy(tmp_path / "toy")


def _require(distribution: str) -> None:
    """Skip the test where a plugin is not installed."""
    try:
        version(distribution)
    except PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: tox -e plugins installs it")


def _installed(
    distribution: str, workers: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of plugins to load, and arguments; skips the test where one is not installed."""
    _require(distribution)
    plugins, arguments = PLUGINS[distribution]
    return (*(["xdist"] if workers else []), *plugins), (*workers, *arguments)


SOME = ("-k", "color or crowded")

BAD = "--model=python:flickering:Describer?bad=true"


@pytest.mark.slow
@pytest.mark.parametrize("distribution", PLUGINS)
@WORKERS
def test_a_plugin_changes_no_verdict(
    toy: ScoredProject, distribution: str, workers: tuple[str, ...]
) -> None:
    """The good checkpoint holds and the bad one fails, in exit code and report."""
    plugins, arguments = _installed(distribution, workers)
    good = run(toy, *SOME, *arguments, plugins=plugins)
    assert (good.code, good.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    assert set(good.verdicts.values()) == {"held"}
    bad = run(toy, *SOME, *arguments, BAD, plugins=plugins)
    assert (bad.code, bad.report["verdict"]) == (pytest.ExitCode.TESTS_FAILED, "failed")
    assert set(bad.verdicts.values()) == {"regressed"}
    count = 4 if distribution == "pytest-repeat" else 2
    assert len(good.report["cases"]) == len(bad.report["cases"]) == count
    assert good.output.count("/gc: judged more than once: by ") == count - 2
    assert f" {count} failed" in bad.output or "pytest-sugar" in distribution


@pytest.mark.parametrize("distribution", RETRIES)
@WORKERS
def test_the_last_attempt_counts_after_an_error(
    toy: ScoredProject, distribution: str, workers: tuple[str, ...]
) -> None:
    """A server that was away and came back: the case holds, once, and the report tells of it."""
    plugins, arguments = _installed(distribution, workers)
    (toy.path / "conftest.py").write_text(UP_AGAIN)
    (toy.path / "down").touch()
    shutil.rmtree(toy.path / ".cepbench")
    ended = run(toy, "-k", "crowded-gc", *arguments, plugins=plugins)
    assert (ended.code, ended.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    assert [case["verdict"] for case in ended.report["cases"]] == ["held"]
    (message,) = ended.report["infrastructure"]
    assert "test_toy.py::test_drift[crowded-gc] ran again after an error (all 1 chains " in message
    assert " 1 passed" in ended.output


def test_a_case_whose_worker_died_runs_again_once(toy: ScoredProject) -> None:
    """pytest-rerunfailures asks for it, as this plugin does: it is one test all the same."""
    plugins, arguments = _installed("pytest-rerunfailures", ("-n", "2"))
    (toy.path / "conftest.py").write_text(DIES_ONCE)
    ended = run(toy, "-k", "crowded", *arguments, "--model=shapes:", plugins=plugins)
    assert (ended.code, ended.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    assert [case["verdict"] for case in ended.report["cases"]] == ["held"]
    (message,) = ended.report["infrastructure"]
    assert message.endswith("while it judged test_toy.py::test_drift[crowded-gc]; retried alone")
    assert " 1 passed" in ended.output


def test_a_test_that_runs_out_of_time_is_no_verdict(toy: ScoredProject) -> None:
    """pytest-timeout fails the test; the case was not judged, and the run is incomplete."""
    plugins, _ = _installed("pytest-timeout")
    (toy.path / "flickering.py").write_text(
        FLICKERING.replace("        seen =", "        import time; time.sleep(30)\n        seen =")
    )
    ended = run(toy, "-k", "crowded", "--timeout=1", BAD, plugins=plugins)
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert "INCOMPLETE: 1 tests ended before cep_gate judged their case: " in ended.output


@WORKERS
def test_a_process_for_each_test_is_no_pass(toy: ScoredProject, workers: tuple[str, ...]) -> None:
    """--forked is a usage error, which says what to do. The mark is refused where it is seen at
    collection, and fails the test on workers.
    """
    _require("pytest-forked")
    plugins = (*(["xdist"] if workers else []), "pytest_forked")
    ended = run(toy, *SOME, *workers, "--forked", plugins=plugins)
    assert ended.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --forked runs each test in a process that ends with it, " in ended.errors
    assert "Traceback" not in ended.output + ended.errors

    marked = f"import pytest\n\n@pytest.mark.forked\n{TEST_MODULE}"
    (toy.path / "test_toy.py").write_text(marked)
    ended = run(toy, *SOME, *workers, plugins=plugins)
    failed = pytest.ExitCode.TESTS_FAILED if workers else pytest.ExitCode.USAGE_ERROR
    assert ended.code == failed


@WORKERS
def test_all_of_them_together_change_no_verdict(
    toy: ScoredProject, workers: tuple[str, ...]
) -> None:
    """Everything that is installed, loaded the usual way."""
    for distribution in PLUGINS:
        _require(distribution)
    good = run(toy, *SOME, *workers, plugins=None)
    assert (good.code, good.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    bad = run(toy, *SOME, *workers, "--reruns=1", BAD, plugins=None)
    assert (bad.code, bad.report["verdict"]) == (pytest.ExitCode.TESTS_FAILED, "failed")
