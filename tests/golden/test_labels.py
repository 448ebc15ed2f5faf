"""Label files and draws, which users commit: their lines, and which battles are drawn."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gate.labels.build import battles, drawn_file
from tests.golden.frozen import assert_frozen


def test_label_files_and_draws() -> None:
    """Another order of the draw would make every file of users one that was made by hand."""
    file = drawn_file(Path("labels.jsonl"), battles({"a": 5, "b": 9}), 5)
    assert_frozen("labels.json", [json.loads(line) for line in file.dump().splitlines()])
