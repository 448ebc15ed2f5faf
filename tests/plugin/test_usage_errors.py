"""A user's mistake on the command line: one message that names it, before anything runs."""

from __future__ import annotations

import pytest

from tests.plugin.project import PHOTOS, Project, assert_one_message

LEAVER = """\
import pytest, sys

def exits(): sys.exit(0)

def skips(): pytest.skip("no GPU")
"""

MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "unknown-knob": (
        ["--model=shapes:?mis=0.1"],
        ["unknown parameter for the shapes describer 'mis'", "Did you mean 'miss'?"],
    ),
    "knob-of-wrong-kind": (["--model=shapes:?miss=lots"], ["'miss' must be float, got 'lots'"]),
    "knob-out-of-range": (["--model=shapes:?miss=2"], ["miss is a probability in [0, 1], got 2.0"]),
    "knob-given-twice": (["--model=shapes:?miss=0&miss=1"], ["'miss' is given more than once"]),
    "parameters-malformed": (["--model=shapes:?miss"], ["?name=value&name=value"]),
    "empty-spec": (["--model="], ["a model spec is empty"]),
    "blank-spec": (["--encoder", " "], ["a model spec is empty"]),
    "missing-folder": (["--model=./checkpoints/step-8"], ["checkpoints/step-8: no such folder"]),
    "python-without-factory": (["--model=python:user_models"], ["python:package.module:factory"]),
    "python-not-there": (["--model=python:nowhere:f"], ["'nowhere'", "ModuleNotFoundError"]),
    "python-no-such-factory": (["--model=python:user_models:f"], ["user_models has no 'f'"]),
    "python-module-mistyped": (
        ["--model=python:user_model:describer"],
        ["No module named 'user_model'", "Did you mean 'user_models'?"],
    ),
    "python-factory-mistyped": (
        ["--model=python:user_models:discriber"],
        ["user_models has no 'discriber'", "Did you mean 'describer'?"],
    ),
    "python-that-exits": (["--model=python:quitter:exits"], ["the factory raised SystemExit: 0"]),
    "python-that-skips": (
        ["--model=python:quitter:skips"],
        ["the factory raised Skipped: no GPU"],
    ),
    "folder-mistyped": (["--model=foto"], ["'foto': there is no folder", "Did you mean 'photos'?"]),
    "factory-parameter": (
        ["--model=python:user_models:describer?behavior=1"],
        ["unknown parameter for user_models:describer 'behavior'", "Did you mean 'behaviour'?"],
    ),
    "wrong-role": (
        ["--generator=python:user_models:describer"],
        ["'python:user_models:describer'", "can play describer", "generate(texts, seeds)"],
    ),
    "role-forced-in-vain": (
        ["--model=python:user_models:describer", "--cep-role=encoder"],
        ["can play describer", "encode_images(images)"],
    ),
    "only-role-taken": (
        ["--model=python:user_models:describer", "--describer=shapes:"],
        ["--model=python:user_models:describer", "--describer is given as well: drop one"],
    ),
    "free-devices": (["--cep-price=0"], ["--cep-price '0'", "for an hour", "2.50"]),
    "no-shared-store": (
        ["--model=shapes:", "--cep-shared=elsewhere"],
        ["--cep-shared elsewhere: no such folder"],
    ),
    "data-without-equals": (["--cep-data=photos"], ["--cep-data 'photos': NAME=PATH is expected"]),
    "data-without-path": (["--cep-data=photos="], ["NAME=PATH is expected"]),
    "negative-tolerance": (["--cep-tolerance=-0.1"], ["--cep-tolerance '-0.1'", "at least 0"]),
    "endless-tolerance": (["--cep-tolerance=inf"], ["--cep-tolerance 'inf'"]),
    "tolerance-no-number": (["--cep-tolerance=small"], ["--cep-tolerance 'small'"]),
}


@pytest.mark.parametrize(("arguments", "pieces"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_message(
    project: Project, arguments: list[str], pieces: list[str]
) -> None:
    """Exit code 4, no traceback, nothing collected, no store opened for a name that is wrong."""
    project.suite(PHOTOS)
    project.photos({"red.png": (200, 0, 0)})
    project.write("quitter.py", LEAVER)
    result = project.run_here(*arguments)
    assert_one_message(result, *pieces)
    assert len([line for line in result.errlines if line.startswith("ERROR: ")]) == 1
    assert not (project.path / ".cepbench" / "report.json").exists()


def test_a_role_that_does_not_exist_is_refused_with_those_that_do(project: Project) -> None:
    """The same words on the command line and in the ini file, with the nearest role."""
    assert_one_message(
        project.run_here("--cep-role=descriver"),
        "--cep-role 'descriver': one of describer, generator, encoder",
        "Did you mean 'describer'?",
    )
    project.write("pytest.ini", "[pytest]\ncepbench_role = painter\n")
    assert_one_message(
        project.run_here(), "cepbench_role 'painter'", "describer, generator, encoder"
    )


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("--cep-tolerence=0.1", "--cep-tolerance"),
        ("--modle=shapes:", "--model"),
        ("--cep_model=shapes:", "--cep-model"),
    ],
)
def test_a_mistyped_option_answers_with_the_nearest(
    project: Project, mistyped: str, meant: str
) -> None:
    """Pytest's own message on an unknown option, and one line more."""
    result = project.run_here(mistyped)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    flag = mistyped.partition("=")[0]
    result.stderr.fnmatch_lines(
        [f"*unrecognized arguments: {mistyped}", f"  {flag}: did you mean {meant}?"]
    )


