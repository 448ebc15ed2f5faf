"""The cases of a suite: categories, groups, the whole; the same list in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.suites import Suite, list_cases, load_suite
from tests.plugin.project import SHAPES


def _suite(tmp_path: Path, groups: str = "") -> Suite:
    path = tmp_path / "suite.toml"
    path.write_text(SHAPES + groups)
    return load_suite(path)


def _dataset(*categories: tuple[str, ...]) -> Dataset:
    samples = (Sample(f"{i}", own, text="t") for i, own in enumerate(categories))
    return Dataset("made", {}, tuple(samples))


def test_categories_then_groups_then_all(tmp_path: Path) -> None:
    """In order of appearance; the failure rate is asked of the whole only."""
    suite = _suite(tmp_path, "[groups]\nwarm = ['b', 'a']\n")
    cases = list_cases(suite, _dataset(("b",), ("a",), ("c", "a")))
    assert [case.id for case in cases] == [
        "b-gc", "a-gc", "c-gc", "warm-gc", "overall-gc", "overall-failures",
    ]  # fmt: skip
    assert cases[3].categories == ("b", "a")
    assert cases[4].categories == ("b", "a", "c")


def test_a_single_category_is_the_whole(tmp_path: Path) -> None:
    """One category has no case of its own beside the overall one."""
    cases = list_cases(_suite(tmp_path), _dataset(("only",), ("only",)))
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
        list_cases(_suite(tmp_path, f"[groups]\n{groups}\n"), _dataset(*categories))
