"""Options and their twins, the short names, the header, and who says how a case is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.evaluation.settings import OPTIONS
from pytest_cepbench.models import ROLE_NAMES
from tests.plugin.project import PHOTOS, Color, Project
from tests.plugin.scored_project import ScoredProject, scored_suite

# A value for the command line, one for the environment, one for the ini file; each is visible.


VALUES = {
    "model": ("shapes:?miss=0.1", "shapes:?miss=0.2", "shapes:?miss=0.3"),
    "role": ("generator", "describer", "generator"),
    "describer": ("shapes:?swap=0.1", "shapes:?swap=0.2", "shapes:?swap=0.3"),
    "generator": ("shapes:?move=0.1", "shapes:?move=0.2", "shapes:?move=0.3"),
    "encoder": ("shapes:", "python:user_models:encoder", "shapes:"),
    "detector": ("shapes:", "python:user_models:detector", "boxes:"),
    "judge": ("openai:one?revision=1", "openai:two?revision=1", "openai:three?revision=1"),
    "writer": ("shapes:?miss=0.1", "shapes:?miss=0.2", "shapes:?miss=0.3"),
    "interleaver": ("shapes:?miss=0.1", "shapes:?miss=0.2", "shapes:?miss=0.3"),
    "editor": ("python:a:one", "python:a:two", "python:a:three"),
    "vqa": ("shapes:?yes=0.1", "shapes:?yes=0.2", "shapes:?yes=0.3"),
    "data": ("photos=one", "photos=two", "photos=three"),
    "samples": ("1", "2", "3"),
    "seeds": ("2", "3", "4"),
    "store": ("one/store", "two/store", "three/store"),
    "shared": ("one/lib", "s3://two/lib", "three/lib"),
    "publish": ("s3://one/lib", "two/lib", "file:///three/lib"),
    "baselines": ("one/accepted", "two/accepted", "three/accepted"),
    "report": ("one/r.json", "two/r.json", "three/r.json"),
    "history": ("one", "two", "three"),
    "show": ("one.png", "two.png", "three.png"),
    "gate": ("regression", "noninferiority", "regression"),
    "tolerance": ("0.1", "0.2", "0.3"),
    "alpha": ("0.01", "0.02", "0.5"),
    "inconclusive": ("more", "fail", "pass"),
    "series": ("run-1", "run-2", "run-3"),
    "series-length": ("10", "20", "300"),
    "budget": ("800", "60.5s", "800,3600s"),
    "pairing": ("common", "exact", "common"),
    "attribute": ("0", "3", "32"),
    "residency": ("all", "swap", "all"),
    "devices-per-worker": ("1", "2", "4"),
    "engine": ("ray", "local", "ray"),
    "ray-address": ("one:6379", "two:6379", "auto"),
    "ray-pool": ("encoder:actors=1", "encoder:gpus=0.5", "encoder:gpus=2"),
    "accept-insensitive": ("True", "False", "True"),
    "allow-skips": ("True", "False", "True"),
    "plan": ("True", "False", "True"),
}


def _settings(config: pytest.Config) -> dict[str, Any]:
    from pytest_cepbench.plugin.options import settings_of

    return vars(settings_of(config))


def _found(settings: dict[str, Any], name: str) -> str:
    """What a setting came to be, as it was written."""
    if name in ROLE_NAMES:
        return str(settings["roles"][name])
    if name == "ray-pool":
        ((role, pool),) = settings["ray_pools"].items()
        return f"{role}:" + ",".join(f"{key}={number:g}" for key, number in pool.items())
    if name == "data":
        return "photos=" + Path(settings["data"]["photos"]).name
    field = name.replace("-", "_")
    (value,) = settings[field] if name in ("shared", "show") else (settings[field],)
    if name == "budget":
        seconds = None if value.seconds is None else f"{value.seconds:g}s"
        return ",".join(str(part) for part in (value.samples, seconds) if part is not None)
    return Path(value).relative_to(Path.cwd()).as_posix() if isinstance(value, Path) else str(value)


def test_command_line_before_environment_before_ini(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the three sets every option, the nearer one wins, and its source is remembered.

    An option that is added gets its values, and so its twins are tested.
    """
    assert sorted(VALUES) == sorted(option.name for option in OPTIONS)
    silent = ("-p", "no:terminal", "-p", "no:hypothesispytest")
    lines = [f"{option.ini} = {VALUES[option.name][2]}" for option in OPTIONS]
    project.write("pytest.ini", "\n".join(["[pytest]", *lines, ""]))
    for option in OPTIONS:
        monkeypatch.setenv(option.env, VALUES[option.name][1])

    def assert_set(config: pytest.Config, place: int, source: str) -> None:
        settings = _settings(config)
        for option in OPTIONS:
            assert _found(settings, option.name) == VALUES[option.name][place]
            assert settings["sources"][option.name] == source.format(option)

    for short in (False, True):
        typed = []
        for option in OPTIONS:
            flag = f"--{option.name}" if short and option.short else option.flag
            typed.append(flag if option.switch else f"{flag}={VALUES[option.name][0]}")
        config = project.pytester.parseconfig(*silent, *typed)
        assert_set(config, 0, "{0.flag}")
    for option in OPTIONS:
        setattr(config.option, option.dest, None)  # as it is where nothing is typed
    assert_set(config, 1, "{0.env}")
    for option in OPTIONS:
        monkeypatch.delenv(option.env)
    assert_set(config, 2, "ini {0.ini}")


