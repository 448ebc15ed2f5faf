"""Scores of cases come out of the store where nothing that they depend on has changed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_cepbench import GateResult, gate_checkpoint
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.files import canonical_json
from pytest_cepbench.measures.base import Against, MeasureBase, SuiteContext
from pytest_cepbench.measures.measure_registry import (
    ANSWER_KINDS,
    KINDS,
    make_answer_measures,
    make_measures,
    read_table,
)
from pytest_cepbench.store.rows import packed, seal, unpacked
from pytest_cepbench.suites.stored_scores import digest_of_code, plain_data

SUITE = """\
name = "toy"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 2 }
[chain]
start = "both"
iterations = 2
[prompts]
describe = "describe"
generate = "{description}"
[roles]
describer = "shapes:?miss=0.2"
generator = "shapes:"
encoder = "shapes:"
[gate]
gate = "threshold"
[metrics.gc]
[metrics.sim]
parts = "overall"
[metrics.fid]
pool = "samples"
parts = "overall"
[metrics.kid]
pool = "samples"
parts = "overall"
[metrics.truth]
kind = "facts"
parts = "overall"
[metrics.mcd]
[metrics.failures]
parts = "overall"
[metrics.repetition]
parts = "overall"
[metrics.length]
parts = "overall"
[metrics.diversity]
parts = "overall"
[metrics.retrieval]
parts = "overall"
"""

ARENA = """\
name = "toy-arena"
version = 1
[data]
loader = "shapes-arena"
options = { samples_per_category = 2 }
[answer]
steps = "free"
[prompts]
[arena]
against = "accepted"
order = "both"
[roles]
interleaver = "shapes:"
judge = "shapes:"
[gate]
gate = "threshold"
[metrics.win_rate]
parts = "all"
[metrics.truth]
[metrics.no_image]
[metrics.no_text]
[metrics.step_gap]
[metrics.failures]
[metrics.judge_failures]
"""

MODEL = "shapes:?miss=0.1"  # loses battles against the accepted answers

MOST_MODULES = 150

MOST_QUERIES = 31
"""Of chains: a generation of both starts and a case take one each."""

MOST_QUERIES_OF_ANSWERS = 30
"""A case takes one, the verdicts of a part another."""


def gate(folder: Path, **options: Any) -> GateResult:
    """A gate over the suite of a folder."""
    return gate_checkpoint(folder / "suite.toml", root=folder, **options)


def records(folder: Path) -> dict[str, bytes]:
    """The stored scores, by key."""
    with sqlite3.connect(folder / ".cepbench/store/index.sqlite") as connection:
        rows = connection.execute("SELECT key, payload FROM results WHERE kind = 'scores'")
        found = {unpacked(key): payload for key, payload in rows}
    connection.close()
    return found


def change(folder: Path, statement: str, *values: Any) -> int:
    """Change the store behind the package's back; returns how many rows."""
    with sqlite3.connect(folder / ".cepbench/store/index.sqlite") as connection:
        count = connection.execute(statement, values).rowcount
    connection.close()
    return count


def forget(folder: Path, kind: str) -> None:
    """Forget the results of a kind: whoever computes a score again has to ask for its vectors."""
    assert change(folder, "DELETE FROM results WHERE kind = ?", kind)


def replace_result(folder: Path, key: str, kind: str, payload: bytes) -> None:
    """Another result under a key, sealed as the store seals its own."""
    sealed = seal(key, kind, payload)
    change(
        folder,
        "UPDATE results SET payload = ?, seal = ? WHERE key = ?",
        *(payload, sealed, packed(key)),
    )


def plain(result: GateResult) -> list[dict[str, Any]]:
    """All that is said of the cases, but what it cost."""
    return [{**msgspec.to_builtins(case), "effort": None} for case in result.cases]


