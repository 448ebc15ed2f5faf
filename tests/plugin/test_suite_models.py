"""Detectors, further encoders and presets from the command line; several suites in one folder."""

from __future__ import annotations

import pytest

from tests.plugin.project import SHAPES, SLOWLY_BOTH, TEST_MODULE, Project

TASKS = """\
name = "tasks"
version = 1
[data]
loader = "shapes-tasks"
options = { samples_per_category = 2 }
[chain]
start = "text"
generations = 3
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
detector = "shapes:"
[gate]
gate = "threshold"
[metrics.mgg]
colors = "detector"
[metrics.failures]
tolerance = 0.0
"""

BLIND = """\
from pytest_cepbench.artifacts import Detections

class Blind:
    fingerprint = "blind/1"
    queries = "classes"

    def detect(self, images, queries):
        return [Detections() for _ in images]
"""


def test_a_detector_under_test(project: Project) -> None:
    """`--model` may be a detector: it is gated; one that finds nothing makes all pictures wrong.

    A suite that it has no part in is skipped, with the reason, and the others are gated; a run of
    none but such suites is no pass.
    """
    project.suite(TASKS)
    project.write("own.py", BLIND)
    same, blind = ("--cep-role=detector", "--model=shapes:"), "--model=python:own:Blind"
    some = ("-k", "overall or colors")
    assert project.run_here(*same, *some, "--snapshot-update").ret == pytest.ExitCode.OK
    result = project.run_here("-vv", blind, *some)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["cepbench: model under test, detector: python:own:Blind (*"])
    verdicts = project.verdicts()
    assert verdicts["overall-mgg"] == verdicts["colors-mgg"] == "regressed"
    assert verdicts["overall-failures"] == "held"
    result.stdout.fnmatch_lines(
        ["  colors/000* 1.0000 * 0.0000 * -1.0000", "    generation 1: 1 *expected*"]
    )

    project.suite(SHAPES, "toy")
    result = project.run_here("-rs", blind)
    result.assert_outcomes(skipped=1, failed=7, passed=1)
    result.stdout.fnmatch_lines(["*the detector under test has no role in suite 'toy'*"])
    alone = project.run_here("toy", blind)
    assert alone.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    alone.stdout.fnmatch_lines(["no case was judged: nothing is known of the model"])


def test_both_roles_of_a_unified_model_are_under_test(project: Project) -> None:
    """One model, one verdict for both; a loss is put down to the role that it came from."""
    project.photos({"red.png": (200, 10, 10), "green.png": (10, 200, 10), "blue.png": (9, 9, 200)})
    unified = "--model=python:user_models:unified"
    accepted = project.run_here(unified, "--snapshot-update")
    assert accepted.ret == pytest.ExitCode.OK
    accepted.stdout.fnmatch_lines(
        [
            "cepbench: model under test, describer: python:user_models:unified (*",
            "cepbench: model under test, generator: python:user_models:unified (*",
            "cepbench: suite * gates describer+generator python:user_models:unified (encoder *",
        ]
    )
    pale = project.run_here("-vv", f"{unified}?behaviour=pale")
    assert pale.ret == pytest.ExitCode.TESTS_FAILED
    pale.stdout.fnmatch_lines(["*By role: describer 0.0000, generator 0.*"])
    half = project.run_here(f"{unified}?behaviour=pale", "--cep-role=generator")
    half.stdout.fnmatch_lines(
        ["*under test: baseline describer+generator, now generator: 2 cases*"]
    )


@SLOWLY_BOTH
def test_several_suites_in_one_folder(project: Project, arguments: tuple[str, ...]) -> None:
    """One module, a suite file for each test, every case judged and named by its own suite."""
    project.write("suite.toml", SHAPES)
    project.write("tasks.toml", TASKS)
    project.write(
        "test_both.py",
        TEST_MODULE
        + "\n\nimport pytest\n\n@pytest.mark.cep(suite='tasks.toml')\n"
        + "def test_tasks(cep_case, cep_gate):\n    cep_gate(cep_case)\n",
    )
    assert project.run(*arguments, "--snapshot-update").ret == pytest.ExitCode.OK
    cases = project.report()["cases"]
    assert [case["suite"] for case in cases] == ["toy"] * 10 + ["tasks"] * 8
    assert {path.parent.name for path in project.baselines.rglob("*.toml")} == {"toy", "tasks"}
    assert project.run(*arguments, "-k", "tasks").ret == pytest.ExitCode.OK
    assert {case["suite"] for case in project.report()["cases"]} == {"tasks"}
