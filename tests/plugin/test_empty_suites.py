"""A suite that gives no case is named, and fails the run, unless that is wanted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.plugin.project import (
    ABSENT,
    INI,
    MODES,
    SHAPES,
    SLOWLY_BOTH,
    TEST_MODULE,
    Project,
)
from tests.plugin.scored_project import junit_properties

OTHER = SHAPES.replace('name = "toy"', 'name = "other"')

INCOMPLETE = pytest.ExitCode.INTERNAL_ERROR

IMPORT = 'import pytest\npytest.importorskip("nothing_like_it")\n\n'

UNCOLLECTED = """\
SETTINGS = dict(suite="smoke")

class DriftChecks:
    def test_drift(self, cep_case, cep_gate): cep_gate(cep_case)
"""

MODULES = {
    "importorskip": (IMPORT + TEST_MODULE, "{} was skipped at collection: could not"),
    "renamed": (
        f"import pytest\n\n@pytest.mark.cep(tolerance=0.02)\n{TEST_MODULE}".replace(
            "test_", "check_"
        ),
        "pytest collected no test of {} that",
    ),
    "uncollected": (UNCOLLECTED, "pytest collected no test of {} that gates it"),
    "plain": ("def test_drift(): pass\n", "{} beside it has no test that takes"),
    "skipif": (
        f"import pytest\n\n@pytest.mark.skipif(True, reason='no GPU')\n{TEST_MODULE}",
        "1 case was skipped (no GPU): {}::test_drift[crowded-gc]",
    ),
    "skip": (
        TEST_MODULE.replace("    cep", "    import pytest; pytest.skip('no CPU')\n    cep"),
        "1 case was skipped (no CPU): {}::test_drift[crowded-gc]",
    ),
}
"""Test modules that give no verdict on any case of their suite, and what the run says of it."""


@pytest.fixture
def two(accepted: Project) -> Project:
    """A project with two suites, one of which has baselines."""
    accepted.suite(OTHER, "other")
    return accepted


def problems(project: Project) -> str:
    """Why the latest run is incomplete."""
    return "\n".join(project.report()["problems"])


def test_a_suite_without_a_verdict_fails_the_run_of_another(accepted: Project) -> None:
    """However its module gives none: each is named, and an option allows all of them."""
    for how, (module, _) in MODULES.items():
        accepted.suite(SHAPES.replace('"toy"', f'"{how}"'), how, module)
    result = accepted.run_here("-k", "crowded")
    assert result.ret == INCOMPLETE
    report = accepted.report()
    assert report["verdict"] == "incomplete"
    assert len(report["problems"]) == len(MODULES)
    for how, (_, why) in MODULES.items():
        said = why.format(f"{how}/test_{how}.py")
        (problem,) = (problem for problem in report["problems"] if said in problem)
        assert "--cep-allow-skips" in problem
    assert report["headline"].startswith("Incomplete: suite ")
    result.stdout.fnmatch_lines(["Incomplete: *", "INCOMPLETE: *skip/*"])

    assert accepted.run_here("-k", "crowded", "--cep-allow-skips").ret == pytest.ExitCode.OK
    report = accepted.report()
    assert (report["verdict"], report["problems"]) == ("passed", [])
    assert report["headline"].startswith("May ship: the one gating case held by threshold")
    assert "; 6 skipped (" in report["headline"]


@pytest.mark.parametrize(
    "mode", ["n2", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("no-plugin", "n0"))]
)
def test_it_is_the_same_in_every_way_to_run(two: Project, mode: str) -> None:
    """In one process and on two workers; quietly, and in the JUnit file too."""
    two.write("other/test_other.py", IMPORT + TEST_MODULE)
    without = ("-p", "no:skipping", "--junitxml=junit.xml")  # the plugin that knows skip marks
    result = two.run(*MODES[mode], *without, "-q", "-q", "-k", "crowded")
    assert result.ret == INCOMPLETE
    line = "Incomplete: suite other/suite.toml gave no case: other/test_other.py was skipped *"
    result.stdout.fnmatch_lines([line])
    properties, _ = junit_properties(two.path / "junit.xml")
    assert properties["cepbench_headline"] == two.report()["headline"]


def test_a_module_that_is_not_collected(two: Project) -> None:
    """Renamed, or ignored by a conftest.py: its source says what it would have gated.

    Also below a hidden folder, as in the workspaces of some CI services: the folders that pytest
    leaves out are below it.
    """
    for folder in ("ignored", "module"):
        two.suite(SHAPES.replace('"toy"', f'"{folder}"'), folder)
    (two.path / "other" / "test_other.py").rename(two.path / "other" / "drift.py")
    two.write(
        "conftest.py", "collect_ignore = ['ignored']\ncollect_ignore_glob = ['*test_module.py']\n"
    )
    assert two.run_here("-k", "crowded").ret == INCOMPLETE
    for name in ("other/drift.py", "ignored/test_ignored.py", "module/test_module.py"):
        assert f"pytest collected no test of {name} that gates it" in problems(two)

    (two.path / ".jenkins").mkdir()
    for name in ("test_toy.py", "suite.toml", "other"):
        (two.path / name).rename(two.path / ".jenkins" / name)
    two.write(".jenkins/.git/test_other.py", TEST_MODULE)
    two.write(".jenkins/.git/suite.toml", OTHER)
    assert two.run_here("-k", "crowded", ".jenkins").ret == INCOMPLETE
    assert "pytest collected no test of .jenkins/other/drift.py that gates it" in problems(two)
    assert ".git" not in problems(two)


def test_a_folder_whose_conftest_skips(two: Project) -> None:
    """It takes all suites below with it."""
    two.suite(SHAPES.replace('"toy"', '"deep"'), "other/deep")
    two.write("other/conftest.py", "import pytest\npytest.importorskip('nothing_like_it')\n")
    assert two.run_here("-k", "crowded").ret == INCOMPLETE
    assert "suite other/suite.toml gave no case" in problems(two)
    assert "suite other/deep/suite.toml gave no case" in problems(two)


@SLOWLY_BOTH
def test_cases_that_a_hook_drops_are_missed(two: Project, arguments: tuple[str, ...]) -> None:
    """All of a suite or some of them; a hook that reports what it deselects is believed."""
    hook = "def pytest_collection_modifyitems(config, items):\n    {}\n"
    kept = "[item for item in items if 'other' not in item.nodeid]"
    two.write("conftest.py", hook.format(f"items[:] = {kept}"))
    assert two.run(*arguments, "-k", "crowded or color").ret == INCOMPLETE
    assert "suite other/suite.toml lost 2 of its cases to a hook" in problems(two)
    assert "test_drift[color-gc], test_drift[crowded-gc]" in problems(two)

    aloud = f"kept = {kept}\n    config.hook.pytest_deselected(items=[*{{*items}} - {{*kept}}])"
    two.write("conftest.py", hook.format(f"{aloud}\n    items[:] = kept"))
    assert two.run(*arguments, "-k", "crowded or color").ret == pytest.ExitCode.OK


TWO_TESTS = """\
import pytest

