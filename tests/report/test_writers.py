"""The JSON document and the HTML page, whatever they have to show."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import pytest_cepbench
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report import CaseResult, ChainShown, HopShown, LinkShown
from pytest_cepbench.report.pages import SCRIPT, html_page, script_of, stylesheet
from pytest_cepbench.report.totals import run_alpha
from pytest_cepbench.report.writers import (
    SCHEMA,
    RunFacts,
    json_document,
    write_reports,
)
from tests.report.pages import assert_self_contained, read_page
from tests.report.results import FULL, MEASURED, REGRESSED, RESULTS, SECRET, replace
from tests.test_escapes import hides_nothing

FACTS = RunFacts("failed", "1.2.3", ["model under test: <b>x</b>"], ["a worker <i>died</i>"])

BADGE = ("span", "class")

WORDS = {"IMPROVED", "INCONCLUSIVE", "REGRESSED", "ACCEPTED"}

IMAGE = ImageArtifact(np.full((300, 600, 3), 200, np.uint8))


TEMPLATES = sorted(Path(pytest_cepbench.__file__).parent.rglob("*.jinja"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
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


@pytest.mark.slow
@given(st.lists(RESULTS, min_size=1, max_size=3))
def test_json_keeps_every_field(results: list[CaseResult]) -> None:
    """What was judged is read back from the document as it was, under a versioned schema."""
    text = json_document(FACTS, results)
    assert hides_nothing(text, "\n")
    document = json.loads(text)
    assert (document["schema"], document["cepbench"], document["verdict"]) == (
        SCHEMA, "1.2.3", "failed",
    )  # fmt: skip
    assert sum(document["counts"].values()) == len(results)
    assert document["alpha"] == run_alpha(results)
    assert (document["setup"], document["problems"]) == (FACTS.lines, FACTS.problems)
    assert msgspec.convert(document["cases"], list[CaseResult]) == results


@settings(max_examples=30)
@given(st.lists(RESULTS, min_size=1, max_size=3))
def test_any_text_is_shown_and_none_is_obeyed(results: list[CaseResult]) -> None:
    """The page stays whole and self-contained, whatever texts it is made of."""
    html = html_page(FACTS, results, lambda _: None)
    assert_self_contained(html)
    assert hides_nothing(html, "\n\t")
    assert all(" ".join(result.part.split()) in " ".join(read_page(html).text.split())
               for result in results if result.part.isprintable())  # fmt: skip


def test_markup_in_names_and_captions_is_text() -> None:
    """A caption or a file name with tags is read by people, not by the browser."""
    bad = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    (chain,) = REGRESSED.shown.chains
    links = [replace(link, text=bad) for link in chain.links]
    result = replace(
        REGRESSED,
        part=bad,
        label=bad,
        reasons=[bad],
        failures={bad: 1},
        notes=[bad],
        origins={"gate": bad},
        attribution=bad,
        hops=[HopShown(bad, "describer", 1, 0.5)],
        chains=[replace(chain, sample=bad, failure=bad, links=links)],
    )
    html = html_page(FACTS, [result], lambda _: None)
    assert_self_contained(html)
    assert read_page(html).text.count(bad) >= 12
    assert "img" not in read_page(html).tags


def test_characters_that_do_not_show_themselves_are_shown() -> None:
    """In every place where a text of the run stands; the lines of a reason stay lines."""
    bad = "a\x1b[2Jb\u202ec\u200bd"
    (chain,) = REGRESSED.shown.chains
    links = [replace(link, text=bad) for link in chain.links]
    result = replace(
        REGRESSED,
        suite=bad,
        part=bad,
        label=bad,
        reasons=[f"{bad}\r\n{bad}"],
        failures={bad: 1},
        notes=[bad],
        origins={"gate": bad},
        attribution=bad,
        hops=[HopShown(bad, "describer", 1, 0.5)],
        chains=[replace(chain, sample=bad, failure=bad, remark=bad, links=links)],
    )
    facts = RunFacts(bad, bad, [bad], [bad], [bad])
    html = html_page(facts, [result], lambda _: None)
    assert hides_nothing(html, "\n")
    shown = r"a\x1b[2Jb\u202ec\u200bd"
    assert read_page(html).text.count(shown) >= 21
    assert f"{shown}\n{shown}" in read_page(html).text


def test_letters_from_right_to_left_do_not_turn_their_neighbours() -> None:
    """Every inline element stands for itself; blocks do so anyway."""
    html = html_page(FACTS, [REGRESSED], lambda _: None)
    assert "b, span, summary, td, a { unicode-bidi: isolate; }" in html


def test_images_are_inlined_small() -> None:
    """Every picture is in the page once, however often it is shown, at most 256 pixels wide; one
    that is gone is said to be.
    """
    html = html_page(FACTS, [REGRESSED], {"0" * 64: IMAGE}.get)
    assert_self_contained(html)
    page = read_page(html)
    assert len(page.pictures) == 1
    assert len(page.shown_pictures) == 2  # among the samples that lost most, and in its chain
    data = page.pictures[0].removeprefix("data:image/webp;base64,")
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size == (256, 128)
    shared = len(stylesheet()) + len(script_of(SCRIPT))
    assert shared < 32_000
    assert len(html) - shared < 9_000
    gone = html_page(FACTS, [REGRESSED], lambda _: None)
    assert "no longer in the store" in read_page(gone).text


WORSE = [ChainShown("b.png", 0.25, 0.75, [LinkShown(image="1" * 64)])]


def _drawings(html: str, kind: str) -> list[ET.Element]:
    """The plots of a kind on a page."""
    drawn = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    return [svg for svg in map(ET.fromstring, drawn) if svg.attrib["class"].split()[0] == kind]


def _points(result: CaseResult) -> list[tuple[float, ...]]:
    """The points of the course of the only case on a page."""
    (svg,) = _drawings(html_page(FACTS, [result], lambda _: None), "course")
    (line,) = svg.iter("polyline")
    return [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        (REGRESSED, True),
        (replace(REGRESSED, verdict="inconclusive"), True),
        (replace(REGRESSED, verdict="held"), False),
        (replace(REGRESSED, accepted=True), False),
    ],
    ids=["regressed", "inconclusive", "held", "accepted"],
)
def test_chains_are_drawn_where_something_happened(case: CaseResult, *, shown: bool) -> None:
    """Of calm cases, which can be thousands, the samples are named and no image is read, but for
    one of each suite.
    """
    other = replace(REGRESSED, part="worse", difference=-0.5, chains=WORSE)
    worse = replace(other, verdict="held", accepted=case.accepted)
    asked: list[str] = []

    def image(digest: str) -> ImageArtifact:
        asked.append(digest)
        return IMAGE

    html = html_page(FACTS, [case, worse], image)
    assert "a.png" in html
    assert ("0" * 64 in asked, "a cat" in html.replace("a category", "")) == (shown, shown)
    assert "1" * 64 in asked


def test_similarities_are_plotted_between_0_and_1() -> None:
    """A point for each that was measured, inside the frame even where it is negative."""
    result = replace(REGRESSED, curve=[0.5, -0.2, 1.0])
    assert _points(result) == [(4.0, 20.0), (64.0, 36.0), (124.0, 4.0)]


def test_distances_are_plotted_below_the_largest() -> None:
    """A distance has no 1 to be measured against: the largest touches the head, 0 the foot."""
    result = replace(REGRESSED, higher_is_better=False, curve=[10.0, 40.0, 0.0])
    assert _points(result) == [(4.0, 28.0), (64.0, 4.0), (124.0, 36.0)]
    none = replace(result, curve=[0.0, 0.0])
    assert _points(none) == [(4.0, 36.0), (124.0, 36.0)]


@pytest.mark.parametrize("curve", [[], [0.5]])
def test_a_case_without_a_course_has_no_plot(curve: list[float]) -> None:
    """A failure rate has no course, and SIM is a single number."""
    html = html_page(FACTS, [replace(REGRESSED, curve=curve)], lambda _: None)
    assert not _drawings(html, "course")


def test_notes_and_remarks_are_shown() -> None:
    """Notes open a case's details even where it holds; a remark stands beside its chain."""
    held = replace(REGRESSED, verdict="held", chains=[], notes=["3 of 9 texts were <cut>"])
    text = read_page(html_page(FACTS, [held], lambda _: None)).text
    assert "3 of 9 texts were <cut>" in text
    (chain,) = REGRESSED.shown.chains
    odd = replace(chain, failure="empty-text at generation 3", remark="no <circle>")
    page = html_page(FACTS, [replace(REGRESSED, chains=[odd])], lambda _: None)
    assert "stopped: empty-text at generation 3; no <circle>" in read_page(page).text


