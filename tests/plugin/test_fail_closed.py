"""No comparison, no pass: the exit code follows the ledger, whatever a project does to its run.

Tests that forget, skip or hide their gate; marks, hooks and options that would have it green;
reports that are lost; modes without tests.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plugin.project import (
    ABSENT,
    REGRESSED,
    SLOWLY_BOTH,
    TEST_MODULE,
    Project,
    contents,
)

FAILED, INCOMPLETE = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR

SOME = ("-k", "crowded")

# -- what tests do: each in a module whose tests have the same case --------------------------------


ONE_CASE = """\
from dataclasses import replace

import pytest

from pytest_cepbench.gate import CaseKey

pytestmark = pytest.mark.cep(categories=["crowded"], metrics=["gc"])

def another(case, part):
    return replace(case, key=CaseKey("toy", part, "gc"), categories=(part,))

"""

SUBTEST = """\

def test_subtest(cep_case, cep_gate, subtests):
    with subtests.test("inner"):
        cep_gate(cep_case)
"""

if not hasattr(pytest, "Subtests"):  # which came with pytest 9
    SUBTEST = SUBTEST.replace("subtests.test", "nullcontext").replace(", subtests", "")
    ONE_CASE = f"from contextlib import nullcontext\n{ONE_CASE}"

HIDING = (
    ONE_CASE
    + """\
@pytest.mark.xfail(strict=False)
def test_marked(cep_case, cep_gate): cep_gate(cep_case)

def test_added(cep_case, cep_gate): cep_gate(cep_case)

def test_xfails(cep_case, cep_gate):
    try:
        cep_gate(cep_case)
    except BaseException:
        pytest.xfail("known")

def test_catches(cep_case, cep_gate):
    try:
        cep_gate(cep_case)
    except BaseException:
        pass

def test_skips(cep_case, cep_gate):
    try:
        cep_gate(cep_case)
    except BaseException:
        pytest.skip("not today")

@pytest.fixture
def before(cep_case, cep_gate): cep_gate(cep_case)

def test_before(before, cep_case): pass

@pytest.fixture
def skipping(cep_case, cep_gate):
    try:
        cep_gate(cep_case)
    finally:
        pytest.skip("enough")

def test_skipped(skipping, cep_case): pass

@pytest.fixture
def after(cep_case, cep_gate):
    yield
    cep_gate(cep_case)

def test_after(after, cep_case): pass

@pytest.fixture
def silent(cep_case, cep_gate):
    yield
    try:
        cep_gate(cep_case)
    except BaseException:
        pass

def test_silent(silent, cep_case): pass
"""
    + SUBTEST
)

WAYS = [line[4:].partition("(")[0] for line in HIDING.splitlines() if line.startswith("def test")]
"""The tests of it."""

UPDATING = """\
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if "added" in item.name:
            item.add_marker(pytest.mark.xfail(strict=False))

class Updating:
    update_snapshots = True

    def use_extension(self, _):
        return lambda name: self

    def __eq__(self, _):
        return True

@pytest.fixture
def snapshot():
    return Updating()
"""
"""A fixture in the place of syrupy's: whether a run accepts is said by its options alone."""


@SLOWLY_BOTH
def test_no_test_hides_its_regression(accepted: Project, arguments: tuple[str, ...]) -> None:
    """By marks, by catching what the gate raises, by judging in a fixture: each of them fails."""
    accepted.write("test_toy.py", HIDING)
    accepted.write("conftest.py", UPDATING)
    result = accepted.run(*arguments, *SOME, "-vv", REGRESSED)
    assert result.ret == FAILED
    assert accepted.report()["verdict"] == "failed"
    verdicts = {case["nodeid"]: case["verdict"] for case in accepted.report()["cases"]}
    assert verdicts == {f"test_toy.py::{name}[crowded-gc]": "regressed" for name in WAYS}
    failures = len(WAYS) + hasattr(pytest, "Subtests")
    # Passed have the calls of those that judge in a teardown.
    counted = result.parseoutcomes()
    counted.pop("deselected", None)
    assert counted == {"failed": failures, "passed": 2}
    shown = result.stdout.str().partition("short test summary info")[0]
    assert shown.count("\nregressed: toy, crowded, GC@2 (") == failures
    assert shown.count("an xfail mark excuses no verdict: ") == 3
    result.stdout.fnmatch_lines(["note: toy/crowded/gc: judged more than once: by *"])


