"""Models that misbehave, whose acts tell only of who is under test, and code that changes."""

from __future__ import annotations

import pytest

from tests.plugin.project import SLOWLY_BOTH, Project, contents

COLORS = {"a.png": (200, 10, 10), "b.png": (10, 10, 200), "c.png": (250, 0, 0)}


def _run(project: Project, role: str, behaviour: str, *args: str) -> pytest.RunResult:
    model = f"--model=python:user_models:{role}?behaviour={behaviour}"
    return project.run_here("-vv", model, f"--cep-role={role}", *args)


def test_what_the_model_under_test_spoils_is_a_regression(project: Project) -> None:
    """Vectors that are no numbers, of an encoder under test; black images of a generator; texts
    that are empty, or thoughts alone.

    All three samples count as 0 and as failures of a kind, none is dropped. But reasoning is no
    part of a description: wrong thoughts spoil no right answer, right ones save no useless one;
    they are counted.
    """
    project.photos(COLORS)
    for role, spoilt in {
        "encoder": {"nan": "nan-vector"},
        "generator": {"black": "blank-image"},
        "describer": {"empty": "empty-text", "only-thinks": "only-reasoning"},
    }.items():
        assert _run(project, role, "honest", "--snapshot-update").ret == pytest.ExitCode.OK
        for behaviour, kind in spoilt.items():
            result = _run(project, role, behaviour)
            assert result.ret == pytest.ExitCode.TESTS_FAILED
            assert project.verdicts() == {
                "overall-gc": "regressed", "overall-failures": "regressed",
            }  # fmt: skip
            gc, failures = project.report()["cases"]
            assert gc["failures"] == failures["failures"] == {kind: 3}
            assert gc["n"] == failures["n"] == 3
            assert (gc["value"], gc["curve"]) == (0.0, [0.0, 0.0])
            assert (failures["value"], failures["curve"]) == (1.0, [])
            result.stdout.fnmatch_lines([f"  failed: 3 x {kind}"])

    wrong = _run(project, "describer", "thinks-wrong")
    assert wrong.ret == pytest.ExitCode.OK
    gc, failures = project.report()["cases"]
    assert (gc["value"], failures["value"]) == (pytest.approx(1.0, abs=1e-4), 0.0)
    told = "3 of 3 descriptions came with reasoning"
    assert [note for note in gc["notes"] if note.startswith(told)]
    assert told in (project.path / ".cepbench" / "report.html").read_text()

    right = _run(project, "describer", "thinks-right")
    assert right.ret == pytest.ExitCode.TESTS_FAILED
    assert project.verdicts()["overall-gc"] == "regressed"


def test_what_a_model_raises_shows_no_key(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries repeat keys: neither the terminal, nor a report, nor the history has one.

    An exception is not stored: a run after the trouble has passed asks again, and is honest.
    """
    project.photos(COLORS)
    monkeypatch.setenv("MODEL_HUB_TOKEN", "9f8e7d6c5b4a")
    result = project.run_here("--model=python:user_models:describer?behaviour=leak", "-v")
    written = b"".join(contents(project.path / ".cepbench").values()).decode("utf-8", "replace")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "denied: [key]" in written
    assert "9f8e7d6c5b4a" not in written + result.stdout.str() + result.stderr.str()

    monkeypatch.delenv("MODEL_HUB_TOKEN")
    project.run_here("--model=python:user_models:describer?behaviour=leak")
    assert [case["failures"] for case in project.report()["cases"]] == [{}, {}]
    assert project.verdicts() == dict.fromkeys(("overall-gc", "overall-failures"), "no-baseline")


# -- code that changes, and not its fingerprint: said in every report ------------------------------


MODEL = "--model=python:user_models:describer"

SAID = "the describer's answers were made by user_models:describer (user_models.py "


@SLOWLY_BOTH
def test_changed_code_with_answers_of_the_code_before_is_said(
    project: Project, arguments: tuple[str, ...]
) -> None:
    """Terminal, JSON, Markdown and HTML name the file and both digests; the verdicts stand."""

    def said() -> list[str]:
        cases = project.report()["cases"]
        warnings = sorted({warning for case in cases for warning in case["warnings"]})
        return [warning for warning in warnings if "answers were made by" in warning]

    project.photos({"a/1.png": (10, 20, 30), "b/1.png": (200, 20, 30)})
    for more in (["--snapshot-update"], []):
        assert project.run_here(MODEL, *more).ret == pytest.ExitCode.OK
    assert said() == []

    module = project.path / "user_models.py"
    module.write_text(f"{module.read_text()}def honest_no_more(): pass\n")
    result = project.run(*arguments, MODEL)

    assert result.ret == pytest.ExitCode.OK
    assert project.effort()[1] == 0, "nothing was asked"
    (warning,) = [warning for warning in said() if warning.startswith(SAID)]
    then, now = (part.partition(")")[0] for part in warning.split("user_models.py ")[1:])
    assert then != now
    assert len(then) == len(now) == 16
    assert "give the model another one if the change can change an answer" in warning
    assert "user_models.py" in result.stdout.str()
    for name in (".cepbench/report.md", ".cepbench/report.html"):
        text = (project.path / name).read_text().replace("\\", "")
        assert then in text
        assert now in text
    assert len(said()) == 3  # a generator and an encoder of the same file changed as well