def test_a_difference_is_drawn_with_its_bounds() -> None:
    """Band, marks of decades, zero, bounds, point, in words too; nothing without one."""
    near = replace(FULL, difference=-0.02, low=-0.03, high=-0.01)
    new = replace(FULL, difference=None, low=None, high=None)
    drawn = _drawings(html_page(FACTS, [near, FULL, new], lambda _: None), "interval")
    assert len(drawn) == 4  # in the plot of all gating cases, and in the table
    second, first = drawn[:2]
    assert [plot.attrib["aria-label"] for plot in drawn[2:]] == [
        plot.attrib["aria-label"] for plot in (first, second)
    ]
    for drawing in (first, second):
        assert [child.attrib.get("class", child.tag) for child in drawing] == [
            "band", "axis", "axis", "axis", "zero", "bounds", "circle",
        ]  # fmt: skip
    assert first.attrib["aria-label"] == (
        "difference -0.0200, bounds [-0.0300, -0.0100], p 0.00042, tolerance 0.0100"
    )


def test_the_model_of_the_baseline_has_words_for_bounds() -> None:
    """In the place of the picture, and a dash for p."""
    same = replace(FULL, difference=0.0, p=None, low=None, high=None, method="same model")
    html = html_page(FACTS, [same], lambda _: None)
    assert not _drawings(html, "interval")
    row = read_page(html.partition("<tbody>")[2].partition("</tbody>")[0]).text
    assert row.split()[-6:] == ["+0.0000", "same", "model", "-", "0.0100", "50"]


