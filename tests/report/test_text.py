"""The failure message and the summary: what a person reads in a terminal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.escapes import width_of
from pytest_cepbench.gate import PRESENTATIONS, Verdict
from pytest_cepbench.gate.sensitivity import Range
from pytest_cepbench.report import CaseResult, ChainShown, HopShown, LinkShown
from pytest_cepbench.report.case_table import figures_of, range_shown
from pytest_cepbench.report.headline import worst_samples
from pytest_cepbench.report.number_format import number, p_value, printable, short, word_of
from pytest_cepbench.report.tables import UNICODE, Span, summary_table, text_of
from pytest_cepbench.report.text import (
    brief,
    cause_lines,
    explain,
    one_line,
    promise_lines,
    sample_words,
    shortage_lines,
    shortage_warning,
    verbose_lines,
)
from tests.report.results import ANSWERED, FULL, REGRESSED, RESULTS, replace
from tests.test_escapes import hides_nothing


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


def test_a_case_of_little_in_full() -> None:
    """Without bounds, anchor, attribution and looks nothing is said of them; None is a dash."""
    little = replace(
        REGRESSED, verdict="incomparable", baseline=None, difference=None, chains=[], curve=[],
        reasons=["prompts: 'a' in the baseline, 'b' now", "n: 3\nin two lines"],
    )  # fmt: skip
    assert (
        explain(little)
        == """\
