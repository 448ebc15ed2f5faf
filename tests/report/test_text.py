"""What a person reads in a terminal: the failure message, lines of a summary, and tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.escapes import width_of
from pytest_cepbench.gate.sensitivity import Range
from pytest_cepbench.metrics.facts import FactAnswers, Facts, Role, summarize_facts
from pytest_cepbench.report.case_table import (
    SampleValue,
    fact_lines,
    fact_table,
    figures_of,
    range_shown,
    sample_values,
)
from pytest_cepbench.report.headline import worst_samples
from pytest_cepbench.report.number_format import p_value
from pytest_cepbench.report.result import (
    CaseResult,
    ChainShown,
    LinkShown,
    SeriesShown,
    StepShown,
)
from pytest_cepbench.report.tables import (
    Span,
    fold,
    shorten,
    summary_table,
    text_of,
    wrap,
)
from pytest_cepbench.report.text import (
    cause_lines,
    explain,
    figures_first,
    promise_lines,
    sample_words,
    shortage_lines,
)
from tests.report.results import ANSWERED, FULL, MEASURED, REGRESSED, replace


def test_a_regression_in_full() -> None:
    """The failure message as a whole, so that a change of any part of it is seen in review."""
    assert (
        explain(FULL)
        == """\
regressed: toy, color, GC@2 (the measured drop exceeds the tolerance, and is not
  noise)

  baseline         0.7500
  now              0.5000   higher is better
  difference      -0.2500   [-0.3125, -0.1875], 99.688 % one-sided bounds, Hall
  p               0.00042   sign flips; 0.00313 or less tells a drop from noise
  tolerance       -0.0100   regression gate
  alpha            0.0125   0.00313 of each test and bound, divided among the
                            looks, and among baseline and anchor
  n                    50   16 independent units
  visible drop     0.0625   the smallest that fails in 80 % of runs
  chance           0.2500   0.75 of a range from 0.25 (chance) to 1: this set-up
                            can see a drop of at most 0.5
  since anchor    -0.3000   anchor 0.8000, [-0.3750, -0.2250], p < 1e-5,
                            tolerance -0.0200, regressed
  by step      0.6000  0.4500
  3 of 50 texts were cut
  the measurement is close to what chance gives

  samples that lost most   baseline        now     change
  a.png                      0.7500     0.5000    -0.2500

  failed: 1 x blank-image, 3 x empty-text
  looked at 25, 50 samples; more are there

  Lost 0.2500 over 1 sample: most of it by the describer.
  hop                           cost    share
  describer, generation 1    +0.2000     80 %
  generator, generation 2    +0.0500     20 %

  next: look at the samples in the HTML report; if the change is meant, accept
        it with --snapshot-update"""
    )


def test_undecided_cases_say_what_their_samples_can_tell() -> None:
    """And how many would tell more; only of cases that gate. Then what to do.

    A case that could see no drop says so first: its first line, the warnings and the advice name
    the reason, for more samples are no help.
    """
    case = replace(
        FULL, verdict="inconclusive", needed=420, looks=[], partial=False, difference=0.0
    )
    beyond = replace(case, part="beyond", difference=-0.1, needed=58)
    others = [FULL, replace(case, primary=False)]
    assert shortage_lines([beyond, case, *others]) == [
        "cannot tell: toy color GC@2: 50 samples see drops from 0.0625; 420 would see 0.01",
        "cannot tell: toy beyond GC@2: 50 samples see drops from 0.0625; 58 would see 0.1",
    ]
    advice = "1 case undecided: try --cep-inconclusive=more, more samples, or a larger tolerance"
    assert advice in promise_lines([case, *others])
    assert shortage_lines(others) == []
    looked = replace(case, looks=[25, 50])
    assert "1 case undecided: more samples or seeds, or a larger tolerance" in promise_lines(
        [looked]
    )
    assert "\n  needed              420   samples would decide it" in explain(case)
    why = "the judge cannot see a drop: all tie"
    case = replace(FULL, verdict="inconclusive", reasons=[why, "and more"])
    first, *rest = explain(case).split("\n\n")
    assert " ".join(first.split()) == f"inconclusive: toy, color, GC@2 ({why})"
    text = "\n".join(rest)
    assert why not in text
    assert "  and more" in text
    assert "next: name a judge, or models, that see it" in text
    advice = "1 case undecided: another judge or set-up for 1 that could see no drop"
    assert advice in promise_lines([case])
    few = replace(FULL, verdict="inconclusive", part="few")
    both = f"{advice.replace('1 case', '2 cases')}; for the others more samples or seeds, or a"
    assert any(line.startswith(both) for line in promise_lines([case, few]))


def test_equal_causes_are_one_line() -> None:
    """With the cases; a reason of informational cases alone, and missing baselines, are elsewhere."""
    out = "out of memory: {} GiB asked for"
    failed = [
        replace(FULL, part=f"p{n}", verdict="error", reasons=[out.format(n)]) for n in range(5)
    ]
    informational = replace(failed[0], primary=False)
    other = replace(informational, reasons=["no package"])
    new = replace(FULL, verdict="no-baseline")
    assert cause_lines([*failed, informational, other, new]) == [
        (
            "not measured: out of memory: 0 GiB asked for: 6 cases (toy p0 GC@2, toy p1 GC@2, "
            "toy p2 GC@2 and 3 more)"
        )
    ]
    ended = [replace(failed[0], reasons=[f"server ended ({why})"]) for why in ("OOM", "refused")]
    assert [line.partition(": 1 case")[0] for line in cause_lines(ended)] == [
        "not measured: server ended (OOM)",
        "not measured: server ended (refused)",
    ]
    said = (
        "samples: baseline 8 {0:016x}, now 16 {0:015x}a; samples of p{0}: 8 only now (a/{0}, b/1)"
    )
    differing = [
        replace(FULL, verdict="incomparable", reasons=[said.format(n) + twice])
        for n, twice in enumerate(("", "; samples of q: 9 only now (c)"), 1)
    ]
    (line,) = cause_lines(differing)
    assert line.startswith("not comparable: samples: baseline 8 0000000000000001, now 16 ")
    assert line.endswith("b/1): 2 cases (toy color GC@2, toy color GC@2)")


def test_a_sample_is_told_in_words() -> None:
    """Its start, where it first differs, and its end; the longer text gets the room."""
    accepted = [LinkShown(image="0" * 64), LinkShown(text="a black cat on a mat"), LinkShown()]
    now = [LinkShown(image="0" * 64), LinkShown(text="a dog"), LinkShown(image="1" * 64)]
    chain = ChainShown("a.png", 0.5, 0.75, now, baseline_links=accepted, first_difference=1)
    (sample,) = worst_samples([replace(FULL, chains=[chain])])
    assert list(sample_words(sample, 60)) == [
        "start: an image: a black cat on a mat",
        "first difference at step 1: a black cat on a mat -> a dog",
        "last at step 1: a dog",
    ]
    assert list(sample_words(sample, 50))[1].endswith(": a black cat ... -> a dog")
    heard = replace(chain, links=[LinkShown(sound="0" * 64), *now[1:]])
    (sample,) = worst_samples([replace(FULL, chains=[heard])])
    assert next(sample_words(sample, 60)) == "start: a sound: a black cat on a mat"
    longer = [
        [LinkShown(image="0" * 64), LinkShown(text=f"three large shapes : a {color} cross on top")]
        for color in ("red", "green")
    ]
    alike = replace(chain, links=longer[1], baseline_links=longer[0])
    (sample,) = worst_samples([replace(FULL, chains=[alike])])
    shown = list(sample_words(sample, 80))
    assert shown[1].endswith(": ... red cross on top -> ... green cross on top")
    unknown = replace(alike, baseline_links=[])
    (sample,) = worst_samples([replace(FULL, chains=[unknown])])
    assert next(sample_words(sample, 80)) == "start: an image"
    (answered,) = worst_samples([ANSWERED], 1)
    assert list(sample_words(answered, 60)) == [
        "question: draw a cat | [image]",
        "new answer: a dog [image]",
        "accepted answer: a cat [image] | the end",
    ]


def test_figures_say_what_they_are() -> None:
    """Turned differences, the share of alpha of each bound, bounds that exclude nothing; a p value
    has two digits, down to what the fewest flips can tell.

    A baseline without a floor of its own is seen with the floor now; distances have no range.
    """
    assert range_shown(FULL) == Range(0.75, 0.25)
    assert range_shown(replace(FULL, baseline_floor=None)) == Range(0.75, 0.125)
    assert range_shown(replace(FULL, accepted=True)) == Range(0.5, 0.125)
    assert range_shown(replace(FULL, refused="at chance")) == Range(0.5, 0.125)
    assert range_shown(replace(FULL, baseline=None)) == Range(0.5, 0.125)
    assert range_shown(replace(FULL, higher_is_better=False)) is None
    values = (None, 1.0, 0.21875, 2**-11, 2**-15, 2**-17)
    assert [*map(p_value, values)] == ["-", "1", "0.22", "0.00049", "3.1e-5", "< 1e-5"]
    risen = replace(REGRESSED, higher_is_better=False, value=0.5, baseline=0.25, difference=-0.25)
    assert "lower is better" in explain(risen)
    assert "-0.2500   turned: positive is better\n" in explain(risen)
    assert "sign flips" not in explain(REGRESSED)  # by threshold
    once = replace(FULL, looks=[50], partial=False, anchor=None)
    assert "0.0125   of each test and bound" in explain(once)
    assert "0.0125   of each bound" in explain(replace(once, p=None))
    again = replace(once, level=None, looks=[25, 50])
    assert "0.0125   divided among the looks\n" in explain(again)
    assert "looked at 25, 50 samples; these are all" in explain(again)
    assert "looked at" not in explain(once)
    unbound = replace(once, low=None, high=None)
    assert "-0.2500   the bounds exclude nothing" in explain(unbound)
    assert "-0.2500   no bounds could be made" in explain(replace(unbound, method=""))
    assert "-0.2500   [below any, -0.1875]" in explain(replace(FULL, low=None))
    same = replace(
        FULL, verdict="held", difference=0.0, p=None, low=None, high=None, level=None,
        visible=None, method="same model", anchor=None, n=8, units=8,
    )  # fmt: skip
    shown = {line.label: (line.shown, line.remark) for line in figures_of(same)}
    assert (shown["difference"], shown["n"]) == (("+0.0000", "same model"), ("8", ""))
    assert shown.keys().isdisjoint({"p", "alpha", "visible drop"})
    informational = replace(FULL, primary=False)
    assert explain(informational).startswith("regressed (informational): toy, color")


def test_a_line_of_a_case_begins_with_its_numbers() -> None:
    """Else with the first reason; an end that excludes nothing is left out."""
    unsure = replace(
        FULL, verdict="inconclusive", difference=-0.0031, p=0.3, low=-0.0152, high=0.009, n=32
    )
    assert figures_first(unsure) == (
        "-0.0031 [-0.0152, +0.0090], p 0.3, tolerance 0.0100, n = 32: toy color GC@2 inconclusive"
    )
    assert figures_first(replace(FULL, low=None, verdict="held")).startswith(
        "-0.2500 <= -0.1875, p"
    )
    new = replace(FULL, verdict="no-baseline", difference=None, value=None, reasons=["a\x1bb"])
    assert figures_first(new) == r"a\x1bb: toy color GC@2 no-baseline"
    assert "nothing has been accepted yet" in figures_first(replace(new, reasons=[]))


# -- the samples of a case -------------------------------------------------------------------------


def test_scores_of_samples() -> None:
    """Those that lost most first, with all categories; those that were not compared at the end."""
    scores = {"red": {"a": 0.5, "b": 0.75}, "round": {"a": 0.5, "c": 0.25}}
    compared = replace(
        FULL, measured=replace(MEASURED, scores=scores), differences={"b": 0.25, "a": -0.25}
    )
    assert sample_values(compared) == [
        SampleValue("a", ("red", "round"), 0.5, 0.75, -0.25),
        SampleValue("b", ("red",), 0.75, 0.5, 0.25),
        SampleValue("c", ("round",), 0.25, None, None),
    ]
    first, second, _ = sample_values(replace(compared, higher_is_better=False))
    assert (first.baseline, second.baseline) == (0.25, 1.0)  # the larger one where it got better
    # The record of a battle has one half for each sample, whatever the new answer scored.
    even = replace(MEASURED, scores={"art": {"q": 0.5}}, answers={"q": "d" * 64})
    (value,) = sample_values(replace(FULL, measured=even, differences={"q": -0.375}))
    assert value == SampleValue("q", ("art",), 0.125, 0.5, -0.375)
    of_a_set = replace(FULL, measured=replace(MEASURED, sizes={"color": 9}), differences={})
    assert sample_values(of_a_set) == []
    (value,) = sample_values(replace(FULL, measured=None, differences={"a": -0.25}))
    assert value == SampleValue("a", (), None, None, -0.25)


def test_answers_are_told_in_short_lines() -> None:
    """Below the sample, images named in their place; equal texts are not repeated."""
    lines = explain(ANSWERED).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  q1 "))
    assert lines[start + 1 : start + 7] == [
        "    question          draw a cat | [image]",
        "    new answer        a dog [image]",
        "    accepted answer   a cat [image] | the end",
        "    verdict           new answer shown first: the accepted answer is better",
        "    verdict           accepted answer shown first: a tie that leans to the new",
        "                      answer",
    ]
    assert lines[start + 7].startswith("  q2 ")
    first, *others = ANSWERED.shown.answers

    def told(*steps: StepShown) -> list[str]:
        changed = replace(ANSWERED, answers=[replace(first, steps=list(steps)), *others])
        return explain(changed).splitlines()

    assert all(len(line) <= 80 for line in told(StepShown("cat " * 99))[start : start + 6])
    assert "    accepted answer   the same texts" in told(
        StepShown("a cat", "b" * 64), StepShown("the end")
    )
    assert "    new answer        -" in told()


# -- facts -----------------------------------------------------------------------------------------


def _facts(colors: list[list[float]], counts: list[float]) -> Facts:
    """Of 40 equal samples with two colors and a count, through two iterations."""
    answers = FactAnswers(("count", "color", "color"), np.array([counts, *colors]), {})
    roles: tuple[Role, ...] = ("describer", "generator", "describer", "generator")
    names = [f"{i}" for i in range(40)]
    return summarize_facts([answers] * 40, names, (1, 2, 3, 4), roles)


LOSING = _facts([[1, 1, 1, 1], [0, 0, 0, 1]], [1, 0, 0, 0])
"""A describer loses one color of two, which comes back; a generator loses every count."""


def test_facts_by_kind_and_role() -> None:
    """What is right at the end, half-life with its interval, and what each role's steps lose.

    One sentence for the run names the kind that goes first and the role that loses most, and
    nothing more where nothing is lost.
    """

    def case(facts: Facts | None) -> CaseResult:
        return replace(REGRESSED, metric="truth", label="truth F1", part="overall", facts=facts)

    heads, (count, color, every) = fact_table(LOSING)
    assert heads == (
        "facts", "n", "right at 4", "half-life (95 %)", "text loses", "picture loses",
    )  # fmt: skip
    assert count == ("count", "40", "0 %", "1.5 (1.5 to 1.5)", "0 %", "100 %")
    assert color[:3] == ("color", "80", "100 %")
    assert color[3].startswith("1.0 (")
    assert (color[4:], every[:2]) == (("33.3 %", "0 %"), ("all kinds", "120"))
    (line,) = fact_lines([case(LOSING), case(None)])
    assert line.startswith("facts of toy overall [truth]: 66.7 % of 120 right after 4 generations")
    assert "half-life of color, the shortest: 1.0" in line
    assert "a drawing loses" in line
    assert line in promise_lines([case(LOSING)])
    (kept,) = fact_lines([case(_facts([[1, 1, 1, 1]] * 2, [1, 1, 1, 1]))])
    assert kept == "facts of toy overall [truth]: 100 % of 120 right after 4 generations"


# -- a series of gates -----------------------------------------------------------------------------


def test_a_case_says_what_its_series_spent() -> None:
    """Of the case's alpha, and by whom it is divided."""

    def figure(result: CaseResult, label: str) -> str:
        return next((f"{f.shown} {f.remark}" for f in figures_of(result) if f.label == label), "")

    place = SeriesShown("run-1", 7, 40, 0.0003, level=2.5e-05, anchor_level=1.5e-04, baseline=5)
    serial = replace(FULL, series=place)
    assert figure(serial, "series") == (
        "0.0003 of 0.0125 for checkpoint 7 of run-1, 2.5e-05 of the upper bound against "
        "checkpoint 5, 0.00015 since the anchor"
    )
    alpha = figure(replace(serial, level=0.003), "alpha")
    assert alpha.startswith("0.0125 0.003 of the lower bound, divided among")
    bare = replace(serial, series=SeriesShown(name="run-1", look=1, expected=40, alpha=0.001))
    assert figure(bare, "series") == "0.001 of 0.0125 for checkpoint 1 of run-1"
    assert figure(FULL, "series") == ""


