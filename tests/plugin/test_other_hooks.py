"""The exit code follows the ledger, whatever marks, hooks and plugins do to reports or session."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plugin.project import BOTH, REGRESSED, SLOWLY_BOTH, TEST_MODULE, Project

XFAIL = "import pytest\n\npytestmark = pytest.mark.xfail(strict=False)\n\n" + TEST_MODULE

MARKS = {
    "module": (XFAIL, ""),
    "collection": (
        TEST_MODULE,
        (
            "def pytest_collection_modifyitems(items):\n"
            "    for item in items:\n        item.add_marker(pytest.mark.xfail(strict=False))\n"
        ),
    ),
    "imperative": (
        (
            "import pytest\n\ndef test_drift(cep_case, cep_gate):\n    try:\n"
            "        cep_gate(cep_case)\n    except BaseException:\n        pytest.xfail('known')\n"
        ),
        "",
    ),
}
"""Module and conftest.py of tests that are expected to fail, each in its own way."""

_MAKEREPORT = """\
@pytest.hookimpl({order})
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        {change}
    return report
"""

_SKIP = "report.outcome, report.longrepr = 'skipped', ('here', 1, 'Skipped: flaky')"

_PASS = "report.outcome, report.longrepr = 'passed', None"

_FRESH = "report = pytest.TestReport(item.nodeid, item.location, {}, 'passed', None, call.when)"

_FINISH = "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"

HOOKS = {
    "skip-outermost": _MAKEREPORT.format(order="wrapper=True, tryfirst=True", change=_SKIP),
    "pass": _MAKEREPORT.format(order="wrapper=True", change=_PASS),
    "fresh": _MAKEREPORT.format(order="wrapper=True, tryfirst=True", change=_FRESH),
    "logreport": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n"
    "    report.outcome, report.longrepr = 'passed', None\n",
    "teststatus": "@pytest.hookimpl(tryfirst=True)\ndef pytest_report_teststatus(report):\n"
    "    return 'passed', '.', 'PASSED'\n",
    "finish": _FINISH,
    "finish-last": "@pytest.hookimpl(trylast=True)\n" + _FINISH,
    "finish-around": "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_sessionfinish(session):\n    yield\n    session.exitstatus = 0\n",
    "finish-256": _FINISH.replace("= 0", "= 256"),
    "finish-exit": "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_sessionfinish(session):\n    yield\n    pytest.exit('green', returncode=0)\n",
    "unconfigure": "def pytest_sessionstart(session):\n    session.config.kept = session\n\n"
    "def pytest_unconfigure(config):\n    config.kept.exitstatus = 0\n",
    "main": "@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_cmdline_main(config):\n"
    "    yield\n    return 0\n",
}
"""Hooks of a conftest.py that would turn the run green."""

SOME = ("-k", "crowded")


def _conftest(project: Project, text: str) -> None:
    project.write("conftest.py", f"import pytest\n\n{text}")


@pytest.mark.parametrize("how", MARKS)
def test_an_xfail_mark_excuses_no_verdict(accepted: Project, how: str) -> None:
    """However marked, a test fails on a regression; the report says so, and why no mark helps."""
    module, conftest = MARKS[how]
    accepted.write("test_toy.py", module)
    _conftest(accepted, conftest)
    result = accepted.run_here(*SOME, REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["regressed: toy, crowded, GC@2 (*", "*an xfail mark excuses no verdict: *"]
    )
    assert accepted.report()["verdict"] == "failed"


def test_an_xfail_mark_on_a_case_that_holds_is_let_be(accepted: Project) -> None:
    """What was expected to fail and holds is pytest's XPASS, and the run is green."""
    accepted.write("test_toy.py", XFAIL)
    result = accepted.run_here(*SOME)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(xpassed=1)
    assert accepted.verdicts() == {"crowded-gc": "held"}


@pytest.mark.parametrize(
    "module",
    [XFAIL.replace("strict=False", "run=False"), XFAIL.replace("cep_gate(cep_case)", "1 / 0")],
    ids=["not-run", "fails-before"],
)
def test_a_case_that_is_expected_to_fail_and_not_judged_is_incomplete(
    accepted: Project, module: str
) -> None:
    """An expected failure is no skip: the case was selected, and nothing is known of it."""
    accepted.write("test_toy.py", module)
    result = accepted.run_here(*SOME)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(
        ["INCOMPLETE: 1 tests ended before cep_gate judged their case: *crowded-gc?"]
    )


TOGETHER = [
    ("fresh", "finish"), ("pass", "logreport", "teststatus", "finish-256"),
    ("skip-outermost", "finish-exit"), ("unconfigure", "main", "finish-around"),
]  # fmt: skip


