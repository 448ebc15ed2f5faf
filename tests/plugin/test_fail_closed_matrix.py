"""The matrix of faults: whatever breaks, in whichever model, no way to ask for a verdict passes.

The models are those of `faulty_models`. Where the model under test breaks, its columns say what
becomes of it; where one breaks that only measures, a checkpoint is gated that has really regressed,
by helpers of the identity that its baselines were accepted with.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench import CepError, GateResult, gate_checkpoint
from pytest_cepbench.integrations import Gate, Outcome
from pytest_cepbench.models import python_model
from tests.documents import flat_report
from tests.plugin import faulty_models, warm
from tests.plugin.faulty_models import VARIABLE
from tests.plugin.project import INI, TEST_MODULE, run_plainly

TABLE = """
fault          describer  generator  interleaver  encoder    judge         vqa        detector
honest         held       held       held         regressed  regressed     regressed  regressed
raise          error      error      error        error      error         error      error
nothing        error      error      error        error      error         error      error
few            error      error      error        error      error         error      error
none           error      error      error        error      error         error      error
nan            error      regressed  regressed    error      error         error      error
constant       regressed  regressed  regressed    error      error         error      regressed
blind          -          -          -            -          inconclusive  -          -
empty          regressed  regressed  error        error      error         error      regressed
thoughts       regressed  -          error        -          error         -          -
exit           error      error      error        error      error         error      error
exit-0         error      error      error        error      error         error      error
skip           error      error      error        error      error         error      error
quit           error      error      error        error      error         error      error
factory-exit   usage      usage      usage        error      error         error      error
factory-exit-0 usage      usage      usage        error      error         error      error
factory-skip   usage      usage      usage        error      error         error      error
factory-quit   usage      usage      usage        error      error         error      error
import-exit-0  usage      usage      usage        error      error         error      error
import-skip    usage      usage      usage        error      error         error      error
"""
"""What becomes of the only case: its verdict, or a usage error before anything is measured.

