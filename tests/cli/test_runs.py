"""The commands on what real runs of pytest report, from the first acceptance to pruning."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Home
from tests.cli.reports import CASES, GATED
from tests.documents import flat_report
from tests.plugin.project import INI, TEST_MODULE, contents, run_plainly
from tests.studies.toy import write_suite

MODEL = "shapes:?miss=0.3"


def make_project(folder: Path, text: str = GATED) -> Path:
    """A folder in which pytest gates the toy suite."""
    folder.mkdir(exist_ok=True)
    write_suite(folder, text)
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_toy.py").write_text(TEST_MODULE)
    return folder


def cases_of(report: Path) -> list[dict[str, Any]]:
    """The judged cases of a report."""
    cases: list[dict[str, Any]] = flat_report(json.loads(report.read_text()))["cases"]
    return cases


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine where the suite was run once, nothing accepted; only to be copied."""
    folder = make_project(tmp_path_factory.mktemp("machine"))
    assert run_plainly(folder, f"--model={MODEL}", "--cep-report=r.json") == 1
    return folder


@pytest.fixture
def elsewhere(home: Home, ran: Path) -> Home:
    """A folder with nothing but that run's report: no suite, no store, no tests."""
    (home.path / "suite.toml").unlink()
    shutil.copy(ran / "r.json", home.path)
    return home


@pytest.mark.slow
def test_what_was_accepted_elsewhere_holds(elsewhere: Home, ran: Path, tmp_path: Path) -> None:
    """The baselines are those of `--snapshot-update` except [accepted]; the run then passes."""
    ended = elsewhere.command("accept", "r.json", "--reason=the first", "--baselines=accepted")
    assert ended.code == 0
    assert sorted(path.name for path in elsewhere.path.iterdir()) == ["accepted", "r.json"]
    copy = tmp_path / "copy"
    shutil.copytree(ran, copy)
    assert run_plainly(copy, f"--model={MODEL}", "--snapshot-update") == 0
    written = contents(elsewhere.path / "accepted")
    assert len(written) == CASES
    assert {
        name: re.sub(rb"\n\[accepted\]\n(.+\n)+", b"", data) for name, data in written.items()
    } == contents(copy / "baselines")
    accepted = f"--cep-baselines={elsewhere.path / 'accepted'}"
    assert run_plainly(copy, f"--model={MODEL}", accepted) == 0
    verdicts = {case["verdict"] for case in cases_of(copy / ".cepbench" / "report.json")}
    assert verdicts == {"held"}
