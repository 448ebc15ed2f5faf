"""What a run leaves, as users see it: keys in the store, baseline files, the JSON report."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.gate.baseline import dump_baseline, load_baseline
from pytest_cepbench.gate.measurement import CaseKey, Measurement, Noise
from tests.documents import flat_report
from tests.golden.frozen import assert_frozen
from tests.plugin.project import INI, run_plainly

ACCEPTED, WORSE = "shapes:?miss=0.1", "shapes:?miss=0.5"

# Names of cases, categories, roles and samples: keys that are data.
_OPEN = {
    "answers", "blocks", "clusters", "counts", "failures", "identity",
    "model", "origins", "prompts", "roles", "scores", "sizes",
}  # fmt: skip


MODULE = """\
import pytest

def test_image(cep_case, cep_gate):
    cep_gate(cep_case)

@pytest.mark.cep(suite="drift.toml")
def test_drift(cep_case, cep_gate):
    cep_gate(cep_case)

@pytest.mark.cep(suite="tasks.toml")
def test_tasks(cep_case, cep_gate):
    cep_gate(cep_case)
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """JSON reports of a run that accepts and one that fails; the project's path under "path"."""
    root = tmp_path_factory.mktemp("golden")
    shutil.copytree(Path(__file__).with_name("project"), root, dirs_exist_ok=True)
    (root / "pytest.ini").write_text(INI)
    (root / "test_golden.py").write_text(MODULE)
    documents = []
    for arguments, code in (
        ([f"--model={ACCEPTED}", "--snapshot-update"], 0),
        ([f"--model={WORSE}", "-k", "test_image and overall"], 1),
    ):
        assert run_plainly(root, *arguments) == code
        text = (root / ".cepbench" / "report.json").read_text(encoding="utf-8")
        documents.append({**json.loads(text), "path": root})
    return documents


def test_keys_and_kinds_of_stored_results(reports: list[dict[str, Any]]) -> None:
    """A store that was filled by any version serves this one: not one key has moved.

    Those of scores alone move with the code that computes them.
    """
    with closing(sqlite3.connect(reports[0]["path"] / ".cepbench/store/index.sqlite")) as database:
        rows = database.execute(
            "SELECT key, kind FROM results WHERE kind != 'scores' ORDER BY key"
        ).fetchall()
        tables = database.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        version = database.execute("PRAGMA user_version").fetchone()
    assert_frozen("store_keys.txt", "".join(f"{key.hex()[:16]} {kind}\n" for key, kind in rows))
    assert_frozen("store_tables.json", {"version": version, "tables": tables})


def test_baseline_files_byte_by_byte(reports: list[dict[str, Any]]) -> None:
    """Same names, same bytes: an accepted baseline shows no diff after an update of the package."""
    folder = reports[0]["path"] / "baselines"
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.toml"))
    assert_frozen("baseline_files.txt", "".join(f"{path.as_posix()}\n" for path in files))
    kept = [path for path in files if path.name.startswith(("overall-", "text-to-image-"))]
    for path in kept:
        assert_frozen(f"baselines/{path.as_posix()}", (folder / path).read_bytes())


def test_a_baseline_with_every_field() -> None:
    """What calibration, acceptance and sets add; written as ever, and read back as the same."""
    baseline = Measurement(
        format=2,
        case='s/ä "b"/fid',
        metric="FID [x]",
        value=0.25,
        n=10,
        higher_is_better=False,
        model={"role": "describer", "spec": "ckpt/\x1b", "identity": "a 0123"},
        identity={"version": "2", "suite": "s/1"},
        scores={"c": {"all images": 0.25}},
        shares=True,
        failures={"empty-text": 2, "blank-image": 1},
        sizes={"c": 10},
        blocks={"c": {"0": 0.125, "1": -0.0}},
        clusters={"a": "u", "b": "u"},
        accepted={"reason": "better", "digest": "0123456789abcdef"},
        noise=Noise(5, 10, 0.0125, 0.001),
        floor=-0.5,
    )
    text = dump_baseline(baseline)
    assert_frozen("baseline_with_every_field.toml", text)
    read = load_baseline(text, CaseKey("s", 'ä "b"', "fid"), "here")
    assert read.noise == baseline.noise
    assert dump_baseline(read) == text


def test_a_baseline_of_answers() -> None:
    """The digests that were accepted, beside one half for each; read back as the same."""
    baseline = Measurement(
        format=2,
        case="s/overall/win_rate",
        metric="win rate",
        value=0.5,
        n=2,
        higher_is_better=True,
        model={"role": "interleaver", "spec": "ckpt", "identity": "a 0123"},
        identity={"version": "2", "suite": "s/1", "battles": "order both, tie half, seed 0"},
        scores={"c": {"a": 0.5, "b": 0.5}},
        answers={"b": "", "a": "0123456789abcdef"},
    )
    text = dump_baseline(baseline)
    assert_frozen("baseline_of_answers.toml", text)
    assert load_baseline(text, CaseKey("s", "overall", "win_rate"), "here") == baseline


def test_keys_and_types_of_the_report(reports: list[dict[str, Any]]) -> None:
    """Programs that read the report find each field where it was, of the type it had."""
    shape: dict[str, set[str]] = {}
    for document in reports:
        for path, kind in _walk("", {k: v for k, v in document.items() if k != "path"}):
            shape.setdefault(path, set()).add(kind)
    assert_frozen("report_shape.json", {path: sorted(kinds) for path, kinds in shape.items()})


def test_numbers_and_verdicts_of_the_report(reports: list[dict[str, Any]]) -> None:
    """The same models have the same values, bounds and verdicts."""
    fields = ("verdict", "value", "baseline", "difference", "p", "low", "high", "method", "units",
              "n", "alpha", "level", "floor", "tolerance", "gate", "failures",
              "identity")  # fmt: skip
    frozen = [
        {
            f"{case['suite']}/{case['part']}/{case['metric']}": {
                name: _rounded(case[name]) for name in fields
            }
            for case in flat_report(document)["cases"]
            if case["part"] in ("overall", "suite", "text-to-image")
        }
        for document in reports
    ]
    assert_frozen("report_numbers.json", frozen)


def _rounded(value: Any) -> Any:
    """Ten digits: bounds come from quantiles, whose last digits are a library's."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    yield path, "null" if value is None else type(value).__name__
    if isinstance(value, dict):
        name = path.rpartition(".")[2].rstrip("*")
        for key, item in value.items():
            yield from _walk(
                f"{path}.*"
                if name in _OPEN or path.endswith(("scores.*", "blocks.*"))
                else f"{path}.{key}",
                item,
            )
    elif isinstance(value, list):
        for item in value:
            yield from _walk(f"{path}[]", item)
