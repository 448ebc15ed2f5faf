"""The three suites that are shipped: their cases, and what they are when their data is not here."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.datasets.mme import CATEGORIES
from pytest_cepbench.suites import list_cases, load_data, load_suite
from pytest_cepbench.suites.data import DataAbsentError

SUITES = Path(__file__).parents[2] / "suites"

BASELINES = Path(__file__).parents[2] / "baselines"

TEXTUAL = {"OCR", "code_reasoning", "numerical_calculation", "text_translation"}


def _ids(name: str, places: dict[str, Path]) -> list[str]:
    suite = load_suite(SUITES / name / "suite.toml")
    return [case.id for case in list_cases(suite, load_data(suite, places))]


def test_the_suites_are_named_after_their_folders() -> None:
    """Baselines and reports say `mmeception` of what lies in `suites/mmeception`."""
    names = {path.parent.name: load_suite(path).name for path in SUITES.glob("*/suite.toml")}
    assert names == {name: name for name in ("folder", "mmeception", "shapes")}


def test_shapes_has_eight_categories_two_groups_and_the_whole() -> None:
    """The embedded default needs no data, and each of its cases ships an accepted baseline."""
    suite = load_suite(SUITES / "shapes" / "suite.toml")
    cases = list_cases(suite, load_data(suite, {}))
    assert len([case for case in cases if case.key.metric == "gc"]) == 8 + 2 + 1
    assert len(cases) == 12
    shipped = [tomllib.loads(path.read_text())["case"] for path in BASELINES.glob("shapes/*.toml")]
    assert sorted(shipped) == sorted(str(case.key) for case in cases)


@pytest.mark.parametrize("layout", ["flat", "images", "mixed"])
def test_mmeception_has_14_categories_in_2_groups(tmp_path: Path, layout: str) -> None:
    """Both released layouts of MME give 14 + 2 + 1 cases of GC@3 and the failure rate."""
    for i, category in enumerate(CATEGORIES):
        nested = layout == "images" or (layout == "mixed" and i % 2)
        folder = tmp_path / category / ("images" if nested else "")
        folder.mkdir(parents=True)
        Image.new("RGB", (4, 4), (i, i, i)).save(folder / "0001.png")
        (tmp_path / category / "0001.txt").write_text("Is this a picture?\tYes\n")
    suite = load_suite(SUITES / "mmeception" / "suite.toml")
    dataset = load_data(suite, {"mme": tmp_path})
    assert [sample.id for sample in dataset.samples] == sorted(f"{c}/0001.png" for c in CATEGORIES)
    cases = list_cases(suite, dataset)
    assert len([case for case in cases if case.key.metric == "gc"]) == 14 + 2 + 1
    assert len(cases) == 18
    groups = {case.key.part: set(case.categories) for case in cases if len(case.categories) > 1}
    assert groups["textual-intensive"] == TEXTUAL
    assert groups["visual-intensive"] == set(CATEGORIES) - TEXTUAL
    assert groups["overall"] == set(CATEGORIES)


def test_mmeception_has_the_papers_settings() -> None:
    """T = 3, image-first, the description prompt of Table 1, ViT-B/16's CLS token."""
    suite = load_suite(SUITES / "mmeception" / "suite.toml")
    assert (suite.plan.start, suite.plan.iterations) == ("image", 3)
    assert suite.plan.describe.startswith("Please write a clear, precise, detailed, and concise")
    assert suite.plan.describe.endswith("using less than 500 words.")
    assert suite.plan.generate == (
        "Generate an image that fully and precisely reflects this description: {description}"
    )
    assert suite.table.roles.encoder == "google/vit-base-patch16-224-in21k?pooling=cls"


def test_folder_takes_any_images(tmp_path: Path) -> None:
    """Sub-folders are categories; images of the folder itself are one as well."""
    for name in ("a/1.png", "b/c/2.jpg", "3.webp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    ids = _ids("folder", {"folder": tmp_path})
    assert sorted(ids) == [
        "a-gc", "b/c-gc", "images-gc", "overall-failures", "overall-gc",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["folder", "mmeception"])
def test_absent_data_says_how_it_is_had(name: str) -> None:
    """Without their data the suites skip, with the option to give and a sentence on where to get it."""
    with pytest.raises(DataAbsentError, match=r"give it with --cep-data \w+=PATH\. \w+"):
        _ids(name, {})
