"""`cepbench store`: what each command shows and does, its exit codes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import open_readonly
from pytest_cepbench.store.maintenance import models_in
from pytest_cepbench.store.rows import packed
from tests.cli.conftest import Ended, Home
from tests.cli.reports import accept_by_hand, measure_toy
from tests.plugin.project import contents
from tests.store.filling import (
    age,
    age_images,
    database,
    fill,
    key_of,
    picture,
    results_of,
)

STORE = Path(".cepbench/store")


def store(home: Home, *argv: str) -> Ended:
    """`cepbench store` with these arguments."""
    return home.command("store", *argv)


def lines(printed: str) -> list[list[str]]:
    """Words of each line."""
    return [line.split() for line in printed.splitlines()]


@pytest.fixture
def filled(home: Home) -> Home:
    """A store with two models' results; those of the first are old."""
    fill(STORE, range(2), "a" * 16)
    fill(STORE, range(2, 3), "b" * 16)
    age(STORE, list(results_of(range(2))), 40)
    age_images(STORE)
    return home


def test_stats(filled: Home) -> None:
    """Results by kind and by model, on a page; looking changes nothing."""
    before = contents(STORE)
    ended = store(filled, "stats")
    assert (ended.code, ended.err) == (0, "")
    rows = {row[0]: row[1] for row in lines(ended.out) if row}
    assert {
        "text": "3",
        "image": "3",
        "vector": "3",
        "a" * 16: "6",
        "b" * 16: "3",
    }.items() <= rows.items()
    assert rows["files:"] == "3,"
    after = contents(STORE)
    assert {name: after[name] for name in before} == before


def test_verify(filled: Home) -> None:
    """Sound is 0, damaged is 1 with its names, and repaired it is sound again."""
    assert store(filled, "verify").code == 0
    with database(STORE) as connection:
        connection.execute(
            "UPDATE results SET kind = 'x' WHERE key = ?", (packed(key_of("text 0")),)
        )
        connection.execute("UPDATE provenances SET text = 'x' WHERE text LIKE ?", ("%bb%",))
    artifact_path(STORE, picture(1).digest).write_bytes(b"no image")
    ended = store(filled, "verify")
    assert ended.code == 1
    assert f"result that does not match its seal: {key_of('text 0')[:12]}\n" in ended.out
    assert "damaged or lost provenance: of 3 results\n" in ended.out
    assert f"damaged file: {picture(1).digest[:12]}: not an image" in ended.out
    assert ended.out.endswith("nothing changed: --repair drops what is damaged\n")
    assert store(filled, "verify", "--repair").code == 0
    assert store(filled, "verify").code == 0
    with Store(STORE) as opened:
        assert len(opened) == 9 - 2
    # An index that is none, as a crash of the disk left it, is started anew.
    (STORE / "index.sqlite").write_bytes(b"nothing" * 100)
    ended = store(filled, "verify")
    assert ended.code == 1
    assert ended.err.endswith("--repair saves what can be read\n")
    assert store(filled, "verify", "--repair").code == 0
    assert store(filled, "verify").code == 0


def test_gc(filled: Home) -> None:
    """Listed by model first, deleted when asked to; what is used stays."""
    before = contents(STORE)
    ended = store(filled, "gc", "--unused-for=30d")
    assert (ended.code, ended.err) == (0, "")
    assert ["a" * 16, "6"] in [row[:2] for row in lines(ended.out)]
    assert "goes: 6 results; about " in ended.out
    assert ended.out.endswith("nothing deleted: say --delete\n")
    after = contents(STORE)
    assert {name: after[name] for name in before} == before
    assert "deleted: about " in store(filled, "gc", "--unused-for=30d", "--delete").out
    with Store(STORE) as opened:
        assert opened.get(results_of(range(3))).keys() == results_of(range(2, 3)).keys()
    assert "nothing goes" in store(filled, "gc", "--unused-for=30d", "--delete").out
    assert "goes: 3 results" in store(filled, "gc", "--max-size=0", "--delete").out
    assert store(filled, "stats").out.endswith("no results\n\n")


def test_baselines_say_what_is_needed(home: Home) -> None:
    """Real ones: what their model and the fixed roles made stays."""
    accept_by_hand(Path("baselines"), measure_toy(home.path, "shapes:?miss=0.1"))
    with open_readonly(Path("store")) as read:
        theirs = models_in(read)
    with Store(Path("store")) as opened:
        whole = len(opened)
    fill(Path("store"), range(2), "f" * 16)
    argv = ("--store=store", "--baselines=baselines")
    assert "goes: 6 results; about " in store(home, "gc", *argv).out
    assert "nothing goes" in store(home, "gc", *argv, "--unused-for=30d").out
    tight = " ".join(store(home, "gc", *argv, "--max-size=1K").out.split())
    assert "goes: 6 results" in tight
    assert "more than --max-size stays: the baselines need it (1 kB were asked)" in tight
    assert store(home, "gc", *argv, "--delete").code == 0
    with open_readonly(Path("store")) as read:
        assert models_in(read) == theirs
    with Store(Path("store")) as opened:
        assert len(opened) == whole


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["stats", "--store=nowhere"], "no store at 'nowhere': give its folder with --store DIR"),
        (["verify", "--repair", "--store=nowhere"], "no store at 'nowhere'"),
        (["gc"], "no rule for what may be deleted: give --unused-for, --max-size or --baselines"),
        (["gc", "--unused-for=soon"], "--unused-for 'soon': days or weeks are expected, such as"),
        (["gc", "--unused-for=0d"], "--unused-for '0d'"),
        (["gc", "--baselines=b", "--without-baselines"], "contradict each other: drop one"),
        (["gc", "--max-size=-1G"], "--max-size '-1G': a size is expected, such as 500M or 20G"),
        (["gc", "--baselines=nowhere"], "--baselines 'nowhere': no baselines there"),
        (["gc", "--baselines=suites"], "--baselines 'suites': no baselines there"),
        (["gc", "--baselines=spoilt"], "'spoilt/a.toml' cannot be read as a baseline"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(filled: Home, argv: list[str], message: str) -> None:
    """Nothing is made, changed or deleted, although --delete is said."""
    for file, text in (("spoilt/a.toml", "<<<<<<<"), ("suites/suite.toml", 'name = "toy"')):
        Path(file).parent.mkdir()
        Path(file).write_text(text)
    before = contents(filled.path)
    ended = store(filled, *argv, *(["--delete"] if argv[0] == "gc" else []))
    ended.refused(message, lines=1)
    after = contents(filled.path)
    assert {n for n in after if not n.endswith(("-shm", "-wal"))} == before.keys()
    assert {name: after[name] for name in before} == before


def test_what_is_no_store(home: Home) -> None:
    """Said in one line; no store is made of it."""
    Path("notes").mkdir()
    Path("notes/index.sqlite").write_text("mine")
    ended = store(home, "stats", "--store=notes")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("\n") == 1
    assert {path.name for path in Path("notes").iterdir()} == {"index.sqlite"}