def undamaged(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same without what was found broken in the store."""
    return [{**case, "damage": []} for case in cases]


def asked(result: GateResult) -> int:
    """Inputs that models were asked for."""
    return sum(case.effort.inputs for case in result.cases if case.effort is not None)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with accepted baselines, and with the scores of a run against them in its store."""
    folder = tmp_path_factory.mktemp("scores")
    (folder / "suite.toml").write_text(SUITE)
    assert gate(folder, snapshot_update=True).passed
    gate(folder)
    return folder


@pytest.fixture(scope="module")
def full_arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a suite of answers, whose accepted ones a worse model's have battled."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "suite.toml").write_text(ARENA)
    assert gate(folder, snapshot_update=True).passed
    gate(folder, model=MODEL)
    return folder


@pytest.fixture
def arena(full_arena: Path, tmp_path: Path) -> Path:
    """The same folder for one test."""
    return Path(shutil.copytree(full_arena, tmp_path / "project"))


@pytest.fixture
def stored(full: Path, tmp_path: Path) -> Path:
    """The same folder for one test."""
    return Path(shutil.copytree(full, tmp_path / "project"))


def test_scores_from_the_store_say_what_computed_ones_say(stored: Path) -> None:
    """Every field of every case, with what is shown of its chains and the baseline's."""
    kept = gate(stored)
    forget(stored, "scores")
    computed = gate(stored)

    assert plain(kept) == plain(computed)
    assert len(kept.cases) > 20
    assert any(case.shown.curve_reference for case in kept.cases)
    assert any(case.shown.facts for case in kept.cases)


def test_nothing_is_asked_or_read_beside_the_chains(stored: Path) -> None:
    """With all scores stored, vectors may be gone: no encoder is missing them."""
    before = plain(gate(stored))
    forget(stored, "vector")

    again = gate(stored)

    assert plain(again) == before
    assert asked(again) == 0


@pytest.mark.parametrize(
    ("folder", "model", "most"),
    [("stored", None, MOST_QUERIES), ("arena", MODEL, MOST_QUERIES_OF_ANSWERS)],
)
def test_a_warm_run_asks_the_store_a_few_times(
    folder: str,
    model: str | None,
    most: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not once for each sample or generation of a case."""
    project = request.getfixturevalue(folder)
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    result = gate(project, model=model)

    queries = [statement for statement in statements if statement.startswith("SELECT")]
    assert len(result.cases) > 15
    assert len(queries) <= most, "\n".join(s[:90] for s in queries)


def test_a_warm_run_imports_what_it_runs(stored: Path) -> None:
    """No library of models, and no more of the package than today."""
    code = (
        "import sys; from pathlib import Path; from pytest_cepbench import gate_checkpoint; "
        "assert gate_checkpoint('suite.toml', root=Path()).passed; print(*sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=stored, capture_output=True, text=True, check=True
    )

    modules = ended.stdout.split()
    assert not {"torch", "transformers", "diffusers"} & set(modules)
    own = [name for name in modules if name.startswith("pytest_cepbench")]
    assert len(own) <= MOST_MODULES, sorted(own)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('[metrics.sim]\nparts = "overall"', '[metrics.sim]\nparts = "overall"\nat = 2'),
        ("[metrics.gc]\n", '[metrics.gc]\npool = "samples"\n'),
        ('encoder = "shapes:"', 'encoder = "python:tests.suites.stumbling:Plain"'),
        ("samples_per_category = 2", "samples_per_category = 3"),
        ("samples_per_category = 2", "samples_per_category = 2, seed = 1"),
    ],
    ids=["setting", "pool", "encoder", "sample-added", "data"],
)
def test_what_changes_a_score_has_it_computed_again(stored: Path, old: str, new: str) -> None:
    """A changed setting, encoder or data set finds no scores of what was before."""
    suite = stored / "suite.toml"
    assert old in suite.read_text()
    suite.write_text(suite.read_text().replace(old, new))
    before = len(records(stored))
    forget(stored, "vector")

    changed = gate(stored)

    assert asked(changed) > 0
    assert len(records(stored)) > before


def test_another_drawing_under_a_step_has_the_scores_computed_again(stored: Path) -> None:
    """The scores are of the artifacts that are stored, not of the steps that should make them."""
    before = {case.nodeid: case.value for case in gate(stored).cases}
    with sqlite3.connect(stored / ".cepbench/store/index.sqlite") as connection:
        rows = connection.execute("SELECT key, payload FROM results WHERE kind = 'image'")
        (key, own), *others = rows.fetchall()
    connection.close()
    replace_result(
        stored, unpacked(key), "image", next(other for _, other in others if other != own)
    )

    faulty = gate(stored)

    assert {case.nodeid: case.value for case in faulty.cases} != before
    forget(stored, "scores")
    assert plain(gate(stored)) == plain(faulty)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda payload, _: payload[: len(payload) // 2],
        lambda payload, _: b'{"key": 1}',
        lambda _, other: other,
        lambda payload, _: payload.replace(b'"shares":false', b'"shares":[]'),
        lambda payload, _: b"[" * 100_000,
    ],
    ids=["truncated", "other-fields", "of-another-case", "other-types", "too-deep"],
)
def test_records_that_are_not_of_the_case_are_computed_again(
    stored: Path, spoil: Callable[[bytes, bytes], bytes]
) -> None:
    """Sealed, but of a foreign store or another version: dropped, said, and made anew."""
    before, good = plain(gate(stored)), records(stored)
    others = [*list(good.values())[1:], next(iter(good.values()))]
    for (key, payload), other in zip(good.items(), others, strict=True):
        replace_result(stored, key, "scores", spoil(payload, other))

    mended = plain(gate(stored))

    assert undamaged(mended) == before
    assert any("no scores of the case" in line for case in mended for line in case["damage"])
    assert records(stored) == good


def test_a_flipped_bit_in_a_record_is_found(stored: Path) -> None:
    """The store's own seal finds it before it is read."""
    before, good = plain(gate(stored)), records(stored)
    for key, payload in good.items():
        change(stored, "UPDATE results SET payload = ? WHERE key = ?", payload + b" ", packed(key))

    assert undamaged(plain(gate(stored))) == before
    assert records(stored) == good


def test_what_the_next_run_may_do_better_is_not_kept(stored: Path) -> None:
    """A describer's failure in passing scores 0 today, and is asked about again tomorrow."""
    forget(stored, "scores")
    (stored / "suite.toml").write_text(SUITE.partition("[metrics.sim]")[0])

    result = gate(stored, model="python:tests.suites.stumbling:Stumbling")

    assert asked(result) > 0, result.cases[0].reasons
    assert not any(
        json.loads(payload)["measured"]["scores"] for payload in records(stored).values()
    )


def test_scores_of_answers_are_stored_too(arena: Path) -> None:
    """Every field of every case, with what is shown of its answers and verdicts."""
    kept = gate(arena, model=MODEL)
    count = len(records(arena))
    forget(arena, "scores")
    computed = gate(arena, model=MODEL)

    assert plain(kept) == plain(computed)
    assert len(records(arena)) == len(kept.cases)
    assert count == 2 * len(kept.cases)  # the accepted model's are there as well
    assert asked(kept) == 0
    assert any(answer.verdicts for case in kept.cases for answer in case.shown.answers)


def test_stored_scores_of_answers_are_what_is_shown(arena: Path) -> None:
    """They are read, and not computed beside: another number under a key comes out."""
    for key, payload in records(arena).items():
        record = json.loads(payload)
        for part in record["measured"]["scores"].values():
            part.update(dict.fromkeys(part, 0.25))
        replace_result(arena, key, "scores", json.dumps(record).encode())

    assert {case.value for case in gate(arena, model=MODEL).cases} == {0.25}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('order = "both"', 'order = "both"\ntie = "lean"'),
        ("[metrics.no_image]\n", '[metrics.no_image]\nof = "all"\n'),
        ("samples_per_category = 2", "samples_per_category = 2, seed = 1"),
        ('judge = "shapes:"', 'judge = "shapes:?flip=0.3"'),
        ('steps = "free"', "steps = 2"),
    ],
    ids=["rules", "setting", "data", "judge", "plan"],
)
def test_what_changes_scores_of_answers_has_them_computed_again(
    arena: Path, old: str, new: str
) -> None:
    """Changed rules, settings, questions, judges and plans find no scores of what was before."""
    suite, before = arena / "suite.toml", len(records(arena))
    assert old in suite.read_text()
    suite.write_text(suite.read_text().replace(old, new))

    gate(arena, model=MODEL)

    assert len(records(arena)) > before


