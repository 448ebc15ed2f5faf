"""Exit code and verdict of runs of every kind: what CI acts on.

One run of each kind; what else is tried against the exit code is listed in docs/threat-model.md,
each with the test that pins it, and `tests/docs/test_docs.py` checks that these exist. What
becomes of a fault in each model is the table of `tests/plugin/test_fail_closed_matrix.py`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.documents import flat_report
from tests.golden.frozen import assert_frozen
from tests.plugin.project import ABSENT, REGRESSED, SHAPES, run_plainly

SOME = ("-k", "crowded")

SUITE, MODULE = "suite.toml", "test_toy.py"

SKIPPED = """\
import pytest

def test_drift(cep_case, cep_gate):
    pytest.skip("not today")
"""

FINISHED = """\
import pytest

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 0
"""

RAISES = """\
class Model:
    fingerprint = "mine/1"
    def describe(self, images, prompt, seeds):
        raise ValueError("no")
"""

PAIRED = SHAPES.replace('gate = "threshold"', "tolerance = 0.01")
"""Judged with statistics, of which two samples are too few."""

INFORMATIONAL = SHAPES.replace("[gate]\n", '[gate]\nprimary = ["failures"]\n')

MINE = ("--model=python:mine:Model", "--cep-role=describer")


@dataclass(frozen=True)
class Run:
    """arguments: of pytest. files: of the project, where they differ from those accepted."""

    arguments: tuple[str, ...] = SOME
    files: Mapping[str, str] = field(default_factory=dict)


RUNS: Mapping[str, Run] = {
    "held": Run(),
    "regressed": Run((*SOME, REGRESSED)),
    "regressed, informational": Run(
        (*SOME, REGRESSED), {SUITE: INFORMATIONAL}
    ),
    "inconclusive": Run((*SOME, REGRESSED), {SUITE: PAIRED}),
    "inconclusive fails": Run((*SOME, REGRESSED, "--cep-inconclusive=fail"), {SUITE: PAIRED}),
    "no baseline": Run((*SOME, "--cep-baselines=none")),
    "incomparable": Run(SOME, {SUITE: SHAPES.replace('"describe"', '"describe it"')}),
    "accepted": Run((*SOME, "--snapshot-update")),
    "refused at chance": Run(("--snapshot-update", "--model=shapes:?miss=1")),
    "damaged baselines": Run((*SOME, "--cep-baselines=damaged")),
    "model raises": Run((*SOME, *MINE), {"mine.py": RAISES}),
    "gate is never called": Run(SOME, {MODULE: "def test_drift(cep_case): pass\n"}),
    "hook ends a regression with 0": Run((*SOME, REGRESSED), {"conftest.py": FINISHED}),
    "skipped before its gate": Run(SOME, {MODULE: SKIPPED}),
    "skipped where that is allowed": Run((*SOME, "--cep-allow-skips"), {MODULE: SKIPPED}),
    "interrupted": Run(SOME, {MODULE: "def test_drift(cep_case): raise KeyboardInterrupt\n"}),
    "data is absent": Run((), {SUITE: ABSENT}),
    "nothing is selected": Run(("-k", "nothing", "--model=shapes:")),
    "unknown value": Run((*SOME, "--cep-inconclusive=maybe")),
    "unknown parameter": Run((*SOME, "--model=shapes:?mis=1")),
    "unknown metric": Run(SOME, {SUITE: SHAPES.replace("metrics.gc", "metrics.gd")}),
    "plan": Run((*SOME, "--cep-plan")),
    "cases are listed": Run((*SOME, "--collect-only")),
}  # fmt: skip


def test_exit_codes_and_verdicts(accepted_root: Path, tmp_path: Path) -> None:
    """Each kind of run on a copy of the accepted toy, whose store holds the results of its models.

    Beside its baselines lie damaged ones, and a folder without any. The verdicts of the cases are
    counted; there are none where there is no report.
    """
    project = Path(shutil.copytree(accepted_root, tmp_path / "toy"))
    shutil.copytree(project / "baselines", project / "damaged")
    for path in (project / "damaged").rglob("*.toml"):
        path.write_text("format = ")
    (project / "none").mkdir()
    (project / ".cepbench" / "report.json").unlink()
    frozen: dict[str, dict[str, Any]] = {}
    for name, run in RUNS.items():
        root = project.with_name(name)
        shutil.copytree(project, root)
        for file, text in run.files.items():
            (root / file).write_text(text)
        frozen[name] = {"exit code": run_plainly(root, *run.arguments)}
        report = root / ".cepbench" / "report.json"
        if report.exists():
            document = flat_report(json.loads(report.read_text("utf-8")))
            counted = Counter(case["verdict"] for case in document["cases"])
            frozen[name] |= {"run": document["verdict"], "cases": dict(counted)}
        shutil.rmtree(root)
    assert_frozen("exit_codes.json", frozen)
