"""`--cep-pairing`: what becomes of samples that only the baseline or only the run has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.plugin.project import (
    INI,
    MODES,
    PHOTOS,
    SLOWLY_BOTH,
    TEST_MODULE,
    Color,
    Project,
    run_plainly,
)

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
    texts = {"pytest.ini": INI, "suite.toml": SUITE, "test_photos.py": TEST_MODULE}
    for name, text in texts.items():
        (root / name).write_text(text)
    shutil.copy(Path(__file__).with_name("user_models.py"), root)
    (root / "photos").mkdir()
    for name, color in COLORS.items():
        Image.new("RGB", (16, 16), color).save(root / "photos" / name)
    assert run_plainly(root, "--snapshot-update") == pytest.ExitCode.OK
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


def test_other_samples_are_incomparable_and_the_way_out_is_named(changed: Project) -> None:
    """By default: how many are only here or only there, which, and the option for the rest."""
    result = changed.run("-vv", "-k", "gc")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert changed.verdicts() == {"overall-gc": "incomparable"}
    result.stdout.fnmatch_lines(
        [
            "  samples: baseline 8 *, now 8 *",
            (
                "  samples of images: 2 only in the baseline, 2 only now (a.png, b.png, new.png); "
                "*=common"
            ),
        ]
    )


@SLOWLY_BOTH
def test_common_compares_what_both_have(changed: Project, arguments: tuple[str, ...]) -> None:
    """Six of them, and the report says how many were left out; the same on workers."""
    changed.run(*arguments, COMMON, "-k", "gc")
    (case,) = changed.report()["cases"]
    assert (case["verdict"], case["units"], case["difference"]) == ("held", 6, 0.0)
    assert "4 samples that only one of the two has were left out" in case["notes"]


def test_common_sees_a_drop_in_what_both_have(changed: Project) -> None:
    """Over the six; a sample that only one of them has is none that lost."""
    changed.run(COMMON, "-k", "gc", "--model=python:user_models:describer?behaviour=empty")
    (worse,) = changed.report()["cases"]
    assert (worse["verdict"], worse["units"]) == ("regressed", 6)
    assert not {"a.png", "b.png", "z.png", "new.png"} & {c["sample"] for c in worse["chains"]}


def test_sets_are_never_compared_in_part(changed: Project) -> None:
    """A distance between other sets means something else, whatever was asked for."""
    changed.run(COMMON, "-k", "fid or failures")
    assert changed.verdicts()["overall-fid"] == "incomparable"


def test_with_nothing_in_common_there_is_no_comparison(changed: Project) -> None:
    """Renaming everything is said, and is no pass."""
    for photo in list((changed.path / "photos").iterdir()):
        photo.rename(photo.with_name(f"other-{photo.name}"))
    result = changed.run("-vv", COMMON, "-k", "gc")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert changed.verdicts() == {"overall-gc": "incomparable"}
    result.stdout.fnmatch_lines(["  samples of images: 8 only in the baseline, 8 only now *"])
    result.stdout.fnmatch_lines(["*not one is in both"])


@pytest.mark.parametrize("twin", ["ini", "environment"])
def test_the_twins_mean_the_same(
    changed: Project, monkeypatch: pytest.MonkeyPatch, twin: str
) -> None:
    """`cepbench_pairing` and `CEPBENCH_PAIRING`."""
    if twin == "ini":
        ini = (changed.path / "pytest.ini").read_text()
        changed.write("pytest.ini", f"{ini}cepbench_pairing = common\n")
    else:
        monkeypatch.setenv("CEPBENCH_PAIRING", "common")
    changed.run(*MODES["no-plugin"], "-k", "gc")
    assert changed.verdicts() == {"overall-gc": "held"}
