"""A good and a bad checkpoint beside plugins that teams have installed, with workers and without.

`tox -e plugins` installs them; elsewhere what is not installed is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.documents import flat_report
from tests.plugin.project import SHAPES, TEST_MODULE
from tests.plugin.scored_project import Ended

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


@dataclass(frozen=True)
class Toy:
    """A project in a folder of its own, whose runs load only the plugins that are named."""

    path: Path

    def run(self, *args: str, plugins: tuple[str, ...] | None = ()) -> Ended:
        """Run pytest in its own process. plugins: their names; all installed ones where None."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
        named: list[str] = []
        if plugins is not None:
            clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            for name in ("syrupy", "cepbench", *plugins):
                named += ["-p", name]
        report = self.path / ".cepbench" / "report.json"
        report.unlink(missing_ok=True)
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *named, *args],
            cwd=self.path,
            env=clean,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        sys.stdout.write(ended.stdout + ended.stderr)  # shown where the test fails
        document = flat_report(json.loads(report.read_text()) if report.exists() else {})
        assert "INTERNALERROR" not in ended.stdout + ended.stderr
        return Ended(ended.returncode, ended.stdout, ended.stderr, document)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A project with baselines, and a store that knows the accepted model; only to be copied."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    files = {
        "pytest.ini": INI,
        "suite.toml": SUITE,
        "test_toy.py": TEST_MODULE,
        "flickering.py": FLICKERING,
    }
    for name, text in files.items():
        (toy.path / name).write_text(text)
    assert toy.run("--snapshot-update").code == pytest.ExitCode.OK
    return toy


@pytest.fixture
def toy(accepted: Toy, tmp_path: Path) -> Toy:
    """A copy of it."""
    return Toy(Path(shutil.copytree(accepted.path, tmp_path / "toy")))


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
def test_a_plugin_changes_no_verdict(toy: Toy, distribution: str, workers: tuple[str, ...]) -> None:
    """The good checkpoint holds and the bad one fails, in exit code and report."""
    plugins, arguments = _installed(distribution, workers)
    good = toy.run(*SOME, *arguments, plugins=plugins)
    assert (good.code, good.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    assert set(good.verdicts.values()) == {"held"}
    bad = toy.run(*SOME, *arguments, BAD, plugins=plugins)
    assert (bad.code, bad.report["verdict"]) == (pytest.ExitCode.TESTS_FAILED, "failed")
    assert set(bad.verdicts.values()) == {"regressed"}
    count = 4 if distribution == "pytest-repeat" else 2
    assert len(good.report["cases"]) == len(bad.report["cases"]) == count
    assert ("note: 2 cases judged more than once: " in good.output) == (count == 4)
    assert f" {count} failed" in bad.output or "pytest-sugar" in distribution


@pytest.mark.parametrize("distribution", RETRIES)
@WORKERS
def test_the_last_attempt_counts_after_an_error(
    toy: Toy, distribution: str, workers: tuple[str, ...]
) -> None:
    """A server that was away and came back: the case holds, once, and the report tells of it."""
    plugins, arguments = _installed(distribution, workers)
    (toy.path / "conftest.py").write_text(UP_AGAIN)
    (toy.path / "down").touch()
    shutil.rmtree(toy.path / ".cepbench")
    ended = toy.run("-k", "crowded-gc", *arguments, plugins=plugins)
    assert (ended.code, ended.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    assert [case["verdict"] for case in ended.report["cases"]] == ["held"]
    (message,) = ended.report["infrastructure"]
    assert "test_toy.py::test_drift[crowded-gc] ran again after an error (all 1 chains " in message
    assert " 1 passed" in ended.output


def test_a_case_whose_worker_died_runs_again_once(toy: Toy) -> None:
    """pytest-rerunfailures asks for it, as this plugin does: it is one test all the same."""
    plugins, arguments = _installed("pytest-rerunfailures", ("-n", "2"))
    (toy.path / "conftest.py").write_text(DIES_ONCE)
    ended = toy.run("-k", "crowded", *arguments, "--model=shapes:", plugins=plugins)
    assert (ended.code, ended.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    assert [case["verdict"] for case in ended.report["cases"]] == ["held"]
    (message,) = ended.report["infrastructure"]
    assert message.endswith("while it judged test_toy.py::test_drift[crowded-gc]; retried alone")
    assert " 1 passed" in ended.output


def test_a_test_that_runs_out_of_time_is_no_verdict(toy: Toy) -> None:
    """pytest-timeout fails the test; the case was not judged, and the run is incomplete."""
    plugins, _ = _installed("pytest-timeout")
    (toy.path / "flickering.py").write_text(
        FLICKERING.replace("        seen =", "        import time; time.sleep(30)\n        seen =")
    )
    ended = toy.run("-k", "crowded", "--timeout=1", BAD, plugins=plugins)
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert "INCOMPLETE: 1 tests ended before cep_gate judged their case: " in ended.output


@WORKERS
def test_a_process_for_each_test_is_no_pass(toy: Toy, workers: tuple[str, ...]) -> None:
    """--forked is a usage error, which says what to do. The mark is refused where it is seen at
    collection, and fails the test on workers.
    """
    _require("pytest-forked")
    plugins = (*(["xdist"] if workers else []), "pytest_forked")
    ended = toy.run(*SOME, *workers, "--forked", plugins=plugins)
    assert ended.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --forked runs each test in a process that ends with it, " in ended.errors
    assert "Traceback" not in ended.output + ended.errors

    marked = f"import pytest\n\n@pytest.mark.forked\n{TEST_MODULE}"
    (toy.path / "test_toy.py").write_text(marked)
    ended = toy.run(*SOME, *workers, plugins=plugins)
    failed = pytest.ExitCode.TESTS_FAILED if workers else pytest.ExitCode.USAGE_ERROR
    assert ended.code == failed


@WORKERS
def test_all_of_them_together_change_no_verdict(toy: Toy, workers: tuple[str, ...]) -> None:
    """Everything that is installed, loaded the usual way."""
    for distribution in PLUGINS:
        _require(distribution)
    good = toy.run(*SOME, *workers, plugins=None)
    assert (good.code, good.report["verdict"]) == (pytest.ExitCode.OK, "passed")
    bad = toy.run(*SOME, *workers, "--reruns=1", BAD, plugins=None)
    assert (bad.code, bad.report["verdict"]) == (pytest.ExitCode.TESTS_FAILED, "failed")
