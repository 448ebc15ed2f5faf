"""What the page shows first: the worst samples, equal causes, and addresses that stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report import CaseResult, ChainShown, LinkShown
from pytest_cepbench.report.chain_pairs import case_anchor, sample_anchor
from pytest_cepbench.report.headline import MOST_SAMPLES, worst_case, worst_samples
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.view import causes
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import read_page
from tests.report.results import FULL, REGRESSED, RESULTS, replace

FACTS = RunFacts("failed", "1", [], [])

OUT_OF_MEMORY = "all {} samples failed at the describer: out-of-memory: 2 GiB asked for"


def _chain(sample: str, score: float, *, whole: bool = False) -> ChainShown:
    return ChainShown(sample, score, 1.0, [LinkShown(text="a cat")] if whole else [])


def _case(part: str, *chains: ChainShown, **changes: object) -> CaseResult:
    return replace(REGRESSED, part=part, chains=list(chains), **changes)


def test_samples_that_lost_most_come_first_and_once() -> None:
    """In tolerances, over all failing cases, from the case that shows the sample whole."""
    first = _case("color", _chain("a", 0.5), _chain("b", 0.2))
    second = _case("overall", _chain("a", 0.5, whole=True), _chain("c", 0.9), tolerance=0.001)
    samples = worst_samples([first, second])
    assert [(sample.shown.sample, sample.result.part) for sample in samples] == [
        ("a", "overall"), ("c", "overall"), ("b", "color"),
    ]  # fmt: skip


def test_cases_that_regressed_come_in_the_place_of_those_that_are_undecided() -> None:
    """And those that hold, or cannot fail the run, show none there."""
    undecided = _case("color", _chain("a", 0.0), verdict="inconclusive")
    failing = _case("overall", _chain("b", 0.9))
    held = _case("held", _chain("c", 0.0), verdict="held")
    informational = _case("told", _chain("d", 0.0), primary=False)
    samples = worst_samples([undecided, held, informational, failing])
    assert [sample.shown.sample for sample in samples] == ["b"]
    samples = worst_samples([undecided, held, informational])
    assert [sample.shown.sample for sample in samples] == ["a"]


def test_samples_without_pictures_are_named_in_a_line() -> None:
    """Below those that have some; a run that shows none whole has the line alone."""
    case = _case("color", _chain("a", 0.5, whole=True), _chain("b", 0.6), _chain("c", 0.7))
    page = read_page(html_page(FACTS, [case], lambda _: None))
    assert page.values("class").count("card") == 1
    line = " ".join(page.text.partition("Also ")[2].partition("search")[0].split())
    assert line == (
        "b (toy color, GC@2: 1.0000 \u2192 0.6000 ); c (toy color, GC@2: 1.0000 \u2192 0.7000 )"
    )
    alone = read_page(html_page(FACTS, [_case("color", _chain("b", 0.6))], lambda _: None))
    assert "card" not in alone.values("class")
    assert "Also " not in alone.text
    assert alone.values("href").count(f"#{sample_anchor(case, 'b')}") == 1


def test_distances_lose_by_growing() -> None:
    """Of a metric whose lower values are better."""
    grown = replace(_case("color", _chain("a", 3.0), _chain("b", 0.5)), higher_is_better=False)
    assert [(sample.shown.sample, sample.loss) for sample in worst_samples([grown])] == [("a", 2.0)]


@given(st.lists(RESULTS, max_size=4))
def test_any_results_have_at_most_five_worst_samples(results: list[CaseResult]) -> None:
    """Each lost something, and the case that is open fails."""
    samples = worst_samples(results)
    assert len(samples) <= MOST_SAMPLES
    assert all(sample.loss > 0 for sample in samples)
    opened = worst_case(results)
    assert (opened is None) == all(result.passes for result in results)


def test_equal_causes_are_one() -> None:
    """Reasons that differ in numbers are the same cause; the most frequent comes first."""
    errors = [
        _case(f"part {n}", verdict="error", reasons=[OUT_OF_MEMORY.format(n)]) for n in range(6)
    ]
    missing = _case("new", verdict="no-baseline", reasons=["no baseline has been accepted"])
    shown = [(len(cause.cases), cause.text) for cause in causes([missing, *errors, REGRESSED])]
    assert shown == [
        (6, OUT_OF_MEMORY.format(0)), (1, "no baseline has been accepted"),
    ]  # fmt: skip
    text = " ".join(read_page(html_page(FACTS, errors, lambda _: None)).text.split())
    assert f"6 cases: {OUT_OF_MEMORY.format(0)}" in text


def test_failed_samples_are_a_cause() -> None:
    """Cases in which samples failed alike are listed by the kind of failure."""
    assert [cause.text for cause in causes([FULL])] == [
        "failed samples: empty-text", "failed samples: blank-image",
    ]  # fmt: skip


def test_addresses_are_those_of_other_runs_and_differ() -> None:
    """An address depends on names alone, and names that look alike have different ones."""
    again = replace(REGRESSED, value=0.9, verdict="held")
    other = replace(REGRESSED, part="colo r")
    assert case_anchor(REGRESSED) == case_anchor(again) == "toy-color-gc-" + case_anchor(again)[-8:]
    anchors = {
        case_anchor(REGRESSED), case_anchor(other), sample_anchor(REGRESSED, "a.png"),
        sample_anchor(REGRESSED, "a-png"), sample_anchor(other, "a.png"),
    }  # fmt: skip
    assert len(anchors) == 5


def test_rows_details_and_samples_are_linked() -> None:
    """Every case and every sample that is named has an address in the page."""
    page = read_page(html_page(FACTS, [FULL], lambda _: None))
    anchor = case_anchor(FULL)
    ids = page.values("id")
    assert {f"case-{anchor}", f"details-{anchor}", sample_anchor(FULL, "a.png")} <= set(ids)
    assert len(ids) == len(set(ids))
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert links
    assert {link[1:] for link in links} <= set(ids)
