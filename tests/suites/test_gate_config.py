"""Who says how a case is judged, which cases there are and can fail a run, how alpha is divided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.gate import CaseKey, Policy
from pytest_cepbench.suites import Case, RoleChoices, Suite, assign_models, list_cases
from pytest_cepbench.suites.gate_config import Overrides, check_names, claim_of, pooled_case, settle
from tests.plugin.project import SHAPES
from tests.suites.world import read_suite

SUITE = """\
name = "toy"
version = 1
[data]
loader = "shapes"
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
{metric}
[metrics.failures]
tolerance = 0.0
[gate]
{gate}
{cases}
"""

COLOR = CaseKey("toy", "color", "gc")

SHAPE = CaseKey("toy", "shape", "gc")

FAILURES = CaseKey("toy", "overall", "failures")

NO_OVERRIDES = Overrides()


def _suite(tmp_path: Path, gate: str = "", metric: str = "", cases: str = "") -> Suite:
    """The toy suite with lines in its tables; cases: whole tables."""
    return read_suite(tmp_path, SUITE.format(gate=gate, metric=metric, cases=cases))


def _policy(suite: Suite, key: CaseKey = COLOR, overrides: Overrides = NO_OVERRIDES) -> Policy:
    return claim_of(suite, key, overrides)[0]


def _cases(suite: Suite, *categories: tuple[str, ...]) -> list[Case]:
    """Those of a sample in each of these categories; in color and in shape where none are given."""
    _, measures = assign_models(suite, RoleChoices())
    each = categories or (("color",), ("shape",))
    samples = tuple(Sample(f"{i}", own, text="t") for i, own in enumerate(each))
    return list_cases(measures, suite.name, Dataset("made", {}, samples), suite.table.groups)


LAYERS: Mapping[str, tuple[Any, ...]] = {
    "gate": ("threshold", "noninferiority", "regression", "threshold", "noninferiority"),
    "tolerance": (0.5, 0.4, 0.3, 0.2, 0.1),
}
"""Setting -> what is said by [gate], the metric, the case, the test, the run."""

SOURCES = ("[gate]", "[metrics.gc]", "[cases.'color/gc']", "the marker", "--cep")


@pytest.mark.parametrize("setting", LAYERS)
@pytest.mark.parametrize("layers", range(1, 6))
def test_the_nearest_word_counts(tmp_path: Path, setting: str, layers: int) -> None:
    """The run's before the test's, the case's, the metric's, the suite's; and it is known whose."""
    lines = [f"{setting} = {value!r}" for value in LAYERS[setting][:layers]] + [""] * (5 - layers)
    case = f"[cases.'color/gc']\n{lines[2]}" if lines[2] else ""
    suite = _suite(tmp_path, lines[0], lines[1], case)
    overrides = [
        Overrides(**{setting: value}, sources={setting: source})
        for value, source in zip(LAYERS[setting][3:layers], SOURCES[3:layers], strict=True)
    ]
    test, run = (*overrides, NO_OVERRIDES, NO_OVERRIDES)[:2]
    policy = _policy(suite, overrides=run.over(test))
    assert getattr(policy, setting) == LAYERS[setting][layers - 1]
    assert policy.origins[setting] == SOURCES[layers - 1]


@pytest.mark.parametrize("layers", [1, 3, 4, 5])
def test_the_nearest_alpha_counts(tmp_path: Path, layers: int) -> None:
    """A metric has none: its cases share the run's. Only a case's own is not divided."""
    values = [0.4, None, 0.3, 0.2, 0.1][:layers]
    case = "[cases.'color/gc']\nalpha = 0.3" if layers > 2 else ""
    overrides = [
        Overrides(alpha=value, sources={"alpha": source})
        for value, source in zip(values[3:], SOURCES[3:layers], strict=True)
    ]
    test, run = (*overrides, NO_OVERRIDES, NO_OVERRIDES)[:2]
    policy, weight = claim_of(_suite(tmp_path, "alpha = 0.4", "", case), COLOR, run.over(test))
    assert (policy.alpha, weight) == (values[-1], layers != 3)
    assert policy.origins["alpha"] == SOURCES[layers - 1]


