"""The cases of a suite: categories, groups, the whole; the same list in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.suites import Case, RoleChoices, assign_models, list_cases
from tests.plugin.project import SHAPES
from tests.suites.world import read_suite

MAPPINGS = ["text-to-text", "text-to-image", "image-to-image", "image-to-text"]


def _cases(tmp_path: Path, text: str, *samples: tuple[str, ...]) -> list[Case]:
    """The cases of a suite file over samples of these categories."""
    suite = read_suite(tmp_path, text)
    _, measures = assign_models(suite, RoleChoices())
    made = (Sample(f"{i}", own, text="t") for i, own in enumerate(samples))
    return list_cases(measures, suite.name, Dataset("made", {}, tuple(made)), suite.table.groups)


def test_categories_then_groups_then_all(tmp_path: Path) -> None:
    """In order of appearance, each once; the failure rate is asked of the whole only."""
    groups = "[groups]\nwarm = ['b', 'a', 'b']\n"
    cases = _cases(tmp_path, SHAPES + groups, ("b",), ("a",), ("c", "a"))
    assert [case.id for case in cases] == [
        "b-gc", "a-gc", "c-gc", "warm-gc", "overall-gc", "overall-failures",
    ]  # fmt: skip
    assert cases[3].categories == ("b", "a")
    assert cases[4].categories == ("b", "a", "c")


def test_no_two_metrics_are_called_alike(tmp_path: Path) -> None:
    """Of two tables with one label the second has its name beside it; other labels have none."""
    tables = """[metrics.gc]
[metrics.gc_1]
kind = "gc"
at = 1
[metrics.repetition]
[metrics.bigrams]
kind = "repetition"
n = 2
"""
    cases = _cases(tmp_path, SHAPES.replace("[metrics.gc]\n", tables), ("a",))
    labels = {case.key.metric: case.label for case in cases}
    gc = (labels["gc"], labels["gc_1"])
    assert "[" not in "".join(gc)
    assert labels["repetition"].endswith(")")
    assert labels["bigrams"].endswith(") [bigrams]")
    assert len(set(labels.values())) == len(labels)


def test_mappings_are_cases_of_their_own(tmp_path: Path) -> None:
    """Each mapping over all samples before the whole, the mean of the four."""
    text = SHAPES.replace("[chain]", '[chain]\nstart = "both"')
    text = text.replace("[metrics.gc]", "[metrics.mcd]")
    cases = _cases(tmp_path, text, ("b",), ("a", "b"))
    own = [f"{mapping}-mcd" for mapping in MAPPINGS]
    assert [case.id for case in cases] == [*own, "overall-mcd", "overall-failures"]
    assert {case.categories for case in cases} == {("b", "a")}


def test_a_category_named_like_a_mapping_is_refused(tmp_path: Path) -> None:
    """Two cases would have one name."""
    text = SHAPES.replace("[metrics.gc]", "[metrics.mcd]")
    with pytest.raises(SuiteError, match="'image-to-text' is a mapping, and cannot"):
        _cases(tmp_path, text, ("image-to-text",), ("a",))
    with pytest.raises(SuiteError, match="'image-to-image' is a mapping, and cannot"):
        _cases(tmp_path, text + "[groups]\nimage-to-image = ['a']\n", ("a",), ("b",))


def test_a_single_category_is_the_whole(tmp_path: Path) -> None:
    """One category has no case of its own beside the overall one."""
    cases = _cases(tmp_path, SHAPES, ("only",), ("only",))
    assert [case.id for case in cases] == ["overall-gc", "overall-failures"]
    assert cases[0].categories == ("only",)


@pytest.mark.parametrize(
    ("groups", "categories", "message"),
    [
        ("warm = ['red', 'blue']", [("red",), ("green",)], "group 'warm': .* no category 'blue'"),
        ("red = ['red']", [("red",), ("green",)], "group 'red': the data set has a category 'red'"),
        ("warm = ['red']", [("red",), ("overall",)], "a category cannot be named 'overall'"),
    ],
)
def test_groups_that_do_not_fit_the_data(
    tmp_path: Path, groups: str, categories: list[tuple[str, ...]], message: str
) -> None:
    """Members that are absent and names that are taken are errors that list what there is."""
    with pytest.raises(SuiteError, match=message):
        _cases(tmp_path, f"{SHAPES}[groups]\n{groups}\n", *categories)
