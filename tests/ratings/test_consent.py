"""Texts of the organizer, and who agreed to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cepbench.ratings.consent import Consents, write_texts
from pytest_cepbench.ratings.records import TASKS, Task, Vote
from tests.ratings.serving import ROOT


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_written_once(task: Task, tmp_path: Path) -> None:
    """What the organizer has edited stays."""
    write_texts(tmp_path, task)
    assert (tmp_path / "instructions.md").read_text().startswith("# ")
    (tmp_path / "consent.md").write_text("# Mine\n")
    write_texts(tmp_path, task)
    assert (tmp_path / "consent.md").read_text() == "# Mine\n"


def test_the_consent_names_what_a_record_keeps(tmp_path: Path) -> None:
    """Every field of a vote that is about a person, and of the consent itself."""
    write_texts(tmp_path, "describe")
    text = " ".join((tmp_path / "consent.md").read_text().split())
    words = {
        "at": "when you gave each one",
        "seconds": "how long it took",
        "note": "your notes",
        "skip": "your reasons for skipping",
        "undo": "those that you take back",
        "pasted": "whether you pasted a description",
        "browser": "the size of your browser window",
        "annotator": "the name under which you were invited",
    }
    assert words.keys() <= set(Vote.__struct_fields__)
    assert [field for field, said in words.items() if said not in text] == []
    assert "when you agreed to this text" in text
    answers = {"v", "task", "item", "key", "page", "kind", "shown", "verdict", "winner", "tie"}
    answers |= {"errors", "grades", "ranking", "text", "words", "ticked", "unticked", "added"}
    assert set(Vote.__struct_fields__) == words.keys() | answers


def test_a_consent_that_was_cut_off_is_none(tmp_path: Path) -> None:
    """At the limit of a file's size the person is told and asked again; later lines are read."""
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from pytest_cepbench.errors import WriteError\n"
        "from pytest_cepbench.ratings.consent import Consents\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))\n"
        "consents = Consents(Path(sys.argv[1]))\n"
        "try: consents.agree('a1')\n"
        "except WriteError as error: print(error)\n"
        "assert 'a1' not in consents\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "consents.agree('a2')\n"
    )
    write_texts(tmp_path, "pair")
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "consents.jsonl could not be written: the disk is full" in ended.stdout
    assert "a1" not in Consents(tmp_path)
    assert "a2" in Consents(tmp_path)
