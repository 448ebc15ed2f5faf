"""The command as a process: mistakes, what it imports, how it is interrupted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_cepbench._version import __version__
from pytest_cepbench.cli.arguments import parse
from pytest_cepbench.cli.output import (
    LONGEST_NAME,
    Section,
    Table,
    short,
    to_text,
)
from tests.cli.conftest import Home
from tests.studies.toy import TOY, write_suite
from tests.suites.answers import ANSWERS

MODULE = """\
import signal

from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.models.rule_based.scene_models import ShapesDescriber


class Describer(ShapesDescriber):
    fingerprint = "interrupted/1"
    batch_size = 4
    asked = 0

    def describe(self, images, prompt, seeds):
        Describer.asked += 1
        if Describer.asked == {when}:
            signal.raise_signal(signal.SIGINT)
        return super().describe(images, prompt, seeds)


def describer():
    return Describer(Degradation(miss=0.2))
"""
"""A describer during whose batch number `when` the user presses Ctrl-C."""


COMMAND_LINE = {
    "pytest_cepbench._version",
    "pytest_cepbench.cli",
    "pytest_cepbench.cli.arguments",
    "pytest_cepbench.cli.commands",
    "pytest_cepbench.cli.output",
    "pytest_cepbench.errors",
    "pytest_cepbench.escapes",
    "pytest_cepbench.files",
}


LINES = [
    ("--help", "gate itself is a run of pytest"),
    ("--version", f"cepbench {__version__}\n"),
    ("study --help", "--seeds"),
    ("acept r.json", "Did you mean 'accept'?"),
    ("accept none.json --reason=better", "results 'none.json' cannot be read"),
    ("accept .", "the following arguments are required: --reason"),
    ("prune none.json", "results 'none.json' cannot be read"),
    ("compare a.json b=b.json", "results 'a.json' cannot be read"),
    (f"compare {'a' * 300} b.json", "no file has so long a name"),
    (f"doctor {'a' * 300}", "no file has so long a name"),
    ("export none.json", "results 'none.json' cannot be read"),
    ("export . --step=last", "--step 'last': no step of a training"),
    ("export . --step=-1", "--step '-1': no step of a training"),
    ("doctor none", "no suite at 'none'"),
    ("calibrate none --model=shapes:", "no suite at 'none'"),
    ("study none --vary=seeds --model=shapes:", "no suite at 'none'"),
    ("study . --vary=sedes --model=shapes:", "no suite at '.'"),
    ("init --images=none --model=shapes:", "--images 'none': a folder of images is expected"),
    ("history --last=0", "--last '0': a whole number of at least 1 is expected"),
    ("store stats --store=none", "no store at 'none': give its folder with --store DIR"),
    ("store gc", "no store at '.cepbench/store'"),
    ("store export --answers=none", "no suite at 'none'"),
    ("store import none", "file 'none' cannot be read"),
    ("rate ask . --annotators=1000000000000", "at most 1000 people vote"),
    (f"history --last={'9' * 5000}", f"--last '{'9' * 59}: a whole number of"),
    ("arena rejudge none", "no suite at 'none'"),
    ("arena leaderboard none.json", "file 'none.json' cannot be read"),
    ("agree people none", "'none' is no ratings folder: it has no study.json"),
    ("agree models none", "'none' is no ratings folder: it has no study.json"),
    ("agree judges none.json --people=people.json", "file 'none.json' cannot be read"),
]
"""Command lines, and what is said of each."""

EACH = """\
import contextlib, io, json, sys
from pytest_cepbench.cli import main

