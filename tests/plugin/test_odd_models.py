"""Models that misbehave, whose acts tell only of who is under test, and code that changes."""

from __future__ import annotations

import pytest

from tests.plugin.project import SLOWLY_BOTH, Project, contents
from tests.plugin.user_models import POISON

COLORS = {"a.png": (200, 10, 10), "b.png": (10, 10, 200), "c.png": POISON}


@pytest.fixture
def photos(project: Project) -> Project:
    """The photo project with accepted baselines of honest models, for each role under test."""
    project.photos(COLORS)
    return project


def _accept(photos: Project, role: str) -> None:
    model = f"--model=python:user_models:{role}"
    assert photos.run(model, f"--cep-role={role}", "--snapshot-update").ret == pytest.ExitCode.OK


def _gate(photos: Project, role: str, behaviour: str) -> pytest.RunResult:
    model = f"--model=python:user_models:{role}?behaviour={behaviour}"
    return photos.run("-vv", model, f"--cep-role={role}")


@pytest.mark.parametrize(
    ("role", "behaviour", "kind"),
    [
        ("describer", "empty", "empty-text"),
        pytest.param("describer", "only-thinks", "only-reasoning", marks=pytest.mark.slow),
        ("generator", "black", "blank-image"),
        ("encoder", "nan", "nan-vector"),
    ],
)
def test_what_the_model_under_test_spoils_is_a_regression(
    photos: Project, role: str, behaviour: str, kind: str
) -> None:
    """Empty texts, black or NaN images, NaN vectors count as 0 and as failures, none is dropped."""
    _accept(photos, role)
    result = _gate(photos, role, behaviour)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert photos.verdicts() == {"overall-gc": "regressed", "overall-failures": "regressed"}
    for case in photos.report()["cases"]:
        assert case["failures"] == {kind: 3}
        assert case["n"] == 3
    gc, failures = photos.report()["cases"]
    assert (gc["value"], gc["curve"]) == (0.0, [0.0, 0.0])
    assert (failures["value"], failures["curve"]) == (1.0, [])
    result.stdout.fnmatch_lines([f"  failed: 3 x {kind}"])


def test_reasoning_is_no_part_of_a_description(photos: Project) -> None:
    """Wrong thoughts spoil no right answer, right ones save no useless one; they are counted."""
    _accept(photos, "describer")

    wrong = _gate(photos, "describer", "thinks-wrong")
    assert wrong.ret == pytest.ExitCode.OK
    gc, failures = photos.report()["cases"]
    assert (gc["value"], failures["value"]) == (pytest.approx(1.0, abs=1e-4), 0.0)
    told = "3 of 3 descriptions came with reasoning"
    assert [note for note in gc["notes"] if note.startswith(told)]
    assert told in (photos.path / ".cepbench" / "report.html").read_text()

    right = _gate(photos, "describer", "thinks-right")
    assert right.ret == pytest.ExitCode.TESTS_FAILED
    assert photos.verdicts()["overall-gc"] == "regressed"


def test_an_exception_is_tried_again_by_the_next_run(photos: Project) -> None:
    """What failed by an exception is not stored: a run after the trouble has passed is honest."""
    mood = photos.write("mood", "raise-on-poison")
    photos.write(
        "moody.py",
        "import pathlib, user_models\n\nclass Moody(user_models.Describer):\n"
        "    def _tell(self, image):\n"
        f"        self.behaviour = pathlib.Path({str(mood)!r}).read_text()\n"
        "        return super()._tell(image)\n\n"
        "def describer():\n    return Moody('moody')\n",
    )
    model = "--model=python:moody:describer"
    photos.run(model)
    assert photos.report()["cases"][0]["failures"] == {"exception": 1}
    mood.write_text("honest")
    photos.run(model)
    assert photos.report()["cases"][0]["failures"] == {}
    assert photos.effort() == (2, 2)  # the text and the drawing that were missing


def test_what_a_model_raises_shows_no_key(photos: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries repeat keys: neither the terminal, nor a report, nor the history has one."""
    monkeypatch.setenv("MODEL_HUB_TOKEN", "9f8e7d6c5b4a")
    result = photos.run("--model=python:user_models:describer?behaviour=leak", "-v")
    written = b"".join(contents(photos.path / ".cepbench").values()).decode("utf-8", "replace")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "denied: [key]" in written
    assert "9f8e7d6c5b4a" not in written + result.stdout.str() + result.stderr.str()


# -- code that changes, and not its fingerprint: said in every report ------------------------------


MODEL = "--model=python:user_models:describer"

SAID = "the describer's answers were made by user_models:describer (user_models.py "

CHANGED = "def honest_no_more(): pass\n"


@pytest.fixture
def answered(project: Project) -> Project:
    """A project whose answers are all in the store, and accepted."""
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
    answered: Project, arguments: tuple[str, ...]
) -> None:
    """Terminal, JSON, Markdown and HTML name the file and both digests; the verdicts stand."""
    assert answered.run("-p", "no:xdist", MODEL).ret == pytest.ExitCode.OK
    assert not any("answers were made by" in warning for warning in warnings(answered))

    change_code(answered)
    result = answered.run(*arguments, MODEL)

    assert result.ret == pytest.ExitCode.OK
    assert answered.effort()[1] == 0, "nothing was asked"
    (warning,) = [warning for warning in warnings(answered) if warning.startswith(SAID)]
    then, now = (part.partition(")")[0] for part in warning.split("user_models.py ")[1:])
    assert then != now
    assert len(then) == len(now) == 16
    assert "give the model another one if the change can change an answer" in warning
    assert "user_models.py" in result.stdout.str()
    for name in (".cepbench/report.md", ".cepbench/report.html"):
        text = (answered.path / name).read_text().replace("\\", "")
        assert then in text
        assert now in text
    # A generator and an encoder of the same file changed as well.
    assert (
        len([warning for warning in warnings(answered) if "answers were made by" in warning]) == 3
    )
