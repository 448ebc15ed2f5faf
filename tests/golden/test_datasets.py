"""Data sets of one's own: keys of JSON steps, the words of prompts, and the files of a folder.

A data set is kept for years, and its card names what it was made with.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.cli import main
from pytest_cepbench.construction.patterns import (
    EXTRACTION_PROMPT,
    Pattern,
    annotation_prompt,
    pattern_schema,
    repair_prompt,
    summary_question,
    summary_schema,
)
from pytest_cepbench.store import Store
from tests.construction.scenes import write_scenes
from tests.golden.frozen import assert_frozen
from tests.models.binding import bind_text

PATTERNS = [Pattern("Count", "How many."), Pattern("Color")]

NAMES = ["Count", "Color"]


def test_prompts_and_keys(tmp_path: Path) -> None:
    """Whatever is sent to a model, and the key under which its answer is stored."""
    texts = {
        "extract neutral none": EXTRACTION_PROMPT,
        "annotate neutral": annotation_prompt(PATTERNS),
        "summary neutral": summary_question({"a": 2, "b": 1}, 13),
        "repair": repair_prompt("Which?", "it is no JSON", "none"),
    }
    schemas = {
        "extract neutral": pattern_schema(),
        "annotate neutral": pattern_schema(NAMES),
        "summary neutral": summary_schema(),
    }
    with Store(tmp_path / "store") as store:
        describer = RoleRunner(bind_text("shapes:?mislabel=0.1", "describer"), store)
        key = describer.json_key("Which?", pattern_schema(), 7, [["image", "1" * 64]])
    frozen = {
        "prompts": {name: digest_text(text) for name, text in texts.items()},
        "schemas": {name: digest_json(schema) for name, schema in schemas.items()},
        "key": key,
    }
    assert_frozen("dataset_prompts.json", frozen)


def test_files_of_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each stage and of the frozen set, but for the table, whose PNG depends on zlib."""
    monkeypatch.chdir(tmp_path)
    write_scenes(tmp_path / "photos", 16)
    words = ["--describer=shapes:?mislabel=0.1", "--writer=shapes:"]
    out = "--out=bench"
    assert main(["dataset", "patterns", "photos", out, "--per-pattern=1", *words]) == 0
    assert main(["dataset", "freeze", "bench", "--unverified"]) == 0
    folder = tmp_path / "bench"
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".tsv":
            continue
        if path.suffix == ".jsonl":
            first = path.read_text("utf-8").splitlines()[0]
            files[name] = [json.loads(first)]
        elif path.suffix == ".json":
            files[name] = json.loads(path.read_text("utf-8"))
        elif path.is_file():
            files[name] = path.read_text("utf-8").splitlines()
    assert_frozen("dataset_files.json", files)