def test_another_verdict_under_a_step_has_the_scores_computed_again(arena: Path) -> None:
    """The scores are of the verdicts that are stored, not of the steps that should give them."""
    before = {case.nodeid: case.value for case in gate(arena, model=MODEL).cases}
    verdicts = "UPDATE results SET payload = ?, seal = ? WHERE key = ?"
    with sqlite3.connect(arena / ".cepbench/store/index.sqlite") as connection:
        rows = connection.execute(
            "SELECT key FROM results WHERE kind = 'text' AND payload = ?", (b"B",)
        ).fetchall()
    connection.close()
    assert rows
    for (key,) in rows:
        change(arena, verdicts, b"A", seal(unpacked(key), "text", b"A"), key)

    faulty = gate(arena, model=MODEL)

    assert {case.nodeid: case.value for case in faulty.cases} != before
    forget(arena, "scores")
    assert plain(gate(arena, model=MODEL)) == plain(faulty)


def test_every_shipped_measure_has_a_key() -> None:
    """A setting that says nothing of itself would keep the scores of its metric from the store."""
    starts: tuple[Modality, ...] = ("image", "text")
    plans = {start: ChainPlan(start, 8, "describe", "{description}") for start in starts}
    tables = {kind: read_table(kind, {}) for kind in KINDS}
    measures: list[MeasureBase] = [
        *make_measures(tables, SuiteContext("all", plans, {}, ("mirror",))).values()
    ]
    agreement = {"agreement"}
    suites: dict[Against, set[str]] = {
        "accepted": {*ANSWER_KINDS} - agreement,
        "gold": agreement,
    }
    for against, kinds in suites.items():
        own = {kind: read_table(kind, {}, ANSWER_KINDS) for kind in sorted(kinds)}
        measures += make_answer_measures(own, "all", against).values()
    keys = [canonical_json(plain_data(measure)) for measure in measures]

    assert len(set(keys)) == len(KINDS) + len(ANSWER_KINDS)
    assert not any(" at 0x" in key for key in keys)


