"""Names that no suite of a run knows: the nearest that one does, and exit code 4."""

from __future__ import annotations

import pytest

from tests.plugin.project import PHOTOS, SHAPES, Project, assert_one_message

RED = (200, 0, 0)

PRESET = "[presets.lossy]\nmodel = 'shapes:'\nparameters = { miss = 0.5 }\n"


@pytest.fixture
def photos(project: Project) -> Project:
    """A suite of photographs that `--cep-data` places."""
    project.suite(PHOTOS)
    project.photos({"red.png": RED})
    return project


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_data_set_that_no_suite_reads(photos: Project, workers: tuple[str, ...]) -> None:
    """The option, the suites of the run and what they read are named, by workers as well."""
    result = photos.run_here("--cep-data=foldr=photos", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --cep-data foldr=...: no suite of this run (photos) reads a data set *",
        ]
    )
    result.stderr.fnmatch_lines(["*'foldr'. Did you mean 'folder'? They read folder. *"])


def test_a_data_set_for_suites_that_bring_their_own(project: Project) -> None:
    """A path for data that is generated would change nothing."""
    project.suite(SHAPES)
    result = project.run_here("--cep-data=shapes=photos")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*reads a data set 'shapes'. Their data is built in.*"])


def test_data_sets_of_other_runs_may_stand_in_the_ini_file(
    photos: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There they serve all runs of a project, as in the environment; one suite read is enough."""
    photos.write("pytest.ini", "[pytest]\ncepbench_data = sdp=elsewhere\n")
    assert photos.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    monkeypatch.setenv("CEPBENCH_DATA", "sdp=elsewhere;folder=photos")
    assert photos.run_here().ret == pytest.ExitCode.OK


def test_a_name_that_one_of_several_suites_knows(project: Project) -> None:
    """A preset or a data set of one suite is no mistake for the others."""
    project.suite(SHAPES + PRESET)
    project.suite(PHOTOS.replace('"photos"', '"other"', 1), "other")
    (project.path / "other" / "photos").mkdir()
    (project.path / "photos").mkdir()
    project.photos({"red.png": RED})
    args = ("--model=preset:lossy", "--cep-data=folder=photos", "-k", "crowded or concerned")
    result = project.run(*args)
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(["skipped: suite 'other': unknown preset 'lossy'. Known: (none)."])


def test_a_preset_that_no_suite_has(project: Project) -> None:
    """A run of which nothing is left ends with the nearest name, not with skipped suites."""
    project.suite(SHAPES + PRESET)
    result = project.run_here("--model=preset:losy")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --model preset:losy: unknown preset 'losy'. Did you mean 'lossy'? Known: lossy.*"]
    )


def test_a_folder_of_data_that_is_not_there(photos: Project) -> None:
    """The folders beside it are looked through for the one that was meant."""
    result = photos.run_here("--cep-data=folder=fotos")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["data set 'folder': *fotos' does not exist. Did you mean 'photos'?"]
    )


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_key_that_a_suite_file_does_not_have(project: Project, workers: tuple[str, ...]) -> None:
    """The key is named with the nearest one, and the run ends as after a wrong option."""
    project.suite(SHAPES + "[gaet]\ntolerance = 1.0\n")
    result = project.run_here(*workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*unknown field `gaet`. Did you mean 'gate'?"])


def test_a_module_that_breaks_as_well_keeps_its_own_exit_code(project: Project) -> None:
    """What is wrong besides a mistyped name is not hidden behind the code of one."""
    project.suite(SHAPES + "[gaet]\ntolerance = 1.0\n", "toy")
    project.write("test_broken.py", "import no_such_module\n")
    assert project.run().ret == pytest.ExitCode.INTERRUPTED


def test_a_parameter_of_a_factory_that_takes_any_is_its_own_matter(project: Project) -> None:
    """`**keywords` are passed on, and what the factory says of them is shown."""
    project.suite(SHAPES)
    project.write("own.py", "def make(**words):\n    raise ValueError(sorted(words))\n")
    result = project.run_here("--model=python:own:make?a=1&b=2")
    assert_one_message(result, "the factory raised ValueError: ['a', 'b']")
