"""Every test judges the case it was given; markers and fixtures that give cases and models."""

from __future__ import annotations

import pytest

from tests.plugin.project import MODES, REGRESSED, SLOWLY_BOTH, Project

CROWDED = ("-k", "crowded or color")

OTHERS = """\
CASES = []

def test_drift(cep_case, cep_gate, request):
    CASES.append(cep_case)
    cep_gate({gated})
"""

IN_A_FIXTURE = """\
import pytest

@pytest.fixture
def gated(cep_case, cep_gate):
    {gated}

def test_drift(gated, cep_case):
    {body}
"""

BEFORE = "cep_gate(cep_case)"

AFTER = "yield\n    cep_gate(cep_case)"

SKIP_AFTER = "try:\n        cep_gate(cep_case)\n    finally:\n        pytest.skip('enough')"

SWALLOWED_AFTER = (
    "yield\n    try:\n        cep_gate(cep_case)\n    except BaseException:\n        pass"
)


@SLOWLY_BOTH
def test_a_case_that_was_not_judged_is_missed_by_its_name(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """A test that gates another case leaves its own unjudged, and the run incomplete."""
    taken = "next(one for one in request.config.own if one.id == 'color-gc')"
    accepted.write("test_toy.py", OTHERS.format(gated=taken))
    accepted.write(
        "conftest.py",
        "def pytest_collection_modifyitems(config, items):\n"
        "    config.own = [item.callspec.params['cep_case'] for item in items]\n",
    )
    result = accepted.run(*arguments, *CROWDED)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert accepted.report()["verdict"] == "incomplete"
    result.stdout.fnmatch_lines(
        [
            "note: toy/color/gc: judged more than once: by *",
            (
                "INCOMPLETE: 1 tests judged another case than their own: "
                "*?crowded-gc? (judged *color/gc)"
            ),
        ]
    )


def test_a_case_that_was_not_collected_is_named(accepted: Project) -> None:
    """A further case gated by a test counts; the reports say that no test was collected for it."""
    accepted.write(
        "test_toy.py",
        "from dataclasses import replace\nfrom pytest_cepbench.gate import CaseKey\n\n"
        "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n"
        "    cep_gate(replace(cep_case, key=CaseKey('toy', 'count', 'gc'), "
        "categories=('count',)))\n",
    )
    result = accepted.run_here("-k", "color")
    assert result.ret == pytest.ExitCode.OK
    assert accepted.verdicts() == {"color-gc": "held", "count-gc": "held"}
    result.stdout.fnmatch_lines(
        ["note: toy/count/gc: judged by *, and no test was collected for it"]
    )
    (note,) = accepted.report()["cases"][1]["notes"]
    assert note.endswith("and no test was collected for it")


@pytest.mark.parametrize(
    ("fixture", "arguments"),
    [
        (BEFORE, MODES["no-plugin"]),
        (AFTER, MODES["no-plugin"]),
        (SKIP_AFTER, MODES["no-plugin"]),
        pytest.param(SKIP_AFTER, MODES["n2"], marks=pytest.mark.slow),
        (SWALLOWED_AFTER, MODES["no-plugin"]),
        pytest.param(SWALLOWED_AFTER, MODES["n2"], marks=pytest.mark.slow),
    ],
    ids=["setup", "after", "skip", "skip-n2", "swallow", "swallow-n2"],
)
def test_a_regression_found_in_a_fixture_fails_the_run(
    accepted: Project, fixture: str, arguments: tuple[str, ...]
) -> None:
    """Before or after the test, and also where the fixture then skips it or hears nothing of it."""
    accepted.write("test_toy.py", IN_A_FIXTURE.format(gated=fixture, body="pass"))
    result = accepted.run("-vv", *arguments, "-k", "crowded", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.report()["verdict"] == "failed"
    assert accepted.verdicts() == {"crowded-gc": "regressed"}
    result.stdout.fnmatch_lines(["regressed: toy, crowded, GC@2 *"])


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ((), pytest.ExitCode.INTERNAL_ERROR),
        (("--cep-allow-skips",), pytest.ExitCode.NO_TESTS_COLLECTED),
    ],
    ids=["unasked", "allowed"],
)
def test_a_skip_before_the_gate_is_said_and_is_no_verdict(
    accepted: Project, option: tuple[str, ...], code: int
) -> None:
    """The reason is printed; where all cases are skipped nothing is known, whatever hooks say."""
    accepted.write(
        "test_toy.py",
        "import pytest\n\ndef test_drift(cep_case, cep_gate):\n    pytest.skip('not today')\n",
    )
    accepted.write("conftest.py", "def pytest_sessionfinish(session): session.exitstatus = 0\n")
    result = accepted.run_here("-k", "crowded", *option)
    assert result.ret == code
    result.stdout.fnmatch_lines(["skipped: not today", "no case was judged: *"])


