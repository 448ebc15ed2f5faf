"""Examples in the documentation are run: console blocks, suite files, code, the workflow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.models.python_model import roles_of
from pytest_cepbench.suites import (
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from tests.docs.markdown import DOCS, EXAMPLES, PAGES, ROOT, Block, blocks, workflow
from tests.plugin import warm

SUITES = DOCS / "writing-a-suite.md"

_WIDTH = "100"  # of the terminal that the blocks show

_MODELS = "models"
"""The place of blocks that real models play in."""

_WITH_CONSOLE = [
    page for page in PAGES if any(block.place not in (None, _MODELS) for block in blocks(page))
]

_WITH_MODELS = [page for page in PAGES if any(block.place == _MODELS for block in blocks(page))]


# -- console blocks --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", _WITH_CONSOLE, ids=lambda page: page.name)
def test_console_blocks_show_what_is_printed(page: Path, tmp_path: Path) -> None:
    """The blocks of a page, run one after the other, print the lines they show in their order."""
    _lay_out(tmp_path)
    earlier: list[str] = []
    for block in blocks(page):
        if block.place in (None, _MODELS):
            continue
        assert block.place is not None
        printed = ""
        for command in [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]:
            exports = [command for command in earlier if command.startswith("export ")]
            printed += _typed(command, exports, tmp_path / block.place)
            earlier.append(command)
        _assert_shows(block, printed)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("page", _WITH_MODELS, ids=lambda page: page.name)
def test_blocks_with_models_show_what_is_printed(page: Path, tmp_path: Path) -> None:
    """Blocks of a page that trained models play in; their last digits are the processor's own."""
    pytest.importorskip("diffusers", reason="trained models need the [models] extra")
    _lay_out(tmp_path)
    for block in blocks(page):
        if block.place == _MODELS:
            commands = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
            ended = _bash("\n".join(commands), tmp_path / "repository")
            _assert_shows(block, ended.stdout, _without_numbers)


def test_the_shown_pass_is_what_was_accepted() -> None:
    """The value of the accepted checkpoint of `suites/shapes` is that of its baseline."""
    page = (DOCS / "checkpoints.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\| step 2000 \| ([\d.]+) \|", page, re.MULTILINE)
    (file,) = (ROOT / "baselines" / "shapes").glob("overall-gc-a*.toml")

    accepted = tomllib.loads(file.read_text(encoding="utf-8"))

    assert float(shown) == pytest.approx(accepted["value"], abs=6e-5)


def _lay_out(root: Path) -> None:
    """Copies of what the blocks run in: suites with baselines, the examples, and their models."""
    for name in ("suites", "baselines"):
        shutil.copytree(ROOT / name, root / "repository" / name, ignore=_NO_CACHES)
    (root / "repository" / "reference").symlink_to(ROOT / "reference")
    shutil.copytree(EXAMPLES, root / "examples", ignore=_NO_CACHES)
    for place in root.iterdir():
        (place / "pytest.ini").write_text("[pytest]\n")


_NO_CACHES = shutil.ignore_patterns("__pycache__", ".cepbench", ".pytest_cache")


