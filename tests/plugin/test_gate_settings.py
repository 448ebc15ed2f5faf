"""Gate, tolerance and alpha: who has the word, and how alpha is divided among a run's cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import MODES, TEST_MODULE
from tests.plugin.scored_project import Ended, ScoredProject, scored_suite

TABLES = {
    "silent": "[metrics.gc]\n",
    "suite": "[metrics.gc]\n[gate]\ngate = 'noninferiority'\ntolerance = 0.11\nalpha = 0.3\n",
}
TABLES["metric"] = TABLES["suite"].replace(
    "[metrics.gc]\n", "[metrics.gc]\ngate = 'regression'\ntolerance = 0.12\n"
)
TABLES["case"] = (
    TABLES["metric"]
    + "[cases.'overall/gc']\ngate = 'noninferiority'\ntolerance = 0.13\nalpha = 0.2\n"
)

MODULES = {
    "mark": f"import pytest\n\n@pytest.mark.cep(tolerance=0.14)\n{TEST_MODULE}",
    "call": "import pytest\n\n@pytest.mark.cep(tolerance=0.14)\n"
    "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case, tolerance=0.15)\n",
}

SAID = {
    "silent": ("regression", 0.01, {}),
    "suite": ("noninferiority", 0.11, dict.fromkeys(("gate", "tolerance", "alpha"), "[gate]")),
    "metric": (
        "regression",
        0.12,
        {"gate": "[metrics.gc]", "tolerance": "[metrics.gc]", "alpha": "[gate]"},
    ),
    "case": (
        "noninferiority",
        0.13,
        dict.fromkeys(("gate", "tolerance", "alpha"), "[cases.'overall/gc']"),
    ),
    "mark": (
        "noninferiority",
        0.14,
        {"gate": "[cases.'overall/gc']", "tolerance": "@pytest.mark.cep"},
    ),
    "call": (
        "noninferiority",
        0.15,
        {"gate": "[cases.'overall/gc']", "tolerance": "cep_gate(tolerance=)"},
    ),
}
"""Of each level, all below it included: gate, tolerance, and who said so."""


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """A folder for each level, in which all levels up to it have spoken; nothing is accepted."""
    project = ScoredProject.make(tmp_path_factory.mktemp("levels"), "")
    (project.path / "suite.toml").unlink()
    (project.path / "test_scored.py").unlink()
    for level in SAID:
        folder = project.path / level
        folder.mkdir()
        rest = TABLES.get(level, TABLES["case"])
        text = scored_suite(n=1, rest=rest).replace('"scored"', f'"{level}"', 1)
        (folder / "suite.toml").write_text(text)
        (folder / f"test_{level}.py").write_text(MODULES.get(level, TEST_MODULE))
    return project


def _by_level(ended: Ended) -> dict[str, dict[str, object]]:
    return {case["suite"]: case for case in ended.report["cases"]}


def test_the_nearer_to_the_case_has_the_word(levels: ScoredProject) -> None:
    """[gate], then metric, then case, then marker, then call; -v says who it was."""
    ended = levels.run("-v")
    cases = _by_level(ended)
    for level, (gate, tolerance, origins) in SAID.items():
        case = cases[level]
        assert (case["gate"], case["tolerance"]) == (gate, tolerance), level
        assert origins.items() <= case["origins"].items(), level  # type: ignore[attr-defined]
    ended.lines.fnmatch_lines(
        [
            "judged by (alpha: the share of the case):",
            (
                "  call *: gate noninferiority ([[]cases.'overall/gc'[]]), "
                "tolerance 0.1500 (cep_gate(*"
            ),
            "  mark overall GC@1: *, tolerance 0.1400 (@pytest.mark.cep), *",
            "  metric overall GC@1: gate regression ([[]metrics.gc[]]), *",
        ]
    )


def test_a_default_has_no_origin(levels: ScoredProject) -> None:
    """Neither in the JSON nor with -v: docs/report-schema.md."""
    ended = levels.run("-v", "silent")
    assert _by_level(ended)["silent"]["origins"] == {}
    ended.lines.fnmatch_lines(
        [
            (
                "  silent overall GC@1: gate regression (default), tolerance 0.0100 (default), "
                "alpha 0.05 *"
            )
        ]
    )


INI = "cepbench_gate = noninferiority\ncepbench_tolerance = 0.16\ncepbench_alpha = 0.06\n"

ENV = {"CEPBENCH_GATE": "regression", "CEPBENCH_TOLERANCE": "0.17", "CEPBENCH_ALPHA": "0.12"}

FLAGS = ("--cep-gate=threshold", "--cep-tolerance=0.18", "--cep-alpha=0.18")


@pytest.mark.parametrize("run", ["ini", "environment", "options"])
def test_the_run_goes_before_all_of_them(levels: ScoredProject, run: str, tmp_path: Path) -> None:
    """The ini file before every level, the environment before it, the options before that."""
    project = levels.copy(tmp_path / "levels")
    with (project.path / "pytest.ini").open("a") as ini:
        ini.write(INI)
    ended = project.run(*(FLAGS if run == "options" else ()), env={} if run == "ini" else ENV)
    gate, tolerance, share, origins = {
        "ini": ("noninferiority", 0.16, 0.01, "ini cepbench_{}"),
        "environment": ("regression", 0.17, 0.02, "CEPBENCH_{}"),
        "options": ("threshold", 0.18, None, "--cep-{}"),
    }[run]
    for case in _by_level(ended).values():
        assert (case["gate"], case["tolerance"]) == (gate, tolerance)
        assert case["alpha"] == (None if share is None else pytest.approx(share))
        for setting in ("gate", "tolerance", "alpha"):
            origin = origins.format(setting.upper() if run == "environment" else setting)
            assert case["origins"][setting] == origin  # type: ignore[index]
    assert ended.report["alpha"] == (None if share is None else pytest.approx(6 * share))


THIRTEEN = [f"c{number:02}" for number in range(13)]

WEIGHTED = """\
[metrics.gc]
[metrics.s]
weight = 2
[metrics.failures]
gate = "threshold"
[gate]
primary = ["gc", "overall/s", "failures"]
alpha = 0.04
[cases."overall/gc"]
weight = 5
[cases."c00/gc"]
alpha = 0.03
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Thirteen categories of one sample: fourteen accepted cases of the same metric."""
    project = ScoredProject.make(
        tmp_path_factory.mktemp("many"), scored_suite(n=1, categories=THIRTEEN)
    )
    project.accept()
    return project


@pytest.mark.parametrize("mode", ["no-plugin", pytest.param("n2", marks=pytest.mark.slow)])
def test_alpha_is_divided_among_the_cases(many: ScoredProject, mode: str) -> None:
    """Fourteen cases have a fourteenth each, and the run the whole; known to every process."""
    ended = many.run(*MODES[mode], "--cep-alpha=0.07")
    assert len(ended.cases) == 14
    assert [case["alpha"] for case in ended.cases.values()] == pytest.approx([0.005] * 14)
    assert ended.report["alpha"] == 0.07
    ended.lines.fnmatch_lines(
        [
            (
                "7 % false failures at most per run of checkpoints exchangeable with the baseline, "
                "over 14 cases"
            )
        ]
    )


@pytest.mark.slow
def test_fewer_cases_have_larger_shares(many: ScoredProject) -> None:
    """What -k leaves out takes no share: a single case has all of alpha, two have half each."""
    ended = many.run("-n", "2", "-k", "c03 or c04")
    assert {case["alpha"] for case in ended.cases.values()} == {0.025}
    assert many.run("-k", "c03").cases["c03-gc"]["alpha"] == 0.05


def test_weights_and_shares_of_their_own(many: ScoredProject, tmp_path: Path) -> None:
    """By weight of case or metric; an alpha of one's own comes on top; others take no share."""
    suite = scored_suite(n=1, categories=THIRTEEN, rest=WEIGHTED)
    project = ScoredProject.make(tmp_path / "weighted", suite)
    project.accept()
    ended = project.run("-vv")
    cases = ended.cases
    unit = 0.04 / (12 + 5 + 2)
    assert cases["c00-gc"]["alpha"] == 0.03
    assert cases["c01-gc"]["alpha"] == pytest.approx(unit)
    assert cases["overall-gc"]["alpha"] == pytest.approx(5 * unit)
    assert cases["overall-s"]["alpha"] == pytest.approx(2 * unit)
    assert cases["c01-s"]["alpha"] == 0.04
    assert not cases["c01-s"]["primary"]
    assert cases["overall-failures"]["alpha"] is None
    sharing = [c["alpha"] for c in cases.values() if c["primary"] and c["alpha"] is not None]
    assert ended.report["alpha"] == pytest.approx(sum(sharing)) == pytest.approx(0.07)
    ended.lines.fnmatch_lines(
        [
            (
                "7 % false failures at most per run of checkpoints exchangeable with the baseline, "
                "over 15 cases"
            )
        ]
    )