@pytest.mark.parametrize(
    "name", [*WAYS[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in WAYS[1:])]
)
def test_each_of_them_alone_fails_the_run(accepted: Project, name: str) -> None:
    """None is noticed only by what another one does; without syrupy it is the same."""
    accepted.write("test_toy.py", HIDING)
    accepted.write("conftest.py", UPDATING)
    node = f"test_toy.py::{name}"
    assert accepted.run_here(node, REGRESSED, "-p", "no:syrupy").ret == FAILED
    assert accepted.verdicts() == {"crowded-gc": "regressed"}


NOT_JUDGING = (
    ONE_CASE
    + """\
def test_never(cep_case): pass

@pytest.mark.cep(categories=["color", "crowded"])
def test_another(cep_case, cep_gate): cep_gate(another(cep_case, "color"))

@pytest.mark.xfail(run=False)
def test_not_run(cep_case, cep_gate): cep_gate(cep_case)

@pytest.mark.xfail
def test_expected(cep_case, cep_gate): 1 / 0

def test_skips(cep_case): pytest.skip("not today")
"""
)


@SLOWLY_BOTH
def test_a_case_that_its_test_does_not_judge_is_missed(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """By its name, whatever the test did instead; and no baseline is accepted."""
    accepted.write("test_toy.py", NOT_JUDGING)
    before = contents(accepted.baselines)
    some = ("-k", "crowded or another")
    result = accepted.run(*arguments, *some, "--snapshot-update")
    assert result.ret == INCOMPLETE
    assert accepted.report()["verdict"] == "incomplete"
    test = "test_toy.py::test_{}[crowded-gc]".format
    skipped, *problems = accepted.report()["problems"]
    assert skipped.startswith(f"1 case was skipped (not today): {test('skips')}. ")
    assert problems == [
        f"2 tests ended before cep_gate judged their case: {test('expected')}, {test('not_run')}",
        f"1 tests judged another case than their own: {test('another')} (judged toy/color/gc)",
        f"1 tests passed without calling cep_gate: {test('never')}",
    ]
    assert sum(line.startswith("INCOMPLETE: ") for line in result.outlines) == 4
    result.stdout.fnmatch_lines(["note: toy/color/gc: judged more than once: by *"])
    assert contents(accepted.baselines) == before

    failing = "\ndef test_fails(cep_case, cep_gate):\n    assert False\n    cep_gate(cep_case)\n"
    accepted.write("test_toy.py", NOT_JUDGING + failing)
    assert accepted.run(*arguments, *some).ret == FAILED
    assert accepted.report()["verdict"] == "incomplete"
    assert f", {test('fails')}, " in accepted.report()["problems"][1]


LET_BE = (
    ONE_CASE
    + """\
from concurrent.futures import ThreadPoolExecutor

@pytest.mark.xfail(strict=False)
def test_marked(cep_case, cep_gate): cep_gate(cep_case)

def test_two(cep_case, cep_gate):
    cep_gate(cep_case)
    cep_gate(another(cep_case, "count"))

def test_threads(cep_case, cep_gate):  # which crash the store's readers, where two judge at once
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: cep_gate(cep_case), range(4)))
    assert {result.value for result in results} == {1.0}
"""
    + SUBTEST
)


def test_a_case_that_holds_is_let_be(accepted: Project) -> None:
    """Under a mark it is pytest's XPASS; a further case counts, and it is said whose it is not."""
    accepted.write("test_toy.py", LET_BE)
    result = accepted.run_here(*SOME)
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["xpassed"] == 1
    cases = accepted.report()["cases"]
    assert [case["verdict"] for case in cases] == ["held"] * 8
    foreign = "and no test was collected for it"
    noted = [case["part"] for case in cases if any(foreign in note for note in case["notes"])]
    assert noted == ["count"]
    result.stdout.fnmatch_lines([f"note: toy/count/gc: judged by *, {foreign}"])
    fails = "def test_drift(cep_case, cep_gate): assert cep_gate(cep_case).value > 2\n"
    accepted.write("test_toy.py", fails)
    result = accepted.run_here("-v", *SOME)
    assert result.ret == FAILED
    result.stdout.fnmatch_lines(["*crowded-gc? FAILED *", "HELD *crowded GC@2 *"])


def test_where_no_case_is_judged_nothing_is_known_whatever_hooks_say(accepted: Project) -> None:
    """The reason of a skip is printed, and exit code 5, which no hook makes a 0, tells who names a
    model and selects nothing.
    """
    accepted.write("conftest.py", FINISH)
    none = pytest.ExitCode.NO_TESTS_COLLECTED
    assert accepted.run_here("--model=shapes:", "-k", "typo").ret == none
    assert accepted.run_here("--model=shapes:", "--deselect", "test_toy.py").ret == none
    assert accepted.run_here("-k", "typo").ret == pytest.ExitCode.OK  # nothing of ours

    skip = "import pytest\n\ndef test_drift(cep_case, cep_gate): pytest.skip('not today')\n"
    accepted.write("test_toy.py", skip)
    for option, code in ((), INCOMPLETE), (("--cep-allow-skips",), none):
        result = accepted.run_here(*SOME, *option)
        assert result.ret == code
        result.stdout.fnmatch_lines(["skipped: not today", "no case was judged: *"])
        assert not (accepted.path / ".cepbench" / "report.json").exists()


# -- hooks of a conftest.py that would turn the run green ------------------------------------------


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

FINISH = "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"

HOOKS = {
    "skip-outermost": _MAKEREPORT.format(order="wrapper=True, tryfirst=True", change=_SKIP),
    "pass": _MAKEREPORT.format(order="wrapper=True", change=_PASS),
    "fresh": _MAKEREPORT.format(order="wrapper=True, tryfirst=True", change=_FRESH),
    "logreport": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n"
    "    report.outcome, report.longrepr = 'passed', None\n",
    "teststatus": "@pytest.hookimpl(tryfirst=True)\ndef pytest_report_teststatus(report):\n"
    "    return 'passed', '.', 'PASSED'\n",
    "finish": FINISH,
    "finish-last": "@pytest.hookimpl(trylast=True)\n" + FINISH,
    "finish-around": "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_sessionfinish(session):\n    yield\n    session.exitstatus = 0\n",
    "finish-256": FINISH.replace("= 0", "= 256"),
    "finish-exit": "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_sessionfinish(session):\n    yield\n    pytest.exit('green', returncode=0)\n",
    "unconfigure": "def pytest_sessionstart(session):\n    session.config.kept = session\n\n"
    "def pytest_unconfigure(config):\n    config.kept.exitstatus = 0\n",
    "main": "@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_cmdline_main(config):\n"
    "    yield\n    return 0\n",
}


def hooked(*names: str) -> str:
    """A conftest.py with these hooks."""
    return "\n".join(["import pytest\n", *(HOOKS[name] for name in names)])


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
    accepted.write("conftest.py", hooked(*hooks))
    result = accepted.run_here(*SOME, REGRESSED)
    assert result.ret == FAILED
    assert accepted.report()["verdict"] == "failed"
    assert accepted.verdicts() == {"crowded-gc": "regressed"}
    if "finish-exit" not in hooks:
        result.stdout.fnmatch_lines(["REGRESSED *crowded GC@2 *"])
    if "finish-around" in hooks:  # no option hides it either, in the quiet too
        for quiet in ("-p", "no:terminal", "--maxfail=1"), ("--no-summary", "--lf", "-q", "-q"):
            assert accepted.run_here(*SOME, REGRESSED, *quiet).ret == FAILED


@pytest.mark.slow
@pytest.mark.parametrize("hooks", [("fresh", "finish"), ("logreport", "main")], ids="-".join)
def test_workers_keep_what_hooks_take_from_reports(
    accepted: Project, hooks: tuple[str, ...]
) -> None:
    """On two workers, with hooks in each of them and on the controller."""
    accepted.write("test_toy.py", HIDING)
    accepted.write("conftest.py", hooked(*hooks))
    assert accepted.run("-n", "2", *SOME, REGRESSED).ret == FAILED
    assert accepted.report()["verdict"] == "failed"
    assert [case["verdict"] for case in accepted.report()["cases"]] == ["regressed"] * len(WAYS)


def test_hooks_leave_a_case_that_holds_alone(accepted: Project) -> None:
    """All that can stand beside each other: the run is green, and every case judged.

    One that raises at the end of a run that failed takes no report along. A failing test accepts
    nothing though the exit status is set.
    """
    together = ("skip-outermost", "logreport", "teststatus", "finish-last", "unconfigure")
    accepted.write("conftest.py", hooked(*together))
    assert accepted.run_here(*SOME).ret == pytest.ExitCode.OK
    assert accepted.report()["verdict"] == "passed"

    raises = "def pytest_sessionfinish():\n    raise RuntimeError('theirs')\n"
    accepted.write("conftest.py", raises)
    assert accepted.run_here(*SOME, REGRESSED).ret != pytest.ExitCode.OK
    assert accepted.report()["verdict"] == "failed"
    assert accepted.verdicts() == {"crowded-gc": "regressed"}

    # What pytest itself said of the session counts where baselines are taken over.
    accepted.write("test_plain.py", "def test_plain(): assert False\n")
    accepted.write("conftest.py", FINISH)
    accepting = ("--snapshot-update", "--cep-baselines=none")
    accepted.run_here("-k", "crowded or plain", *accepting)
    assert not list(accepted.path.glob("none/**/*.toml"))
    assert accepted.run_here(*SOME, *accepting).ret == pytest.ExitCode.OK
    assert list(accepted.path.glob("none/**/*.toml"))


@pytest.mark.slow
def test_a_process_that_leaves_by_itself_ends_with_the_code_of_the_ledger(
    accepted: Project,
) -> None:
    """A hook that calls `sys.exit(0)` at the end ends no regressed run as a pass."""
    accepted.write("conftest.py", "import sys\n\ndef pytest_unconfigure():\n    sys.exit(0)\n")
    command = [sys.executable, "-m", "pytest", *SOME]

    def code(*arguments: str) -> int:
        return subprocess.call(arguments, cwd=accepted.path, stdout=subprocess.DEVNULL)

    assert code(*command, REGRESSED) == FAILED
    assert code(*command) == pytest.ExitCode.OK


def test_a_worse_exit_code_is_not_made_better(accepted: Project) -> None:
    """An interrupt after a regression stays an interrupt."""
    for body, code in (
        ("raise KeyboardInterrupt", pytest.ExitCode.INTERRUPTED),
        ("pytest.exit('enough', returncode=7)", 7),
    ):
        last = f"def test_last(cep_case): {body}\n"
        accepted.write("test_toy.py", f"import pytest\n\n{TEST_MODULE}\n{last}")
        assert accepted.run("-p", "no:xdist", *SOME, REGRESSED).ret == code


@SLOWLY_BOTH
def test_a_test_loop_that_runs_nothing_is_incomplete(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """Another plugin that runs the tests elsewhere, or not at all, has judged none of the cases."""
    loop = "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop(session):\n    return True\n"
    accepted.write("conftest.py", f"import pytest\n\n{loop}\n{FINISH}")
    result = accepted.run(*arguments, "--model=shapes:")
    assert result.ret not in (pytest.ExitCode.OK, FAILED)


@SLOWLY_BOTH
def test_a_suite_that_cannot_be_collected_is_no_pass(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """Where collection errors are passed over and the exit status is set, its cases are missed.

    Also those of a suite that a mark names, or below a folder with a broken conftest.py.
    """
    accepted.suite("name = 3\n", "sick")
    accepted.write("named/test_named.py", f"import nothing_like_it\n\n{TEST_MODULE}")
    accepted.write("plain/test_plain.py", "import nothing_like_it\n")
    accepted.write("below/conftest.py", "import nothing_like_it\n")
    accepted.write("below/suite/test_below.py", TEST_MODULE)
    accepted.write("conftest.py", hooked("finish-around"))
    result = accepted.run(*arguments, "--continue-on-collection-errors", "-k", "color or sick")
    assert result.ret == INCOMPLETE
    missed = "INCOMPLETE: 3 modules could not be collected: below, named/test_named.py, sick/*"
    result.stdout.fnmatch_lines([missed])
    assert accepted.verdicts() == {"color-gc": "held"}


@SLOWLY_BOTH
def test_absent_data_is_not_green_beside_plain_tests(
    project: Project, arguments: tuple[str, ...]
) -> None:
    """Neither a plain test that passes nor a suite elsewhere hides that nothing was judged."""
    project.write("data/suite.toml", ABSENT)
    project.write(
        "test_here.py",
        "import pytest\n\ndef test_plain(): pass\n\n@pytest.mark.cep(suite='data/suite.toml')\n"
        + TEST_MODULE,
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


def test_addopts_and_the_environment_are_no_way_round(
    accepted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that a file or a variable adds is refused like one that was typed."""

    def assert_refused(option: str) -> None:
        result = accepted.run_here()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        everything = result.stdout.str() + result.stderr.str()
        assert f"ERROR: {option} calls no test, so no case would be judged: " in everything
        assert "Traceback" not in everything
        assert "INTERNALERROR" not in everything

    monkeypatch.setenv("PYTEST_ADDOPTS", "--setup-only")
    assert_refused("--setup-only")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    accepted.edit("pytest.ini", "addopts =", "addopts = --setup-plan")
    assert_refused("--setup-plan")
