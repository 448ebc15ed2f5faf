"""A user's project for the tests: a folder outside the repository, run by real pytest processes."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.pytester import SysModulesSnapshot
from PIL import Image

import pytest_cepbench
from pytest_cepbench.models import python_model
from tests.documents import flat_report
from tests.plugin import warm

Color = tuple[int, int, int]

INI = """\
[pytest]
addopts = --strict-markers -p no:hypothesispytest -p no:anyio
filterwarnings = error
"""
"""Strict, and without this environment's plugins that a run does not need: they cost half of it."""

TEST_MODULE = """\
def test_drift(cep_case, cep_gate):
    cep_gate(cep_case)
"""

SHAPES = """\
name = "toy"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 2 }
[chain]
iterations = 2
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[gate]
gate = "threshold"
[metrics.gc]
[metrics.failures]
tolerance = 0.0
"""
"""Ten cases on 16 samples: 8 categories, the whole, the failure rate; judged without statistics."""

ABSENT = SHAPES.replace(
    'loader = "shapes"\noptions = { samples_per_category = 2 }',
    'loader = "folder"\nname = "holiday"\nhow_to_get = "Ask your aunt."',
)
"""The same of data that is not here."""

PHOTOS = """\
name = "photos"
version = 1
[data]
loader = "folder"
path = "photos"
[chain]
iterations = 2
[prompts]
describe = "describe"
[roles]
describer = "python:user_models:describer"
generator = "python:user_models:generator"
encoder = "python:user_models:encoder"
[gate]
gate = "threshold"
[metrics.gc]
[metrics.failures]
tolerance = 0.0
"""
"""Photos of one color each, told by their mean color; models in `user_models.py`."""

MODES = {"no-plugin": ("-p", "no:xdist"), "n0": ("-n", "0"), "n2": ("-n", "2")}
"""The three ways to run: without xdist, with xdist idle, with two workers."""

EACH_MODE = pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
"""Arguments for each of them."""

SLOWLY_BOTH = pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(MODES["no-plugin"], id="one"),
        pytest.param(MODES["n2"], id="two", marks=pytest.mark.slow),
    ],
)
"""In one process, and, where faults on workers alone are noticed by other tests too, slowly on two
workers."""

REGRESSED = "--model=shapes:?miss=0.3"

_INSTALLED = (f"{Path(pytest_cepbench.__file__).parent}/", f"{sys.prefix}/", f"{sys.base_prefix}/")


def _installed(name: str) -> bool:
    """Whether a module is of package, library or Python, and not of a test's project."""
    return str(getattr(sys.modules[name], "__file__", None)).startswith(_INSTALLED)


# After each run and each test pytester forgets what was imported since: the next run would import
# the package, and compile its templates, again.
_FORGETTING = "_Pytester__take_sys_modules_snapshot"
setattr(pytest.Pytester, _FORGETTING, lambda _: SysModulesSnapshot(_installed))


