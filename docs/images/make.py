"""Draws the pictures of the README and the documentation from runs of `suites/instrument`.

    python docs/images/make.py

A picture is of a text: what a command prints, or a page. `PICTURES` lists them; `SCREENS` are the
same five at three widths, light and dark.
Drawing needs the dependency group `images`, and Chromium on the PATH or named by CHROMIUM.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SUITE = ("pytest", "suites/instrument")
WORSE = "--model=shapes:?miss=0.1"
TERMINAL = (*SUITE, WORSE)
REPORT = (*SUITE, WORSE, "-k", "test_drift and (color or crowded or sim or failures)")
OVERALL = (*SUITE, "-k", "test_drift and overall and not fid and not kid")

TRAINING = {
    "step-200": "miss=0.2",
    "step-400": "miss=0.1",
    "step-600": "recolor=0.04",
    "step-800": "miss=0.02",
}
"""Names and knobs of the checkpoints of a training, as in docs/judges.md."""

BASELINES = ("instrument", "instrument-drift", "instrument-tasks")

BEGAN = 1767600000  # of the training, 2026-01-05 08:00 UTC
DAY = 86400

WIDTHS = {1440: 900, 1280: 800, 390: 844}
"""Widths of screens -> their heights, in CSS pixels; the last one is a phone's."""

COLUMNS = {1440: 160, 1280: 120, 390: 52}
"""Width of a screen -> columns of a terminal on it."""

_VOLATILE = (
    (r"\(\d+\.\d s in models\)", "(1.7 s in models)"),
    (r"(<dt>duration</dt><dd>)[\d.]+ s", r"\g<1>5.9 s"),
    (r"(<dt>started</dt><dd>)[-\d]+ [:\d]+", r"\g<1>2026-01-09 08:00:00"),
    (
        r"\d+ model loads? \([^)]*\), \d+ model inputs",
        "1 model load (1 describer), 26 model inputs",
    ),
    (r"[\d,]+ results from the store", "3472 results from the store"),
)
"""What differs from run to run -> what stands in its place in the pictures."""

_LEFT_OUT = re.compile(
    r"CI|GITHUB_|GITLAB_|BUILD|JENKINS_|RUN_DISPLAY_URL|PYTEST_|CEPBENCH_|GIT_|NO_COLOR|FORCE_COLOR"
)
"""Beginnings of names of environment variables that runs are not given."""


@dataclass(frozen=True)
class View:
    """What is photographed of a page.

    width, height: of the window, in CSS pixels; height None: as high as `parts` are.
    parts: selectors of the elements that are in the picture, from the first to the last; none for
    the top of the page.
    dark: whether the system is dark.
    prepare: script that runs before.
    """

    width: int = 1180
    height: int | None = None
    parts: tuple[str, ...] = ()
    dark: bool = False
    prepare: str = ""


def main() -> None:
    """Run, and replace all pictures."""
    argparse.ArgumentParser(description="Draws the pictures of the documentation.").parse_args()
    with tempfile.TemporaryDirectory() as name:
        texts = make_texts(Path(name))
    for name, (text, view) in PICTURES.items():
        shown = texts[text]
        draw(terminal(shown, view) if text.startswith("terminal") else shown, view, HERE / name)


# -- texts ---------------------------------------------------------------------------------------


def make_texts(folder: Path) -> dict[str, str]:
    """Name -> text that pictures show, of runs in an empty folder."""
    lay_out(folder)
    run(folder, (*SUITE, "--cep-history=off"), 0)  # whose chains are those of the baseline
    run(folder, OVERALL, 0)
    for name, knobs in TRAINING.items():
        report = f"--cep-report=runs/{name}.json"
        run(folder, (*OVERALL, f"--model=shapes:?{knobs}", report), 1)
    set_dates(folder)
    terminals = {
        f"terminal-{width}": failing_part(run(folder, (*TERMINAL, "--cep-history=off"), 1, columns))
        for width, columns in COLUMNS.items()
    }
    run(folder, (*REPORT, "--cep-history=off"), 1)
    report = page(folder, folder / ".cepbench" / "report.html")
    cepbench(folder, "history", "--html=history.html", "--case=*/overall/gc")
    return terminals | {
        "report": report,
        "history": page(folder, folder / "history.html"),
    }


def lay_out(folder: Path) -> None:
    """A project under git, whose baselines were accepted at the beginning of the training."""
    without_caches = shutil.ignore_patterns("__pycache__")
    for part in ("suites/instrument", *(f"baselines/{name}" for name in BASELINES)):
        shutil.copytree(ROOT / part, folder / part, ignore=without_caches)
    shutil.copy(ROOT / "suites" / "__init__.py", folder / "suites")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / ".gitignore").write_text("*.pyc\n/runs\n/*.html\n", encoding="utf-8")
    person = {"NAME": "A", "EMAIL": "a@example.org", "DATE": f"{BEGAN} +0000"}
    kinds = ("AUTHOR", "COMMITTER")
    names = {f"GIT_{kind}_{key}": text for kind in kinds for key, text in person.items()}
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Accept"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, env=environment() | names)


