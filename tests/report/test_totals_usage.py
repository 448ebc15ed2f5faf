"""What a run took, over its cases and over what workers did beside them."""

from __future__ import annotations

import json

from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.report import UsageTotals
from pytest_cepbench.report.markdown import markdown_summary
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.totals import effort_line, total_usage, usage_between
from pytest_cepbench.report.writers import RunFacts, json_document
from tests.report.results import REGRESSED, replace

CASE = UsageTotals(1, 10, 5, 2.0, 1.25, {"describer": 1}, worker="gw0")
BESIDE = UsageTotals(3, 3, 7, 0.0, 0.25, {"describer": 1, "encoder": 2}, worker="gw1")


def test_a_run_is_told_in_one_sentence() -> None:
    """Loads by role and by how many workers; inputs, model time and hits of all together."""
    assert effort_line([CASE, BESIDE]) == (
        "4 model loads (2 describer, 2 encoder) by 2 workers, 13 model inputs (1.5 s in models), "
        "12 results from the store"
    )
    assert effort_line([replace(CASE, worker=""), replace(CASE, worker="")]).startswith(
        "2 model loads (2 describer), "
    )


def test_a_run_that_asks_no_model_says_so() -> None:
    """Everything came from the store: no role and no worker is named."""
    assert effort_line([UsageTotals(hits=4, worker="gw1")]) == (
        "0 model loads, 0 model inputs (0.0 s in models), 4 results from the store"
    )


def test_states_of_a_process_subtract_to_what_was_done() -> None:
    """What a case took and what was done before it come to the later state again."""
    now = total_usage([CASE, BESIDE])
    spent = usage_between(CASE, now, 0.0, "gw1")
    assert spent == BESIDE
    assert total_usage([CASE, spent]) == now


def test_every_report_counts_what_was_done_beside_cases() -> None:
    """A worker that helped did a part of the run's work, and loaded models for it."""
    facts = RunFacts("passed", "1", [], [], ["worker gw1 <died>"], [BESIDE])
    results = [replace(REGRESSED, effort=CASE)]
    document = json.loads(json_document(facts, results))
    assert document["effort"]["loads"] == 4
    assert document["effort"]["roles"] == {"describer": 2, "encoder": 2}
    assert document["infrastructure"] == ["worker gw1 <died>"]
    line = "4 model loads (2 describer, 2 encoder) by 2 workers"
    markdown = markdown_summary(facts, results)
    html = html_page(facts, results, lambda _: None)
    assert line in html
    assert "worker gw1 &lt;died&gt;" in html
    assert line in markdown
    assert "- **infrastructure:** worker gw1 &lt;died&gt;\n" in markdown


def test_what_servers_counted_is_summed_and_told() -> None:
    """Requests, tokens and cost of all cases; the part of one case is what was added since."""
    asked = replace(
        CASE, usage=Usage(requests=12, retries=2, input_tokens=900, output_tokens=80, cost=0.5)
    )
    more = replace(asked, usage=asked.usage + Usage(requests=3, images=3))
    assert effort_line([asked, BESIDE]).endswith(
        "; 12 requests (2 of them again), 900 tokens in, 80 out, cost 0.5"
    )
    assert usage_between(asked, more, 1.0, "").usage == Usage(requests=3, images=3)
    assert total_usage([asked, more]).usage == Usage(27, 4, 1800, 160, 3, 1.0)
    assert "cost" not in effort_line([CASE])