Undecided cases are those of a gate that asks for a proof, `noninferiority`.
"""

_CHAIN = """\
name = "matrix"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 1 }
[chain]
iterations = 1
[prompts]
describe = "describe"
[gate]
gate = "threshold"
[metrics.gc]
parts = "overall"
[roles]
describer = "shapes:"
generator = "shapes:"
"""

_TASKS = """\
name = "matrix"
version = 1
[data]
loader = "shapes-tasks"
options = { samples_per_category = 1 }
questions = "metadata"
[chain]
start = "text"
generations = 1
[prompts]
describe = "describe"
[gate]
gate = "threshold"
[roles]
generator = "shapes:"
"""

_ARENA = """\
name = "matrix"
version = 1
[data]
loader = "shapes-arena"
options = { samples_per_category = 1 }
[answer]
[prompts]
[arena]
[gate]
gate = "threshold"
[metrics.win_rate]
parts = "overall"
[roles]
interleaver = "shapes:"
"""

_OWN = "python:tests.plugin.faulty_models:"

_ENCODED = f'{_CHAIN}encoder = "shapes:"\n'


@dataclass(frozen=True)
class Column:
    """suite: its file. model: the accepted one. gated: the one that is gated. role: of both."""

    suite: str
    model: str
    gated: str
    role: str


COLUMNS = {
    "describer": Column(
        _ENCODED, f"{_OWN}Describer", f"{_OWN}Describer?version=2", "describer"
    ),
    "generator": Column(
        _ENCODED, f"{_OWN}Generator", f"{_OWN}Generator?version=2", "generator"
    ),
    "interleaver": Column(
        f'{_ARENA}judge = "shapes:"\n',
        f"{_OWN}Interleaver", f"{_OWN}Interleaver?version=2", "interleaver",
    ),
    "encoder": Column(
        f'{_CHAIN}encoder = "{_OWN}Encoder"\n', "shapes:", "shapes:?miss=0.5", "describer"
    ),
    "judge": Column(
        f'{_ARENA}judge = "{_OWN}Judge"\n', "shapes:", "shapes:?miss=0.5", "interleaver"
    ),
    "vqa": Column(
        f'{_TASKS}vqa = "{_OWN}Vqa"\n[metrics.soft_tifa_am]\nparts = "overall"\n',
        "shapes:", "shapes:?miss=0.5", "generator",
    ),
    "detector": Column(
        f'{_TASKS}detector = "{_OWN}Detector"\n'
        '[metrics.geneval]\ncolors = "detector"\nparts = "overall"\n',
        "shapes:", "shapes:?miss=0.5", "generator",
    ),
}  # fmt: skip

_HEAD, *_ROWS = (line.split() for line in TABLE.strip().splitlines())

CELLS = [
    (column, fault, word)
    for fault, *words in _ROWS
    for column, word in zip(_HEAD[1:], words, strict=True)
    if word != "-"
]


def cells(
    kept: Callable[[str, str, str], bool] = lambda *_: True,
    quick: Callable[[str, str, str], bool] = lambda *_: True,
) -> pytest.MarkDecorator:
    """The matrix as parameters. quick: of which cells the test is in the default run."""
    return pytest.mark.parametrize(
        ("column", "fault", "word"),
        [
            pytest.param(*cell, id=f"{cell[1]}-{cell[0]}", marks=[pytest.mark.slow][quick(*cell) :])
            for cell in CELLS
            if kept(*cell)
        ],
    )


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Column -> a project with the baselines of honest models; only to be copied."""
    made = {}
    for name, column in COLUMNS.items():
        root = made[name] = tmp_path_factory.mktemp(name)
        (root / "pytest.ini").write_text(INI)
        (root / "suite.toml").write_text(column.suite)
        (root / "test_matrix.py").write_text(TEST_MODULE)
        result = gate(root, column, column.model, snapshot_update=True)
        assert result.passed, str(result)
        if column.role != "interleaver":  # whose accepted answers are in the store
            shutil.rmtree(root / ".cepbench")
    return made


def gate(root: Path, column: Column, model: str, **options: Any) -> GateResult:
    """The only case of a project, by `gate_checkpoint`."""
    python_model.make_model.cache_clear()
    return gate_checkpoint(
        root / "suite.toml", root=root, model=model, role=column.role, attribute=0, **options
    )


def broken(monkeypatch: pytest.MonkeyPatch, column: str, fault: str) -> None:
    """Have a model of a column break in what is started from here on."""
    at_import = fault.startswith("import-")
    monkeypatch.setenv(VARIABLE, f"import:{fault[7:]}" if at_import else f"{column}:{fault}")
    if fault == "honest":
        monkeypatch.delenv(VARIABLE)
    if at_import:
        monkeypatch.delitem(sys.modules, faulty_models.__name__)


def rule(word: str) -> str:
    """The gate that a cell asks for."""
    return "noninferiority" if word == "inconclusive" else "threshold"


SAME_WAY = {"exit", "quit", "factory-exit", "factory-quit"}
"""Faults that are another one with another number or by another name."""


@cells(quick=lambda column, fault, word: fault not in SAME_WAY)
def test_python_api(
    accepted: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    column: str, fault: str, word: str,
) -> None:  # fmt: skip
    """`gate_checkpoint` gives a false result, or raises an error of its own, never SystemExit."""
    root = Path(shutil.copytree(accepted[column], tmp_path / "project"))
    broken(monkeypatch, column, fault)
    own = COLUMNS[column]
    try:
        result = gate(root, own, own.gated, gate=rule(word))
    except CepError:
        assert word == "usage"
        return
    assert [case.verdict for case in result.cases] == [word], str(result)
    assert bool(result) == (word == "held")


def run(root: Path, own: Column, word: str, *args: str) -> int:
    """The exit code of a run of pytest on what is gated."""
    model = (f"--model={own.gated}", f"--cep-role={own.role}", "--cep-attribute=0")
    return run_plainly(root, *model, f"--cep-gate={rule(word)}", *args)


