"""A model of the user's own whose code changes but not its fingerprint: said in every report."""

from __future__ import annotations

import pytest

from tests.plugin.project import PHOTOS, SLOWLY_BOTH, Project

MODEL = "--model=python:user_models:describer"

SAID = "the describer's answers were made by user_models:describer (user_models.py "

CHANGED = "def honest_no_more(): pass\n"


@pytest.fixture
def photos(project: Project) -> Project:
    """A project whose answers are all in the store, and accepted."""
    project.suite(PHOTOS)
    project.photos({"a/1.png": (10, 20, 30), "b/1.png": (200, 20, 30)})
    assert project.run("-p", "no:xdist", MODEL, "--snapshot-update").ret == pytest.ExitCode.OK
    return project


def change_code(project: Project) -> None:
    """Without a new fingerprint."""
    module = project.path / "user_models.py"
    module.write_text(module.read_text() + CHANGED)


def warnings(project: Project) -> list[str]:
    """What the latest run warned of, each once."""
    return sorted({warning for case in project.report()["cases"] for warning in case["warnings"]})


@SLOWLY_BOTH
def test_changed_code_with_answers_of_the_code_before_is_said(
    photos: Project, arguments: tuple[str, ...]
) -> None:
    """Terminal, JSON, Markdown and HTML name the file and both digests; the verdicts stand."""
    assert photos.run("-p", "no:xdist", MODEL).ret == pytest.ExitCode.OK
    assert not [warning for warning in warnings(photos) if "answers were made by" in warning]

    change_code(photos)
    result = photos.run(*arguments, MODEL)

    assert result.ret == pytest.ExitCode.OK
    assert photos.effort()[1] == 0, "nothing was asked"
    (warning,) = [warning for warning in warnings(photos) if warning.startswith(SAID)]
    then, now = (part.partition(")")[0] for part in warning.split("user_models.py ")[1:])
    assert then != now
    assert len(then) == len(now) == 16
    assert "give the model another one if the change can change an answer" in warning
    assert "user_models.py" in result.stdout.str()
    for name in (".cepbench/report.md", ".cepbench/report.html"):
        text = (photos.path / name).read_text().replace("\\", "")
        assert then in text
        assert now in text
    # A generator and an encoder of the same file changed as well.
    assert len([warning for warning in warnings(photos) if "answers were made by" in warning]) == 3