def test_a_setting_that_says_nothing_of_itself_has_no_key() -> None:
    """The address of a function would be another in every run, or by chance that of another."""
    with pytest.raises(TypeError, match="cannot be part of a key"):
        plain_data({"count": [len]})
    assert plain_data((1, 1.0, float("inf"), {"a"}, None)) == [1, 1.0, "inf", ["a"], None]


def test_other_code_has_other_scores(tmp_path: Path) -> None:
    """A formula that was changed without a new version is no reason to show the last one's."""
    room = tmp_path / "package" / "room"
    room.mkdir(parents=True)
    (room / "formula.py").write_text("VALUE = 1\n")
    before = digest_of_code(room.parent)
    digest_of_code.cache_clear()
    (room / "formula.py").write_text("VALUE = 2\n")

    assert digest_of_code(room.parent) != before


def test_records_are_json_with_their_key(full: Path) -> None:
    """So `cepbench store` shows them like any other result."""
    assert records(full)
    for key, payload in records(full).items():
        assert json.loads(payload)["key"] == key


def test_the_first_run_shows_the_chains_of_a_baseline_of_the_same_model(stored: Path) -> None:
    """They come into the store case by case, and are looked up after each."""
    before = plain(gate(stored))
    shutil.rmtree(stored / ".cepbench")

    assert plain(gate(stored)) == before