def test_options_of_others_have_no_suggestion(project: Project) -> None:
    """An unknown option that is like none of ours is pytest's business alone."""
    result = project.run_here("--cov-report=html")
    result.stderr.fnmatch_lines(["*unrecognized arguments: --cov-report=html"])
    result.stderr.no_fnmatch_line("*did you mean*")


@pytest.mark.parametrize("twin", ["--cep-overlap", "cepbench_overlap", "CEPBENCH_OVERLAP"])
def test_an_option_that_was_removed_is_refused_by_name(
    project: Project, twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line, in the ini file and in the environment, with what takes its place."""
    if twin.startswith("cepbench"):
        project.write("pytest.ini", f"[pytest]\n{twin} = off\n")
    elif twin.startswith("CEPBENCH"):
        monkeypatch.setenv(twin, "off")
    options = [f"{twin}=off"] if twin.startswith("--") else []
    words = f"{twin} was removed in 0.1.0: use -n, which gives each worker a device of its own"
    assert_one_message(project.run_here(*options), words)


def test_a_mistyped_name_in_the_ini_file_is_an_error(project: Project) -> None:
    """It would else set nothing, and the run would be gated by another tolerance."""
    project.write("pytest.ini", "[pytest]\ncepbench_tolerence = 0.1\n")
    assert_one_message(
        project.run_here(), "ini cepbench_tolerence", "Did you mean 'cepbench_tolerance'?"
    )


def test_a_mistyped_variable_is_said_in_the_header(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning only, since the name may be another program's."""
    monkeypatch.setenv("CEPBENCH_TOLERENCE", "0.1")
    monkeypatch.setenv("CEPBENCH_MODEL_CARDS_FOLDER", "cards")
    result = toy.run_here("--collect-only")
    result.stdout.fnmatch_lines(
        [
            (
                "cepbench: the environment variable CEPBENCH_TOLERENCE is not read: did you mean "
                "CEPBENCH_TOLERANCE?"
            )
        ]
    )
    result.stdout.no_fnmatch_line("*MODEL_CARDS*")


def test_a_mistake_stops_the_run_before_workers_start(toy: Project) -> None:
    """With workers asked for it is the same single message, and none of them is started."""
    result = toy.run_here("-n", "2", "--model=shapes:?mis=0.1")
    assert_one_message(result, "unknown parameter for the shapes describer 'mis'")
    result.stdout.no_fnmatch_line("*workers*")


def test_a_mistake_in_the_environment_names_its_variable(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names what the user set, not an option that was never typed."""
    monkeypatch.setenv("CEPBENCH_TOLERANCE", "-1")
    assert_one_message(toy.run_here(), "CEPBENCH_TOLERANCE '-1'")
    monkeypatch.delenv("CEPBENCH_TOLERANCE")
    toy.write("pytest.ini", "[pytest]\ncepbench_data = photos\n")
    assert_one_message(toy.run_here(), "cepbench_data 'photos'")


def test_the_suite_says_which_role_has_no_model(project: Project) -> None:
    """A suite that leaves a role open names the option that fills it."""
    project.suite(PHOTOS.replace('encoder = "python:user_models:encoder"\n', ""))
    project.photos({"red.png": (200, 0, 0)})
    result = project.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["*suite 'photos' needs an encoder: give one with --encoder=FOLDER_OR_HUB_ID *"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("where", ["option", "variable", "suite"])
def test_a_key_in_a_spec_stops_the_run_and_is_shown_nowhere(
    project: Project, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision stands in reports, history and baselines; keys come from the environment."""
    key = "9f8e7d6c5b4a"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    spec = f"openai:m?base_url=http://127.0.0.1:9/v1&revision={key}"
    args = [f"--describer={spec}"] if where == "option" else []
    text = PHOTOS
    if where == "variable":
        monkeypatch.setenv("CEPBENCH_DESCRIBER", spec)
    elif where == "suite":
        text = text.replace("python:user_models:describer", spec)
        assert spec in text
    project.suite(text)
    project.photos({"a.png": (1, 2, 3)})
    result = project.run("--generator=python:user_models:generator", *args)

    assert result.ret != pytest.ExitCode.OK
    shown = result.stdout.str() + result.stderr.str()
    assert "the environment variable OPENAI_API_KEY" in shown
    kept = [
        path for path in project.path.rglob("*") if path.is_file() and path.name != "suite.toml"
    ]
    assert key not in shown
    assert not [path for path in kept if key.encode() in path.read_bytes()]


def test_a_conftest_that_exits_is_no_pass(toy: Project) -> None:
    """Exit code 4 and a line, where the run was to gate a model; else pytest is left as it is."""
    toy.write("conftest.py", "import sys\nsys.exit()\n")
    assert_one_message(toy.run("--model=shapes:"), "conftest.py called sys.exit()")
    assert toy.run().ret == pytest.ExitCode.OK
