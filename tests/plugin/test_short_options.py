"""`--model` and its siblings: offered where no other plugin has them, never a path to collect."""

from __future__ import annotations

import pytest

from tests.plugin.project import Project

OWNER = """\
def pytest_addoption(parser):
    parser.addoption("--model", default="theirs")

def pytest_sessionstart(session):
    print("OWNER SEES", session.config.getoption("--model"))
"""


@pytest.mark.parametrize("how", ["plugin", "conftest", "conftest-in-ini"])
def test_another_owner_of_the_short_name_keeps_it(toy: Project, how: str) -> None:
    """Pytest starts, `--model` is theirs, a note says so, and `--cep-model` still gates."""
    arguments = ["-s", "--model=their-value", "--cep-model=shapes:?miss=0.3", "-k", "crowded"]
    if how == "plugin":
        toy.write("owner.py", OWNER)
        arguments += ["-p", "owner"]
    elif how == "conftest":
        toy.write("conftest.py", OWNER)
    else:
        toy.write("pytest.ini", "[pytest]\naddopts = --model=their-value\n")
        toy.write("conftest.py", OWNER)
        del arguments[1]
    result = toy.run(*arguments, "-v")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "OWNER SEES their-value",
            "cepbench: model under test: shapes:?miss=0.3 *",
            "cepbench: --model belongs to another plugin here, use --cep-model",
            "NO-BASELINE *crowded *",
        ]
    )


def test_an_owner_of_the_short_name_is_not_bothered(project: Project) -> None:
    """A conftest has its own `--model`, no test is of cepbench: nothing of this plugin is seen."""
    project.write("conftest.py", OWNER)
    project.write(
        "test_plain.py", "def test_plain(request): assert request.config.option.model == 'm'\n"
    )
    for arguments in (["--model=m"], ["--model", "m"]):
        result = project.run_here(*arguments)
        assert result.ret == pytest.ExitCode.OK
        result.stdout.no_fnmatch_line("*belongs to another plugin*")


@pytest.mark.parametrize("where", ["command", "addopts", "environment"])
def test_a_checkpoints_conftest_is_never_imported(
    toy: Project, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value of `--model DIR` is no test path, wherever it is written: its code is not run."""
    toy.write("ckpt/conftest.py", "open('imported', 'w').close()\n")
    toy.write("ckpt/test_inside.py", "open('imported', 'w').close()\n")
    toy.write("ckpt/config.json", '{"model_type": "nothing-known"}')
    arguments: list[str] = []
    if where == "command":
        arguments = ["--model", "ckpt"]
    elif where == "addopts":
        toy.write("pytest.ini", "[pytest]\naddopts = --model ckpt\n")
    else:
        monkeypatch.setenv("PYTEST_ADDOPTS", "--model ckpt")
    result = toy.run_here("test_toy.py", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *ckpt*"])
    assert not (toy.path / "imported").exists()


def test_a_path_that_equals_the_models_is_still_collected(toy: Project) -> None:
    """`pytest suites --model suites`: only the option's value is taken away, not the path."""
    toy.write("here/test_plain.py", "def test_plain(): pass\n")
    toy.write("here/conftest.py", "import pytest\n")
    result = toy.run_here("here", "--describer", "shapes:", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["here/test_plain.py::test_plain"])


def test_short_and_long_names_are_the_same_option(accepted: Project) -> None:
    """Each short name sets what its long one sets; the last one given counts."""
    result = accepted.run("-k", "color", "--cep-model=shapes:?miss=1", "--model=shapes:")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["cepbench: model under test: shapes: *"])


def test_help_lists_options_in_groups(project: Project) -> None:
    """`pytest --help` has what is typed, by subject, and every ini key."""
    result = project.run_here("--help")
    result.stdout.fnmatch_lines(
        [
            "cepbench: models:",
            "  --cep-model=SPEC*",
            "  --model=SPEC *Short for --cep-model",
            "cepbench: gate:",
            "  --cep-tolerance=DROP*",
            "cepbench: data and stored results:",
            "cepbench: workers and devices:",
            "cepbench: reports:",
            "cepbench: advanced *",
            "  --cep-accept-insensitive",
            "  cepbench_tolerance (string):*",
        ]
    )
