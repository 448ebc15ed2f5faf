"""No comparison, no pass: tests that forget or skip the gate, lost reports, modes without tests."""

from __future__ import annotations

import pytest

from tests.plugin.project import REGRESSED, SHAPES, SLOWLY_BOTH, Project, contents

ABSENT = SHAPES.replace('name = "toy"', 'name = "absent"').replace(
    'loader = "shapes"\noptions = { samples_per_category = 2 }',
    'loader = "folder"\nname = "holiday"\nhow_to_get = "Ask your aunt."',
)


@SLOWLY_BOTH
def test_a_test_that_never_calls_the_gate_makes_the_run_incomplete(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """A test that takes a case and passes without judging it fails the run, by its name."""
    accepted.write("test_toy.py", "def test_drift(cep_case): pass\n")
    before = contents(accepted.baselines)
    result = accepted.run(*arguments, "-k", "color", "--snapshot-update")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(
        ["INCOMPLETE: 1 tests passed without calling cep_gate: test_toy.py::test_drift?color-gc?"]
    )
    assert contents(accepted.baselines) == before


@pytest.mark.parametrize("then", ["pass", "pytest.skip('not today')"], ids=["pass", "skip"])
def test_the_gates_failure_cannot_be_swallowed(accepted: Project, then: str) -> None:
    """A test that catches what the gate raises still fails."""
    accepted.write(
        "test_toy.py",
        "import pytest\n\ndef test_drift(cep_case, cep_gate):\n"
        f"    try:\n        cep_gate(cep_case)\n    except BaseException:\n        {then}\n",
    )
    result = accepted.run_here("-vv", "-k", "crowded", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["regressed: toy, crowded, GC@2 *"])


def test_a_failure_beside_a_held_gate_is_a_plain_failure(accepted: Project) -> None:
    """A test that fails for a reason of its own is not shown as held."""
    accepted.write(
        "test_toy.py",
        "def test_drift(cep_case, cep_gate):\n    assert cep_gate(cep_case).value > 2\n",
    )
    result = accepted.run_here("-v", "-k", "color")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*color-gc? FAILED *", "HELD *color GC@2 *"])


@SLOWLY_BOTH
def test_absent_data_is_not_green_beside_plain_tests(
    project: Project, arguments: tuple[str, ...]
) -> None:
    """Neither a plain test that passes nor a suite elsewhere hides that nothing was judged."""
    project.suite(ABSENT, "data")
    (project.path / "data" / "test_absent.py").unlink()
    project.write(
        "test_here.py",
        "import pytest\n\ndef test_plain(): pass\n\n@pytest.mark.cep(suite='data/suite.toml')\n"
        "def test_drift(cep_case, cep_gate): cep_gate(cep_case)\n",
    )
    result = project.run(*arguments, "-rs")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "no case was judged: nothing is known of the model",
            "SKIPPED * 'holiday' is not here: give it with --cep-data holiday=PATH. Ask your aunt.",
        ]
    )


def test_a_report_that_cannot_be_sent_fails_the_run(accepted: Project) -> None:
    """A NumPy scalar that a plugin puts on a report makes xdist lose it: the ledger misses it."""
    accepted.write(
        "conftest.py",
        """\
import numpy, pytest

@pytest.fixture(autouse=True)
def poison(request, record_property):
    yield
    if "count" in request.node.name:
        record_property("score", numpy.float64(0.5))
""",
    )
    # syrupy warns of the lost report, which strict settings turn into a crash of pytest itself.
    result = accepted.run("-n", "2", "-W", "default", "-o", "junit_family=xunit1")
    assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert accepted.report()["verdict"] == "incomplete"
    assert any("count" in problem for problem in accepted.report()["problems"])


def test_another_plugin_that_fails_at_the_end_takes_no_report_along(accepted: Project) -> None:
    """When another plugin's sessionfinish raises, the run is judged and reported all the same."""
    accepted.write("conftest.py", "def pytest_sessionfinish():\n    raise RuntimeError('theirs')\n")

    result = accepted.run_here(REGRESSED)

    assert result.ret != pytest.ExitCode.OK
    assert "regressed" in accepted.verdicts().values()
    assert accepted.report()["verdict"] == "failed"


def _refused(result: pytest.RunResult, option: str) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    everything = result.stdout.str() + result.stderr.str()
    assert f"ERROR: {option} calls no test, so no case would be judged: " in everything
    assert "Traceback" not in everything
    assert "INTERNALERROR" not in everything


def test_addopts_and_the_environment_are_no_way_round(
    accepted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that a file or a variable adds is refused like one that was typed."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--setup-only")
    _refused(accepted.run_here(), "--setup-only")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    accepted.edit("pytest.ini", "addopts =", "addopts = --setup-plan")
    _refused(accepted.run_here(), "--setup-plan")


@pytest.mark.parametrize("option", ["--fixtures", "--fixtures-per-test"])
def test_listings_judge_nothing_and_say_nothing(accepted: Project, option: str) -> None:
    """What lists fixtures, markers or cases is no run: no summary or report, pytest's exit code."""
    result = accepted.run_here("-p", "cacheprovider", option)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*cepbench summary*")
