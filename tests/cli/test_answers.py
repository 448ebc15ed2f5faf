"""`cepbench store` and `arena rejudge`: accepted answers, and what else a store holds."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.errors import UnscoredError
from pytest_cepbench.files import parse_toml
from pytest_cepbench.gate import Verdict
from pytest_cepbench.store import Store
from pytest_cepbench.store.answers import get_answers
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import open_readonly
from pytest_cepbench.store.maintenance import models_in
from pytest_cepbench.store.rows import packed
from tests.cli.conftest import Ended, Home
from tests.cli.reports import accept_by_hand, measure_toy, result_of, write_report
from tests.plugin.project import contents
from tests.ratings.studies import vote_all
from tests.store.filling import (
    age,
    age_images,
    database,
    fill,
    key_of,
    picture,
    results_of,
)
from tests.studies.toy import write_suite
from tests.suites.answers import ANSWERS, WORSE, prepare
from tests.suites.test_answer_sources import rate

BUNDLE = "baselines/arena/answers.zip"


@pytest.fixture(scope="module")
def accepted_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of answers whose answers were accepted into the store of the folder.

    `answers.zip` is what was exported of them, and `copy` a store that got them from there.
    """
    root = tmp_path_factory.mktemp("accepted")
    write_suite(root, ANSWERS)
    with Store(root / ".cepbench/store") as store:
        prepare(root, store).accept()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(["store", "export", "--answers=.", "--out=answers.zip"]) == 0
        assert main(["store", "import", "answers.zip", "--store=copy"]) == 0
    return root


@pytest.fixture
def accepted(home: Home, accepted_root: Path) -> Home:
    """A copy of it, in which the command is run."""
    shutil.copytree(accepted_root, home.path, dirs_exist_ok=True)
    return home


