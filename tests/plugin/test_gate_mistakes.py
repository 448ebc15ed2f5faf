"""Wrong values of the gate's options: one line that names option and remedy, before all else."""

from __future__ import annotations

import pytest

from tests.plugin.project import Project, assert_one_message
from tests.plugin.scored_project import ScoredProject, scored_suite

PROBABILITY = "a probability over 0 and at most 0.5 is expected, such as 0.05"

TOLERANCE = "a number of at least 0 is expected"

BUDGET = "a number of samples, of seconds, or both are expected, such as 800, 3600s or 800,3600s"

COUNT = "a number of at least 1 is expected"

BLIND = (
    "no drop could be told from noise, so nothing would ever fail; give 1e-06 or more, such as 0.05"
)

MISTAKES = {
    "alpha": (["0", "1", "2", "-0.05", "0.51", "nan", "inf", "five", "5%"], PROBABILITY),
    "tolerance": (["-1", "nan", "inf", "-inf", "small"], TOLERANCE),
    "budget": (["0", "0s", "5x", "5,5", "5s,5s", ",", "-5", "1.5", "5 s,", "s", "nan"], BUDGET),
    "seeds": (["0", "-1", "1.5", "two"], COUNT),
    "attribute": (["-1", "1.5", "all"], COUNT),
    "gate": (["luck"], "one of regression, noninferiority, threshold is expected"),
    "inconclusive": (["maybe"], "one of pass, fail, more is expected"),
    "pairing": (["x"], "one of exact, common is expected"),
    "plan": (["perhaps"], "true or false is expected"),
}
"""Option -> values that it cannot have, and what is said to be expected."""

CASES = [(name, value, message) for name, (values, message) in MISTAKES.items() for value in values]
CASES += [("alpha", value, BLIND) for value in ("1e-300", "9e-7")]


def _refused(project: Project, *arguments: str) -> str:
    """What reading the settings raises, without a process of its own."""
    config = project.pytester.parseconfig(
        "-p", "no:terminal", "-p", "no:hypothesispytest", *arguments
    )
    from pytest_cepbench.plugin.run_settings import settings_of

    with pytest.raises(pytest.UsageError) as raised:
        settings_of(config)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"), [case for case in CASES if case[0] != "plan"]
)
def test_on_the_command_line(project: Project, name: str, value: str, expected: str) -> None:
    """The option, what was given, and what is expected, in a line."""
    message = _refused(project, f"--cep-{name}={value}")
    assert message == f"--cep-{name} {value!r}: {expected}"


@pytest.mark.parametrize(("name", "value", "expected"), CASES)
def test_in_the_environment_and_the_ini_file(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    """The same, by the name of the variable or the key that was set."""
    project.write("pytest.ini", f"[pytest]\ncepbench_{name} = {value}\n")
    assert _refused(project) == f"ini cepbench_{name} {value!r}: {expected}"
    monkeypatch.setenv(f"CEPBENCH_{name.upper()}", value)
    assert _refused(project) == f"CEPBENCH_{name.upper()} {value!r}: {expected}"


def test_an_empty_budget_is_refused(project: Project) -> None:
    """`--cep-budget=` was meant to say something; an empty ini key or variable says nothing."""
    assert _refused(project, "--cep-budget=") == f"--cep-budget '': {BUDGET}"


STOPPED = {
    "alpha": ["--cep-alpha=2"],
    "budget": ["--cep-budget=5x"],
    "seeds": ["--cep-seeds=0"],
    "workers": ["-n", "2", "--cep-attribute=-1"],
}


@pytest.mark.parametrize("arguments", STOPPED.values(), ids=STOPPED)
def test_a_run_stops_before_anything(toy: Project, arguments: list[str]) -> None:
    """Exit code 4, one message, no traceback; nothing is collected, no worker starts, no store."""
    result = toy.run_here(*arguments)
    assert_one_message(result, arguments[-1].partition("=")[0])
    result.stdout.no_fnmatch_line("*workers*")
    assert not (toy.path / ".cepbench").exists()


TABLES = {
    "[metrics.gc]\n[gate]\nalpha = 0.7\n": "alpha is a number over 0 and at most 0.5, got 0.7",
    "[metrics.gc]\n[gate]\nalpha = nan\n": "alpha is a number over 0 and at most 0.5, got nan",
    "[metrics.gc]\n[gate]\ntolerance = -0.1\n": "tolerance is a number of at least 0, got -0.1",
    "[metrics.gc]\n[gate]\nalpha = 1e-300\n": f"alpha = 1e-300: {BLIND}",
    "[metrics.gc]\n[cases.'overall/gc']\nalpha = 1e-9\n": f"alpha = 1e-09: {BLIND}",
    "[metrics.gc]\nweight = 0\n": "weight is a number over 0, got 0",
    "[metrics.gc]\nweight = 1e-300\n": "weight 1e-300: cases of so different weights",
    "[metrics.gc]\n[cases.'overall/gc']\nweight = 1e300\n": "weight 1e+300: cases of so",
    "[metrics.gc]\n[gate]\ngate = 'luck'\n": "Invalid enum value 'luck'",
    "[metrics.gc]\n[cases.'overall/gcc']\ntolerance = 1\n": "Did you mean 'overall/gc'?",
    "[metrics.gc]\n[gate]\nprimary = ['gcc']\n": "Did you mean 'gc'?",
}


def test_tables_of_a_suite_are_refused_at_collection(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """All in one run: each suite with its file's name, its mistake, and no traceback."""
    project = ScoredProject.make(tmp_path_factory.mktemp("tables"), scored_suite(n=1))
    for number, rest in enumerate(TABLES):
        folder = project.path / f"wrong{number}"
        folder.mkdir()
        (folder / "suite.toml").write_text(scored_suite(n=1, rest=rest))
        (folder / f"test_wrong{number}.py").write_text(
            (project.path / "test_scored.py").read_text()
        )
    ended = project.run()
    assert ended.code == pytest.ExitCode.USAGE_ERROR
    for message in TABLES.values():
        assert message in ended.output
    assert "Traceback" not in ended.output
    assert not ended.report
