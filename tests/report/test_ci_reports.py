"""What GitHub shows of a run, and its Markdown, read by a parser; reports of real runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report.ci_reports import (
    STEP_SUMMARY_BYTES,
    annotation_lines,
    append_step_summary,
    escaped,
    markdown_summary,
)
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import RunOutcome
from tests.plugin.project import Project
from tests.report.pages import (
    SUMMARY_TAGS,
    Page,
    assert_self_contained,
    html_of,
    parse_command,
    read_page,
)
from tests.report.results import ANSWERED, FULL, REGRESSED, replace
from tests.test_escapes import hides_nothing

ROOT = Path("/checkout/gates")


def _annotations(results: list[CaseResult], problems: tuple[str, ...] = ()) -> list[str]:
    return list(annotation_lines(results, problems, ROOT, ROOT.parent))


def test_undecided_cases_are_a_warning() -> None:
    """One for all that pass; those that fail are errors, and informational ones say nothing. An
    incomplete run says why, also where it judged nothing.
    """
    cases = [replace(FULL, part=f"part{n}", verdict="inconclusive") for n in range(5)]
    informational = [replace(case, primary=False) for case in (cases[0], FULL)]
    (line,) = _annotations([*cases, *informational])
    assert line.startswith("::warning title=cepbench%3A undecided::5 cases undecided: ")
    assert line.endswith("; toy part0 GC@2, toy part1 GC@2, toy part2 GC@2 and 2 more")
    (line,) = _annotations([replace(cases[0], strict=True)])
    assert line.startswith("::error ")
    assert "more in the report" not in "".join(_annotations([FULL] * 3))
    assert _annotations([FULL] * 4)[-1].endswith(" (1 case more in the report)")
    ((properties, message),) = map(parse_command, _annotations([], ("2 tests:\n100 %", "b")))
    assert properties == {"title": "cepbench: the run is incomplete"}
    assert message == "2 tests: 100 %, and 1 more"


def test_a_summary_is_cut_to_the_limit_of_its_step(tmp_path: Path) -> None:
    """What is there stays, and a heading begins on a line of its own. GitHub would drop a larger
    one whole; whole rows stay, folded parts are closed.
    """
    path = tmp_path / "summary"
    path.write_text("| a table |")
    for text in ("## one\n", "## two\n"):
        append_step_summary(path, text)
    assert path.read_text() == "| a table |\n## one\n\n## two\n"
    part = "\N{SNOWMAN}" * 30
    held = replace(FULL, verdict="held", part=part, warnings=[], floor=None)
    text = markdown_summary(RunOutcome("passed", results=[held] * 500))
    assert len(text.encode()) > 60_000

    path.write_text("x" * (STEP_SUMMARY_BYTES - 60_000))
    append_step_summary(path, text)
    written = path.read_text(encoding="utf-8")
    assert STEP_SUMMARY_BYTES - 200 < path.stat().st_size <= STEP_SUMMARY_BYTES
    assert written.count("<details>") == written.count("</details>") == 2
    assert written.endswith("\n</details>\n\nThe rest is left out here: see the report.\n")
    rows = set(re.findall(r"^\| HELD .*", written, re.MULTILINE))
    assert [row.count(" |") for row in rows] == [9]

    append_step_summary(path, "## a step that writes another one\n" * 100)
    assert path.stat().st_size <= STEP_SUMMARY_BYTES


SERVICES = Path(__file__).with_name("services")

CASES = [
    FULL,
    replace(FULL, verdict="held", part="overall", difference=0.0, p=0.5, low=-0.005, high=0.005),
    replace(FULL, verdict="inconclusive", part="shape", difference=-0.01, needed=420),
    replace(REGRESSED, verdict="no-baseline", baseline=None, difference=None),
    replace(REGRESSED, verdict="error", part="size", difference=None, reasons=["out of memory"]),
    ANSWERED,
]

FACTS = RunOutcome(
    "failed", "1.2.3", ["model under test: <b>x</b>"], ["a worker <i>died</i>"],
    headline="Do not ship: 2 of 6 gating cases regressed",
)  # fmt: skip


def test_a_service_is_given_what_its_file_shows() -> None:
    """So that a change of any part of it is seen in review. What is not folded away fits on a
    screen, of a run of a hundred failing cases.
    """
    annotations = annotation_lines(CASES, FACTS.problems, ROOT, ROOT.parent)
    written = {
        "github-annotations.txt": "\n".join(annotations) + "\n",
        "step-summary.md": markdown_summary(replace(FACTS, results=CASES)),
    }
    assert written == {path.name: path.read_text("utf-8") for path in SERVICES.iterdir()}
    many = [replace(FULL, part=f"part{n}", difference=-n / 1000) for n in range(100)]
    text = markdown_summary(replace(FACTS, results=many))
    shown = [
        part.partition("</details>")[2] if n else part
        for n, part in enumerate(text.split("<details>"))
    ]
    assert len([line for line in "".join(shown).splitlines() if line.strip()]) <= 45


# -- Markdown -------------------------------------------------------------------------------------


def _read(text: str) -> Page:
    return read_page(html_of(text))


@given(st.text(alphabet="\\`*_{}[]()#+-.!|<>&~$:/\"'= aw\n1", max_size=40))
def test_escaped_text_is_read_as_it_was(text: str) -> None:
    """Inside a sentence and inside a table, every character stands for itself."""
    wanted = " ".join(text.split())
    page = _read(f"| a |\n|---|\n| x{escaped(text)}x |\n\nx{escaped(text)}x\n")
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert [text for text in page.texts if text.startswith("x")] == [f"x{wanted}x"] * 2


def test_markup_in_names_is_text() -> None:
    """A category with tags, links and cell walls is read by people, not by the browser."""
    bad = "<img src=x>![a](http://b/c)|`*_~"
    failing = replace(FULL, part=bad)
    page = _read(
        markdown_summary(replace(FACTS, results=[failing, replace(failing, verdict="held")]))
    )
    assert page.tags <= SUMMARY_TAGS
    assert sum(bad in text for text in page.texts) == 5
    facts = RunOutcome("failed", "1", [f"a\n\n{bad}"], [f"b\n\n{bad}"])
    page = _read(markdown_summary(facts))
    assert page.tags <= SUMMARY_TAGS
    assert sum(bad in text for text in page.texts) == 2
    items = ["1. a", "- b", "+ c", "---", "2) e"]  # of lists of their own
    page = _read(markdown_summary(RunOutcome("failed", "1", items)))
    assert page.tags <= SUMMARY_TAGS
    assert [text for text in page.texts if text in items] == items
    assert escaped("ask @team, a@b: http://x") == "ask @\u200bteam, a@b: http\\://x"


# -- the reports that real runs write --------------------------------------------------------------


WORSE = "--model=shapes:?miss=0.3"

CROWDED = ("-k", "crowded", WORSE)


def test_a_regression_comes_with_its_chains_its_command_and_both_sides(accepted: Project) -> None:
    """JSON names the samples that lost most, link by link, and the chains of the baseline's model;
    what was typed, which model was gated, and whose numbers are accepted. HTML shows all that, with
    the pictures, and the terminal links to those of the worst sample.
    """
    result = accepted.run_here(*CROWDED)
    document = accepted.report()
    (case,) = document["cases"]
    chain = case["chains"][0]
    links, before = chain["links"], chain["baseline_links"]
    assert [link["text"] is None for link in links] == [True, False, True, False, True]
    assert [link["similarity"] is None for link in links] == [True, True, False, True, False]
    assert (chain["score"], chain["baseline"]) == (pytest.approx(case["value"], abs=0.5), 1.0)
    assert [before[g]["similarity"] for g in (0, 2, 4)] == [None, *[pytest.approx(1)] * 2]
    assert (chain["first_difference"], before[0]) == (1, links[0])

    provenance = document["provenance"]
    assert provenance["command"].startswith("pytest ")
    assert WORSE in provenance["command"]
    (suite,) = provenance["suites"]
    (candidate,), (baseline,) = suite["candidate"], suite["baselines"]
    assert candidate["spec"] == WORSE.partition("=")[2]
    assert baseline["spec"].startswith("shapes:")
    assert baseline["spec"] != candidate["spec"]
    assert case["baseline_model"] == baseline

    path = (accepted.path / ".cepbench" / "report.html").resolve()
    html = path.read_text()
    assert_self_contained(html)
    (line,) = [line for line in result.outlines if line.startswith("worst sample: ")]
    address, _, anchor = line.removeprefix("worst sample: ").partition("#")
    assert address == path.as_uri()
    assert f'id="{anchor}"' in html
    assert anchor.startswith("sample-toy-crowded-gc-")
    page = read_page(html)
    digests = {
        link["image"]
        for chain in [*case["chains"], case["median"]]
        for link in [*chain["links"], *chain["baseline_links"]]
    }
    assert len(page.pictures) == len(digests - {None})
    assert len(page.shown_pictures) >= 6 * len(case["chains"])
    for shown in (
        "REGRESSED", "crowded", "GC@2", chain["sample"], links[1]["text"], candidate["spec"],
        baseline["spec"], baseline["fingerprint"], suite["data"],
    ):  # fmt: skip
        assert shown in "".join(page.texts)


def _case(project: Project) -> dict[str, Any]:
    case: dict[str, Any]
    (case,) = project.report()["cases"]
    return case


def test_missing_chains_and_named_samples(accepted: Project) -> None:
    """A new store has none: the report says how to have them, and then shows the chains.

    A named sample is shown by all cases that have it, also where it did not lose, and by a case
    that holds; a name that none has is told.
    """
    shutil.rmtree(accepted.path / ".cepbench" / "store")
    accepted.run_here(*CROWDED)
    alone = _case(accepted)
    assert alone["curve_reference"] is None
    assert [chain["baseline_links"] for chain in alone["chains"]] == [[], []]
    assert "none of the baseline's chains. Gate its model, shapes:, " in alone["reference_chains"]
    accepted.run_here("-k", "crowded", "--model=shapes:")
    result = accepted.run_here(*CROWDED, "--cep-attribute=0")
    result.stdout.fnmatch_lines(["*0 model inputs*"])
    paired = _case(accepted)
    assert paired["reference_chains"] == ""
    assert all(len(chain["baseline_links"]) == 5 for chain in paired["chains"])
    assert paired["curve_reference"]["mean"] == [1.0, 1.0]
    assert paired["chains"][0]["links"] == alone["chains"][0]["links"]
    held = "crowded/0001"
    shown = ("--cep-show", held, "--cep-show", "crowded/001")
    result = accepted.run_here("-k", "crowded", *shown)
    result.stdout.no_fnmatch_line("worst sample: *")  # it passes
    (chain,) = _case(accepted)["requested"]
    assert chain["sample"] == held
    assert len(chain["links"]) == len(chain["baseline_links"]) == 5
    result.stdout.fnmatch_lines(
        ["--cep-show 'crowded/001': no judged case has such a sample. Did you mean 'crowded/*'?"]
    )
    lost = paired["chains"][0]["sample"]
    accepted.run_here(*CROWDED, "--cep-show", lost)
    case = _case(accepted)
    assert (case["requested"], case["chains"][0]["sample"]) == ([], lost)


@pytest.mark.slow
def test_hostile_names_and_captions_from_end_to_end(project: Project) -> None:
    """A file name and a caption that are markup reach the page as text, the terminal as text."""
    name = "<script>x<img src=y onerror=z>.png"
    turned = "e\x1b[31m\u202egnp.\u200b.png"
    project.photos({name: (200, 10, 10), turned: (10, 10, 200)})
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    project.write(
        "hostile.py",
        "import user_models\n\nclass Hostile(user_models.Describer):\n"
        "    def _tell(self, image):\n"
        "        return \"90 10 10 <script>alert('caption')</script>"
        '\\x1b]0;title\\x07 \\ud83d\\u2066"\n\n'
        "def describer():\n    return Hostile('hostile')\n",
    )
    result = project.run("-n", "2", "--model=python:hostile:describer", "--junitxml=junit.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.verdicts()["overall-gc"] == "regressed"
    assert hides_nothing(result.stdout.str() + result.stderr.str(), "\n")
    assert r"e\x1b[31m\u202egnp.\u200b.png" in result.stdout.str()
    written = [*(project.path / ".cepbench").glob("report.*"), project.path / "junit.xml"]
    assert len(written) == 4
    written += (project.path / "baselines").rglob("*.toml")
    assert all(hides_nothing(path.read_text(encoding="utf-8"), "\n") for path in written)
    html = (project.path / ".cepbench" / "report.html").read_text()
    assert_self_contained(html)
    assert "<script>x" not in html
    assert "<script>alert" not in html
    text = "".join(read_page(html).texts)
    assert name in text
    assert r"e\x1b[31m\u202egnp.\u200b.png" in text
    assert r"</script>\x1b]0;title\x07 \ud83d\u2066" in text
    assert "<script>alert('caption')</script>" in text
    assert "<script" not in (project.path / ".cepbench" / "report.md").read_text()
