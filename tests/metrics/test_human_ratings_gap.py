"""Human gaps: per category against the best model there, per group as the mean of those."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.human_ratings import human_gaps

SCORES = st.fixed_dictionaries({name: st.floats(0.01, 1) for name in ("scene", "code", "ocr")})
GROUPS = {"visual": ["scene"], "textual": ["code", "ocr"], "all": ["scene", "code", "ocr"]}


@given(SCORES, st.lists(SCORES, min_size=1, max_size=4))
def test_each_category_is_compared_with_its_best_model(
    human: dict[str, float], scores: list[dict[str, float]]
) -> None:
    """A gap is how much more of the best score people have, and a group's is the mean of it."""
    models = {f"model {i}": of_model for i, of_model in enumerate(scores)}
    found = human_gaps(human, models, GROUPS)
    percent = {}
    for category, gap in found.categories.items():
        best = max(of_model[category] for of_model in scores)
        percent[category] = 100 * (human[category] - best) / best
        assert gap.percent == pytest.approx(percent[category], abs=1e-9)
        assert (gap.human, gap.best) == (human[category], best)
        assert {models[name][category] for name in gap.models} == {best}
    for group, members in GROUPS.items():
        mean = sum(percent[category] for category in members) / len(members)
        assert found.groups[group] == pytest.approx(mean, abs=1e-9)


def test_a_group_gap_is_not_the_gap_of_the_means() -> None:
    """Different models lead in different categories: one gap of 10 and one of 30 percent make 20."""
    models = {"A": {"scene": 0.5, "code": 0.1}, "B": {"scene": 0.2, "code": 0.4}}
    found = human_gaps({"scene": 0.55, "code": 0.52}, models, {"both": ["scene", "code"]})
    assert found.groups["both"] == pytest.approx(20)
    assert found.categories["scene"].models == ("A",)
    assert found.categories["code"].models == ("B",)


def test_models_that_tie_are_all_named() -> None:
    """In the order given."""
    found = human_gaps({"scene": 0.6}, {"B": {"scene": 0.5}, "A": {"scene": 0.5}}, {})
    assert found.categories["scene"].models == ("B", "A")


@pytest.mark.parametrize("best", [0.0, -0.2])
def test_a_share_of_nothing_is_no_percentage(best: float) -> None:
    """When every model failed, the category has no gap and neither has its group."""
    models = {"A": {"scene": best, "code": 0.5}}
    groups = {"both": ["scene", "code"], "code": ["code"]}
    found = human_gaps({"scene": 0.6, "code": 0.6}, models, groups)
    assert found.categories["scene"].percent is None
    assert found.groups["both"] is None
    assert found.groups["code"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("models", "groups", "message"),
    [
        ({}, {}, "at least one model"),
        ({"A": {}}, {}, "score of A in 'scene', got None"),
        ({"A": {"scene": float("nan")}}, {}, "score of A in 'scene', got nan"),
        ({"A": {"scene": 0.5}}, {"visual": []}, "group 'visual' must name categories"),
        ({"A": {"scene": 0.5}}, {"visual": ["scene", "color"]}, "group 'visual' must name"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    models: dict[str, dict[str, float]], groups: dict[str, list[str]], message: str
) -> None:
    """A mean over what happens to be there would be of other categories."""
    with pytest.raises(ValueError, match=message):
        human_gaps({"scene": 0.6}, models, groups)