def test_ini_paths_are_relative_to_the_ini_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the project pytest is started, the ini file means the same folders.

    What is typed there is below that place.
    """
    project.write(
        "pytest.ini",
        "[pytest]\ncepbench_data = photos=images\ncepbench_baselines = accepted\n"
        "cepbench_store = kept\ncepbench_report = out/r.json\n",
    )
    below = project.path / "below"
    below.mkdir()
    settings = _settings(project.pytester.parseconfig(below))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        assert _settings(project.pytester.parseconfig(below)) == settings
        typed = _settings(project.pytester.parseconfig(below, "--cep-baselines=own"))
        assert typed["baselines"] == below / "own"
    assert settings["data"] == {"photos": project.path / "images"}
    assert settings["baselines"] == project.path / "accepted"

    # `--cep-data` may be given several times; a `;` or a line separates them in its twins.
    places = {"a": project.path / "x", "b": project.path / "y = z"}
    project.write("pytest.ini", "[pytest]\ncepbench_data =\n  a=x\n  b=y = z\n")
    typed = _settings(project.pytester.parseconfig("--cep-data=a=x", "--cep-data", "b=y = z"))
    assert typed["data"] == places
    config = project.pytester.parseconfig()
    assert _settings(config)["data"] == places
    assert {getattr(config.option, option.dest) for option in OPTIONS} == {None}  # nothing is typed
    monkeypatch.setenv("CEPBENCH_DATA", "a=x;b=y = z;")
    assert _settings(config)["data"] == places


def test_the_header_is_short(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model under test, what it is compared with, a line for each suite; reports have all."""
    monkeypatch.setenv("CEPBENCH_GENERATOR", "shapes:?move=0.0")
    result = accepted.run_here("--model=shapes:?miss=0.25&swap=0.125&move=0.5", "-k", "color")
    assert [line for line in result.outlines if line.startswith("cepbench: ")] == [
        "cepbench: model under test: shapes:?... (the shapes world's own describer c0ff9ee5)",
        "cepbench: baselines baselines, store .cepbench/store",
        (
            "cepbench: suite toy gates describer shapes:?... "
            "(generator shapes:?move=0.0, encoder shapes:) against baselines/toy"
        ),
    ]
    assert any("miss=0.25&swap=0.125&move=0.5 (" in line for line in accepted.report()["setup"])


OWNER = """\
def pytest_addoption(parser):
    parser.addoption("--model", default="theirs")

def pytest_sessionstart(session):
    print("OWNER SEES", session.config.getoption("--model"))
"""


@pytest.mark.parametrize(
    "how", ["plugin", pytest.param("conftest", marks=pytest.mark.slow), "conftest-in-ini"]
)
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


