"""`cepbench doctor`: what a set-up can see, checked before anything is gated with it.

`--report` prints what a bug report needs instead: versions, settings, the outcome of a run.
"""

from __future__ import annotations

import os
import platform
import tomllib
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as IniError
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from pytest_cepbench.cli.output import NOT_DONE, Section, Table, show, tell, write_and_show
from pytest_cepbench.cli.session import measuring, read_trial, spent_line
from pytest_cepbench.errors import SpecError
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.files import parse_toml, read_text
from pytest_cepbench.report.number_format import counted, number
from pytest_cepbench.studies.calibration import prepare_calibration
from pytest_cepbench.studies.doctor import Diagnosis, examine
from pytest_cepbench.studies.doctor.diagnosis import Cell
from pytest_cepbench.suites import load_suite


def run(arguments: Namespace) -> int:
    """Check, print, and write the page; exit codes as in `main`, 1 also for a problem."""
    if arguments.report is not None:
        show(list(_set_up(arguments.report)))
        return 0
    if arguments.suite is None:
        raise SpecError("a SUITE is expected, as in `cepbench doctor suites/mine`, or --report")
    if arguments.model is None:
        _take_accepted_model(arguments)
    trial = read_trial(arguments)
    with measuring(arguments.store, trial.suite) as (pool, begin):
        prepared = prepare_calibration(trial, pool)
        begin()
        diagnosis = examine(prepared, pool, arguments.baselines, tell)
    write_and_show(arguments, diagnosis, doctor_page(diagnosis), f"doctor-{diagnosis.suite}")
    return NOT_DONE if diagnosis.problems else 0


def _take_accepted_model(arguments: Namespace) -> None:
    """Where a role is left open, the model that was accepted in it stands in for `--model`."""
    suite = load_suite(arguments.suite)
    for path in sorted((arguments.baselines / suite.name).glob("*.toml")):
        with suppress(OSError, ValueError, KeyError):
            model = parse_toml(read_text(path))["model"]
            role, spec = model["role"], model["spec"]
            if getattr(suite.table.roles, role, None) or getattr(arguments, role, None):
                return
            arguments.model, arguments.role = spec, arguments.role or role
            tell(f"model: {spec}, which was accepted for this suite; --model names another")
            return


def doctor_page(diagnosis: Diagnosis) -> list[Section]:
    """The sections of a diagnosis: what was checked, each check, what to do."""
    checks = diagnosis.checks
    statuses = Counter(check.status for check in checks)
    found = [counted(statuses[s], s) for s in ("problem", "remark") if statuses[s]]
    seeds = f"seeds {diagnosis.seeds[0]} to {diagnosis.seeds[-1]}"
    opening = (
        f"suite {diagnosis.suite}, version {diagnosis.version}, {diagnosis.samples} samples",
        f"{diagnosis.under_test} {diagnosis.model}, {seeds}; models:",
        *(f"  {model.seat} {model.spec} ({model.identity})" for model in diagnosis.players),
        *(f"store: {note}: computed again" for note in diagnosis.damage),
        spent_line(diagnosis.effort),
    )
    summary = Table(("check", "result"), tuple((check.name, check.status) for check in checks))
    title = f"doctor of {diagnosis.suite}: {', '.join(found) or 'nothing found'}"
    sections = [Section(title, (*opening, summary))]
    for check in checks:
        tables = [
            Table(figures.head, tuple(tuple(map(_cell, row, figures.head)) for row in figures.rows))
            for figures in check.figures
        ]
        sections.append(Section(f"{check.name}: {check.status}", (*check.said, *tables)))
    advice = [advice for check in checks for advice in check.advice]
    if advice:
        sections.append(Section("what to do", tuple(f"- {line}" for line in dict.fromkeys(advice))))
    return sections


def _cell(value: Cell, head: str) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if head == "seconds" else number(value)
    return "-" if value is None else str(value)


# -- what a bug report needs -----------------------------------------------------------------------

_SHOWN = ("CEPBENCH_", "CUDA_", "HF_", "OMP_", "PYTEST_", "RAY_", "SLURM_JOB_NUM", "TORCH_")
"""Beginnings of the environment variables that change how a run behaves."""

_LIBRARIES = (
    "accelerate", "anyio", "clean-fid", "diffusers", "filelock", "httpx2", "huggingface_hub",
    "jinja2",
    "msgspec", "numpy", "open_clip_torch", "peft", "pillow", "pyarrow", "pytest", "ray",
    "rich", "s3fs", "safetensors", "scipy", "sentence-transformers", "syrupy", "timm", "torch",
    "torchvision", "transformers",
)  # fmt: skip


def _set_up(report: str) -> Iterator[Section]:
    """Versions, settings, and the outcome of a run. report: its JSON file; empty for none.

    Raises SpecError for a file that is no report.
    """
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"{platform.python_version()} on {system}, {os.cpu_count()} processors"
    known = {name.lower().replace("-", "_") for name in _LIBRARIES}
    found = {}
    for package in distributions():
        plugin = any(entry.group == "pytest11" for entry in package.entry_points)
        if plugin or package.name.lower().replace("-", "_") in known:
            found[package.name] = package.version
    versions = (("Python", python), *sorted(found.items(), key=lambda item: item[0].lower()))
    yield Section("versions", (Table(("package", "version"), versions),))
    own = sorted(item for item in os.environ.items() if item[0].startswith(_SHOWN))
    lines = [f"{name}={value}" for name, value in own]
    for name in ("pytest.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"):
        settings = _pytest_settings(Path(name))
        lines += [f"{name}: {key} = {value}" for key, value in settings.items()]
        if settings:
            break
    masked = tuple(map(_masked, lines))
    yield Section("settings", masked or ("none in the environment, pytest.ini or pyproject.toml",))
    if report:
        yield _outcome(Path(report))


def _pytest_settings(path: Path) -> dict[str, Any]:
    """What a file sets for pytest; nothing where it cannot be read."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".toml":
            document = tomllib.loads(text)
            tool = document if path.name == "pytest.toml" else document.get("tool", {})
            own = tool.get("pytest", {})
            return dict(own.get("ini_options", own))
        parser = ConfigParser(interpolation=None)
        parser.read_string(text)
    except (OSError, ValueError, IniError):
        return {}
    section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    return dict(parser[section]) if section in parser else {}


def _outcome(path: Path) -> Section:
    """Verdicts, problems and failures of a run; no names of models, samples or files."""
    report = read_report(path)
    verdicts = Counter(case.verdict for case in report.cases)
    failures: Counter[str] = Counter()
    for case in report.cases:
        failures |= Counter(case.failures)
    lines = [
        f"verdict: {report.verdict}; {len(report.cases)} cases: "
        + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())),
        *(f"problem: {_masked(problem)}" for problem in report.problems),
        *(
            f"failures, {kind}: {count} in the case that has most"
            for kind, count in failures.items()
        ),
    ]
    if report.deaths:
        lines.append(f"workers that died: {report.deaths}")
    return Section("outcome of the run", tuple(lines))


def _masked(text: str) -> str:
    """Without keys, and without the name of the user in paths."""
    home, masked = str(Path.home()), mask_secrets(text)
    return masked.replace(home, "~") if len(home) > 1 else masked