ONE_OF_EACH = {
    ("honest", "describer"), ("honest", "encoder"), ("blind", "judge"), ("exit-0", "describer"),
    ("exit-0", "detector"), ("factory-skip", "describer"), ("factory-skip", "judge"),
}  # fmt: skip
"""Every outcome, of a model under test and of one that measures; the others take the same ways."""


@cells(quick=lambda column, fault, word: (fault, column) in ONE_OF_EACH)
def test_pytest(
    accepted: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    column: str, fault: str, word: str,
) -> None:  # fmt: skip
    """The exit code, and the report: that of this run, or none, whatever lay there before."""
    root = Path(shutil.copytree(accepted[column], tmp_path / "project"))
    report = root / ".cepbench" / "report.json"
    report.parent.mkdir(exist_ok=True)
    report.write_text('{"verdict": "passed", "cases": []}')
    broken(monkeypatch, column, fault)
    code = run(root, COLUMNS[column], word, "-q")
    if word == "usage":
        assert code == pytest.ExitCode.USAGE_ERROR
        assert not report.exists()
        return
    document = flat_report(json.loads(report.read_text()))
    assert [case["verdict"] for case in document["cases"]] == [word]
    assert (code, document["verdict"]) == ((0, "passed") if word == "held" else (1, "failed"))


def test_workers(
    accepted: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper that leaves by `sys.exit(0)` on workers ends neither them nor the run as a pass."""
    root = Path(shutil.copytree(accepted["encoder"], tmp_path / "project"))
    broken(monkeypatch, "encoder", "exit-0")
    column = COLUMNS["encoder"]
    code, output, _ = warm.run(root, ("-n", "2", f"--model={column.gated}", "-q"), os.environ)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    document = flat_report(json.loads((root / ".cepbench" / "report.json").read_text()))
    assert [case["verdict"] for case in document["cases"]] == ["error"]


OUTCOMES = {"error": Outcome.FAILED, "usage": Outcome.FAILED, "regressed": Outcome.REGRESSED}

TRAINED = {("exit-0", "describer"), ("factory-skip", "describer"), ("honest", "judge")}
"""Of each outcome one: by a model under test, and by one that measures answers.

What the gate of a training makes of exit code and report does not depend on fault and role.
"""


@pytest.fixture(scope="module")
def trainings(
    accepted: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Gate]:
    """Makes the gate of a column whose first checkpoint is accepted, with its first store again."""
    place = tmp_path_factory.mktemp("trainings")
    env = {name: "" for name in os.environ if name.startswith("CEPBENCH_")}

    def make(name: str) -> Gate:
        column, folder = COLUMNS[name], place / name
        options = (f"--cep-role={column.role}", "--cep-gate=threshold", "-p", "no:xdist")
        gate = Gate(folder, accepted[name] / "test_matrix.py", options, env=env)
        if not folder.exists():
            assert gate(column.model).outcome is Outcome.ACCEPTED
            shutil.copytree(folder / "store", place / f"{name}-store")
        shutil.rmtree(folder / "store")
        if column.role == "interleaver":  # the accepted answers are there
            shutil.copytree(place / f"{name}-store", folder / "store")
        return gate

    return make


@cells(
    kept=lambda column, fault, word: (fault, column) in TRAINED,
    quick=lambda column, fault, word: (fault, column) == ("exit-0", "describer"),
)
def test_training_gate(
    trainings: Callable[[str], Gate], monkeypatch: pytest.MonkeyPatch,
    column: str, fault: str, word: str,
) -> None:  # fmt: skip
    """The checkpoint is not accepted, and the one that was stays."""
    gate = trainings(column)
    before = gate.files.load().accepted
    broken(monkeypatch, column, fault)
    verdict = gate(COLUMNS[column].gated)
    assert verdict.outcome is OUTCOMES[word], verdict.output
    assert not verdict
    assert gate.files.load().accepted == before
