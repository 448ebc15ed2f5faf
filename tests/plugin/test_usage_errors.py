"""A user's mistake on the command line: one message that names it, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_cepbench.evaluation.settings import OPTIONS, GivenValue, read_settings
from tests.plugin.project import (
    INI,
    PHOTOS,
    SHAPES,
    TEST_MODULE,
    Project,
    assert_one_message,
    contents,
)

LEAVER = """\
import sys

def exits(): sys.exit(0)
"""

MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "missing-folder": (["--model=./checkpoints/step-8"], ["checkpoints/step-8: no such folder"]),
    "home-of-nobody": (["--model=~nobody-here/step-8"], ["~nobody-here/step-8: no such folder"]),
    "encoder-of-nobody": (["--encoder=unicom:~nobody-here/b32"], ["weights file of Unicom"]),
    "python-module-mistyped": (
        ["--model=python:user_model:describer"],
        ["importing 'user_model' from ", "No module named 'user_model'"],
    ),
    "python-that-exits": (["--model=python:quitter:exits"], ["the factory raised SystemExit: 0"]),
    "folder-mistyped": (["--model=foto"], ["'foto': there is no folder", "Did you mean 'photos'?"]),
    "wrong-role": (
        ["--generator=python:user_models:describer"],
        ["'python:user_models:describer'", "can play describer", "generate(texts, seeds)"],
    ),
    "only-role-taken": (
        ["--model=python:user_models:describer", "--describer=shapes:"],
        ["--model=python:user_models:describer", "--describer is given as well: drop one"],
    ),
    "no-shared-store": (
        ["--model=shapes:", "--cep-shared=elsewhere"],
        ["--cep-shared elsewhere: no such folder"],
    ),
}


def test_a_mistake_is_one_message(project: Project) -> None:
    """Exit code 4, no traceback, nothing collected, no store opened for a name that is wrong."""
    project.photos({"red.png": (200, 0, 0)})
    project.write("quitter.py", LEAVER)
    for arguments, pieces in MISTAKES.values():
        result = project.run_here(*arguments)
        assert_one_message(result, *pieces)
        assert len([line for line in result.errlines if line.startswith("ERROR: ")]) == 1
        assert not (project.path / ".cepbench" / "report.json").exists()


def test_a_mistyped_name_of_an_option(toy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable is a warning in the header, since its name may be another program's.

    In the ini file it is an error: it would else set nothing, and the run would be gated by another
    tolerance.
    """
    monkeypatch.setenv("CEPBENCH_TOLERENCE", "0.1")
    monkeypatch.setenv("CEPBENCH_MODEL_CARDS_FOLDER", "cards")
    monkeypatch.setenv("CEPBENCH_ALPHA", "0.1")
    result = toy.run_here("--collect-only")
    variable = "cepbench: the environment variable CEPBENCH_TOLERENCE"
    result.stdout.fnmatch_lines([f"{variable} is not read: did you mean CEPBENCH_TOLERANCE?"])
    assert result.stdout.str().count("the environment variable ") == 1
    toy.write("pytest.ini", "[pytest]\ncepbench_tolerence = 0.1\n")
    assert_one_message(
        toy.run_here(), "ini cepbench_tolerence", "Did you mean 'cepbench_tolerance'?"
    )