incomparable: toy, color, GC@2 (the baseline was made from something else)

  baseline              -
  now              0.5000   higher is better
  difference            -
  tolerance       -0.0100   threshold gate
  n                     2
  prompts: 'a' in the baseline, 'b' now
  n: 3
  in two lines

  next: run with what the baseline was made from, or accept a new one with
        --snapshot-update"""
    )


def test_what_was_not_measured_has_no_numbers() -> None:
    """An error gives its reason in the place of figures."""
    error = replace(
        REGRESSED, verdict="error", value=None, difference=None, chains=[], curve=[], reasons=["oh"]
    )
    assert explain(error).splitlines()[1:4] == ["", "  oh", ""]


def test_where_lower_is_better_the_difference_says_that_it_was_turned() -> None:
    """A failure rate that rose has a negative difference, which is explained."""
    risen = replace(REGRESSED, higher_is_better=False, value=0.5, baseline=0.25, difference=-0.25)
    text = explain(risen)
    assert "lower is better" in text
    assert "-0.2500   turned: positive is better\n" in text


def test_notes_stand_below_the_numbers() -> None:
    """Each on a line of its own after the course, without control characters."""
    noted = replace(REGRESSED, notes=["SDR: 0.02 \x1b[2J", "a cut text"])
    lines = explain(noted).splitlines()
    course = next(i for i, line in enumerate(lines) if line.startswith("  by step"))
    assert lines[course + 1 : course + 4] == [r"  SDR: 0.02 \x1b[2J", "  a cut text", ""]


def test_a_chain_says_why_it_scored_low() -> None:
    """What stopped it, else what the metric remarks of it; neither for a chain that is whole."""
    (chain,) = REGRESSED.shown.chains
    chains = [
        replace(chain, sample="whole"),
        replace(chain, sample="wrong", remark="expected circle>=1, found 0"),
        replace(chain, sample="ended", failure="empty-text", remark="no circle"),
    ]
    lines = explain(replace(REGRESSED, chains=chains)).splitlines()
    begin = next(k for k, line in enumerate(lines) if "samples that lost most" in line)
    figures = "    0.7500     0.5000    -0.2500"
    assert lines[begin + 1 : begin + 5] == [
        f"  whole                  {figures}",
        f"  wrong                  {figures}",
        "    expected circle>=1, found 0",
        f"  ended                  {figures}  empty-text",
    ]


@pytest.mark.parametrize("verdict", [v for v in Verdict if not PRESENTATIONS[v].passes])
def test_every_failing_verdict_says_what_to_do_next(verdict: Verdict) -> None:
    """The last line names a next step, and only verdicts of a measurement offer to accept it."""
    text = explain(replace(REGRESSED, verdict=verdict.value))
    _, begins, last = text.rpartition("\n  next: ")
    assert begins
    offers = verdict in (Verdict.REGRESSED, Verdict.NO_BASELINE, Verdict.INCOMPARABLE)
    assert ("--snapshot-update" in last) == offers


@given(RESULTS)
def test_no_control_character_reaches_the_terminal(result: CaseResult) -> None:
    """Whatever models, files and data sets are called or say, a terminal has nothing to obey."""
    hostile = replace(result, part=f"\x1b[2J{result.part}", reasons=["\x07\x9b1m"])
    lines = [
        *map(text_of, summary_table([hostile])),
        *explain(hostile).split("\n"),
        *verbose_lines([hostile]),
        *promise_lines([hostile]),
        one_line(hostile),
    ]
    assert all(map(hides_nothing, lines))


@given(st.text(), st.integers(4, 50))
def test_printable_is_one_line_of_bounded_length(text: str, most: int) -> None:
    """Long texts are cut with dots, short printable ones stay as they are but for white space."""
    shown = printable(text, most)
    assert hides_nothing(shown)
    assert len(shown) <= most
    if hides_nothing(text) and len(text) <= most and text == " ".join(text.split()):
        assert shown == text


def test_numbers_have_four_decimals_or_a_dash() -> None:
    """Signed where a change is meant; nothing known is a dash."""
    assert [number(0.12345), number(0.5, signed=True), number(None)] == ["0.1235", "+0.5000", "-"]


@pytest.mark.parametrize(
    ("p", "shown"),
    [
        (None, "-"),
        (1.0, "1"),
        (0.21875, "0.22"),
        (2**-11, "0.00049"),
        (2**-15, "3.1e-5"),
        (2**-17, "< 1e-5"),
    ],
)
def test_a_p_value_has_two_digits(p: float | None, shown: str) -> None:
    """Down to what the fewest flips can tell."""
    assert p_value(p) == shown


def _table(results: list[CaseResult], columns: int | None = None, **how: Any) -> list[str]:
    return [text_of(line) for line in summary_table(results, columns, **how)]


def test_the_summary_has_a_line_for_every_case_in_columns() -> None:
    """As a whole: decimal points below one another, the suite above its cases."""
    results = [
        FULL,
        replace(FULL, p=None),
        replace(
            FULL, verdict="held", part="a much longer category", p=0.5, low=None,
            high=0.0001,
        ),
        replace(FULL, verdict="inconclusive", low=None, high=None),
        replace(
            FULL, verdict="held", baseline=0.5, difference=0.0, p=None, low=None, high=None,
            method="same model",
        ),
        replace(
            FULL, verdict="held", part="overall", label="GC_FID@2", value=123.456,
            baseline=23.456, difference=-100.0, p=4e-6, low=None, high=None, tolerance=0.1, n=200,
        ),
    ]  # fmt: skip
    assert (
        "\n".join(_table(results, 98, glyphs=UNICODE))
        == """\
