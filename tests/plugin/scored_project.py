"""A project over `scored.py` for tests that share their runs: a folder, and what each run left."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.documents import flat_report
from tests.plugin import warm
from tests.plugin.project import INI, TEST_MODULE, without_effort

ACCEPT = "--snapshot-update"


def scored_suite(
    *, n: int = 40, categories: Sequence[str] = ("one",), rest: str = "[metrics.gc]\n"
) -> str:
    """The text of a suite over so many samples of each category. rest: metrics, gate and cases."""
    return f"""\
name = "scored"
version = 1
[data]
loader = "python:scored:load"
options = {{ n = {n}, categories = {json.dumps(list(categories))} }}
[chain]
iterations = 1
[prompts]
describe = "describe"
[roles]
describer = "python:scored:Describer"
generator = "python:scored:Generator"
encoder = "python:scored:Encoder"
{rest}"""


def model(**knobs: float | str) -> str:
    """The argument that gates a describer with these knobs; see `scored.Describer`."""
    query = "&".join(f"{name}={value}" for name, value in knobs.items())
    return f"--model=python:scored:Describer{f'?{query}' if query else ''}"


@dataclass(frozen=True)
class Ended:
    """A run that ended. report: its JSON document, empty where it wrote none."""

    code: int
    output: str
    errors: str
    report: dict[str, Any]

    @property
    def lines(self) -> pytest.LineMatcher:
        """What it printed."""
        return pytest.LineMatcher(self.output.splitlines())

    @property
    def cases(self) -> dict[str, dict[str, Any]]:
        """The judged cases by part and metric (`overall-gc`)."""
        return {f"{case['part']}-{case['metric']}": case for case in self.report["cases"]}

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict by part and metric."""
        return {name: case["verdict"] for name, case in self.cases.items()}

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """The judged cases without what may differ between equal runs."""
        return without_effort(self.report["cases"])

    @property
    def inputs(self) -> int:
        """Inputs given to models."""
        return sum(case["effort"]["inputs"] for case in self.report["cases"])


@dataclass(frozen=True)
class ScoredProject:
    """A folder with a suite over scores set by hand."""

    path: Path

    @classmethod
    def make(cls, path: Path, suite: str, module: str = TEST_MODULE) -> ScoredProject:
        """In a folder that is made where it is not there."""
        path.mkdir(exist_ok=True)
        shutil.copy(Path(__file__).with_name("scored.py"), path)
        texts = {"pytest.ini": INI, "suite.toml": suite, "test_scored.py": module}
        for name, text in texts.items():
            (path / name).write_text(text)
        return cls(path)

    def copy(self, path: Path) -> ScoredProject:
        """The same project elsewhere, with baselines and store."""
        return ScoredProject(Path(shutil.copytree(self.path, path, dirs_exist_ok=True)))

    @property
    def baselines(self) -> Path:
        """The suite's accepted baselines."""
        return self.path / "baselines" / "scored"

    def baseline(self, case: str, *, anchor: bool = False) -> Path:
        """The file of a case (`overall-gc`)."""
        (path,) = (self.baselines / "anchors" if anchor else self.baselines).glob(f"{case}-*.toml")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a piece of a file, which must be there."""
        text = (self.path / name).read_text()
        assert old in text
        (self.path / name).write_text(text.replace(old, new))

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Ended:
        """Run pytest here in its own process, without xdist unless the arguments ask for it."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
        modes = () if {"-n", "-p"} & set(args) else ("-p", "no:xdist")
        report = self.path / ".cepbench" / "report.json"
        report.unlink(missing_ok=True)
        arguments = ("-p", "no:cacheprovider", *modes, *args)
        code, output, errors = warm.run(self.path, arguments, clean | dict(env or {}))
        document = flat_report(json.loads(report.read_text()) if report.exists() else {})
        assert "INTERNALERROR" not in output + errors
        return Ended(code, output, errors, document)

    def accept(self, *args: str) -> Ended:
        """Run with `--snapshot-update`, which must succeed."""
        ended = self.run(ACCEPT, *args)
        assert ended.code == pytest.ExitCode.OK, ended.output
        return ended


def junit_properties(path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Properties of the whole JUnit file, and of each test case by name."""

    def properties(of: ET.Element | None) -> dict[str, str]:
        elements = () if of is None else of.iterfind("properties/property")
        return {element.attrib["name"]: element.attrib["value"] for element in elements}

    root = ET.parse(path).getroot()
    cases = {case.attrib["name"]: properties(case) for case in root.iter("testcase")}
    return properties(root.find("testsuite")), cases