def test_zero_is_a_word(tmp_path: Path) -> None:
    """A tolerance of 0 is not a gap through which a wider one shows, on any layer. Where nothing is
    said, the defaults are those of the documentation, and have no source.
    """
    assert claim_of(_suite(tmp_path), COLOR, NO_OVERRIDES) == (Policy(), 1.0)
    suite = _suite(tmp_path, "tolerance = 0.5", "tolerance = 0.0")
    assert _policy(suite).tolerance == 0.0
    assert _policy(suite, FAILURES).tolerance == 0.0
    assert _policy(_suite(tmp_path, "tolerance = 0.5"), FAILURES).tolerance == 0.0
    run = Overrides(tolerance=0.0, sources={"tolerance": "--cep-tolerance"})
    assert _policy(_suite(tmp_path, "tolerance = 0.5"), overrides=run).tolerance == 0.0
    # A word about one case is about that alone: part and metric must both be its own.
    suite = _suite(tmp_path, cases="[cases.'color/gc']\ntolerance = 0.4\nalpha = 0.2")
    assert (_policy(suite).tolerance, _policy(suite).alpha) == (0.4, 0.2)
    for key in (SHAPE, FAILURES, CaseKey("toy", "color", "s")):
        assert _policy(suite, key).tolerance != 0.4
        assert _policy(suite, key).alpha != 0.2


def test_the_anchors_tolerance_is_said_on_every_layer(tmp_path: Path) -> None:
    """And is twice the tolerance where it is not set, wherever that was set."""
    assert _policy(_suite(tmp_path, "anchor_tolerance = 0.07")).since_anchor == 0.07
    suite = _suite(tmp_path, "anchor_tolerance = 0.07", "anchor_tolerance = 0.05")
    assert _policy(suite).since_anchor == 0.05
    suite = _suite(tmp_path, cases="[cases.'color/gc']\nanchor_tolerance = 0.0")
    assert (_policy(suite).since_anchor, _policy(suite, SHAPE).since_anchor) == (0.0, 0.02)
    assert _policy(_suite(tmp_path, metric="tolerance = 0.2")).since_anchor == 0.4


@pytest.mark.parametrize(
    ("primary", "color", "shape", "failures"),
    [
        ("", True, True, True),
        ("primary = []", False, False, False),
        ("primary = ['gc']", True, True, False),
        ("primary = ['color/gc']", True, False, False),
        ("primary = ['color/*', 'failures']", True, False, True),
        ("primary = ['*']", True, True, True),
    ],
)
def test_the_suite_says_which_cases_can_fail_a_run(
    tmp_path: Path, primary: str, color: bool, shape: bool, failures: bool
) -> None:
    """By metric, by part, by both; all where it says nothing, none where it names none."""
    suite = _suite(tmp_path, primary)
    claims = [claim_of(suite, key, NO_OVERRIDES) for key in (COLOR, SHAPE, FAILURES)]
    assert [policy.primary for policy, _ in claims] == [color, shape, failures]
    assert [weight for _, weight in claims] == [color, shape, failures]
    plain = _suite(tmp_path, f"{primary}\ngate = 'threshold'")
    assert claim_of(plain, COLOR, NO_OVERRIDES)[1] == 0


@pytest.mark.parametrize(
    ("gate", "cases", "message"),
    [
        ("", "[cases.'colour/gc']",
         r"\[cases\]: unknown case 'colour/gc'. Did you mean 'color/gc'\?"),
        ("", "[cases.'color/failures']",
         r"\[cases\]: unknown case 'color/failures'. .*overall/fai"),
        ("", "[cases.gc]", r"\[cases\]: unknown case 'gc'"),
        ("primary = ['gcc']", "", "gate.primary: unknown case 'gcc'. Did you mean 'gc'\\?"),
        ("primary = ['gc', 'size/*']", "", "gate.primary: unknown case 'size/.'"),
        ("primary = ['shapes/gc']", "", "gate.primary: .* Did you mean 'shape/gc'"),
    ],
)  # fmt: skip
def test_names_that_are_no_cases_are_refused(
    tmp_path: Path, gate: str, cases: str, message: str
) -> None:
    """A misspelt name would leave its case to another rule, unseen; what there is, is listed."""
    suite = _suite(tmp_path, gate, "", cases)
    with pytest.raises(SuiteError, match=f"suite 'toy', {message}"):
        check_names(suite, _cases(suite))


def test_a_suite_has_a_verdict_of_its_own_where_it_wants_one(tmp_path: Path) -> None:
    """Over the cases that can fail a run; none where none can."""
    suite = _suite(tmp_path, "pooled = true\nprimary = ['color/*', 'failures']")
    pooled = pooled_case(suite, _cases(suite))
    assert pooled is not None
    assert (str(pooled.key), pooled.id) == ("toy/suite/verdict", "suite-verdict")
    assert [case.id for case in pooled.members] == ["color-gc", "overall-failures"]
    for gate in ("", "pooled = false", "pooled = true\nprimary = []"):
        suite = _suite(tmp_path, gate)
        assert pooled_case(suite, _cases(suite)) is None