def test_a_test_that_fails_before_its_gate_is_missed(accepted: Project) -> None:
    """Beside a case that holds, the report is no pass: a case that was selected was not judged."""
    accepted.write(
        "test_toy.py",
        "def test_drift(cep_case, cep_gate):\n    assert 'color' in cep_case.id\n"
        "    cep_gate(cep_case)\n",
    )
    result = accepted.run_here(*CROWDED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.report()["verdict"] == "incomplete"
    result.stdout.fnmatch_lines(
        ["INCOMPLETE: 1 tests ended before cep_gate judged their case: *crowded-gc?"]
    )


def test_a_gate_in_a_subtest_counts(accepted: Project) -> None:
    """A subtest keeps the failure to itself; the ledger has it all the same."""
    if not hasattr(pytest, "Subtests"):
        pytest.skip("subtests came with pytest 9")
    accepted.write(
        "test_toy.py",
        "def test_drift(cep_case, cep_gate, subtests):\n    with subtests.test('inner'):\n"
        "        cep_gate(cep_case)\n",
    )
    assert accepted.run_here("-k", "crowded").ret == pytest.ExitCode.OK
    assert accepted.run_here("-k", "crowded", REGRESSED).ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.verdicts() == {"crowded-gc": "regressed"}


UPDATING = """\
import pytest

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


@pytest.mark.parametrize("arguments", [(), ("-p", "no:syrupy")], ids=["beside", "instead"])
def test_a_snapshot_fixture_of_the_user_accepts_nothing(
    accepted: Project, arguments: tuple[str, ...]
) -> None:
    """A conftest.py may replace syrupy's; whether a run accepts is said by its options alone."""
    accepted.write("conftest.py", UPDATING)
    result = accepted.run_here("-k", "crowded", REGRESSED, *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.verdicts() == {"crowded-gc": "regressed"}


IN_THREADS = """\
from concurrent.futures import ThreadPoolExecutor

def test_drift(cep_case, cep_gate):
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: cep_gate(cep_case), range(4)))
    assert {result.value for result in results} == {1.0}
"""


def test_threads_judge_one_after_the_other(accepted: Project) -> None:
    """Plugins that run tests in threads have crashed the store's readers, which are of one."""
    accepted.write("test_toy.py", IN_THREADS)
    assert accepted.run_here("-k", "crowded").ret == pytest.ExitCode.OK
    assert {case["verdict"] for case in accepted.report()["cases"]} == {"held"}


BODY = "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n"


def _module(mark: str) -> str:
    return f"import pytest\n\n@pytest.mark.cep({mark})\n{BODY}"


def test_the_marker_chooses_parts_and_metrics(toy: Project) -> None:
    """Categories and metrics narrow the cases; markers of module and function are merged."""
    toy.write(
        "test_toy.py",
        "import pytest\n\npytestmark = pytest.mark.cep(metrics=['gc'], categories=('shape',))\n\n"
        f"@pytest.mark.cep(categories=['overall', 'color'])\n{BODY}",
    )
    result = toy.run_here("--collect-only", "-q")
    ids = [line for line in result.outlines if "::" in line]
    assert ids == ["test_toy.py::test_drift[color-gc]", "test_toy.py::test_drift[overall-gc]"]


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("'color'", "@pytest.mark.cep takes its arguments by name (suite, categories, *"),
        (
            "category='color'",
            "@pytest.mark.cep: unknown argument 'category'. Did you mean 'categories'? *",
        ),
        (
            "categories=['colour']",
            "@pytest.mark.cep: unknown part 'colour'. Did you mean 'color'?*",
        ),
        ("tolerance=-1", "@pytest.mark.cep: tolerance is a number of at least 0, got -1"),
        ("suite='nowhere.toml'", "suite file '*nowhere.toml' cannot be read: *"),
    ],
    ids=lambda text: text[:16],
)
def test_misuse_is_one_message_at_collection(toy: Project, mark: str, message: str) -> None:
    """What is wrong is named with what is possible, without a traceback into the plugin."""
    toy.write("test_toy.py", _module(mark))
    result = toy.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"*{message}"])
    result.stdout.no_fnmatch_line("*pytest_cepbench*")
