"""The benchmark of an accelerator, rehearsed on a CPU with tiny checkpoints."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.accelerator_figures.parts import PARTS
from benchmarks.accelerator_figures.setting import Figure, Setting, read_figures
from benchmarks.accelerator_figures.table import markdown_table

ROOT = Path(__file__).parents[2]


def run_parts(folder: Path, *names: str) -> dict[str, Figure]:
    """The figures of some parts, by name."""
    for name in names:
        deadline = time.monotonic() + 0.5
        PARTS[name][0](
            Setting(name, folder, folder / "figures", "cpu", toy=True, deadline=deadline)
        )
    return {figure.name: figure for figure in read_figures(folder / "figures")}


@pytest.mark.slow
def test_every_part_measures_what_a_cpu_can(tmp_path: Path) -> None:
    """At toy size; what needs an accelerator is written down as not measured, with the reason."""
    figures = run_parts(tmp_path, *PARTS)
    assert {figure.part for figure in figures.values()} == set(PARTS)
    papers = figures["chains against the papers' procedure"]
    assert papers.value is not None
    assert papers.value > 1
    assert papers.goal == "at least 8"
    busy = figures["device busy"].value
    assert busy is not None
    assert 0 < busy <= 100
    assert figures["largest difference of a score"].value == 0
    unmeasured = [figure for figure in figures.values() if figure.value is None]
    assert all(figure.note for figure in unmeasured)
    assert figures["encoder: size that fits where memory is short"] in unmeasured
    page = markdown_table(list(figures.values()), "a machine")
    assert page.count("\n| ") == len(figures) + 1


@pytest.mark.slow
def test_a_part_that_does_not_end_is_ended_and_written_down(tmp_path: Path) -> None:
    """The table says so, and so does the exit status."""
    command = [sys.executable, "-m", "benchmarks.accelerator", "--out", str(tmp_path)]
    command += ["--minutes", "0.001", "--grace", "0.1", "--size", "toy", "--device", "cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "| build | build: ended early |  | not measured | not done after 0 s |" in done.stdout
    assert (tmp_path / "table.md").read_text() in done.stdout
