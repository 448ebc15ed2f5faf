"""Mistakes on the command line of `cepbench`: what argparse says, and the nearest name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cepbench._version import __version__
from pytest_cepbench.cli import main
from pytest_cepbench.cli.arguments import parse
from pytest_cepbench.cli.commands import CEPBENCH


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("acept results.json", "accept"),
        ("study suites/shapes --model=x --vary=sedes", "seeds"),
        ("store stast", "stats"),
        ("doctor suites/shapes --role=descriver", "describer"),
        ("doctor suites/shapes --modle=x", "--model"),
        ("store verify --repiar", "--repair"),
    ],
)
def test_a_typo_answers_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], line: str, meant: str
) -> None:
    """Of commands, of their actions and choices, and of options; exit code 2."""
    with pytest.raises(SystemExit) as ended:
        parse(CEPBENCH, line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f". Did you mean '{meant}'?\n")


REMOVED_IMPORT = "was removed in 0.1.0: use cepbench rate ask, whose pages keep the votes"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "agree judges --judge=x --family=own",
            "--family was removed in 0.1.0: use the bias of each model, which every card has",
        ),
        (
            "init --images=docs/images --model=b --pilot=3",
            "--pilot was removed in 0.1.0: use --samples",
        ),
        ("series run-1", "`cepbench series` is now `cepbench history --series`"),
        ("judge-card a.json", "`cepbench judge-card` is now `cepbench agree judges`"),
        ("arena agreement a b", "`cepbench arena agreement` is now `cepbench agree judges`"),
        ("study seeds .", "`cepbench study seeds` is now `cepbench study --vary=seeds`"),
        ("rate suites/arena", "`cepbench rate suites/arena` is now `cepbench rate ask`"),
        ("answers export .", "`cepbench answers export` is now `cepbench store export --answers`"),
        (
            "rate import ratings/may back.json",
            f"rate import {REMOVED_IMPORT}",
        ),
        (
            "rate export --format=label-studio ratings/may",
            f"rate export label-studio {REMOVED_IMPORT}",
        ),
        ("store push s3://b/p", "store push was removed in 0.1.0: use --cep-publish"),
    ],
)
def test_what_was_removed_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], line: str, expected: str
) -> None:
    """With what takes its place; exit code 2."""
    with pytest.raises(SystemExit) as ended:
        parse(CEPBENCH, line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"cepbench: {expected}\n")


def test_what_is_like_nothing_has_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """Argparse's own message stands alone."""
    with pytest.raises(SystemExit):
        parse(CEPBENCH, ["doctor", "suites/shapes", "--zzz"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzz\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version of the package, and exit code 0."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cepbench {__version__}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [("cepbench calib", {"calibrate "}), ("cepbench store stats --js", {"--json "})],
)
def test_completion(line: str, expected: set[str], tmp_path: Path) -> None:
    """A shell that asks how a line goes on is answered with commands and options."""
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "|",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "pytest_cepbench.cli"]
    subprocess.run(command, env=os.environ | asked, check=True, timeout=60)
    assert set(answer.read_text().split("|")) == expected