def test_verdicts_have_badges_of_their_own() -> None:
    """Improved, inconclusive, informational and accepted are not to be mistaken for another."""
    results = [
        replace(FULL, verdict="improved"),
        replace(FULL, verdict="inconclusive"),
        replace(FULL, primary=False),
        replace(FULL, accepted=True),
    ]
    html = html_page(FACTS, results, lambda _: None)
    page = read_page(html)
    badges = [value.split() for tag, name, value in page.attributes if (tag, name) == BADGE]
    shown = [set(classes) - {"badge"} for classes in badges if "badge" in classes]
    assert shown[:4] == [
        {"green", "improved"},
        {"yellow", "inconclusive"},
        {"yellow", "regressed", "informational"},
        {"accepted", "regressed"},
    ]
    table = read_page(html.partition("<tbody>")[2].partition("</tbody>")[0])
    words = [text.strip() for text in table.texts if text.strip().upper() in WORDS]
    assert words[:4] == ["IMPROVED", "INCONCLUSIVE", "regressed", "ACCEPTED"]


def test_details_say_how_a_case_was_judged_and_where_it_lost() -> None:
    """Figures, settings with their origins, the anchor, and a bar for each hop."""
    gain = HopShown("image", "describer", 3, -0.1)
    html = html_page(FACTS, [replace(FULL, hops=[*FULL.shown.hops, gain])], lambda _: None)
    page = read_page(html)
    for shown in (
        "[-0.3125, -0.1875], 99.688 % one-sided bounds, Hall",
        "--cep-tolerance",
        "anchor 0.8000, [-0.3750, -0.2250], p < 1e-5, tolerance -0.0200, regressed",
        "looked at 25, 50 samples",
        FULL.shown.attribution,
        "generator, generation 2",
    ):
        assert shown in page.text
    bars = re.findall(r'<rect class="bar[^>]* width="([0-9.]+)"', html)
    assert bars == ["100.0", "25.0", "50.0"]
    assert html.count('class="bar gain"') == 1


