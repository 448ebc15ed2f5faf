"""The reports that real runs write: what was judged, against what, with the pictures to look at."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.plugin.project import REGRESSED, Project
from tests.report.pages import assert_self_contained, read_page
from tests.test_escapes import hides_nothing

CROWDED = ("-k", "crowded", REGRESSED)


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
    assert REGRESSED in provenance["command"]
    (suite,) = provenance["suites"]
    (candidate,), (baseline,) = suite["candidate"], suite["baselines"]
    assert candidate["spec"] == REGRESSED.partition("=")[2]
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