verdict      case                             now baseline    change             bounds       p
──────────── ─────────────────────────── ──────── ──────── ───────── ────────────────── ───────
toy
REGRESSED    color GC@2                    0.5000   0.7500   -0.2500                  - 0.00042
REGRESSED    color GC@2                    0.5000   0.7500   -0.2500 [-0.3125, -0.1875]       -
HELD         a much longer category GC@2   0.5000   0.7500   -0.2500         <= +0.0001 0.5
INCONCLUSIVE color GC@2                    0.5000   0.7500   -0.2500                  - 0.00042
HELD         color GC@2                    0.5000   0.5000   +0.0000         same model       -
HELD         overall GC_FID@2            123.46    23.46   -100.00                    -  < 1e-5"""
    )


def test_the_color_is_the_verdicts() -> None:
    """Of its word, its bar, and the change of what does not hold; green for what is accepted."""
    verdicts = {"held": "green", "improved": "green", "inconclusive": "yellow", "regressed": "red"}
    results = [replace(FULL, verdict=verdict) for verdict in verdicts]
    accepted = replace(FULL, accepted=True)
    _, _, heading, *rows = summary_table([*results, accepted])
    assert heading == (Span("toy", "bold"),)
    for row, color in zip(rows, [*verdicts.values(), "green"], strict=True):
        styled = [span.text for span in row if span.style == color]
        assert styled[0] == styled[0].upper()
        assert len(styled) == (2 if color == "green" else 3)
        assert all(span.style in ("", color) for span in row)


def test_cases_of_several_suites_stand_below_their_suites() -> None:
    """Each with its counts; workers may have finished their cases in any order."""
    other = replace(FULL, suite="other", verdict="held")
    lines = _table([FULL, other, FULL])
    assert [line for line in lines[2:] if "GC@2" not in line] == [
        "toy: 2 regressed",
        "other: 1 held",
    ]
    assert lines[3].startswith("REGRESSED  color GC@2 ")
    assert lines[6].startswith("HELD       color GC@2 ")


def test_long_names_of_cases_are_told_apart() -> None:
    """What differs at their ends is shown, in a file as in a terminal of any width."""
    long = "a-category-with-a-name-of-more-than-sixty-characters-from-the-model-"
    cases = [replace(FULL, part=f"{long}{end}") for end in ("one", "two")]
    for columns in (None, 120, 40):
        shown = "".join("".join(_table(cases, columns)).split())
        assert all(f"{end}GC@2" in shown for end in ("one", "two"))


def test_a_row_by_itself_names_its_suite() -> None:
    """Where rows are not grouped, as with -q, there is neither rule nor heading."""
    head, row = _table([FULL], grouped=False)
    assert head.startswith("verdict ")
    assert row.startswith("REGRESSED  toy color GC@2 ")


def test_failing_rows_have_all_numbers_on_80_columns() -> None:
    """Names go on below themselves; without a p the bounds tell why, and less is beside them."""
    case = replace(FULL, suite="instrument-drift", part="image-to-image", label="truth_text F1")
    head, *rows = table = _table([case], 80, grouped=False)
    assert head.split() == ["verdict", "case", "now", "base", "change", "p", "tol.", "n"]
    assert max(map(len, table)) <= 80
    words = " ".join(" ".join(rows).split())
    assert all(word in words for word in ("instrument-drift", "image-to-image", "truth_text F1"))
    head, *_ = _table([replace(case, p=None)], 80, grouped=False)
    assert head.split() == ["verdict", "case", "now", "base", "change", "bounds", "n"]
    head, *rows = _table([case, replace(case, p=None)], 80, grouped=False)
    assert {"change", "bounds", "p"} <= set(head.split())
    assert "0.00042" in rows[0]
    assert sum("[-0.3125, -0.1875]" in row for row in rows) == 1


def test_usual_names_fit_into_120_columns() -> None:
    """The longest names of the shipped suites, beside the longest verdict and large distances."""
    longest = replace(
        FULL, suite="mmeception", part="textual-intensive", label="GC_FID@3 [inception]",
        verdict="incomparable", value=123.4567, baseline=117.1234, difference=-6.3333,
        low=-12.3456, high=0.1234, tolerance=1.0, n=1284,
    )  # fmt: skip
    plain = replace(FULL, p=None)
    table = [line for line in _table([longest, plain], 120) if "GC" in line]
    assert max(map(len, table)) <= 120
    assert " 123.46   117.12   -6.33      [-12.35, +0.12] 0.00042    1.0000 1284" in table[0]
    assert " [-0.3125, -0.1875] " in table[1]


@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (120, "verdict case now baseline change bounds p tolerance n worse| 0 |better"),
        (95, "verdict case now baseline change bounds p tolerance n"),
        (85, "verdict case now baseline change bounds p n"),
        (82, "verdict case now baseline change bounds p"),
        (80, "verdict case now change bounds p"),
        (66, "verdict case change bounds p"),
        (58, "verdict case change bounds"),
        (42, "verdict case change"),
        (20, "verdict case"),
    ],
)
def test_a_narrow_table_goes_without_columns(columns: int, heads: str) -> None:
    """No line is wider than the terminal; verdict and case stay to the last, and stay whole."""
    named = replace(FULL, suite="instrument", part="text-to-image")
    bounded = replace(named, part="a", verdict="held")
    wide = replace(named, part="\u5f62\u72b6" * 4)
    table = _table([named, wide, bounded], columns)
    assert table[0].split() == heads.split()
    assert max(map(width_of, table)) <= columns
    assert sum(line.startswith("REGRESSED ") for line in table) == 2
    shown = "".join(table).replace(" ", "")
    if columns > 20:
        assert "text-to-imageGC@2" in shown
        return
    assert [line for line in table[3:] if line] == [
        "REGRESSED text-to-im",
        "          age",
        "          GC@2",
        "REGRESSED \u5f62\u72b6\u5f62\u72b6\u5f62",
        "          \u72b6\u5f62\u72b6",
        "          GC@2",
        "HELD      a GC@2",
    ]


@given(st.lists(RESULTS, min_size=1, max_size=4), st.integers(30, 140), st.booleans())
def test_a_table_of_any_width_has_every_case(
    results: list[CaseResult], columns: int, grouped: bool
) -> None:
    """A verdict for each, and no line that is wider than asked for."""
    table = _table(results, columns, grouped=grouped)
    words = sorted(word_of(result) for result in results)
    assert sorted(line.split()[0] for line in table if line.startswith(tuple(words))) == words
    assert max(map(width_of, table)) <= columns


def test_undecided_cases_say_what_their_samples_can_tell() -> None:
    """And how many would tell more; only of cases that gate. Then what to do."""
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


def test_a_case_that_could_see_no_drop_says_so_first() -> None:
    """Its first line, the warnings and the advice name the reason: more samples are no help."""
    why = "the judge cannot see a drop: all tie"
    case = replace(FULL, verdict="inconclusive", reasons=[why, "and more"])
    first, *rest = explain(case).split("\n\n")
    assert " ".join(first.split()) == f"inconclusive: toy, color, GC@2 ({why})"
    text = "\n".join(rest)
    assert why not in text
    assert "  and more" in text
    assert "next: name a judge, or models, that see it" in text
    assert one_line(case) == f"toy color GC@2 inconclusive: {why}"
    assert shortage_warning([case]).splitlines()[1] == f"0.5000 now, {why}: toy color GC@2"
    advice = "1 case undecided: another judge or set-up for 1 that could see no drop"
    assert advice in promise_lines([case])
    few = replace(FULL, verdict="inconclusive", part="few")
    both = f"{advice.replace('1 case', '2 cases')}; for the others more samples or seeds, or a"
    assert any(line.startswith(both) for line in promise_lines([case, few]))


def test_many_undecided_cases_are_one_warning() -> None:
    """It begins with their number and names the first few."""
    cases = [replace(FULL, verdict="inconclusive", part=f"part-{number}") for number in range(20)]
    lines = shortage_warning(cases).splitlines()
    assert lines[0] == "20 cases undecided"
    figures = "-0.2500 [-0.3125, -0.1875], p 0.00042, tolerance 0.0100, n = 50: toy part-0"
    assert lines[1] == figures
    assert [line for line in lines if "part-" in line][-1].endswith("part-2")
    assert lines[-2:] == ["and 17 more", "more samples or seeds, or a larger tolerance"]
    assert max(map(len, lines)) <= 78


def test_a_verdict_without_a_measurement_has_dashes() -> None:
    """As a suite's own: a row of dashes, no zeros that look like numbers."""
    pooled = replace(
        FULL, value=None, baseline=None, difference=None, p=None, low=None, high=None, n=0
    )
    line = _table([pooled])[-1]
    assert line.split()[-5:] == ["-", "-", "-", "0.0100", "-"]