# -- tables, and texts that fit --------------------------------------------------------------------


TEXTS = st.text(st.sampled_from("ab \u6f22e\u0301/.:"), max_size=60)


def _table(results: list[CaseResult], columns: int | None = None, **how: Any) -> list[str]:
    return [text_of(line) for line in summary_table(results, columns, **how)]


def test_a_line_for_every_case_in_columns() -> None:
    """As a whole: the suite above its cases; dashes for what is not known.

    The color is the verdict's: of its word, and the change of what does not hold; green for what is
    accepted.
    """
    results = [
        FULL,
        replace(FULL, verdict="held", part="a much longer category", p=0.5, low=None, high=0.0001),
        replace(
            FULL, verdict="held", baseline=0.5, difference=0.0, p=None, low=None, high=None,
            method="same model",
        ),
        replace(
            FULL, verdict="held", part="overall", label="GC_FID@2", value=123.456,
            baseline=23.456, difference=-100.0, p=4e-6, low=None, high=None, tolerance=0.1, n=200,
        ),
        replace(FULL, part="suite", value=None, baseline=None, difference=None, p=None, low=None,
                high=None, n=0),
    ]  # fmt: skip
    assert (
        "\n".join(_table(results, 88))
        == """\
verdict   case                     now baseline  change     bounds       p tolerance   n
--------- --------------------- ------ -------- ------- ---------- ------- --------- ---
toy
REGRESSED color GC@2            0.5000   0.7500 -0.2500          - 0.00042    0.0100  50
HELD      a much longer         0.5000   0.7500 -0.2500 <= +0.0001     0.5    0.0100  50
          category GC@2
HELD      color GC@2            0.5000   0.5000 +0.0000 same model       -    0.0100  50
HELD      overall GC_FID@2      123.46    23.46 -100.00          -  < 1e-5    0.1000 200
REGRESSED suite GC@2                 -        -       -          -       -    0.0100   -"""
    )
    head, row = _table([FULL], grouped=False)
    assert head.split() == ["verdict", "case", "now", "base", "change", "p", "tol.", "n"]
    assert row.startswith("REGRESSED  toy color GC@2 ")
    verdicts = {"held": "green", "improved": "green", "inconclusive": "yellow", "regressed": "red"}
    results = [replace(FULL, verdict=verdict) for verdict in verdicts]
    _, _, heading, *rows = summary_table([*results, replace(FULL, accepted=True)])
    assert heading == (Span("toy", "bold"),)
    for spans, color in zip(rows, [*verdicts.values(), "green"], strict=True):
        styled = [span.text for span in spans if span.style == color]
        assert styled[0] == styled[0].upper()
        assert len(styled) == (1 if color == "green" else 2)
        assert all(span.style in ("", color) for span in spans)
    word = summary_table([replace(FULL, primary=False)])[-1][0]
    assert word == Span("regressed", "yellow")  # what cannot fail the run is never red