def _bash(script: str, where: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user would, in whose shell the virtual environment is active."""
    return subprocess.run(
        ["bash", "-c", script],
        cwd=where,
        env=_environment() | extra,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _environment() -> dict[str, str]:
    # Under CI pytest does not shorten its lines.
    other = ("CEPBENCH_", "PYTEST_", "CI", "BUILD_NUMBER")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(other)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    return clean | {"PATH": path, "COLUMNS": _WIDTH, "PYTHONDONTWRITEBYTECODE": "1"}


def _typed(command: str, exports: list[str], where: Path) -> str:
    """What a command prints."""
    if not command.startswith("pytest "):
        return _bash("\n".join([*exports, command]), where).stdout
    words = _bash("\n".join([*exports, f"printf '%s\\0' {command}"]), where).stdout
    return _pytest(where, *words.split("\0")[1:-1])[1]


def _pytest(where: Path, *arguments: str) -> tuple[int, str]:
    """(exit code, what is printed) of pytest in a process that has its imports behind it."""
    return warm.run(where, arguments, _environment(), typed=True)[:2]


def _assert_shows(block: Block, printed: str, masked: Callable[[str], str] | None = None) -> None:
    """Every line of a block is printed, in order; `...` stands for any lines between.

    masked: leaves of a line what must be equal.
    """
    masked = masked or _masked
    lines = [masked(line) for line in printed.splitlines()]
    position, skipping = 0, True
    for line in block.text.splitlines():
        if line.startswith("$ ") or line == "...":
            skipping = True
            continue
        wanted = masked(line)
        reach = lines[position:] if skipping else lines[position : position + 1]
        assert wanted in reach, f"not printed here: {line!r}\n{printed}"
        position += reach.index(wanted) + 1
        skipping = False


def _masked(line: str) -> str:
    """A line without what differs between runs: times, and the rules that their length changes."""
    line = re.sub(r"\d+\.\d+ ?s\b( \(\d:\d\d:\d\d\))?", "TIME", line)
    return re.sub(r"([=_-])\1{2,}", r"\1\1\1", line).rstrip()


def _without_numbers(line: str) -> str:
    """A masked line with no numbers and single blanks; ids of samples are no numbers.

    Nor fingerprints: a saved folder names the version of the library that saved it.
    """
    line = re.sub(r"\b[0-9a-f]{16}\b", "FINGERPRINT", _masked(line))
    return re.sub(r"\s+", " ", re.sub(r"(?<![/\w@])[-+]?\d+(\.\d+)?", "N", line))


def test_a_block_that_shows_something_else_is_found() -> None:
    """The comparison refuses a changed number, a changed order and a missing line."""
    printed = "a 1.0000\nb 2.0000\nc in 0.51s\n"

    _assert_shows(Block("console", "$ run\na 1.0000\n...\nc in 7.00s\n", None), printed)
    for wrong in (
        "$ run\na 1.0001\n",
        "$ run\nb 2.0000\n...\na 1.0000\n",
        "$ run\na 1.0000\nc in 0.51s\n",
    ):
        with pytest.raises(AssertionError, match="not printed here"):
            _assert_shows(Block("console", wrong, None), printed)


# -- suites ----------------------------------------------------------------------------------------


def test_suite_file_of_the_page_is_valid(tmp_path: Path) -> None:
    """The suite.toml that the page explains loads, with the cases that the page says it has."""
    (block,) = [block for block in blocks(SUITES) if block.kind == "toml"]
    (tmp_path / "suite.toml").write_text(block.text)
    for category in ("fog", "rain", "sun"):
        (tmp_path / "images" / category).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / category / "one.png")

    suite = load_suite(tmp_path / "suite.toml")
    assignments, measures = assign_models(suite, RoleChoices(model="preset:sketch"))
    cases = list_cases(measures, suite.name, load_data(suite, {}), suite.table.groups)

    assert assignments.subject == "shapes:?miss=0.1"
    assert [case.id for case in cases] == [
        *(
            f"{part}-{metric}"
            for part in ("fog", "rain", "sun", "weather")
            for metric in ("gc", "gc1", "s")
        ),
        *(f"overall-{metric}" for metric in ("gc", "gc1", "gc_fid")),
        *(f"overall-{metric}" for metric in ("gc-other", "s", "failures")),
    ]
    assert {case.label for case in cases} >= {"GC@1", "GC_FID@3 [shapes]"}


@pytest.mark.slow
def test_test_modules_of_the_page_gate(tmp_path: Path) -> None:
    """The test functions that the page shows pass with the suite's own models, once accepted."""
    shown = [block.text for block in blocks(SUITES) if block.kind == "python"]
    plain, floor, marked = [text for text in shown if "cep_gate" in text]
    marked = marked.replace('"fog", "rain"', '"rows", "columns"')
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True, ignore=_NO_CACHES)
    (tmp_path / "my-suite" / "test_my_suite.py").write_text(plain + floor + marked)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")

    code, printed = _pytest(tmp_path, "my-suite", "--snapshot-update")
    assert code == 0, printed
    assert (
        "24 passed" in _pytest(tmp_path, "my-suite", "-m", "cep")[1]
    )  # 11 cases twice, and two categories of one metric