def test_failed_cases_come_first_and_calm_ones_are_folded_away() -> None:
    """Open details for the case that lost most; closed ones for others that failed and for what
    holds with a note; one that is closed for all that hold without, or cannot fail the run.
    """
    quiet = replace(FULL, verdict="held", notes=[], warnings=[], failures={}, part="quiet")
    informational = replace(FULL, primary=False, part="told")
    noted = replace(FULL, verdict="held", part="noted")
    better = replace(FULL, part="better", difference=-0.1)
    html = html_page(FACTS, [noted, quiet, better, FULL, informational, quiet], lambda _: None)
    read_page(html)
    shown, _, folded = html.partition('<details class="rest"')
    assert re.findall(r"<b>(\w+), GC@2", shown) == ["better", "color", "noted"]
    assert re.findall(r"<b>(\w+), GC@2", folded) == ["quiet", "told", "quiet"]
    assert "2 held, 1 informational" in folded.partition("</summary>")[0]
    assert re.findall(r'<details id="details-toy-(\w+)-gc[^>]* open ', html) == ["color"]


@pytest.mark.parametrize("verdict", ["passed", "undecided", "failed", "incomplete"])
def test_only_a_run_that_passed_has_a_green_banner(verdict: str) -> None:
    """One that is undecided is amber, as the badges of its cases are."""
    html = html_page(dataclasses.replace(FACTS, verdict=verdict), [FULL], lambda _: None)
    assert f'<h1 class="banner {verdict}">' in html
    style = html.partition("<style>")[2].partition("</style>")[0]
    rules = re.findall(r"([^{}]*banner[^{}]*)\{([^}]*)\}", style)
    of_verdict = [rule for names, rule in rules if f".{verdict}" in names]
    color = {"passed": ["--good"], "undecided": []}.get(verdict, ["--bad"])
    assert re.findall(r"--\w+", "".join(of_verdict)) == color
    assert "--odd" in "".join(
        rule for names, rule in rules if names.rpartition("*/")[2].strip() == ".banner"
    )


def test_the_page_says_what_is_promised() -> None:
    """The counts and the error that the run may make stand below its verdict."""
    text = read_page(html_page(FACTS, [FULL], lambda _: None)).text
    assert "1 gating case: 1 regressed" in text
    assert (
        "1.25 % false failures at most per run of checkpoints exchangeable with the baseline, "
        "over 1 case" in text
    )


def test_the_page_and_the_json_open_with_the_headline() -> None:
    """The title, the banner and the field have the same sentence, escaped where that is needed."""
    sentence = "Do not ship: 1 of 1 gating case regressed; worst <b>toy</b>"
    facts = dataclasses.replace(FACTS, headline=sentence)
    html = html_page(facts, [FULL], lambda _: None)
    assert read_page(html).texts.count(sentence) == 2
    assert json.loads(json_document(facts, [FULL]))["headline"] == sentence


def test_measurements_are_in_the_json_alone() -> None:
    """A score for every sample is for programs; no page carries them."""
    result = replace(FULL, measured=MEASURED)
    assert SECRET in json_document(FACTS, [result])
    assert SECRET not in html_page(FACTS, [result], lambda _: None)


def test_what_a_run_lacks_is_shown() -> None:
    """Verdict, problems and set-up stand at the top of the page."""
    text = read_page(html_page(FACTS, [REGRESSED], lambda _: None)).text
    for shown in (
        "cepbench: failed",
        "1 gating case: 1 regressed",
        FACTS.lines[0],
        FACTS.problems[0],
    ):
        assert shown in text


def test_reports_replace_older_ones_at_once(tmp_path: Path) -> None:
    """Both files lie beside each other under the given name; no half-written file is left."""
    target = tmp_path / "new" / "run.json"
    for text in ("old", "new \ud800"):
        written = write_reports(target, {".json": text, ".html": text})
    assert written == [tmp_path / "new" / "run.json", tmp_path / "new" / "run.html"]
    assert [path.read_text() for path in written] == ["new ?", "new ?"]
    assert sorted(path.name for path in target.parent.iterdir()) == ["run.html", "run.json"]


def test_points_in_a_name_are_no_suffix(tmp_path: Path) -> None:
    """Models and checkpoints have versions and numbers: two of them are two reports."""
    for name in ("qwen2.5-vl", "epoch-1.25", "epoch-1.50", "step.json", "run.md", "plain"):
        write_reports(tmp_path / name, {".json": name, ".html": name})
    stems = ("epoch-1.25", "epoch-1.50", "plain", "qwen2.5-vl", "run", "step")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{stem}{suffix}" for stem in stems for suffix in (".html", ".json")
    )
    assert (tmp_path / "epoch-1.25.json").read_text() == "epoch-1.25"