@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (120, "verdict case now baseline change bounds p tolerance n"),
        (90, "verdict case now baseline change bounds p n"),
        (80, "verdict case now change bounds p"),
        (60, "verdict case change bounds"),
        (40, "verdict case change"),
        (20, "verdict case"),
    ],
)
def test_a_narrow_table_folds_names_and_goes_without_columns(columns: int, heads: str) -> None:
    """No line is wider than the terminal; names are whole, also where they differ at the end."""
    long = "a-category-with-a-name-of-more-than-sixty-characters-from-the-model-"
    cases = [replace(FULL, suite="s", part=f"{long}{end}") for end in ("one", "two")]
    cases.append(replace(FULL, suite="s", part="\u5f62\u72b6" * 4, verdict="held"))
    table = _table(cases, columns)
    assert table[0].split() == heads.split()
    assert max(map(width_of, table)) <= columns
    words = " ".join(table).split()
    assert words.count("GC@2") == 3


# -- texts that fit --------------------------------------------------------------------------------


def test_a_long_line_goes_on_below_itself() -> None:
    """Broken between words; a path is not, and in a header it loses its middle."""
    assert wrap("cepbench: one two three", 16, indent=" " * 10) == [
        "cepbench: one",
        "          two",
        "          three",
    ]
    assert wrap("  indented as it was", 14) == ["  indented as", "    it was"]
    path = "/home/ci/builds/4711/project/checkpoints"
    assert wrap(f"store {path}", 24) == ["store", f"  {path}"]
    assert wrap(f"store {path}", 24, shortened=True) == ["store", "  /home/ci/b..heckpoints"]


@given(TEXTS, st.integers(3, 30))
def test_texts_are_wrapped_folded_and_shortened(text: str, columns: int) -> None:
    """Lines have all words, in their order; none is wider than asked for, but wrapped ones of a
    single word. A shortened text is itself where it has room; both ends are kept.
    """
    lines = wrap(text, columns)
    assert [word for line in lines for word in line.split()] == text.split()
    assert all(width_of(line) <= columns or len(line.split()) == 1 for line in lines)
    folded = fold(text, columns)
    assert "".join("".join(folded).split()) == "".join(text.split())
    assert max(map(width_of, folded)) <= columns
    shown = shorten(text, columns)
    assert width_of(shown) <= columns
    assert (shown == text) or width_of(text) > columns
    assert shorten("abcdefghij", 6) == "ab..ij"