def test_a_checkpoints_conftest_is_never_imported(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value of `--model DIR` is no test path, wherever it is written: its code is not run.

    Only the option's value is taken away, not the path of `pytest suites --describer shapes:`.
    """
    toy.write("ckpt/conftest.py", "open('imported', 'w').close()\n")
    toy.write("ckpt/test_inside.py", "open('imported', 'w').close()\n")
    toy.write("ckpt/config.json", '{"model_type": "nothing-known"}')
    results = [toy.run_here("test_toy.py", "--model", "ckpt")]
    monkeypatch.setenv("PYTEST_ADDOPTS", "--model ckpt")
    results.append(toy.run_here("test_toy.py"))
    monkeypatch.delenv("PYTEST_ADDOPTS")
    toy.write("pytest.ini", "[pytest]\naddopts = --model ckpt\n")
    results.append(toy.run_here("test_toy.py"))
    for result in results:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: *ckpt*"])
    assert not (toy.path / "imported").exists()

    toy.write("pytest.ini", "[pytest]\n")
    toy.write("here/test_plain.py", "def test_plain(): pass\n")
    toy.write("here/conftest.py", "import pytest\n")
    result = toy.run_here("here", "--describer", "shapes:", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["here/test_plain.py::test_plain"])


# -- who says how a case is judged (of tables in a suite: tests/suites/test_gate_config.py) --------


CASE = "[cases.'overall/gc']\ngate = 'noninferiority'\ntolerance = 0.13\nalpha = 0.2\n"

MARKED = "import pytest\n\n@pytest.mark.cep(tolerance=0.14)\n"

TESTS = {
    "mark": f"{MARKED}def test_drift(cep_case, cep_gate): cep_gate(cep_case)\n",
    "call": f"{MARKED}def test_drift(cep_case, cep_gate): cep_gate(cep_case, tolerance=0.15)\n",
}

INI = "cepbench_gate = noninferiority\ncepbench_tolerance = 0.16\ncepbench_alpha = 0.06\n"

ENV = {"CEPBENCH_GATE": "regression", "CEPBENCH_TOLERANCE": "0.17", "CEPBENCH_ALPHA": "0.12"}

FLAGS = ("--cep-gate=threshold", "--cep-tolerance=0.18", "--cep-alpha=0.18")


def test_the_nearer_to_the_run_has_the_word(tmp_path: Path) -> None:
    """A case's table, marker, call, ini file, environment, option; the report says who it was."""
    project = ScoredProject.make(tmp_path / "project", "")
    (project.path / "suite.toml").unlink()
    (project.path / "test_scored.py").unlink()
    for name, module in TESTS.items():
        folder = project.path / name
        folder.mkdir()
        text = scored_suite(n=1, rest=f"[metrics.gc]\n{CASE}").replace('"scored"', f'"{name}"', 1)
        (folder / "suite.toml").write_text(text)
        (folder / f"test_{name}.py").write_text(module)

    def judged(*args: str, **env: str) -> list[dict[str, Any]]:
        cases: list[dict[str, Any]] = project.run(*args, env=env).report["cases"]
        assert len(cases) == 2
        return cases

    said = {case["suite"]: case for case in judged()}
    for name, tolerance, who in (
        ("mark", 0.14, "@pytest.mark.cep"), ("call", 0.15, "cep_gate(tolerance=)"),
    ):  # fmt: skip
        case = said[name]
        assert (case["gate"], case["tolerance"]) == ("noninferiority", tolerance)
        origins = {"gate": "[cases.'overall/gc']", "tolerance": who}
        assert origins.items() <= case["origins"].items()
    with (project.path / "pytest.ini").open("a") as ini:
        ini.write(INI)
    runs = (
        (judged(), "noninferiority", 0.16, 0.03, "ini cepbench_{}"),
        (judged(**ENV), "regression", 0.17, 0.06, "CEPBENCH_{}"),
        (judged(*FLAGS, **ENV), "threshold", 0.18, None, "--cep-{}"),
    )
    for cases, gate, tolerance, alpha, origin in runs:
        for case in cases:
            assert (case["gate"], case["tolerance"], case["alpha"]) == (gate, tolerance, alpha)
            for setting in ("gate", "tolerance", "alpha"):
                shown = origin.format(setting.upper() if origin[0] == "C" else setting)
                assert case["origins"][setting] == shown


COLORS: dict[str, Color] = {
    f"{name}.png": (200, 20 * place, 10) for place, name in enumerate("abcdefgh")
}


def test_common_compares_what_both_have(project: Project) -> None:
    """Of eight accepted photos one is gone since, one is new, one has another name: six are
    compared, and the report says how many were left out.
    """
    project.suite(PHOTOS.replace('"threshold"', '"regression"\nprimary = ["gc"]'))
    project.photos(COLORS)
    accepted = project.run_here("-k", "gc", "--snapshot-update")
    assert accepted.ret == pytest.ExitCode.OK
    photos = project.path / "photos"
    (photos / "a.png").unlink()
    (photos / "b.png").rename(photos / "z.png")
    project.photos({"new.png": (10, 10, 200)})
    project.run_here("--cep-pairing=common", "-k", "gc")
    (case,) = project.report()["cases"]
    assert (case["verdict"], case["units"], case["difference"]) == ("held", 6, 0.0)
    assert "4 samples that only one of the two has were left out" in case["notes"]