def test_the_range_is_that_of_the_baseline_or_of_what_becomes_it() -> None:
    """A baseline without a floor of its own is seen with the floor now; distances have no range."""
    assert range_shown(FULL) == Range(0.75, 0.25)
    assert range_shown(replace(FULL, baseline_floor=None)) == Range(0.75, 0.125)
    assert range_shown(replace(FULL, accepted=True)) == Range(0.5, 0.125)
    assert range_shown(replace(FULL, refused="at chance")) == Range(0.5, 0.125)
    assert range_shown(replace(FULL, baseline=None)) == Range(0.5, 0.125)
    assert range_shown(replace(FULL, higher_is_better=False)) is None


def test_informational_cases_are_told_apart() -> None:
    """What cannot fail the run is in lower case, never red; the last lines say what that means."""
    informational = replace(FULL, primary=False)
    word = summary_table([informational])[-1][0]
    assert word == Span("regressed", "yellow")
    assert explain(informational).startswith("regressed (informational): toy, color")
    assert "1 informational, which cannot fail the run: 1 regressed" in promise_lines(
        [FULL, informational]
    )
    assert not any("informational" in line for line in promise_lines([FULL]))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.123456, "+0.123"),
        (-1.0, "-1.00"),
        (123.4, "+123"),
        (0.00001234, "+1.2e-05"),
        (0, "+0.00"),
    ],
)
def test_numbers_of_sentences_have_three_digits(value: float, shown: str) -> None:
    """Signed where a change is meant."""
    assert short(value, signed=True) == shown
    assert short(abs(value)) == shown[1:]


