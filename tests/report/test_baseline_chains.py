"""The baseline's chains in the reports of real runs: from a store, or how to get them."""

from __future__ import annotations

import shutil
from typing import Any

from tests.plugin.project import REGRESSED, Project

CROWDED = ("-k", "crowded", REGRESSED)


def _case(project: Project) -> dict[str, Any]:
    case: dict[str, Any]
    (case,) = project.report()["cases"]
    return case


def test_missing_chains_are_said_to_be(accepted: Project) -> None:
    """A new store has none: the report says how to have them, and then shows the chains."""
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


def test_a_named_sample_is_shown_by_all_cases_that_have_it(accepted: Project) -> None:
    """Also where it did not lose, and by a case that holds; a name that none has is told."""
    held = "crowded/0001"
    shown = ("--cep-show", held, "--cep-show", "crowded/001")
    result = accepted.run_here("-k", "crowded", *shown)
    (chain,) = _case(accepted)["requested"]
    assert chain["sample"] == held
    assert len(chain["links"]) == len(chain["baseline_links"]) == 5
    result.stdout.fnmatch_lines(
        ["--cep-show 'crowded/001': no judged case has such a sample. Did you mean 'crowded/*'?"]
    )
    accepted.run_here(*CROWDED)
    lost = _case(accepted)["chains"][0]["sample"]
    accepted.run_here(*CROWDED, "--cep-show", lost)
    case = _case(accepted)
    assert (case["requested"], case["chains"][0]["sample"]) == ([], lost)


def test_the_terminal_links_to_the_worst_sample(accepted: Project) -> None:
    """The address is that of its pictures on the page; a run that passes has none."""
    result = accepted.run_here(*CROWDED)
    page = (accepted.path / ".cepbench" / "report.html").resolve()
    (line,) = [line for line in result.outlines if line.startswith("worst sample: ")]
    address, _, anchor = line.removeprefix("worst sample: ").partition("#")
    assert address == page.as_uri()
    assert f'id="{anchor}"' in page.read_text()
    assert anchor.startswith("sample-toy-crowded-gc-")
    passed = accepted.run_here("-k", "crowded")
    passed.stdout.no_fnmatch_line("worst sample: *")
