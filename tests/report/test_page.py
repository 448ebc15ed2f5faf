"""The page of a run: what stands where, and that it shows any text and obeys none."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import pytest_cepbench
from pytest_cepbench.artifacts import Artifact, ImageArtifact, Sound
from pytest_cepbench.report.pages import PageImages, html_page
from pytest_cepbench.report.plots import CURVES, Scale, change_plot, curve_plot
from pytest_cepbench.report.result import (
    AnswerShown,
    CaseResult,
    ChainShown,
    CurveShown,
    HopShown,
    LinkShown,
    StepShown,
)
from pytest_cepbench.report.view import (
    TextPart,
    paired_steps,
    sample_anchor,
    word_differences,
)
from pytest_cepbench.report.writers import Provenance, RunOutcome, SuiteProvenance
from tests.artifacts.files import tone
from tests.report.pages import Page, assert_self_contained, read_page
from tests.report.results import (
    ANSWERED,
    FACTS,
    FULL,
    INVENTED,
    MEASURED,
    REGRESSED,
    SECRET,
    replace,
)
from tests.test_escapes import hides_nothing

IMAGE = ImageArtifact(np.full((300, 600, 3), 200, np.uint8))

SMALL = ImageArtifact(np.full((16, 16, 3), 100, np.uint8))

START = LinkShown(image="0" * 64)

PAIR = ChainShown(
    "a.png",
    0.25,
    0.75,
    [START, LinkShown(text="a red cat"), LinkShown(image="1" * 64, similarity=0.25)],
    baseline_links=[START, LinkShown(text="a dog"), LinkShown(image="2" * 64, similarity=0.75)],
    first_difference=1,
)

PAIRED = replace(FULL, chains=[PAIR], median=replace(PAIR, sample="b.png"))


def _page(*results: CaseResult, facts: RunOutcome = FACTS) -> tuple[Page, str]:
    """The page, read strictly, and its source; every image is there."""
    html = html_page(replace(facts, results=results), lambda _: IMAGE)
    assert_self_contained(html)
    return read_page(html), html


def _words(page: Page) -> str:
    return " ".join(page.text.split())


# -- any text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    sorted(Path(pytest_cepbench.__file__).parent.rglob("*.jinja")),
    ids=lambda path: path.name,
)
def test_templates_quote_every_attribute(path: Path) -> None:
    """A slash that ends a tag is part of a value without quotes, and the tag never closes."""
    source = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    code = r"\{\{.*?\}\}|\{%.*?%\}"
    literals = [
        literal
        for expression in re.findall(code, source, re.DOTALL)
        for literal in re.findall(r"'[^']*'|\"[^\"]*\"", expression)
    ]
    markup = re.sub(r'"[^"]*"', '""', re.sub(code, "X", source, flags=re.DOTALL))
    assert not [text for text in literals if re.match(r".\s*[a-z-]+=[^\"]", text)]
    assert not re.findall(r'<[a-z][^>]*=(?!")[^>]*>', markup)


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        ("<script>alert(1)</script><img src=x onerror=alert(2)>\"'&",) * 2,
        ("a\x1b[2Jb\u202ec\u200bd", r"a\x1b[2Jb\u202ec\u200bd"),
    ],
    ids=["markup", "hidden characters"],
)
def test_hostile_texts_stand_as_texts_in_every_place(bad: str, shown: str) -> None:
    """A caption or a file name is read by people, not by the browser; lines stay lines."""
    link = LinkShown(text=bad)
    chain = ChainShown(bad, 0.5, 0.75, [link, link], bad, bad, [link, START])
    steps = [StepShown(bad)]
    answer = AnswerShown(bad, 0.0, 0.5, steps, steps, bad, steps, [bad], bad, bad)
    result = replace(
        REGRESSED, suite=bad, part=bad, label=bad, reasons=[f"{bad}\r\n{bad}"], failures={bad: 1},
        notes=[bad], origins={"gate": bad}, attribution=bad, judge=bad, chains=[chain],
        hops=[HopShown(bad, "describer", 1, 0.5)], answers=[answer], reference_chains=bad,
        differences={bad: -0.5, "b": 0.0},
    )  # fmt: skip
    page, html = _page(result, facts=RunOutcome(bad, bad, [bad], [bad], [bad]))
    assert hides_nothing(html, "\n")
    assert page.text.count(shown) >= 30
    assert f"{shown}\n{shown}" in page.text
    assert "img" not in page.tags
    assert "b, span, summary, td, a { unicode-bidi: isolate; }" in html  # right to left as well


# -- the first screen ------------------------------------------------------------------------------


def test_the_page_says_what_the_run_found_promises_and_lacks() -> None:
    """Headline, set-up, problems, counts, the error that the run may make, facts; no scores.

    When baselines were accepted: the latest of all suites, by which commit, or by none yet.
    """
    sentence = "Do not ship: 1 of 1 gating case regressed; worst <b>toy</b>"
    facts = dataclasses.replace(FACTS, headline=sentence)
    page, html = _page(replace(FULL, measured=MEASURED, facts=INVENTED), facts=facts)
    assert page.texts.count(sentence) == 2
    for shown in (
        FACTS.setup[0],
        FACTS.problems[0],
        "1 gating case: 1 regressed",
        "1.25 % false failures at most per run of checkpoints exchangeable with the baseline",
        "What became of facts",
        "half-life of",
    ):
        assert shown in _words(page)
    assert SECRET not in html
    first = SuiteProvenance("a", accepted="2026-01-01T10:00:00+00:00", accepted_commit="c" * 40)
    later = SuiteProvenance("b", accepted="2026-01-02T10:00:00+00:00", uncommitted=True)
    for suites, said in (
        ([first], "accepted 2026-01-01 by cccccccc"),
        ([first, later], "accepted 2026-01-02, not committed; others earlier"),
    ):
        facts = dataclasses.replace(FACTS, provenance=Provenance(suites=suites))
        assert said in _page(FULL, facts=facts)[0].texts


def test_what_lost_most_comes_first_and_calm_cases_are_folded_away() -> None:
    """Those with pictures as cards, others below them by name; each leads to its place.

    Open details for the case that lost most; closed ones for others that failed and for what holds
    with a note; one that is closed for all that hold without, or cannot fail the run.
    """

    def chain(sample: str, score: float, *, whole: bool = False) -> ChainShown:
        return ChainShown(sample, score, 1.0, [LinkShown(text="a cat")] if whole else [])

    case = replace(REGRESSED, chains=[chain("a", 0.5, whole=True), chain("b", 0.6)])
    page, _ = _page(case)
    assert page.values("class").count("card") == 1
    assert "Also b (toy color, GC@2: 1.0000 \u2192 0.6000 )" in _words(page)
    assert f"#{sample_anchor(case, 'b')}" in page.values("href")
    alone, _ = _page(replace(REGRESSED, chains=[chain("b", 0.6)]))
    assert "card" not in alone.values("class")
    assert "Also " not in alone.text
    quiet = replace(FULL, verdict="held", notes=[], warnings=[], failures={}, part="quiet")
    informational = replace(FULL, primary=False, part="told")
    noted = replace(FULL, verdict="held", part="noted")
    better = replace(FULL, part="better", difference=-0.1)
    errors = [
        replace(FULL, part=f"p{n}", verdict="error", difference=None, reasons=[f"{n} GiB"])
        for n in range(2)
    ]
    page, html = _page(noted, quiet, better, FULL, informational, quiet, *errors)
    shown, _, folded = html.partition('<details class="rest"')
    assert re.findall(r"<b>(\w+), GC@2", shown) == ["better", "color", "p0", "p1", "noted"]
    assert re.findall(r"<b>(\w+), GC@2", folded) == ["quiet", "told", "quiet"]
    assert "2 held, 1 informational" in folded.partition("</summary>")[0]
    assert re.findall(r'<details id="details-toy-(\w+)-gc[^>]* open ', html) == ["color"]
    assert "not measured: 0 GiB: 2 cases (toy p0 GC@2, toy p1 GC@2)" in _words(page)


# -- details of a case -----------------------------------------------------------------------------


def test_details_say_how_a_case_was_judged_and_where_it_lost() -> None:
    """Figures, settings with their origins, the anchor, hops, notes, failures and remarks.

    Of many samples those that lost most are listed: all are counted, and the command that writes
    them is named.
    """
    (chain,) = REGRESSED.shown.chains
    odd = replace(chain, failure="empty-text at generation 3", remark="no <circle>")
    page, _ = _page(replace(FULL, chains=[odd], notes=["3 of 9 texts were <cut>"]))
    for shown in (
        "[-0.3125, -0.1875], 99.688 % one-sided bounds, Hall",
        "--cep-tolerance",
        "anchor 0.8000, [-0.3750, -0.2250], p < 1e-5, tolerance -0.0200, regressed",
        "looked at 25, 50 samples",
        FULL.shown.attribution,
        "generator, generation 2",
        "3 of 9 texts were <cut>",
        "stopped: empty-text at generation 3; no <circle>",
    ):
        assert shown in page.text
    drops = {f"s{number}": -number / 1000 for number in range(300)}
    page, _ = _page(replace(FULL, differences=drops))
    assert "300 samples: 299 worse, 1 equal, 0 better" in page.text
    assert [text for text in page.texts if text in drops] == [f"s{299 - n}" for n in range(200)]
    assert "and 100 more, which cepbench export --rows samples writes" in _words(page)


@given(st.text(), st.text())
def test_parts_make_up_the_texts(before: str, now: str) -> None:
    """No character is lost, and what is not marked as changed is the same in both."""
    old, new = word_differences(before, now)
    assert "".join(part.text for part in old) == before
    assert "".join(part.text for part in new) == now
    kept = ["".join(part.text for part in parts if not part.changed) for parts in (old, new)]
    assert kept[0] == kept[1]


def test_words_that_differ_are_marked() -> None:
    """Whole words; a model that repeats itself without end does not hold up the report."""
    assert word_differences("a red cat", "a blue cat") == (
        (TextPart("a ", False), TextPart("red", True), TextPart(" cat", False)),
        (TextPart("a ", False), TextPart("blue", True), TextPart(" cat", False)),
    )
    long, new, old = "cat " * 20_000, *(", ".join(f"{w}{n}" for n in range(400)) for w in "ab")
    for before, now in ((long, "a dog"), (old, new)):  # the latter with commas alone in common
        assert word_differences(before, now) == ((TextPart(before, True),), (TextPart(now, True),))
    assert word_differences("cat " * 300, "cat " * 300)[0] == (TextPart("cat " * 300),)
    parts = word_differences("a red cat. " * 60, "a red cat. " * 20 + "a blue cat. " * 40)
    kinds = [{part.text for part in own if part.changed} for own in parts]
    assert kinds == [{"red"}, {"blue"}]  # also where all words are frequent


def test_chains_stand_below_those_of_the_baseline() -> None:
    """Generation by generation, with the first difference, words that differ, and the change.

    How to get missing ones is said once for a case, with the command; its own are there all the
    same.
    """
    start, text, image = paired_steps(PAIR)
    assert (start.same, start.first, text.first, image.first) == (True, False, True, False)
    assert image.change == -0.5
    (*_, last) = paired_steps(replace(PAIR, links=PAIR.links[:2]))
    assert (last.now, last.change, last.before) == (None, None, PAIR.baseline_links[2])
    page, html = _page(PAIRED)
    assert html.index('<tr class="before">') < html.index('<tr class="now">')
    for shown in ("<del>dog</del>", "<ins>red cat</ins>", "-0.5000", "first difference"):
        assert shown in html
    assert "median sample" in page.text
    alone = replace(PAIR, baseline_links=[], first_difference=None)
    missing = "The store has none.\npytest suites --cep-model=<b>\nOr name a store"
    _, html = _page(
        replace(FULL, chains=[alone, replace(alone, sample="c")], reference_chains=missing)
    )
    assert html.count("<pre>pytest suites --cep-model=&lt;b&gt;</pre>") == 1
    assert ('<tr class="before">' in html, "<ins>" in html) == (False, False)
    assert html.count('<tr class="now">') == 2


@pytest.mark.parametrize("verdict", ["regressed", "held"])
def test_samples_that_are_drawn(verdict: str) -> None:
    """All that lost, of a case that holds the worst; the median one, and those asked for, once."""
    second = replace(PAIR, sample="second.png")
    named = ChainShown("named.png", 0.5, 0.75, [])
    asked = [replace(PAIR, sample="named.png"), replace(PAIR, sample="new.png")]
    case = replace(PAIRED, verdict=verdict, chains=[PAIR, second, named], requested=asked)
    losers = ["a.png", "second.png"] if verdict == "regressed" else ["a.png"]
    page, html = _page(case)
    drawn = re.findall(r'aria-label="chains of (\S+) in', html)
    assert drawn == [*losers, "b.png", "named.png", "new.png"]
    assert "second.png" in page.text


# -- answers ---------------------------------------------------------------------------------------


def test_answers_stand_side_by_side() -> None:
    """The question, then both answers step by step, the verdicts and the score; a second sample is
    only named.
    """
    page, _ = _page(ANSWERED)
    assert page.values("class").count("answer") == 2
    rest = _words(page).partition("details")[2]
    for part in (
        "q1 baseline 0.5000, now 0.0000", "question", "draw a cat", "new answer", "a dog",
        "accepted answer", "a cat", "the end",
        "new answer shown first: the accepted answer is better",
        "q2 baseline 0.5000, now 0.2500",
    ):  # fmt: skip
        assert part in rest, part
        rest = rest.partition(part)[2]
    first, *others = ANSWERED.shown.answers
    alone = replace(first, opponent="", opposing=[], verdicts=[])
    assert (
        _page(replace(ANSWERED, answers=[alone, *others]))[0].values("class").count("answer") == 1
    )
    told = replace(ANSWERED, primary=False)
    assert "(image)" in _page(told)[0].text  # texts alone where nothing can fail


# -- images and sounds -----------------------------------------------------------------------------


def test_images_are_inlined_small() -> None:
    """Every picture is in the page once, however often it is shown, at most 256 pixels wide; one
    that is gone is said to be.
    """
    page, _ = _page(REGRESSED)
    assert len(page.pictures) == 1
    assert len(page.shown_pictures) == 2  # among the samples that lost most, and in its chain
    data = page.pictures[0].removeprefix("data:image/webp;base64,")
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size == (256, 128)
    gone = html_page(replace(FACTS, results=[REGRESSED]), lambda _: None)
    assert "no longer in the store" in read_page(gone).text


@pytest.mark.slow
def test_a_failing_run_of_the_suites_is_at_most_a_megabyte_and_a_half() -> None:
    """As many cases, chains and images as a failing run of suites/shapes beside its baseline's.
    Noise is not kept to the last bit; what takes little room anyway is.
    """
    scenes: dict[str, Artifact] = {}
    for number in range(640):
        # A shape on a dark ground with some noise, as drawings of the shapes' world have it.
        pixels = np.random.default_rng(number).normal(26, 3, (64, 64, 3))
        pixels[number % 40 : number % 40 + 14, number % 37 : number % 37 + 16] += (40, 120, 20)
        scenes[f"{number:064x}"] = ImageArtifact(pixels.clip(0, 255).astype(np.uint8))
    plain = PageImages({"s": SMALL}.get).get("s")
    assert plain is not None
    with Image.open(io.BytesIO(base64.b64decode(plain.address.partition(",")[2]))) as image:
        assert ImageArtifact(np.asarray(image.convert("RGB"))).digest == SMALL.digest
    text = "two shapes : large purple triangle top right , large green triangle middle left"

    def chain(sample: int, digits: int) -> ChainShown:
        links = [
            [LinkShown(text=text) if g % 2 else LinkShown(image=f"{at + g:064x}", similarity=0.5)
             for g in range(7)]
            for at in (digits % 300, 300 + digits % 300)
        ]  # fmt: skip
        return ChainShown(
            f"color/{sample:04}", 0.25, 0.75, links[0], baseline_links=links[1], first_difference=1
        )

    cases = [
        replace(
            REGRESSED,
            part=f"part {number}",
            chains=[chain(sample, 7 * (number * 3 + sample)) for sample in range(3)],
            differences={f"color/{s:04}": -s / 200 for s in range(192 if number < 8 else 24)},
        )
        for number in range(43)
    ]
    html = html_page(replace(FACTS, results=cases), scenes.get)
    assert html.count("<image ") > 500
    assert len(html) < 1_500_000


def test_a_page_plays_each_sound_once() -> None:
    """As lossless FLAC in the page itself; where it is shown again a link leads to its player. Of
    one that has no room its length is told.
    """
    pytest.importorskip("soundfile")
    rate = 8_000
    noise = np.random.default_rng(0).uniform(-1, 1, 60 * rate).astype(np.float32)
    start, made, long = tone(1000, rate=rate), tone(2000, rate=rate), Sound(noise, rate)
    sounds: dict[str, Artifact] = {own.digest: own for own in (start, made, long)}
    links = [LinkShown(sound=s.digest) for s in (start, made, long)]
    chain = ChainShown("a", 0.25, 0.75, links, baseline_links=[links[0], LinkShown(text="y")])
    html = html_page(replace(FACTS, results=[replace(REGRESSED, chains=[chain])]), sounds.get)
    assert_self_contained(html)
    players = re.findall(r'<audio id="([^"]+)" controls preload="none" [^>]*src="([^"]+)">', html)
    played = {
        Sound.from_bytes(base64.b64decode(address.removeprefix("data:audio/flac;base64,"))).digest
        for _, address in players
    }
    assert (len(players), played) == (2, {start.digest, made.digest})
    again = set(re.findall(r'<a class="soft" href="#(play-[^"]+)">same sound</a>', html))
    assert again
    assert again <= {name for name, _ in players}
    assert "60.00 s, not in this page" in html


# -- plots: where things stand, and that no interval is cut without a sign -------------------------


def _shapes(plot: str, kind: str) -> list[dict[str, str]]:
    """Attributes of the shapes of a class, or of a name."""
    return [
        dict(shape.attrib)
        for shape in ET.fromstring(plot).iter()
        if kind in (shape.tag, *shape.attrib.get("class", "").split())
    ]


def _across(plot: str, kind: str, *names: str) -> list[float]:
    """Places across of shapes, in percent."""
    return [float(shape[name].rstrip("%")) for shape in _shapes(plot, kind) for name in names]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.integers(3, 9))
def test_an_axis_holds_its_values_with_round_ticks(values: list[float], most: int) -> None:
    """There is one way to make ticks: of 1, 2 or 5, at most so many, inside of the axis."""
    scale = Scale.over(values, 0.0, 100.0, most)
    assert all(0 <= scale.place(value) <= 100 for value in values)
    assert 0 < len(scale.ticks) <= most + 1
    assert all(-1e-6 <= scale.place(tick) <= 100 + 1e-6 for tick in scale.ticks)
    assert re.fullmatch(r"[125]e[+-]\d+", f"{scale.step:.0e}")


def test_an_interval_lies_on_a_symmetric_log_axis() -> None:
    """X grows by log(1 + tolerances) to either side: at a reach of 8, 2 tolerances are halfway.

    A bound that excludes nothing is an arrow at the edge, without a number; without any bound there
    is a point alone.
    """
    plot = change_plot(replace(FULL, difference=-0.02, low=-0.04, high=0.02), 8.0)
    assert _across(plot, "zero", "x1") == [50]
    assert _across(plot, "circle", "cx") == pytest.approx([25], abs=0.1)
    assert _across(plot, "bounds", "x1", "x2") == pytest.approx([13.4, 75], abs=0.1)
    assert _across(plot, "band", "x", "width") == pytest.approx([34.2, 31.5], abs=0.1)
    assert len(_shapes(plot, "axis")) == 1
    for low, high, arrows in ((None, 0.01, ["0%"]), (-0.04, None, ["100%"]), (None, None, [])):
        plot = change_plot(replace(FULL, difference=-0.02, low=low, high=high), 4.0)
        found = [e for e in ET.fromstring(plot).iter("svg") if "x" in e.attrib]
        assert [arrow.attrib["x"] for arrow in found] == arrows
        assert not any(arrow.findtext("text") for arrow in found)
        assert len(_shapes(plot, "bounds")) == (1 if arrows else 0)
        assert len(_shapes(plot, "circle")) == 1


NOW = CurveShown([2, 4], [0.6, 0.45], [0.55, 0.4], [0.65, 0.5], 50)

BEFORE = CurveShown([2, 4], [0.9, 0.8], [0.88, 0.75], [0.92, 0.85], 50)


def _corners(plot: str, kind: str) -> list[tuple[float, float]]:
    shapes = ET.fromstring(plot).iter()
    (shape,) = (e for e in shapes if e.get("class", "").split()[:2] == kind.split())
    points = [point.split(",") for point in shape.attrib["points"].split()]
    return [(float(x), float(y)) for x, y in points]


def test_curves_lie_on_a_zoomed_axis_with_round_numbers() -> None:
    """The axis holds both bands; a lower value is drawn lower, and the reference's beside it."""
    plot = curve_plot(NOW, BEFORE, "baseline", "similarity")
    texts = [text.text for text in ET.fromstring(plot).iter("text")]
    assert texts == ["0.4", "0.6", "0.8", "2", "4", "generation"]
    now, before = _corners(plot, "trace now"), _corners(plot, "trace before")
    assert now[0][1] < now[1][1]
    assert before[0][1] < now[0][1]
    corners = [*_corners(plot, "area now"), *_corners(plot, "area before")]
    assert all(0 <= x <= CURVES[0] and 0 <= y <= CURVES[1] for x, y in corners)
    half = [0.5] * 25
    long = CurveShown([*range(1, 26)], half, half, half, 4)
    plot = curve_plot(long, None, "baseline", "similarity")
    numbers = [text.text for text in ET.fromstring(plot).iter("text")][-10:-1]
    assert numbers == [str(number) for number in range(1, 26, 3)]
    flat = CurveShown([1, 2], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], 4)
    assert _corners(curve_plot(flat, None, "baseline", "similarity"), "trace now")