@dataclass(frozen=True)
class Project:
    """A folder with a suite of its own, and what its runs left there."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        """The project's folder, where pytest runs."""
        return self.pytester.path

    @property
    def baselines(self) -> Path:
        """The accepted baselines, where the default puts them."""
        return self.path / "baselines"

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a piece of a file, which must be there."""
        text = (self.path / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def suite(self, text: str, folder: str = ".", module: str = TEST_MODULE) -> None:
        """Put a suite file and its test module into a folder of the project."""
        name = text.partition('name = "')[2].partition('"')[0]
        self.write(f"{folder}/suite.toml", text)
        self.write(f"{folder}/test_{name}.py", module)

    def photos(self, colors: dict[str, Color]) -> None:
        """Make photos of one color each, by path below `photos/`, with models that tell colors.

        The suite is that of photos, where there is no other one.
        """
        if not (self.path / "suite.toml").exists():
            self.suite(PHOTOS)
        shutil.copy(Path(__file__).with_name("user_models.py"), self.path)
        for name, color in colors.items():
            path = self.path / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), color).save(path)

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest in the project, in its own process that has already imported what it needs."""
        started = time.perf_counter()
        paths = os.pathsep.join(filter(None, (str(self.path), os.environ.get("PYTHONPATH"))))
        basetemp = f"--basetemp={self.path / 'temp'}"
        code, out, err = warm.run(self.path, (basetemp, *args), os.environ | {"PYTHONPATH": paths})
        sys.stdout.write(out + err)  # shown where the test fails
        seconds = time.perf_counter() - started
        return pytest.RunResult(code, out.splitlines(), err.splitlines(), seconds)

    def run_cold(self, *args: str) -> pytest.RunResult:
        """The same where starts of processes and what they import matter: a second for each."""
        return self.pytester.runpytest_subprocess(*args, timeout=120)

    def run_here(self, *args: str) -> pytest.RunResult:
        """Run pytest in the project, in this process: several times as fast as `run`.

        For runs of one process whose start, imports and death are not what is tested.
        """
        python_model.make_model.cache_clear()  # of another test's project, under the same name
        before = len(sys.modules)
        result = self.pytester.runpytest_inprocess(*args)
        if len(sys.modules) > before:
            gc.collect()
            gc.freeze()  # a run ends with several collections, which would look through them
        return result

    def report(self, name: str = ".cepbench/report.json") -> dict[str, Any]:
        """The JSON report of the latest run."""
        return flat_report(json.loads((self.path / name).read_text(encoding="utf-8")))

    def verdicts(self) -> dict[str, str]:
        """Verdict by case (`color-gc`) of the latest run."""
        return {f"{c['part']}-{c['metric']}": c["verdict"] for c in self.report()["cases"]}

    def numbers(self) -> list[dict[str, Any]]:
        """The judged cases of the latest run, in order, without what may differ: the effort."""
        return without_effort(self.report()["cases"])

    def effort(self) -> tuple[int, int]:
        """Model loads and inputs given to models in the latest run."""
        spent = [case["effort"] for case in self.report()["cases"]]
        return sum(e["loads"] for e in spent), sum(e["inputs"] for e in spent)


_OF_THE_STORE = ("reference", "reference_chains", "curve_reference", "baseline_links",
                 "baseline_failure", "first_difference")  # fmt: skip
"""What a report shows of the baseline's chains, as far as the store has them."""


def without_effort(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cases of a report without what may differ between equal runs, also with other stores."""
    return [_without_store({k: v for k, v in case.items() if k != "effort"}) for case in cases]


def _without_store(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_store(v) for k, v in value.items() if k not in _OF_THE_STORE}
    return [_without_store(v) for v in value] if isinstance(value, list) else value


def run_plainly(root: Path, *args: str) -> int:
    """Run pytest in a folder, in one process without xdist; returns its exit code."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    arguments = ("-p", "no:cacheprovider", "-p", "no:xdist", *args)
    return warm.run(root, arguments, clean)[0]


def accept_project(root: Path, suite: str, test: str, *args: str) -> None:
    """Write a project of one suite and accept what it measures. test: the name of its module."""
    for name, text in {"pytest.ini": INI, "suite.toml": suite, f"{test}.py": TEST_MODULE}.items():
        (root / name).write_text(text)
    assert run_plainly(root, "--snapshot-update", *args) == pytest.ExitCode.OK


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, byte by byte; empty when the folder is not there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def wait_until(is_so: Callable[[], bool], shown: Path | None = None) -> None:
    """Wait for something that comes in seconds on an idle machine.

    shown: a file that says why it did not come.
    """
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until, shown and shown.read_text()
        time.sleep(0.02)


def assert_one_message(result: pytest.RunResult, *pieces: str) -> None:
    """A usage error: exit code 4 before anything ran, all pieces in its message, no traceback."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = "\n".join(line for line in result.errlines if line.startswith("ERROR: "))
    for piece in pieces:
        assert piece in message
    everything = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in everything
    assert "INTERNALERROR" not in everything
    assert "collected" not in everything
