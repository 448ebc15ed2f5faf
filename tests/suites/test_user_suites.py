"""Users' suites, outside this repository: own loaders, text-first chains, several at once."""

from __future__ import annotations

import pytest

from tests.plugin.project import PHOTOS, SHAPES, Project
from tests.suites.test_data import LOADER

RED, BLUE = (200, 10, 10), (10, 10, 200)


def test_a_loader_beside_the_suite(project: Project) -> None:
    """A `python:` loader beside the suite is found; a sample of two categories counts in both."""
    project.write("mine/my_loader.py", LOADER)
    text = PHOTOS.replace('loader = "folder"\npath = "photos"', 'loader = "python:my_loader:two"')
    project.photos({})
    project.suite(text, "mine")
    assert project.run_here("mine", "--snapshot-update").ret == pytest.ExitCode.OK
    assert {(c["part"], c["metric"]): c["n"] for c in project.report()["cases"]} == {
        ("x", "gc"): 2, ("y", "gc"): 1, ("overall", "gc"): 3, ("overall", "failures"): 3,
    }  # fmt: skip


def test_the_whole_is_the_unweighted_mean_of_categories(project: Project) -> None:
    """Groups and the whole do not depend on how many samples a category has."""
    project.suite(PHOTOS + "[groups]\nboth = ['many', 'one']\n")
    project.photos({f"many/{i}.png": RED for i in range(4)} | {"one/x.png": (250, 240, 10)})
    project.run_here("--generator=python:user_models:generator?behaviour=pale")
    value = {c["part"]: c["value"] for c in project.report()["cases"] if c["metric"] == "gc"}
    assert value["many"] != pytest.approx(value["one"], abs=1e-3)
    mean = (value["many"] + value["one"]) / 2
    assert (value["both"], value["overall"]) == pytest.approx((mean, mean), abs=2e-6)


def test_text_first_on_the_embedded_world(project: Project) -> None:
    """Perfect models lose nothing, whichever modality the chain starts from."""
    project.suite(SHAPES.replace("[chain]", '[chain]\nstart = "text"'))
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    case = project.report()["cases"][0]
    assert case["value"] == pytest.approx(1.0, abs=1e-6)
    assert case["identity"]["chain"].startswith("text-first")
    worse = project.run_here("-k", "crowded", "--model=shapes:?miss=0.5")
    assert worse.ret == pytest.ExitCode.TESTS_FAILED
    assert project.verdicts() == {"crowded-gc": "regressed"}


def test_text_first_on_captions_of_a_folder(project: Project) -> None:
    """`photo.txt` beside `photo.jpg` is where the chain starts; a missing one is named."""
    text = PHOTOS.replace('path = "photos"', 'path = "photos"\noptions = { captions = true }')
    project.suite(text.replace("[chain]", '[chain]\nstart = "text"'))
    project.photos({"red.png": RED, "blue.png": BLUE})
    project.write("photos/red.txt", "200 10 10\n")
    result = project.run_here()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["'blue.png' has no caption: *'blue.txt' beside it"])
    project.write("photos/blue.txt", "10 10 200")
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    assert project.report()["cases"][0]["value"] == pytest.approx(1.0, abs=1e-6)
    project.write("photos/blue.txt", " \n")
    project.run_here("-k", "gc").stdout.fnmatch_lines(
        ["not measured: 1 of 2 samples cannot be used: blue.png: *"]
    )


def test_text_first_without_texts_is_an_error(project: Project) -> None:
    """A data set that has no texts cannot start a text-first chain, and every sample says so."""
    project.suite(PHOTOS.replace("[chain]", '[chain]\nstart = "text"'))
    project.photos({"red.png": RED})
    result = project.run_here()
    assert set(project.verdicts().values()) == {"error"}
    result.stdout.fnmatch_lines(
        ["not measured: *red.png: has no text: a text-first chain cannot start from it: 2 cases *"]
    )


def test_several_suites_in_one_run(project: Project) -> None:
    """Each has its own cases and baselines; what they share is computed once."""
    project.suite(SHAPES, "a")
    project.suite(SHAPES.replace('"toy"', '"twin"'), "b")
    assert project.run_here("--snapshot-update", "-k", "color").ret == pytest.ExitCode.OK
    first, second = project.report()["cases"]
    assert (first["suite"], second["suite"]) == ("toy", "twin")
    assert first["value"] == second["value"]
    assert (first["effort"]["inputs"] > 0, second["effort"]["inputs"]) == (True, 0)
    assert {path.parent.name for path in project.baselines.rglob("*.toml")} == {"toy", "twin"}


@pytest.mark.parametrize("mistake", ["iterations = 2", "[metrics.gc]"])
def test_a_mistake_in_the_file_is_one_message(project: Project, mistake: str) -> None:
    """Pytest shows the sentence that names file and key, and no traceback."""
    project.suite(
        SHAPES.replace(mistake, mistake.replace("iterations", "turns").replace("gc", "g"))
    )
    result = project.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"suite file '{project.path}/suite.toml': *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_cepbench*")