def test_a_key_in_a_spec_stops_the_run_and_is_shown_nowhere(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision stands in reports, history and baselines; keys come from the environment."""
    key = "9f8e7d6c5b4a"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    spec = f"openai:m?base_url=http://127.0.0.1:9/v1&revision={key}"
    project.photos({"a.png": (1, 2, 3)})
    generator = "--generator=python:user_models:generator"
    results = [project.run_here(generator, f"--describer={spec}")]
    monkeypatch.setenv("CEPBENCH_DESCRIBER", spec)
    results.append(project.run_here(generator))
    monkeypatch.delenv("CEPBENCH_DESCRIBER")
    project.edit("suite.toml", "python:user_models:describer", spec)
    results.append(project.run_here(generator))
    for result in results:
        assert result.ret != pytest.ExitCode.OK
        shown = result.stdout.str() + result.stderr.str()
        assert "the environment variable OPENAI_API_KEY" in shown
        assert key not in shown
    kept = contents(project.path).items()
    assert [name for name, data in kept if key.encode() in data] == ["suite.toml"]


def test_a_conftest_that_exits_is_no_pass(toy: Project) -> None:
    """Exit code 4 and a line, where the run was to gate a model; else pytest is left as it is."""
    toy.write("conftest.py", "import sys\nsys.exit()\n")
    assert_one_message(toy.run("--model=shapes:"), "conftest.py called sys.exit()")
    assert toy.run().ret == pytest.ExitCode.OK


def test_misuse_of_the_marker_is_one_message(toy: Project) -> None:
    """What is wrong is named with what is possible, without a traceback into the plugin."""
    for mark, message in {
        "'color'": "@pytest.mark.cep takes its arguments by name (suite, categories, *",
        "category='color'": (
            "@pytest.mark.cep: unknown argument 'category'. Did you mean 'categories'? *"
        ),
        "categories=['colour']": (
            "@pytest.mark.cep: unknown part 'colour'. Did you mean 'color'?*"
        ),
        "tolerance=-1": "@pytest.mark.cep: tolerance is a number of at least 0, got -1",
        "suite='nowhere.toml'": "suite file '*nowhere.toml' cannot be read: *",
    }.items():
        toy.write("test_toy.py", f"import pytest\n\n@pytest.mark.cep({mark})\n{TEST_MODULE}")
        result = toy.run_here()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stdout.fnmatch_lines([f"*{message}"])
        result.stdout.no_fnmatch_line("*pytest_cepbench*")


def test_a_run_of_nothing_says_what_mends_it(accepted: Project) -> None:
    """In one line: no traceback, no case judged, and an exit code that is no pass."""
    Path(accepted.path, "empty").mkdir()
    for arguments, code, line in (
        (["empty"], 5, "nothing was gated: no test below empty takes cep_case. *cepbench init*"),
        (["-k", "typo"], 5, "nothing was gated: -k, -m or --deselect left out all 10 tests"),
        (["--cep-baselines=/none"], 4, "*/none: no such folder. *--snapshot-update*"),
        (["--cep-store=/proc/none"], 4, "*the store /proc/none cannot be used*--cep-store*"),
    ):
        result = accepted.run_here("--model=shapes:", *arguments)
        assert result.ret == code
        lines = [*result.outlines, *result.errlines]
        pytest.LineMatcher(lines).fnmatch_lines([line])
        said = [text for text in lines if text.startswith(("ERROR: ", "nothing was gated"))]
        assert len(said) == 1
        assert "Traceback" not in "\n".join(lines)


PRESET = "[presets.lossy]\nmodel = 'shapes:'\nparameters = { miss = 0.5 }\n"


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_name_that_no_suite_knows(project: Project, workers: tuple[str, ...]) -> None:
    """Of a data set, an encoder, a preset, or a key of its file: the nearest one is named.

    So are the option, the suites of the run and what they read, by workers as well.
    """
    project.suite(PHOTOS + PRESET)
    project.photos({"red.png": (200, 0, 0)})
    for argument, *lines in (
        ("--cep-data=foldr=photos",
         "ERROR: --cep-data foldr=...: no suite of this run (photos) *",
         "*'foldr'. Did you mean 'folder'? They read folder. *"),
        ("--encoder=othr=shapes:",
         "ERROR: --cep-encoder othr=...: unknown encoder 'othr'. Known: *"),
        ("--model=preset:losy",
         "ERROR: --model preset:losy: unknown preset 'losy'. Did you mean 'lossy'? Known: lossy.*"),
    ):  # fmt: skip
        result = project.run_here(argument, *workers)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        for line in lines:
            result.stderr.fnmatch_lines([line])
    project.suite(f"{PHOTOS}[gaet]\ntolerance = 1.0\n")
    result = project.run_here(*workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*unknown field `gaet`. Did you mean 'gate'?"])


PROBABILITY = "a probability over 0 and at most 0.5 is expected, such as 0.05"

TOLERANCE = "a number of at least 0 is expected"

BUDGET = (
    "a number of samples, of seconds, or both are expected, over 0, such as 800, 3600s or 800,3600s"
)

COUNT = "a whole number of at least 1 and at most 18 digits is expected"

OF_THE_GATE = {
    "alpha": (["0", "0.51", "nan", "5%"], PROBABILITY),
    "tolerance": (["-1", "nan", "inf", "small"], TOLERANCE),
    "budget": (["0", "0s", "5x", "5,5", ",", "1.5", "9" * 400], BUDGET),
    "seeds": (["0", "-1", "1.5", "", "two", "²", "9" * 5000], COUNT),
    "attribute": (["-1"], COUNT.replace("1", "0", 1)),
    "devices-per-worker": (["0", "all", "9" * 5000], f"auto or {COUNT}"),
    "gate": (["luck"], "one of regression, noninferiority, threshold is expected"),
    "inconclusive": (["maybe"], "one of pass, fail, more is expected"),
    "pairing": (["x"], "one of exact, common is expected"),
    "plan": (["perhaps"], "true or false is expected"),
    "store": ([""], "a path is expected"),
    "shared": ([""], "a path is expected"),
    "report": (["", "/", ".", ".."], "the path of a file is expected"),
}
"""Option -> values that it cannot have, and what is said to be expected."""


@pytest.mark.parametrize("name", OF_THE_GATE)
def test_a_value_that_an_option_cannot_have(name: str) -> None:
    """The option, key or variable, what was given, and what is expected, in a line."""
    values, expected = OF_THE_GATE[name]
    for value in values:
        with pytest.raises(ValueError, match=r"^ini cepbench_") as raised:
            read_settings({name: [value]}, {name: f"ini cepbench_{name}"}, Path())
        shown = repr(value) if len(value) < 1000 else f"{value!r:.60}"
        assert str(raised.value) == f"ini cepbench_{name} {shown}: {expected}"


def test_bounds_that_messages_name() -> None:
    """Every option with a number takes the least one that the answer to a smaller one names."""
    numbers = set()
    for option in OPTIONS:
        given = GivenValue(["-1"], option.flag, Path)
        try:
            option.read(given)
        except ValueError as error:
            for least in map(int, re.findall(r"at least (\d+)", str(error))):
                numbers.add(option.name)
                assert option.read(given._replace(texts=[str(least)])) == least
                with pytest.raises(ValueError, match=re.escape(f"at least {least}")):
                    option.read(given._replace(texts=[str(least - 1)]))
    counts = {"samples", "seeds", "devices-per-worker", "series-length", "attribute"}
    assert numbers == {"tolerance", *counts}


def test_a_value_is_refused_wherever_it_is_set(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the ini file, the environment, on the command line; the nearest is named."""
    toy.write("pytest.ini", f"{INI}cepbench_alpha = 2\n")
    assert_one_message(toy.run_here(), f"ini cepbench_alpha '2': {PROBABILITY}")
    monkeypatch.setenv("CEPBENCH_ALPHA", "3")
    assert_one_message(toy.run_here(), f"CEPBENCH_ALPHA '3': {PROBABILITY}")
    assert_one_message(toy.run_here("--cep-alpha=4"), f"--cep-alpha '4': {PROBABILITY}")
    monkeypatch.setenv("CEPBENCH_ALPHA", "")  # as good as not set
    monkeypatch.setenv("CEPBENCH_MODEL", " ")  # the suite's own would pass in its place
    assert_one_message(toy.run_here("--cep-alpha=0.1"), "CEPBENCH_MODEL ' ': a model is")
    monkeypatch.delenv("CEPBENCH_MODEL")
    monkeypatch.setenv("CEPBENCH_ENCODER", "")
    assert_one_message(toy.run_here("--cep-alpha=0.1"), "CEPBENCH_ENCODER '': a model is")


def test_shares_of_alpha_at_which_nothing_fails_are_refused(accepted: Project) -> None:
    """What is enough for one case may be too little for each of ten, or beside further looks."""
    arguments = ["--cep-gate=regression", "--cep-alpha=5e-5"]
    assert accepted.run_here(*arguments, "--snapshot-update").ret == pytest.ExitCode.OK
    assert accepted.run_here(*arguments).ret == pytest.ExitCode.OK
    more = accepted.run_here(*arguments, "--cep-inconclusive=more")
    less = accepted.run_here(arguments[0], "--cep-alpha=3e-5")
    for result, share in ((more, "2.5e-06"), (less, "3e-06")):
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        (line,) = (line for line in result.errlines if line.startswith("ERROR: "))
        assert f"toy/color/gc has {share} of alpha, at which no drop could be told" in line
    in_series = accepted.run_here(*arguments, "--cep-series=one", "--cep-inconclusive=more")
    assert in_series.ret == pytest.ExitCode.OK  # where bounds decide


def test_two_suites_of_one_name_are_refused(toy: Project) -> None:
    """Their baselines would be the same files: the one accepted last would be that of both."""
    toy.suite(SHAPES.replace("iterations = 2", "iterations = 1"), "other")
    result = toy.run_here("--snapshot-update", "--import-mode=importlib")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*suite.toml are both called 'toy', *: rename one*"])
    assert not toy.baselines.exists()
