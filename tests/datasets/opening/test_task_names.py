"""Names of OpenING's tasks: those of the released questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.datasets.opening.questions import META_TOPICS, TASKS

RELEASED = Path(__file__).parents[4] / "shared" / "data" / "opening" / "test_data.jsonl"

CORRECTED = {
    "Story Writting": "Story Writing",
    "Visual Traffic Forcasting": "Visual Traffic Forecasting",
    "Event Reasoning and Deductive Simulation": "Event Reasoning & Deductive Simulation",
    "Dynamic biography generation": "Multimodal Report Generation",
}


def test_counts() -> None:
    """23 meta-topics with at least one task each, 56 tasks."""
    assert (len(META_TOPICS), len(TASKS)) == (23, 56)
    assert {task[:2] for task in TASKS} == META_TOPICS.keys()


@pytest.mark.skipif(not RELEASED.is_file(), reason=f"OpenING's questions are not in {RELEASED}")
def test_names_are_those_of_the_released_questions() -> None:
    """All 2,160 ids lead to the names in the record, but for the authors' slips."""
    for line in RELEASED.read_text("utf-8").splitlines():
        record = json.loads(line)
        task, topic = record["subtask_name"], record["meta_task_name"]
        assert TASKS[record["total_uid"][:4]] == CORRECTED.get(task, task)
        assert META_TOPICS[record["total_uid"][:2]] == CORRECTED.get(topic, topic)