def test_exported_answers_are_battled_elsewhere(accepted: Home) -> None:
    """The file lies beside the baselines, and a machine with another store reads it by itself. The
    same answers give the same file, also from a store that got them from such a file.
    """
    with Store(accepted.path / "other") as store:
        before = prepare(accepted.path, store, model=WORSE).judge()
    ended = accepted.command("store", "export", "--answers=.")
    with Store(accepted.path / "another") as store:
        after = prepare(accepted.path, store, model=WORSE).judge()

    assert before.verdict is Verdict.INCOMPARABLE
    assert "cepbench store import" in before.reasons[0]
    assert (ended.code, ended.out) == (0, "")
    assert "20 answers in" in ended.err
    assert after.verdict is Verdict.REGRESSED
    taken = accepted.command("store", "import", "answers.zip", "--store=copy")
    assert taken.err == "20 answers of answers.zip\n"
    ended = accepted.command("store", "export", "--answers=.", "--store=copy")
    assert ended.err.startswith(f"20 answers in {BUNDLE}, ")
    assert (accepted.path / BUNDLE).read_bytes() == (accepted.path / "answers.zip").read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        "no zip", "no answers", "no image", "another image", "no JSON", "nested", "no deflate",
        "encrypted", "method", "version", "offset", "cut off", "outside",
    ],
)  # fmt: skip
def test_damaged_bundles_add_nothing(accepted: Home, damage: str) -> None:
    """One line that names the file, whatever is wrong in it: the entries, their data, or what the
    directory says of the first one.
    """
    bundle = accepted.path / "answers.zip"
    with zipfile.ZipFile(bundle) as whole:
        entries = {name: whole.read(name) for name in whole.namelist()}
    images = [name for name in entries if name.startswith("images/")]
    if damage == "no answers":
        del entries["answers.jsonl"]
    elif damage == "no image":
        del entries[images[0]]
    elif damage == "another image":
        entries[images[0]] = entries[images[1]]
    elif damage == "no JSON":
        entries["answers.jsonl"] = b"[[\n"
    elif damage == "nested":
        entries["answers.jsonl"] = b"[" * 100_000 + b"\n"
    elif damage == "outside":  # a file that is no image of the store would be one of its damaged
        entries["answers.jsonl"] = b'[["text", "../../photo"]]\n'
    (accepted.path / "photo.webp").write_bytes(b"mine")
    with zipfile.ZipFile(bundle, "w") as changed:
        for name, content in entries.items():
            changed.writestr(name, content)
    data = bytearray(bundle.read_bytes())
    directory = data.index(b"PK\1\2")
    at = {"version": (6, b"\xff"), "encrypted": (8, b"\1"), "method": (10, b"\x63")}
    if damage == "no zip":
        data[:] = b"PK no zip"
    elif damage == "cut off":
        del data[len(data) // 2 :]
    elif damage == "no deflate":
        with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as changed:
            changed.writestr("answers.jsonl", "[]" * 1000)
        data = bytearray(bundle.read_bytes())
        start = data.index(b"answers.jsonl") + len("answers.jsonl")
        data[start] |= 6  # a kind of block that there is not
    elif damage == "offset":
        data[data.index(b"PK\5\6") + 16 : data.index(b"PK\5\6") + 20] = b"\xff\xff\xff\x7f"
    elif damage in at:
        place, value = at[damage]
        data[directory + place : directory + place + 1] = value
        if damage == "encrypted":
            data[data.index(b"PK\3\4") + 6] |= 1
    bundle.write_bytes(data)
    ended = accepted.command("store", "import", "answers.zip", "--store=fresh")
    ended.refused("'answers.zip' is no bundle of answers, or a damaged one: ", code=1, lines=1)
    assert (accepted.path / "photo.webp").exists()


def test_accepting_says_where_the_answers_lie(home: Home) -> None:
    """A baseline has their digests alone, each with a score of one half: the store, and the command
    that keeps them beside it. Before there is none to export, nor to be judged by another judge.
    """
    write_suite(home.path, ANSWERS)
    home.command("store", "export", "--answers=.").refused("holds no baseline of battles")
    home.command("arena", "rejudge", ".").refused("holds no baseline of battles")
    wrong = home.command("arena", "rejudge", ".", "--judge=shapes:?flop=1")
    wrong.refused("unknown parameter")
    with Store(home.path / ".cepbench/store") as store:
        suite = prepare(home.path, store)
        measured = suite.measure()
        results = [result_of(measured), result_of(suite.measure("overall-truth"))]
    write_report(home.path / "report.json", results)
    accept = ("accept", "report.json", "--reason=good", "--accept-insensitive")
    ended = home.command(*accept)
    elsewhere = home.command(*accept, "--store=nowhere", "--baselines=others")

    assert (ended.code, elsewhere.code) == (0, 0)
    assert (
        "20 of 20 accepted answers of arena lie in the store .cepbench/store: cepbench store "
        "export --answers SUITE --store .cepbench/store keeps them beside the baselines"
    ) in ended.out
    assert "0 of 20 accepted answers of arena lie in the store nowhere" in elsewhere.out
    assert not Path("nowhere").exists()
    assert "20 answers replaced" in ended.out
    (path,) = (home.path / "baselines").rglob("overall-win-rate-*.toml")
    text = path.read_text(encoding="utf-8")
    assert "value = 0.5\n" in text
    assert all(f'"{digest}"' in text for digest in measured.answers.values())


@pytest.mark.parametrize("where", ["here", "ini", "toml", "variable", "above", "option"])
def test_accepted_answers_stay(accepted: Home, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is deleted, also those that came from a file: the project's baselines are found."""
    Path("copy").rename(".cepbench/copy")
    store, argv = accepted.path / ".cepbench/copy", []
    if where != "above":
        (accepted.path / "baselines").rename("accepted ones" if where == "ini" else "accepted")
    match where:
        case "here":
            Path("accepted").rename("baselines")
        case "ini":
            Path("tox.ini").write_text("[pytest]\ncepbench_baselines = accepted ones\n")
        case "toml":
            text = '[tool.pytest]\naddopts = ["--cep-baselines", "accepted"]'
            Path("pyproject.toml").write_text(text)
        case "variable":
            monkeypatch.setenv("CEPBENCH_BASELINES", "accepted")
        case "option":
            argv = ["--baselines=accepted"]
        case _:
            Path("elsewhere").mkdir()
            monkeypatch.chdir("elsewhere")
    for rule in ("--max-size=0", "--unused-for=1d"):
        ended = accepted.command("store", "gc", f"--store={store}", rule, "--delete", *argv)
        assert (ended.code, ended.err) == (0, "")

    with Store(store) as opened:
        kept = get_answers(opened, _digests(accepted.path))
    assert len(kept) == 20


def _digests(root: Path) -> set[str]:
    tables = [parse_toml(path.read_text()) for path in root.rglob("overall-win-rate*.toml")]
    return {digest for table in tables for digest in table["answers"].values()}


def test_answers_of_unknown_baselines_stay(accepted: Home) -> None:
    """Where no baseline says which were accepted; the message names the ways to go on.

    Answers that the store lacks are not exported: it is said how many, and whose store would have
    them; no file is written. Where a baseline cannot be read nothing goes: what it needs would seem
    not to be needed.
    """
    digests = _digests(accepted.path)
    Path("baselines").rename("hidden")
    gc = ("store", "gc", "--max-size=0")
    listed, refused = accepted.command(*gc), accepted.command(*gc, "--delete")
    with Store(Path(".cepbench/store")) as store:
        assert len(get_answers(store, digests)) == 20
    Path("hidden").rename("baselines")
    without = accepted.command(*gc, "--without-baselines", "--delete")
    with Store(Path(".cepbench/store")) as store:
        assert get_answers(store, digests) == {}

    words = "no baselines were found that say which are accepted"
    assert (listed.code, refused.code, without.code) == (0, 2, 0)
    assert words in listed.flat
    assert words in refused.err
    assert "--baselines DIR, or say --without-baselines" in refused.err
    assert "accepted answers of arena/overall/win_rate go" in without.out
    assert without.out.index("accepted answers of") < without.out.index("deleted: about")
    ended = accepted.command("store", "export", "--answers=.", "--store=empty")
    ended.refused("20 of 20 accepted answers are not in the store 'empty'", code=1)
    assert not (accepted.path / BUNDLE).exists()
    (accepted.path / "baselines/arena/broken.toml").write_text("<<<")
    ended = accepted.command("store", "gc", "--max-size=0", "--delete")
    ended.refused("broken.toml' cannot be read as a baseline")


def _judges(folder: Path) -> set[str]:
    from pytest_cepbench.evaluation.project_baselines import suite_baselines

    return {own.identity["judge"] for _, own in suite_baselines(folder) if own.answers}


def _ask(accepted: Home, judge: str) -> None:
    """Have a judge decide battles of another model, as a run under it does."""
    with Store(accepted.path / ".cepbench/store") as store:
        asked = prepare(accepted.path, store, model=WORSE, roles={"judge": judge})
        assert asked.judge().verdict is Verdict.INCOMPARABLE


def test_who_gave_no_verdict_is_not_written(accepted: Home) -> None:
    """Neither one that was never asked nor one that only failed; the line says what to run.

    Nor are people without a vote. With one they are: they name themselves, and each candidate has
    battles of its own.
    """
    folder = accepted.path / "baselines/arena"
    before = _judges(folder)
    with Store(accepted.path / ".cepbench/store") as store:
        roles = {"judge": "shapes:?flip=0.1"}
        prepare(accepted.path, store, roles=roles).measure()  # of the accepted answers alone
    for judge in ("shapes:?flip=0.1", "python:tests.cli.test_judge_card:Silent"):
        if judge.endswith("Silent"):
            with pytest.raises(UnscoredError):
                _ask(accepted, judge)
        ended = accepted.command("arena", "rejudge", ".", f"--judge={judge}")
        command = f"`pytest . --model=CANDIDATE --judge={judge}`"
        ended.refused(f"the judge {judge} gave no verdict yet", command)
    assert _judges(folder) == before
    with Store(accepted.path / ".cepbench/store") as store:
        ratings = rate(accepted.path, store)
    judge = f"--judge=human:{ratings.path}"
    early = accepted.command("arena", "rejudge", ".", judge)
    vote_all(ratings, lambda _: "B")
    ended = accepted.command("arena", "rejudge", ".", judge)
    early.refused(f"let people judge, with `cepbench rate ask {ratings.path}`")
    assert ended.code == 0


def test_another_judge_takes_over(accepted: Home) -> None:
    """The accepted answers stay, and a run with the new judge is comparable with them."""
    folder = accepted.path / "baselines/arena"
    before = _judges(folder)
    (path,) = folder.glob("overall-win-rate-*.toml")
    text = path.read_text("utf-8").splitlines()
    _ask(accepted, "shapes:?flip=0.1")
    dry = accepted.command("arena", "rejudge", ".", "--judge=shapes:?flip=0.1", "--dry-run")
    after_dry = _judges(folder)
    ended = accepted.command("arena", "rejudge", ".", "--judge=shapes:?flip=0.1")
    with Store(accepted.path / ".cepbench/store") as store:
        suite = prepare(accepted.path, store, model=WORSE, roles={"judge": "shapes:?flip=0.1"})
        noisy, failures = suite.judge(), suite.judge("overall-judge_failures")

    assert (dry.code, ended.code) == (0, 0)
    assert "nothing written: --dry-run" in dry.out
    assert after_dry == before
    assert _judges(folder) != before
    rewritten = zip(text, path.read_text("utf-8").splitlines(), strict=True)
    changed = [new for old, new in rewritten if old != new]
    assert [line.partition(" ")[0] for line in changed] == ['"judge"']
    assert noisy.verdict is not Verdict.INCOMPARABLE
    assert failures.verdict is Verdict.HELD
    assert noisy.difference is not None
    assert noisy.difference < 0


# -- what else `cepbench store` shows and does, and what it leaves alone ---------------------------


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


def test_a_mistake_is_one_line_and_exit_code_2(filled: Home) -> None:
    """Nothing is made, changed or deleted, although --delete is said."""
    for file, text in (("spoilt/a.toml", "<<<<<<<"), ("suites/suite.toml", 'name = "toy"')):
        Path(file).parent.mkdir()
        Path(file).write_text(text)
    before = contents(filled.path)
    for argv, message in (
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
    ):
        ended = store(filled, *argv, *(["--delete"] if argv[0] == "gc" else []))
        ended.refused(message, lines=1)
        after = contents(filled.path)
        assert {n for n in after if not n.endswith(("-shm", "-wal"))} == before.keys()
        assert {name: after[name] for name in before} == before


def test_what_is_no_store(home: Home) -> None:
    """Said in one line; no store is made of it."""
    Path("notes").mkdir()
    Path("notes/index.sqlite").write_text("mine")
    store(home, "stats", "--store=notes").refused(code=1, lines=1)
    assert {path.name for path in Path("notes").iterdir()} == {"index.sqlite"}
