"""Draws the pictures of the README and the documentation from runs of `suites/instrument`.

    python docs/images/make.py

failing-run.svg: the terminal of a run that fails, as text. report.png: the top of the HTML report
of such a run, photographed by Chromium (`chromium` on the PATH, or what CHROMIUM names).
leaderboard.svg: what `cepbench leaderboard` draws of three models.
Needs the dependency group `images`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SUITE = ("pytest", "suites/instrument")

WORSE = "--model=shapes:?miss=0.1"

TERMINAL = (*SUITE, WORSE, "-k", "crowded-gc")

REPORT = (*SUITE, WORSE, "-k", "crowded-gc or relation-gc or overall-sim or overall-failures")

RANKED = {"step-800": "miss=0.02", "step-600": "recolor=0.04", "step-400": "miss=0.1"}
"""Names and knobs of the models of the leaderboard, as in docs/leaderboards.md."""

COLUMNS = 100

WINDOW = (1180, 1190)
"""Width and height of the photographed page, in CSS pixels."""


def main() -> None:
    """Run, and replace all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("suites", "baselines"):
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        run(folder, SUITE, 0)  # the accepted model's chains, which tell where a score was lost
        draw_terminal(run(folder, TERMINAL, 1), HERE / "failing-run.svg")
        run(folder, REPORT, 1)
        photograph(folder / ".cepbench" / "report.html", HERE / "report.png")
        draw_leaderboard(folder, HERE / "leaderboard.svg")


def run(folder: Path, command: tuple[str, ...], expected: int) -> str:
    """What a command prints, in color; ends the script at an unexpected exit code."""
    inherited = {
        key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS")
    }
    ended = subprocess.run(
        [sys.executable, "-m", *command, "--color=yes"],
        cwd=folder,
        env=inherited | {"COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT)},
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if ended.returncode != expected:
        sys.exit(f"exit code {ended.returncode} instead of {expected}:\n{ended.stdout}")
    return ended.stdout


def draw_terminal(printed: str, target: Path) -> None:
    """An SVG of a terminal, from the heading of the failures to the counts of the summary."""
    text = Text.from_ansi(printed)
    lines = [line.plain for line in text.split()]
    first = next(number for number, line in enumerate(lines) if " FAILURES " in line)
    last = next(number for number, line in enumerate(lines) if line.endswith(" regressed"))
    shown = Text("\n").join(text.split()[first : last + 1])
    width = max(len(line) for line in lines[first : last + 1])
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {shlex.join(TERMINAL)}", style="bold"))
    console.print(shown)
    drawn = console.export_svg(title="pytest", theme=MONOKAI, unique_id="failing-run")
    target.write_text(drawn, encoding="utf-8")


def draw_leaderboard(folder: Path, target: Path) -> None:
    """An SVG of the models in GC@3."""
    for name, knobs in RANKED.items():
        report = f"--cep-report={name}.json"
        run(folder, (*SUITE, "-k", "overall", f"--model=shapes:?{knobs}", report), 1)
    ranked = ["leaderboard", "suites/instrument", *(f"{name}.json" for name in RANKED)]
    subprocess.run(
        [sys.executable, "-m", "pytest_cepbench.cli", *ranked, "--case=overall/gc"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    shutil.copy(folder / ".cepbench" / "leaderboards" / "leaderboard-instrument.svg", target)


def photograph(page: Path, target: Path) -> None:
    """A PNG of the top of a page."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
    size = ",".join(str(side) for side in WINDOW)
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}"]
    subprocess.run([program, *options, f"--screenshot={target}", page.as_uri()], check=True)


if __name__ == "__main__":
    main()
