"""The marker `cep`: what it chooses, and how its misuse is explained."""

from __future__ import annotations

import pytest

from tests.plugin.project import SHAPES, Project

BODY = "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n"


def _module(mark: str) -> str:
    return f"import pytest\n\n@pytest.mark.cep({mark})\n{BODY}"


def test_the_marker_chooses_parts_and_metrics(toy: Project) -> None:
    """Categories and metrics narrow the cases; markers of module and function are merged."""
    toy.write(
        "test_toy.py",
        "import pytest\n\npytestmark = pytest.mark.cep(metrics=['gc'], categories=('shape',))\n\n"
        f"@pytest.mark.cep(categories=['overall', 'color'])\n{BODY}",
    )
    result = toy.run_here("--collect-only", "-q")
    ids = [line for line in result.outlines if "::" in line]
    assert ids == ["test_toy.py::test_drift[color-gc]", "test_toy.py::test_drift[overall-gc]"]


def test_the_marker_names_a_suite_elsewhere(toy: Project) -> None:
    """suite= is relative to the test module, and its cases are judged as any others."""
    toy.write("suites/mine.toml", SHAPES.replace('"toy"', '"mine"'))
    toy.write("tests/test_mine.py", _module("suite='../suites/mine.toml', categories=['color']"))
    result = toy.run_here("tests", "--snapshot-update")
    assert result.ret == pytest.ExitCode.OK
    assert [path.parent.name for path in toy.baselines.rglob("*.toml")] == ["mine"]


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("'color'", "@pytest.mark.cep takes its arguments by name (suite, categories, *"),
        (
            "category='color'",
            "@pytest.mark.cep: unknown argument 'category'. Did you mean 'categories'? *",
        ),
        (
            "categories=['colour']",
            "@pytest.mark.cep: unknown part 'colour'. Did you mean 'color'?*",
        ),
        ("metrics=['GC']", "@pytest.mark.cep: unknown metric 'GC'. *Known: failures, gc."),
        ("categories='color'", "@pytest.mark.cep: categories is a list of names, got 'color'"),
        ("tolerance=-1", "@pytest.mark.cep: tolerance is a number of at least 0, got -1"),
        ("tolerance='0.1'", "@pytest.mark.cep: tolerance is a number of at least 0, got '0.1'"),
        ("suite='nowhere.toml'", "suite file '*nowhere.toml' cannot be read: *"),
    ],
    ids=["position", "argument", "part", "metric", "text", "negative", "no-number", "suite"],
)
def test_misuse_is_one_message_at_collection(toy: Project, mark: str, message: str) -> None:
    """What is wrong is named with what is possible, without a traceback into the plugin."""
    toy.write("test_toy.py", _module(mark))
    result = toy.run_here()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"*{message}"])
    result.stdout.no_fnmatch_line("*pytest_cepbench*")


def test_every_case_has_the_marker(toy: Project) -> None:
    """`-m cep` selects all cases, `-m "not cep"` all else."""
    toy.write("test_plain.py", "def test_plain(): pass\n")
    toy.run_here("-m", "cep", "--collect-only", "-q").stdout.fnmatch_lines(
        ["10/11 tests collected *"]
    )
    toy.run_here("-m", "not cep").assert_outcomes(passed=1, deselected=10)
    toy.run_here("--markers").stdout.fnmatch_lines(["@pytest.mark.cep(suite, categories, *"])
