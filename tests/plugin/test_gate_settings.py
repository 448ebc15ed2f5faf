"""Who says how a case is judged, from the test to the run, and pairs that both sides have.

What the tables of a suite say is in `tests/suites/test_gate_config.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugin.project import PHOTOS, SLOWLY_BOTH, Color, Project
from tests.plugin.scored_project import ScoredProject, scored_suite

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


@SLOWLY_BOTH
def test_common_compares_what_both_have(project: Project, arguments: tuple[str, ...]) -> None:
    """Of eight accepted photos one is gone since, one is new, one has another name: six are
    compared, and the report says how many were left out; the same on workers.
    """
    project.suite(PHOTOS.replace('"threshold"', '"regression"\nprimary = ["gc"]'))
    project.photos(COLORS)
    accepted = project.run_here("-k", "gc", "--snapshot-update")
    assert accepted.ret == pytest.ExitCode.OK
    photos = project.path / "photos"
    (photos / "a.png").unlink()
    (photos / "b.png").rename(photos / "z.png")
    project.photos({"new.png": (10, 10, 200)})
    project.run(*arguments, "--cep-pairing=common", "-k", "gc")
    (case,) = project.report()["cases"]
    assert (case["verdict"], case["units"], case["difference"]) == ("held", 6, 0.0)
    assert "4 samples that only one of the two has were left out" in case["notes"]