def environment() -> dict[str, str]:
    """That of the machine, without what changes what runs print: CI systems, options, git."""
    inherited = {key: text for key, text in os.environ.items() if not _LEFT_OUT.match(key)}
    git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return inherited | git | {"PYTHONPATH": str(ROOT)}


def run(folder: Path, command: tuple[str, ...], expected: int, columns: int = 100) -> str:
    """What a command prints, in color; ends the script at an unexpected exit code."""
    ended = subprocess.run(
        [sys.executable, "-m", *command, "--color=yes"],
        cwd=folder,
        env=environment() | {"COLUMNS": str(columns)},
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if ended.returncode != expected:
        sys.exit(f"exit code {ended.returncode} instead of {expected}:\n{ended.stdout}")
    return ended.stdout


def cepbench(folder: Path, *arguments: str) -> None:
    """Run the command `cepbench`, which has to end well."""
    subprocess.run(
        [sys.executable, "-m", "pytest_cepbench.cli", *arguments],
        cwd=folder,
        env=environment(),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def set_dates(folder: Path) -> None:
    """Let the runs be a day apart, on a machine without a name; the first one ends the training."""
    (path,) = (folder / ".cepbench" / "history").glob("*.jsonl")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    records = [*records[1:], records[0]]
    for number, record in enumerate(records):
        record |= {"run": f"{number:032x}", "started": BEGAN + number * DAY, "host": "gpu-1"}
    lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    path.unlink()
    path.with_name("machine.jsonl").write_text(lines, encoding="utf-8")


def page(folder: Path, path: Path) -> str:
    """A page as it is the same in every run."""
    text = path.read_text(encoding="utf-8").replace(str(folder), "/project")
    for pattern, shown in _VOLATILE:
        text = re.sub(pattern, shown, text)
    return text


def failing_part(printed: str) -> str:
    """What a run printed, from the heading of the summary to what to do next."""
    lines = printed.splitlines()
    first = next(number for number, line in enumerate(lines) if " cepbench summary " in line)
    end = next(number for number, line in enumerate(lines) if line.startswith("report:"))
    return "\n".join(lines[first:end])


# -- pictures ------------------------------------------------------------------------------------


def terminal(printed: str, view: View) -> str:
    """A page that shows what a terminal does, below the command that was typed."""
    from rich.console import Console
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
    from rich.text import Text

    console = Console(record=True, width=200, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {shlex.join(TERMINAL)}", style="bold"))
    console.print(Text.from_ansi(printed))
    size = 10.5 if view.width < 400 else 14
    style = f"font: {size}px/1.35 'DejaVu Sans Mono', monospace; padding: 12px; margin: 0"
    form = (
        "<body style='margin: 0; color: {foreground}; background: {background}'>"
        f'<pre style="{style}">{{code}}</pre></body>'
    )
    theme = MONOKAI if view.dark else DEFAULT_TERMINAL_THEME
    return console.export_html(theme=theme, inline_styles=True, code_format=form)


def draw(html: str, view: View, target: Path) -> None:
    """A page as Chromium shows it: a PNG of few colors, which is small."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder, "page.html")
        path.write_text(html, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(
            viewport={"width": view.width, "height": view.height or 900},
            color_scheme="dark" if view.dark else "light",
        )
        tab.goto(path.as_uri())
        if view.prepare:
            tab.evaluate(view.prepare)
        tab.screenshot(path=target, **area(tab, view))
        browser.close()
    image = Image.open(target).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)


def area(tab: Any, view: View) -> Mapping[str, Any]:
    """Options of a screenshot of the parts of a view, with some room around them."""
    if not view.parts:
        return {}
    boxes = [tab.locator(part).first.bounding_box() for part in view.parts]
    top = min(box["y"] for box in boxes) - 12
    bottom = max(box["y"] + box["height"] for box in boxes) + 2
    clip = {"x": 0, "y": top, "width": view.width, "height": bottom - top}
    return {"full_page": True, "clip": clip}


_WORST = "details[open] .sample"

SCREENS = {
    f"{text}-{width}{'-dark' * dark}.png": (
        f"terminal-{width}" if text == "terminal" else text,
        View(width, None if parts else height, parts, dark),
    )
    for text, parts in {
        "report": (),
        "history": (),
        "terminal": ("pre",),
    }.items()
    for width, height in WIDTHS.items()
    for dark in (False, True)
}

PICTURES: Mapping[str, tuple[str, View]] = {
    "paired-chains.png": ("report", View(1300, parts=(_WORST, f"{_WORST} + .pairs"))),
    "plots.png": ("report", View(1300, parts=("#suite-1", "#suite-1 ~ .scroll"))),
    **SCREENS,
}
"""File -> the text that it shows, and what of it."""


if __name__ == "__main__":
    main()