def test_a_failure_has_six_lines() -> None:
    """The case, from and to, what decided, the worst sample, the dearest hop, what to do."""
    assert brief(FULL).splitlines() == [
        "regressed: toy color GC@2",
        "  0.750 -> 0.500, difference -0.250, tolerance 0.01, n = 50",
        "  p 0.00042 against alpha 0.00313",
        "  worst sample a.png: 0.750 -> 0.500",
        "  lost 80 % by the describer at generation 1",
        f"  next: {PRESENTATIONS[Verdict.REGRESSED].next_step}",
    ]
    error = replace(FULL, verdict="error", difference=None, chains=[], hops=[], reasons=["oh\nno"])
    assert brief(error).splitlines()[:2] == ["error: toy color GC@2", "  oh no"]
    refused = replace(error, refused="it is what chance gives")
    assert brief(refused).splitlines()[:2] == [
        "refused: toy color GC@2",
        "  it is what chance gives",
    ]


@given(RESULTS)
def test_no_failure_has_more_than_six_lines(result: CaseResult) -> None:
    """Whatever it is made of, and nothing of it stays hidden."""
    lines = brief(result).splitlines()
    assert len(lines) <= 6
    assert all(map(hides_nothing, lines))


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


def test_one_line_says_what_was_found() -> None:
    """The sentence of a warning: numbers where there are any, else the first reason."""
    unsure = replace(
        FULL, verdict="inconclusive", difference=-0.0031, p=0.3, low=-0.0152, high=0.009, n=32
    )
    assert one_line(unsure) == (
        "toy color GC@2 inconclusive: difference -0.0031 [-0.0152, +0.0090], p 0.3, "
        "tolerance 0.0100, n = 32"
    )
    assert one_line(REGRESSED) == (
        "toy color GC@2 regressed: difference -0.2500, tolerance 0.0100, n = 2"
    )
    new = replace(FULL, verdict="no-baseline", difference=None, reasons=["a\x1bb"])
    assert one_line(new) == r"toy color GC@2 no-baseline: a\x1bb"
    silent = replace(new, reasons=[])
    assert one_line(silent) == (
        "toy color GC@2 no-baseline: nothing has been accepted yet to compare with"
    )