def _alphas(suite: Suite, run: Overrides = NO_OVERRIDES) -> dict[str, float]:
    policies = settle({case.id: claim_of(suite, case.key, run) for case in _cases(suite)})
    return {name: policy.alpha for name, policy in policies.items()}


def test_weights_divide_alpha(tmp_path: Path) -> None:
    """A case's own weight goes before its metric's; what is left out weighs 1. An alpha of its own
    is not shared: the others share what is the run's; a run that gives one divides it among all.
    """
    suite = _suite(tmp_path, "", "weight = 2", "[cases.'color/gc']\nweight = 5")
    assert _alphas(suite) == pytest.approx(
        {"color-gc": 0.025, "shape-gc": 0.01, "overall-gc": 0.01, "overall-failures": 0.005}
    )
    suite = _suite(tmp_path, cases="[cases.'color/gc']\nalpha = 0.001")
    shares = _alphas(suite)
    assert shares["color-gc"] == 0.001
    assert shares["shape-gc"] == 0.05 / 3
    run = Overrides(alpha=0.2, sources={"alpha": "--cep-alpha"})
    assert set(_alphas(suite, run).values()) == {0.05}


CLAIMS: Any = st.tuples(
    st.builds(Policy, alpha=st.sampled_from([0.01, 0.05, 0.1])),
    st.just(0.0) | st.floats(0.01, 100),
)


@given(st.dictionaries(st.text(max_size=4), CLAIMS, max_size=12))
def test_the_shares_never_add_up_to_more_than_the_largest_alpha(
    claims: dict[str, tuple[Policy, float]],
) -> None:
    """Also where suites with different alphas run together; of one alpha, they add up to it."""
    settled = settle(claims)
    assert settled.keys() == claims.keys()
    alphas = {policy.alpha for policy, weight in claims.values() if weight}
    whole = sum(settled[name].alpha for name, (_, weight) in claims.items() if weight)
    assert whole <= max(alphas, default=0.0) + 1e-12
    if len(alphas) == 1:
        assert whole == pytest.approx(alphas.pop())
    assert all(settled[n] == policy for n, (policy, weight) in claims.items() if not weight)


def test_categories_then_groups_then_all(tmp_path: Path) -> None:
    """In order of appearance, each once; the failure rate is asked of the whole only. A single
    category has no case of its own beside the whole.
    """
    groups = "[groups]\nwarm = ['b', 'a', 'b']\n"
    cases = _cases(read_suite(tmp_path, SHAPES + groups), ("b",), ("a",), ("c", "a"))
    assert [case.id for case in cases] == [
        "b-gc", "a-gc", "c-gc", "warm-gc", "overall-gc", "overall-failures",
    ]  # fmt: skip
    assert cases[3].categories == ("b", "a")
    assert cases[4].categories == ("b", "a", "c")
    cases = _cases(read_suite(tmp_path, SHAPES), ("only",), ("only",))
    assert [case.id for case in cases] == ["overall-gc", "overall-failures"]
    assert cases[0].categories == ("only",)


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
    cases = _cases(read_suite(tmp_path, SHAPES.replace("[metrics.gc]\n", tables)), ("a",))
    labels = {case.key.metric: case.label for case in cases}
    gc = (labels["gc"], labels["gc_1"])
    assert "[" not in "".join(gc)
    assert labels["repetition"].endswith(")")
    assert labels["bigrams"].endswith(") [bigrams]")
    assert len(set(labels.values())) == len(labels)


def test_mappings_are_cases_of_their_own(tmp_path: Path) -> None:
    """Each mapping over all samples before the whole, the mean of the four; no category or group
    has the name of one.
    """
    text = SHAPES.replace("[chain]", '[chain]\nstart = "both"')
    text = text.replace("[metrics.gc]", "[metrics.mcd]")
    cases = _cases(read_suite(tmp_path, text), ("b",), ("a", "b"))
    mappings = ("text-to-text", "text-to-image", "image-to-image", "image-to-text")
    own = [f"{mapping}-mcd" for mapping in mappings]
    assert [case.id for case in cases] == [*own, "overall-mcd", "overall-failures"]
    assert {case.categories for case in cases} == {("b", "a")}
    # A category of that name would be a second case of one name.
    text = SHAPES.replace("[metrics.gc]", "[metrics.mcd]")
    with pytest.raises(SuiteError, match="'image-to-text' is a mapping, and cannot"):
        _cases(read_suite(tmp_path, text), ("image-to-text",), ("a",))
    with pytest.raises(SuiteError, match="'image-to-image' is a mapping, and cannot"):
        _cases(read_suite(tmp_path, text + "[groups]\nimage-to-image = ['a']\n"), ("a",), ("b",))


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
        _cases(read_suite(tmp_path, f"{SHAPES}[groups]\n{groups}\n"), *categories)