@pytest.fixture
def unused(cep_gate): return cep_gate

def judge(cep_case, cep_gate): cep_gate(cep_case)

@pytest.mark.slow
@pytest.mark.cep(metrics=["gc"])
def test_gc(cep_case, cep_gate): judge(cep_case, cep_gate)

@pytest.mark.cep(metrics=["failures"])
def test_failures(cep_case, cep_gate): judge(cep_case, cep_gate)
"""


@pytest.mark.parametrize("arguments", [(), pytest.param(MODES["n2"], marks=pytest.mark.slow)])
def test_cases_of_a_renamed_test_are_missed(accepted: Project, arguments: tuple[str, ...]) -> None:
    """Beside another test of the module that gates the suite; not where they are not asked for."""
    accepted.write("pytest.ini", f"{INI}markers = slow: takes long\n")
    accepted.write("test_toy.py", TWO_TESTS.replace("test_gc", "check_gc"))
    for out in (("-m", "not slow"), ("-k", "failures"), ("test_toy.py::test_failures",)):
        assert accepted.run_here(*out).ret == pytest.ExitCode.OK
    result = accepted.run_here("-k", "crowded or failures", *arguments)
    assert result.ret == INCOMPLETE
    lost = (
        "INCOMPLETE: suite suite.toml lost 9 accepted cases (color-gc, count-gc, crowded-gc and 6"
    )
    result.stdout.fnmatch_lines(
        [f"{lost} more): pytest does not collect check_gc of test_toy.py *"]
    )
    assert accepted.run_here("--cep-allow-skips").ret == pytest.ExitCode.OK

    accepted.write("test_toy.py", TWO_TESTS.replace("def test_failures", "def check_failures"))
    accepted.write("test_more.py", "from test_toy import check_failures as test_failures\n")
    assert accepted.run_here("-k", "crowded or failures").ret == pytest.ExitCode.OK


def test_cases_of_a_deleted_test_are_missed(accepted: Project) -> None:
    """While their baselines are there, unless a module that the engineer left out may have them."""
    mark = "import pytest\n\n@pytest.mark.cep({})\n"
    accepted.write("test_toy.py", mark.format("metrics=['failures']") + TEST_MODULE)
    for out in (("-k", "failures"), ("test_toy.py::test_drift",), ("--lf",), ("--ignore=more",)):
        assert accepted.run_here(*out).ret == pytest.ExitCode.OK
    for arguments in (("-k", "crowded or failures"), ("test_toy.py",)):
        assert accepted.run_here(*arguments).ret == INCOMPLETE
        lost = "suite suite.toml lost 9 accepted cases (color-gc, count-gc, crowded-gc and 6 more)"
        assert problems(accepted).startswith(f"{lost}: no test gates them: restore it, or delete ")

    more = mark.format("suite='../suite.toml', metrics=['gc']") + TEST_MODULE
    accepted.write("more/test_more.py", more)
    accepted.write("conftest.py", "collect_ignore = ['more']\n")
    assert accepted.run_here().ret == INCOMPLETE
    assert "baselines. pytest collected no test of more/test_more.py" in problems(accepted)
    (accepted.path / "conftest.py").unlink()
    for arguments in (("-k", "crowded or failures"), ("test_toy.py",), ("more",)):
        assert accepted.run_here(*arguments).ret == pytest.ExitCode.OK
    (accepted.path / "more" / "test_more.py").unlink()
    for path in (accepted.baselines / "toy").glob("*-gc-*"):
        path.unlink()
    assert accepted.run_here().ret == pytest.ExitCode.OK


def test_cases_that_another_run_has_are_not_missed(accepted: Project) -> None:
    """Of a module that is outside of this one, whatever says so; or where marks compute them. Nor
    are cases that can fail no run.
    """
    mark = "import os, pytest\n\n@pytest.mark.cep({})\n"
    accepted.write("test_toy.py", mark.format("metrics=['failures']") + TEST_MODULE)
    accepted.write("sub/empty.txt", "")
    accepted.write("elsewhere/pytest.ini", INI)

    def judged(*arguments: str, folder: str = "") -> pytest.ExitCode | int:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(accepted.path / folder)
            return accepted.run_here("--cep-gate=threshold", *arguments).ret

    assert judged() == INCOMPLETE
    assert judged("../test_toy.py::test_drift", folder="sub") == pytest.ExitCode.OK
    accepted.write("marks.py", "SUITE = '../suite.toml'\n")
    other = "from marks import SUITE\n" + mark.format("suite=SUITE, metrics=['gc']")
    accepted.write("nightly/test_more.py", other + TEST_MODULE)
    for out in (("test_toy.py",), ("-o", "norecursedirs=nightly")):
        assert judged(*out) == pytest.ExitCode.OK
    (accepted.path / "nightly" / "test_more.py").rename(accepted.path / "test_more.py")
    baselines = f"--cep-baselines={accepted.baselines}"
    assert judged("-c", "elsewhere/pytest.ini", baselines, "test_toy.py") == pytest.ExitCode.OK
    (accepted.path / "test_more.py").unlink()
    assert judged() == INCOMPLETE
    alone = (accepted.path / "test_toy.py").read_text()
    share = "metrics=os.environ.get('METRICS', 'failures').split()"
    accepted.write("test_toy.py", mark.format(share) + TEST_MODULE)
    assert judged() == pytest.ExitCode.OK
    accepted.write("test_toy.py", alone)
    accepted.edit("suite.toml", "[gate]\n", "[gate]\nprimary = ['failures']\n")
    assert judged() == pytest.ExitCode.OK


SELECTED_OUT = [
    ("-k", "crowded and not other"),
    ("-k", "toy and crowded"),
    ("-k", "nothing-like-it"),
    ("--deselect=other/test_other.py",),
    ("--deselect", "other"),
    ("--ignore=other",),
    ("--ignore-glob=*other*",),
    ("-o", "norecursedirs=oth*"),
    ("-m", "not slow"),
    ("test_toy.py",),
    ("test_toy.py::test_drift[crowded-gc]",),
]

EMPTYING = "def pytest_collection_modifyitems(items): items.clear()\n"

ASKED_FOR = [("-m", "slow"), ("other",), (), ("-k", "crowded"), ("-m", "cep")]


@pytest.mark.parametrize(
    ("conftest", "some"),
    [("", 2), *(pytest.param(text, 1, marks=pytest.mark.slow) for text in ("", EMPTYING))],
)
def test_what_the_engineer_leaves_out_is_not_missed(two: Project, conftest: str, some: int) -> None:
    """Selected out by an option, or outside of the arguments; whatever a hook drops besides."""
    two.write("other/test_other.py", f"{IMPORT}@pytest.mark.slow\n{TEST_MODULE}")
    two.write("pytest.ini", "[pytest]\nmarkers = slow: takes long\n")
    two.write("conftest.py", conftest)
    for arguments in SELECTED_OUT[::some]:
        listed = two.run_here("--collect-only", "-q", *arguments).stdout
        listed.no_fnmatch_line("other/*")
    for arguments in ASKED_FOR[::some]:
        listed = two.run_here("--collect-only", "-q", *arguments).stdout
        listed.fnmatch_lines(["other/test_other.py::suite.toml"])


def test_marks_of_a_skipped_module(two: Project) -> None:
    """Its suite is missed where `-m` would select the tests that gate it, not of its helpers."""
    two.write("pytest.ini", "[pytest]\nmarkers = slow: takes long\n")
    for selection, module in {
        "not slow": f"{TEST_MODULE}\n@pytest.mark.slow\ndef test_helper(): pass\n",
        "slow": f"pytestmark = [\n    pytest.mark.slow,\n]\n{TEST_MODULE}",
    }.items():
        two.write("other/test_other.py", IMPORT + module)
        listed = two.run_here("--collect-only", "-q", "-m", selection).stdout
        listed.fnmatch_lines(["other/test_other.py::suite.toml"])


def test_a_suite_whose_data_is_absent_may_be_skipped(accepted: Project) -> None:
    """Also where its module is skipped; and where all are so, nothing is known, as ever."""
    accepted.suite(ABSENT.replace('"toy"', '"other"'), "other", IMPORT + TEST_MODULE)
    assert accepted.run_here("-k", "crowded or other").ret == pytest.ExitCode.OK
    assert accepted.report()["problems"] == []
    result = accepted.run_here("other")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["skipped: data set 'holiday' is not here: *"])


def test_suites_that_marks_name(accepted: Project) -> None:
    """Several in a folder, by function, class and module; a draft that no mark names is let be.

    So is a suite.toml beside tests that name other ones, also where they come from elsewhere.
    """
    accepted.write("other/suite.toml", OTHER)
    accepted.write(
        "gates.py", f"import pytest\n\n@pytest.mark.cep(suite='../suite.toml')\n{TEST_MODULE}"
    )
    for module in ("from gates import test_drift\n", (accepted.path / "gates.py").read_text()):
        accepted.write("other/test_other.py", module)
        assert accepted.run("-k", "crowded", "--cep-gate=threshold").ret == pytest.ExitCode.OK

    (accepted.path / "other" / "suite.toml").unlink()
    for name in ("one", "two", "three", "draft"):
        accepted.write(f"other/{name}.toml", OTHER.replace('"other"', f'"{name}"'))
    accepted.write(
        "other/test_other.py",
        f"{IMPORT}pytestmark = [pytest.mark.cep(suite='one.toml')]\n\n{TEST_MODULE}\n"
        "@pytest.mark.cep(suite='two.toml')\ndef test_b(cep_case, cep_gate): pass\n\n"
        "class TestC:\n    pytestmark = pytest.mark.cep(suite='three.toml')\n"
        "    def test_c(self, cep_case, cep_gate): pass\n",
    )
    assert accepted.run_here("-k", "crowded").ret == INCOMPLETE
    named = [problem.split()[1] for problem in accepted.report()["problems"]]
    assert sorted(named) == ["other/one.toml", "other/three.toml", "other/two.toml"]


def test_a_suite_whose_test_was_deleted(accepted: Project) -> None:
    """It is missed while its baselines are there, beside tests of another suite."""
    accepted.write("more.toml", OTHER)
    more = f"@pytest.mark.cep(suite='more.toml')\n{TEST_MODULE.replace('drift', 'more')}"
    accepted.write("test_toy.py", f"import pytest\n\n{TEST_MODULE}\n{more}")
    assert accepted.run_here("-k", "crowded", "--snapshot-update").ret == pytest.ExitCode.OK
    accepted.write("test_toy.py", TEST_MODULE)
    assert accepted.run_here("-k", "test_drift and crowded").ret == pytest.ExitCode.OK
    assert accepted.run_here("-k", "crowded", "--lf").ret == pytest.ExitCode.OK
    assert accepted.run_here("-k", "crowded").ret == INCOMPLETE
    assert "more.toml gave no case: no test beside it gates its accepted" in problems(accepted)
    shutil.rmtree(accepted.path / "baselines" / "other")
    assert accepted.run_here("-k", "crowded").ret == pytest.ExitCode.OK


def test_two_modules_of_one_suite(two: Project) -> None:
    """One that another imports its tests from is not missed: they gate the suite there.

    Where one of two is skipped the other gates perhaps other cases: what this one has is unknown.
    """
    two.write("other/test_more.py", IMPORT + TEST_MODULE)
    two.run_here("-k", "crowded", "--snapshot-update", "--cep-allow-skips")
    assert two.run_here("-k", "crowded").ret == INCOMPLETE
    assert "other/test_more.py was skipped at collection" in problems(two)

    (two.path / "other" / "test_more.py").rename(two.path / "other" / "gates.py")
    two.write("other/gates.py", TEST_MODULE)
    two.write("other/test_other.py", "from gates import test_drift\n")
    listed = two.run_here("--collect-only", "-q", "-k", "crowded").stdout
    listed.fnmatch_lines(["other/test_other.py::test_drift?crowded-gc?"])
    listed.no_fnmatch_line("*suite.toml*")


def test_plain_projects_are_not_disturbed(project: Project) -> None:
    """Another tool's suite.toml, a TOML of any kind and skipped modules are no suites of ours."""
    for place, module in enumerate(("", IMPORT, "def test_theirs(): pass\n")):
        project.write(f"tests/{place}/suite.toml", '[suite]\nname = "theirs"\n')
        project.write(f"tests/{place}/broken.toml", "[")
        project.write(f"tests/{place}/test_{place}.py", module)
    result = project.run_here()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*cepbench*summary*")
    assert not (project.path / ".cepbench").exists()


def test_packaged_and_linked_suites(two: Project, tmp_path: Path) -> None:
    """A folder that is an argument by a module's name, and one that links lead back to."""
    two.write("other/__init__.py", "")
    two.write("other/test_other.py", IMPORT + TEST_MODULE)
    (two.path / "other" / "back").symlink_to(two.path / "other")
    result = two.run("--pyargs", "other", "-k", "crowded")
    assert result.ret == INCOMPLETE
    result.stdout.fnmatch_lines(["INCOMPLETE: suite other/suite.toml gave no case: *"])
    assert json.dumps(result.outlines).count("INCOMPLETE: suite") == 1