answers = []
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line.split())
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps((answers, sorted(sys.modules))))
"""


def test_help_and_mistakes_import_nothing_heavy(tmp_path: Path) -> None:
    """They are answered at once: by no NumPy, pytest or torch, only by the command line."""
    ended = subprocess.run(
        [sys.executable, "-c", EACH],
        input=json.dumps([line for line, _ in LINES]),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    answers, loaded = json.loads(ended.stdout)
    for (line, said), (code, out, err) in zip(LINES, answers, strict=True):
        helps = "--help" in line or line == "--version"
        assert code == (0 if helps else 2), line
        assert said in (out if helps else err), line
        assert helps or err.count("\n") == 1, line
    assert not {"numpy", "torch", "pytest", "msgspec", "PIL"} & set(loaded)
    assert {name for name in loaded if name.startswith("pytest_cepbench.")} <= COMMAND_LINE


MUTE, MOST, DRAWERS = (
    "--model=python:tests.studies.toy:MuteDescriber",
    "--model=shapes:?miss=0.1",
    "--generator=shapes: --generator=shapes:?move=0.3",
)

MISTAKES = {
    f"calibrate . {MUTE} --seeds=1": "--seeds 1: noise shows between at least 2 seeds",
    "calibrate . --model=nobody/": "nobody",
    "calibrate . --model=replay:nowhere": "with one seed",
    f"calibrate . {MUTE} --describer=shapes:": "drop one",
    f"calibrate . {MUTE} --store=suite.toml/store": "suite.toml/store",
    f"calibrate answers {MOST}": "'arena' asks for interleaved answers: calibrate and doctor can",
    "doctor . --seeds=20261128": "between at least 2 seeds, and at most 1000",
    "doctor . --model=nobody/": "nobody",
    "doctor . --model=replay:chains": "made elsewhere",
    f"doctor answers {MOST}": "'arena' asks for interleaved answers: calibrate and doctor can",
    f"study nowhere --vary=seeds {MUTE}": "no suite at 'nowhere'",
    f"study . --vary=seeds {MUTE} --metrics=gc,": "names separated by commas",
    f"study . --vary=seeds {MUTE} --seeds=1,-2": "'-2': no seed",
    f"study . --vary=seeds {MUTE} --model=nobody/": "nobody",
    f"study . --vary=seeds {MUTE} --store=suite.toml/store": "suite.toml/store",
    f"study absent.toml --vary=seeds {MUTE}": (
        "data set 'photos' is not here: give it with --data photos"
    ),
    f"study answers --vary=encoders --encoder=shapes: --encoder=a/b {MOST}": (
        "'arena' asks for interleaved answers: a study of encoders can measure chains alone"
    ),
    f"study answers --vary=seeds {MOST} --metrics=win_rate": (
        "'arena': win_rate: accepted answers are needed"
    ),
    f"study answers --vary=generators {MOST} {DRAWERS}": (
        "nothing is drawn for 'shapes:?miss=0.1', the inter"
    ),
    f"study answers --vary=generators {MOST} {DRAWERS} --role=generator": (
        "which the study of generators ex"
    ),
    f"study answers --vary=seeds {MOST} --role=describer": (
        "the describer under test has no role in suite"
    ),
    f"study answers --vary=seeds {MOST} --judge=nobody/": "nobody",
}
"""Command lines that name something wrong, and what is said of each."""


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(home: Home, line: str) -> None:
    """No model is asked, no table is printed, and nothing is written."""
    absent = TOY.replace('loader = "shapes"', 'loader = "folder"\nname = "photos"')
    absent = absent.replace("options = { samples_per_category = 2 }", "")
    (home.path / "absent.toml").write_text(absent)
    (home.path / "answers").mkdir()
    write_suite(home.path / "answers", ANSWERS)
    home.command(*line.split()).refused(MISTAKES[line], lines=1)
    assert not (home.path / "baselines").exists()
    assert not (home.path / ".cepbench" / "studies").exists()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("acept results.json", "accept"),
        ("study suites/shapes --model=x --vary=sedes", "seeds"),
        ("store stast", "stats"),
        ("doctor suites/shapes --role=descriver", "describer"),
        ("doctor suites/shapes --modle=x", "--model"),
        ("init --images=. --model=x --acept", "--accept"),
        ("doctor suites/shapes --zzz", ""),
    ],
)
def test_a_typo_answers_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], line: str, meant: str
) -> None:
    """Of commands, of their actions and choices, and of options; exit code 2.

    What is like nothing has no suggestion: argparse's own message stands alone.
    """
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    hint = f". Did you mean '{meant}'?" if meant else "unrecognized arguments: --zzz"
    assert capsys.readouterr().err.endswith(f"{hint}\n")


def test_an_output_that_takes_nothing_is_told_in_a_line() -> None:
    """A full disk and a closed stream, with Python's buffer; exit code 1."""
    line = f"unset PYTHONUNBUFFERED; {sys.executable} -m pytest_cepbench.cli suites"
    for process in [
        subprocess.Popen(["sh", "-c", f"{line} {where}"], stderr=subprocess.PIPE, text=True)
        for where in ("> /dev/full", ">&-")
    ]:
        said, *more = process.communicate()[1].splitlines()
        assert (process.returncode, more) == (1, [])
        assert said.startswith("cepbench: the output could not be written: ")


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Any table of at least two columns."""
    columns = draw(st.integers(2, 5))
    row = st.tuples(*[st.text(max_size=40)] * columns)
    return Table(draw(row), tuple(draw(st.lists(row, max_size=2))))


@given(tables(), st.integers(2 * LONGEST_NAME + 2, 200))
def test_no_line_is_wider_than_the_terminal(table: Table, width: int) -> None:
    """Columns that find no room go below; every line stays printable."""
    text = to_text([Section("title", ("a line " * 40, table))], width)
    lines = text.split("\n")
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30), st.integers(40, 120))
def test_every_cell_of_a_folded_table_is_shown_once(numbers: list[int], width: int) -> None:
    """However many columns there are, each number stands in its own row, in order."""
    table = Table(
        ("model", *(f"v{i}" for i in range(len(numbers)))), (("row", *map(str, numbers)),)
    )
    lines = to_text([Section("t", (table,))], width).splitlines()
    shown = [cell for line in lines if line.startswith("row") for cell in line.split()[1:]]
    heads = [cell for line in lines if line.startswith("model") for cell in line.split()[1:]]
    assert shown == [str(number) for number in numbers]
    assert heads == [f"v{i}" for i in range(len(numbers))]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_table_of_a_terminal_has_bold_heads_and_colored_verdicts(
    term: str, no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the terminal shows them; without them it is the text of a pipe, in full width."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", "1")
    heads = ("verdict", *(f"v{i}" for i in range(30)))
    rows = (("held", *["\u8868"] * 30), ("regressed", *["[b]1"] * 30))
    page = [Section("t", (Table(heads, rows),))]
    styled, plain = to_text(page, 250, styled=True), to_text(page, 250)
    assert re.sub(r"\x1b\[\d+m", "", styled) == plain
    assert "\x1b" not in plain
    assert ("\x1b[1mverdict" in styled) == (term == "xterm")
    assert ("\x1b[31mregressed" in styled) == (term == "xterm" and not no_color)


def test_a_table_in_full() -> None:
    """Names to the left, numbers to the right, as wide as they need.

    Long names lose their beginning: checkpoints of one run differ at their end.
    """
    table = Table(
        ("model", "seed 0", "1"), (("small", "0.5", "0.25"), ("a larger one", "1.0", "-"))
    )
    assert to_text([Section("GC@3", ("n = 3", table))], 80) == (
        "GC@3\n\nn = 3\nmodel         seed 0     1\nsmall            0.5  0.25\n"
        "a larger one     1.0     -\n\n"
    )
    names = [f"checkpoints/a-run-with-a-long-name/step-{step}" for step in (400, 8000)]
    shortened = [short(name) for name in names]
    assert [len(name) for name in shortened] == [LONGEST_NAME] * 2
    assert shortened[0].endswith("/step-400")
    assert shortened[1].endswith("/step-8000")