@pytest.mark.parametrize(
    "hooks",
    [*TOGETHER, *(pytest.param((hook,), marks=pytest.mark.slow) for hook in HOOKS)],
    ids="+".join,
)
def test_no_hook_turns_a_regression_into_a_pass(accepted: Project, hooks: tuple[str, ...]) -> None:
    """Exit code 1 from the process and from `pytest.main`, and a report that says failed."""
    _conftest(accepted, "\n".join(HOOKS[hook] for hook in hooks))
    result = accepted.run_here(*SOME, REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.report()["verdict"] == "failed"
    assert accepted.verdicts() == {"crowded-gc": "regressed"}
    if "finish-exit" not in hooks:
        result.stdout.fnmatch_lines(["REGRESSED *crowded GC@2 *"])


def test_the_same_hooks_leave_a_case_that_holds_alone(accepted: Project) -> None:
    """All that can stand beside each other: the run is green, and every case judged."""
    together = ("skip-outermost", "logreport", "teststatus", "finish-last", "unconfigure")
    _conftest(accepted, "\n".join(HOOKS[name] for name in together))
    result = accepted.run_here(*SOME)
    assert result.ret == pytest.ExitCode.OK
    assert accepted.report()["verdict"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("hooks", [("fresh", "finish"), ("logreport", "main")], ids="-".join)
def test_workers_keep_what_hooks_take_from_reports(
    accepted: Project, hooks: tuple[str, ...]
) -> None:
    """On two workers, with hooks in each of them and on the controller."""
    accepted.write("test_toy.py", XFAIL)
    _conftest(accepted, "\n".join(HOOKS[name] for name in hooks))
    result = accepted.run("-n", "2", "-k", "crowded or color", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.report()["verdict"] == "failed"
    assert accepted.verdicts()["crowded-gc"] == "regressed"


@pytest.mark.parametrize(
    "arguments",
    [("-p", "no:terminal", "--maxfail=1"), ("--no-summary", "--lf", "-q", "-q")],
    ids=" ".join,
)
def test_no_option_hides_a_regression(accepted: Project, arguments: tuple[str, ...]) -> None:
    """Exit code 1 in the quiet too, and beside a hook that would have it green."""
    _conftest(accepted, HOOKS["finish-around"])
    assert accepted.run_here(*SOME, REGRESSED, *arguments).ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.slow
def test_a_process_that_leaves_by_itself_ends_with_the_code_of_the_ledger(
    accepted: Project,
) -> None:
    """A hook that calls `sys.exit(0)` at the end ends no regressed run as a pass."""
    _conftest(accepted, "import sys\n\ndef pytest_unconfigure():\n    sys.exit(0)\n")
    command = [sys.executable, "-m", "pytest", *SOME]

    def code(*arguments: str) -> int:
        return subprocess.call(arguments, cwd=accepted.path, stdout=subprocess.DEVNULL)

    assert code(*command, REGRESSED) == pytest.ExitCode.TESTS_FAILED
    assert code(*command) == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("    raise KeyboardInterrupt\n", pytest.ExitCode.INTERRUPTED),
        ("    pytest.exit('enough', returncode=7)\n", 7),
    ],
    ids=["interrupted", "left"],
)
def test_a_worse_exit_code_is_not_made_better(accepted: Project, body: str, code: int) -> None:
    """An interrupt after a regression stays an interrupt."""
    accepted.write(
        "test_toy.py", f"import pytest\n\n{TEST_MODULE}\ndef test_last(cep_case):\n{body}"
    )
    result = accepted.run("-p", "no:xdist", *SOME, REGRESSED)
    assert result.ret == code


@SLOWLY_BOTH
def test_a_test_loop_that_runs_nothing_is_incomplete(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """Another plugin that runs the tests elsewhere, or not at all, has judged none of the cases."""
    loop = "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop(session):\n    return True\n"
    _conftest(accepted, loop + HOOKS["finish"])
    result = accepted.run(*arguments, "--model=shapes:")
    assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def test_a_model_that_no_test_was_selected_for_is_no_pass(accepted: Project) -> None:
    """Who names a model and selects nothing is told so by exit code 5, which no hook makes a 0."""
    _conftest(accepted, _FINISH)
    none = pytest.ExitCode.NO_TESTS_COLLECTED
    assert accepted.run_here("--model=shapes:", "-k", "typo").ret == none
    assert accepted.run_here("--model=shapes:", "--deselect", "test_toy.py").ret == none
    assert accepted.run_here("-k", "typo").ret == pytest.ExitCode.OK  # nothing of ours


@pytest.mark.slow
@BOTH
def test_a_suite_that_cannot_be_collected_is_no_pass(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """Where collection errors are passed over and the exit status is set, its cases are missed."""
    accepted.write("sick/suite.toml", "name = 3\n")
    accepted.write("sick/test_sick.py", TEST_MODULE)
    _conftest(accepted, HOOKS["finish-around"])
    result = accepted.run(*arguments, "--continue-on-collection-errors", "-k", "color or sick")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["INCOMPLETE: 1 modules could not be collected: sick/test_sick.py"])
    assert accepted.verdicts() == {"color-gc": "held"}


def test_a_failing_test_accepts_nothing_though_the_exit_status_is_set(toy: Project) -> None:
    """What pytest itself said of the session counts where baselines are taken over."""
    toy.write("test_plain.py", "def test_plain(): assert False\n")
    _conftest(toy, _FINISH)
    toy.run_here("-k", "color or plain", "--snapshot-update")
    assert not toy.baselines.exists() or not list(toy.baselines.rglob("*.toml"))