def test_verbose_lines_say_who_settled_what() -> None:
    """A line per case, a setting that is not named has its default; no alpha where none is used."""
    _, full, plain = verbose_lines([FULL, REGRESSED])
    assert full == (
        "  toy color GC@2: gate regression ([gate]), tolerance 0.0100 (--cep-tolerance), "
        "anchor tolerance 0.0200 (default), alpha 0.0125 ([gate]), "
        "0.75 of a range from 0.25 (chance) to 1: this set-up can see a drop of at most 0.5"
    )
    assert plain == "  toy color GC@2: gate threshold (default), tolerance 0.0100 (default)"
    informational = replace(REGRESSED, primary=False)
    assert verbose_lines([informational])[1].endswith(", informational")
    assert verbose_lines([]) == []


def test_alpha_belongs_to_each_bound_or_is_divided() -> None:
    """What is left of alpha for a bound depends on looks and anchor, and the message says so."""
    once = replace(FULL, looks=[50], partial=False, anchor=None)
    assert "0.0125   of each test and bound" in explain(once)
    assert "0.0125   of each bound" in explain(replace(once, p=None))
    again = replace(once, level=None, looks=[25, 50])
    assert "0.0125   divided among the looks\n" in explain(again)
    assert "looked at 25, 50 samples; these are all" in explain(again)
    assert "looked at" not in explain(once)
    unbound = replace(once, low=None, high=None)
    assert "-0.2500   the bounds exclude nothing" in explain(unbound)
    unbound = replace(unbound, method="")
    assert "-0.2500   no bounds could be made" in explain(unbound)


def test_the_model_of_the_baseline_has_no_bounds() -> None:
    """The row says so in their place; nothing is said of a test, of a level or of alpha."""
    same = replace(
        FULL, verdict="held", difference=0.0, p=None, low=None, high=None, level=None,
        visible=None, method="same model", anchor=None,
    )  # fmt: skip
    shown = {line.label: (line.shown, line.remark) for line in figures_of(same)}
    assert shown["difference"] == ("+0.0000", "same model")
    assert shown.keys().isdisjoint({"p", "alpha", "visible drop"})
    assert one_line(same).endswith("held: difference +0.0000 same model, tolerance 0.0100, n = 50")


def test_an_end_that_excludes_nothing_is_named() -> None:
    """On either side, in the place of a number."""
    below = replace(FULL, low=None, verdict="held")
    above = replace(FULL, high=None, verdict="held")
    assert "-0.2500 <= -0.1875, p" in one_line(below)
    assert "-0.2500 >= -0.3125, p" in one_line(above)
    assert "-0.2500   [below any, -0.1875]" in explain(below)
    assert "-0.2500   [-0.3125, above any]" in explain(above)


def test_a_regression_by_threshold_is_no_statement_on_noise() -> None:
    """Its meaning leaves that out, and no p is shown."""
    text = explain(REGRESSED)
    assert text.startswith("regressed: toy, color, GC@2 (the measured drop exceeds the tolerance)")
    assert "sign flips" not in text


def test_hops_of_two_kinds_of_chains_are_told_apart() -> None:
    """Where chains start from images and texts, a hop says whose it is; gains have no share."""
    hops = [HopShown("image", "describer", 1, -0.5), HopShown("text", "describer", 2, 0.25)]
    lines = explain(replace(FULL, hops=hops)).splitlines()
    shown = [line.split() for line in lines if "-first" in line]
    assert shown == [
        ["image-first", "describer,", "generation", "1", "-0.5000", "-"],
        ["text-first", "describer,", "generation", "2", "+0.2500", "-"],
    ]


def test_the_word_of_a_case() -> None:
    """What became of it comes before its verdict: refused, then accepted."""
    assert replace(FULL, verdict="held").word == "HELD"
    assert replace(FULL, verdict="no-baseline", accepted=True).word == "ACCEPTED"
    assert replace(FULL, accepted=True, refused="at chance").word == "REFUSED"
    assert not replace(FULL, verdict="held", refused="at chance").passes


def test_independent_units_are_named_where_they_are_fewer_than_samples() -> None:
    """Not where every sample counts."""

    def remark(units: int) -> str:
        (line,) = [
            line for line in figures_of(replace(FULL, n=8, units=units)) if line.label == "n"
        ]
        return line.remark

    assert remark(8) == ""
    assert remark(2) == "2 independent units"