def test_loader_of_the_page_loads(tmp_path: Path) -> None:
    """The loader that the page shows gives sorted samples with categories from their names."""
    (text,) = [b.text for b in blocks(SUITES) if b.kind == "python" and "def load" in b.text]
    (tmp_path / "val").mkdir()
    for name in ("rain_1", "fog_1", "fog_2"):
        Image.new("RGB", (8, 8)).save(tmp_path / "val" / f"{name}.jpg")
    namespace: dict[str, Any] = {}
    exec(compile(text, SUITES.name, "exec"), namespace)

    dataset = namespace["load"](tmp_path)

    assert [sample.id for sample in dataset.samples] == ["fog_1.jpg", "fog_2.jpg", "rain_1.jpg"]
    assert dataset.categories == ("fog", "rain")


@pytest.mark.slow
def test_text_first_suite_of_the_example(tmp_path: Path) -> None:
    """The example's suite also plays from its texts, as the page on suites says."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True, ignore=_NO_CACHES)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    suite = tmp_path / "my-suite" / "suite.toml"
    suite.write_text(suite.read_text().replace('start = "image"', 'start = "text"'))

    assert "11 passed" in _pytest(tmp_path, "my-suite", "--snapshot-update")[1]
    assert 'chain" = "text-first' in next(tmp_path.rglob("overall-gc-a*.toml")).read_text()


# -- models ----------------------------------------------------------------------------------------


def test_model_of_the_page_states_its_identity(tmp_path: Path) -> None:
    """The describer class on the page plays that role, known by its weights and parameters."""
    (text,) = [b.text for b in blocks(DOCS / "models.md") if "class MyCaptioner" in b.text]
    namespace: dict[str, Any] = {}
    exec(compile(text, "models.md", "exec"), namespace)
    made = []
    for weights in (b"one", b"two"):
        (tmp_path / "weights.bin").write_bytes(weights)
        made.append(namespace["MyCaptioner"](str(tmp_path), beams="3"))

    assert roles_of(made[0]) == ("describer",)
    assert made[0].params == {"beams": 3}
    assert made[0].fingerprint != made[1].fingerprint


# -- the workflow ----------------------------------------------------------------------------------


WORKFLOW = workflow(EXAMPLES / "gate-checkpoint.yml")


def _steps() -> list[dict[str, Any]]:
    (job,) = WORKFLOW["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def test_workflow_runs_no_input_as_a_command() -> None:
    """Inputs reach the commands through the environment only, and nothing may be written."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert set(WORKFLOW["on"]["workflow_dispatch"]["inputs"]) == {"checkpoint", "accept"}
    assert all("${{" not in step.get("run", "") for step in _steps())


@pytest.mark.slow
def test_workflow_commands_gate(tmp_path: Path) -> None:
    """Its commands, run for real, accept a checkpoint, hold it, refuse a worse one; the files that
    it keeps are there.
    """
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True, ignore=_NO_CACHES)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    commands = {step["name"]: step["run"] for step in _steps() if "pytest " in step.get("run", "")}
    good, bad = "python:my_models:describer", "python:my_models:describer?color_blind=true"

    accepting = _bash(commands["Measure new baselines"], tmp_path, CHECKPOINT=good)
    holding = _bash(commands["Gate"], tmp_path, CHECKPOINT=good)
    refusing = _bash(commands["Gate"], tmp_path, CHECKPOINT=bad)

    assert (accepting.returncode, holding.returncode, refusing.returncode) == (0, 0, 1)
    assert "REGRESSED" in refusing.stdout
    kept = [
        str(step["with"]["path"]).split() for step in _steps() if "path" in step.get("with", {})
    ]
    for path in {path for paths in kept for path in paths}:
        assert any((tmp_path / path).iterdir()), path


def test_workflow_saves_the_store_also_after_a_failure() -> None:
    """Store and report are kept whatever the gate said, and the newest store is restored."""
    steps = {step["name"]: step for step in _steps() if "name" in step}
    restore = steps["Restore what was computed before"]["with"]
    save = steps["Save what was computed, also when the gate failed"]

    assert save["if"] == "${{ !cancelled() }}"
    assert save["with"]["path"] == restore["path"]
    assert save["with"]["key"].startswith(restore["restore-keys"])
