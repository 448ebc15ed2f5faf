"""What verdicts put on the wire: built-in types, whatever numbers a user's code hands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import MODES
from tests.plugin.scored_project import ScoredProject, model, scored_suite

SPY = """\
import pathlib

def inexact(value, where):
    if type(value) is dict:
        for key, item in value.items():
            yield from inexact(key, where)
            yield from inexact(item, f"{where}.{key}")
    elif type(value) in (list, tuple):
        for item in value:
            yield from inexact(item, where)
    elif value is not None and type(value) not in (str, int, float, bool):
        yield f"{where}: {type(value).__name__}"

def pytest_runtest_logreport(report):
    if report.when == "call":
        sent = {"cepbench": report.cepbench, "user_properties": report.user_properties}
        with pathlib.Path("sent").open("a") as log:
            log.write("".join(f"{line}\\n" for line in [report.nodeid, *inexact(sent, "")]))
"""
"""A conftest.py that writes down every report, and what on it is not of a built-in type exactly."""


MODULE = """\
import numpy as np
import pytest

@pytest.mark.cep(tolerance=np.float64(0.25))
def test_marked(cep_case, cep_gate):
    assert cep_gate(cep_case).tolerance == 0.25

def test_called(cep_case, cep_gate):
    assert cep_gate(cep_case, tolerance=np.float64(0.25)).tolerance == 0.25
"""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """A project whose tests say their tolerances in NumPy's numbers."""
    suite = scored_suite(n=12, categories=("a", "b"))
    project = ScoredProject.make(tmp_path_factory.mktemp("wire"), suite, MODULE)
    project.accept()
    return project


@pytest.mark.parametrize("mode", ["n0", "n2"])
def test_no_case_vanishes(accepted: ScoredProject, mode: str) -> None:
    """With NumPy's tolerances every case arrives, workers or not, in JUnit's old family too."""
    ended = accepted.run(
        *MODES[mode], "--junitxml=j.xml", "-o", "junit_family=xunit1", model(drop=0.05, spread=0.01)
    )
    assert ended.code == pytest.ExitCode.OK
    assert ended.report["problems"] == []
    assert [case["tolerance"] for case in ended.report["cases"]] == [0.25] * 6


def test_every_field_of_a_verdict_is_built_in(accepted: ScoredProject, tmp_path: Path) -> None:
    """Bounds, looks, anchor, hops, chains and measurement: before they are sent, not after."""
    project = accepted.copy(tmp_path / "spied")
    project.accept(model(drop=0.001, spread=0.001), "-k", "called")
    (project.path / "conftest.py").write_text(SPY)
    worse = model(drop=0.5, spread=0.01)
    ended = project.run(worse, "-k", "called", "--cep-inconclusive=more")
    filled = ("low", "high", "alpha", "visible", "looks", "anchor", "hops", "chains", "measured")
    assert all(case[name] for case in ended.report["cases"] for name in filled)
    assert (project.path / "sent").read_text().splitlines() == [
        f"test_scored.py::test_called[{part}-gc]" for part in ("a", "b", "overall")
    ]


@pytest.mark.parametrize("value", ["-1", "float('nan')", "np.float64(-1)", "'0.1'"])
def test_a_tolerance_that_is_none_is_one_message(
    accepted: ScoredProject, value: str, tmp_path: Path
) -> None:
    """In the call as in the marker: what is expected, and no traceback into the plugin."""
    project = accepted.copy(tmp_path / "called")
    (project.path / "test_scored.py").write_text(
        "import numpy as np\n\ndef test_drift(cep_case, cep_gate):\n"
        f"    cep_gate(cep_case, tolerance={value})\n"
    )
    ended = project.run("-k", "overall")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert "tolerance is a number of at least 0, got" in ended.output
    assert "judging.py" not in ended.output
