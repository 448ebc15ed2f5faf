"""How cases are judged: gate, tolerance, alpha, seeds, pairs, and looks at more samples."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.plugin.project import (
    PHOTOS,
    SLOWLY_BOTH,
    TEST_MODULE,
    Color,
    Project,
    accept_project,
)
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
    """[gate], then metric, then case, then marker, then call; the report says who it was."""
    cases = _by_level(levels.run())
    for level, (gate, tolerance, origins) in SAID.items():
        case = cases[level]
        assert (case["gate"], case["tolerance"]) == (gate, tolerance), level
        assert origins.items() <= case["origins"].items(), level  # type: ignore[attr-defined]
    assert cases["silent"]["origins"] == {}


IN_INI = "cepbench_gate = noninferiority\ncepbench_tolerance = 0.16\ncepbench_alpha = 0.06\n"

ENV = {"CEPBENCH_GATE": "regression", "CEPBENCH_TOLERANCE": "0.17", "CEPBENCH_ALPHA": "0.12"}

FLAGS = ("--cep-gate=threshold", "--cep-tolerance=0.18", "--cep-alpha=0.18")


@pytest.mark.parametrize("run", ["ini", "environment", "options"])
def test_the_run_goes_before_all_of_them(levels: ScoredProject, run: str, tmp_path: Path) -> None:
    """The ini file before every level, the environment before it, the options before that."""
    project = levels.copy(tmp_path / "levels")
    with (project.path / "pytest.ini").open("a") as ini:
        ini.write(IN_INI)
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


COLORS: dict[str, Color] = {
    f"{name}.png": (200, 20 * place, 10) for place, name in enumerate("abcdefgh")
}

SUITE = PHOTOS.replace('gate = "threshold"', 'gate = "regression"\nprimary = ["gc"]').replace(
    "[metrics.gc]", "[metrics.gc]\n[metrics.fid]"
)

COMMON = "--cep-pairing=common"


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight photos were accepted; made once, only to be copied."""
    root = tmp_path_factory.mktemp("eight")
    shutil.copy(Path(__file__).with_name("user_models.py"), root)
    (root / "photos").mkdir()
    for name, color in COLORS.items():
        Image.new("RGB", (16, 16), color).save(root / "photos" / name)
    accept_project(root, SUITE, "test_photos")
    return root


@pytest.fixture
def changed(project: Project, eight: Path) -> Project:
    """Of eight accepted photos one is gone since, one is new, one has another name."""
    shutil.copytree(eight, project.path, dirs_exist_ok=True)
    photos = project.path / "photos"
    (photos / "a.png").unlink()
    (photos / "b.png").rename(photos / "z.png")
    project.photos({"new.png": (10, 10, 200)})
    return project


@SLOWLY_BOTH
def test_common_compares_what_both_have(changed: Project, arguments: tuple[str, ...]) -> None:
    """Six of them, and the report says how many were left out; the same on workers."""
    changed.run(*arguments, COMMON, "-k", "gc")
    (case,) = changed.report()["cases"]
    assert (case["verdict"], case["units"], case["difference"]) == ("held", 6, 0.0)
    assert "4 samples that only one of the two has were left out" in case["notes"]
