"""The record of a series: who has which look, what is spent, and files that are not whole."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pytest_cepbench.errors import SeriesError, WriteError
from pytest_cepbench.gate.policy import Place
from pytest_cepbench.gate.series import Entry, SeriesFile
from pytest_cepbench.gate.statistics.constants import LEAST_SHARE
from pytest_cepbench.gate.statistics.error_budget import checkpoint_share

CASE = "shapes/overall/gc"


def judge(
    file: SeriesFile,
    model: str,
    baseline: str | None = None,
    *,
    run: str | None = None,
    case: str = CASE,
    alpha: float = 0.05,
    anchor: str | None = None,
) -> Place:
    """Enter a case of a checkpoint that a run is about to judge. run: of its own by default."""
    entry = Entry(
        look=0, run=run or f"run of {model}", case=case, model=model, spec=model, alpha=alpha,
        reference=baseline or "",
    )  # fmt: skip
    return file.enter(entry, anchor)


@pytest.fixture
def series(tmp_path: Path) -> SeriesFile:
    """A series that has not begun."""
    return SeriesFile(tmp_path / "baselines", "run-1")


def test_checkpoints_are_numbered_in_the_order_of_their_gates(series: SeriesFile) -> None:
    """Each has its share; the lines tell what was looked at. One that is gated again has the alpha
    that it had, in whatever run, and however that one divides its alpha; the record does not grow.
    The cases of a run share its look; one that another run judges later has a look of its own, as
    that run divides another alpha.
    """
    assert series.read() is None
    places = [judge(series, f"step-{k}") for k in range(1, 4)]
    assert [place.look for place in places] == [1, 2, 3]
    assert [place.share for place in places] == [checkpoint_share(k) for k in (1, 2, 3)]
    opening, *lines = map(json.loads, series.path.read_text().splitlines())
    digest = opening.pop("digest")
    assert opening == {"format": 4, "series": "run-1", "expected": 40}
    assert len({digest, *(line["digest"] for line in lines)}) == 4
    assert [line["look"] for line in lines] == [1, 2, 3]
    first = judge(series, "step-4", alpha=0.01)
    judge(series, "step-5")
    size = series.path.stat().st_size
    assert judge(series, "step-4", run="later", alpha=0.05) == first
    assert series.path.stat().st_size == size
    cases = (("gc", "1", 6), ("sim", "1", 6), ("fid", "2", 7), ("gc", "2", 6))
    for metric, run, look in cases:
        assert judge(series, "step-6", case=f"a/overall/{metric}", run=run).look == look


def test_the_share_knows_where_the_baseline_comes_from(series: SeriesFile) -> None:
    """Half for the one that the series began with, else by the distance. An old checkpoint against
    a newer baseline has a look of its own; against older ones it keeps the one it had.

    A first checkpoint that was compared became the baseline because it passed, so that its scores
    had a say: it is not what the series began with.
    """
    judge(series, "step-1")
    judge(series, "step-2", "step-1")
    near = judge(series, "step-3", "step-2", anchor="step-1")
    far = judge(series, "step-4", "step-2", anchor="step-1")
    first = judge(series, "step-5", "step-1")
    outside = judge(series, "step-6", "of another training")
    assert [place.baseline for place in (near, far, first, outside)] == [2, 2, None, 0]
    parts = [
        place.share_beside(place.baseline) / place.share for place in (near, far, first, outside)
    ]
    assert parts == pytest.approx([1 / 6, 1 / 12, 1 / 2, 1 / 56])
    assert far.anchor is None
    assert far.share_beside(far.anchor) / far.share == pytest.approx(0.5)
    again = judge(series, "step-2", "step-3", run="again")
    assert (again.look, again.baseline) == (7, 3)
    other = SeriesFile(series.path.parents[1], "other")
    judge(other, "step-1", "of another training", anchor="its first")
    place = judge(other, "step-2", "step-1", anchor="its first")
    assert (place.baseline, place.anchor) == (1, 0)
    assert judge(other, "step-3", "of another training").baseline is None


def test_the_length_is_that_of_the_beginning(series: SeriesFile) -> None:
    """Another one later would divide the error a second time. Its name leads nowhere else."""
    root, name = series.path.parents[1], series.name
    assert judge(SeriesFile(root, name, 100), "step-1").expected == 100
    assert judge(series, "step-2").expected == 100
    with pytest.raises(SeriesError, match="begun for 100 checkpoints, and 40 are expected now"):
        SeriesFile(root, name, 40).read()
    copy = SeriesFile(root, "copy")  # whole, and under another name
    copy.path.write_bytes(series.path.read_bytes())
    with pytest.raises(SeriesError, match="line 1: it is the record of series 'run-1'"):
        copy.read()
    for wrong in ("", "../up", "a/b", ".hidden", "a b", "x" * 65, "é"):
        with pytest.raises(SeriesError, match="letters, digits"):
            SeriesFile(root, wrong)


DAMAGE: dict[str, Callable[[str], str]] = {
    "cut off": lambda text: text[:-9],
    "no end of line": lambda text: text[:-1],
    "no opening": lambda text: text.partition("\n")[2],
    "a look is gone": lambda text: "\n".join(
        line for line in text.split("\n") if '"look":2' not in line
    ),
    "another series": lambda text: text.replace('"run-1"', '"run-2"'),
    "an earlier format": lambda text: text.replace('"format":4', '"format":3'),
    "a later format": lambda text: text.replace('"format":4', '"format":5'),
    "a longer series": lambda text: text.replace('"expected":40', '"expected":1000000000'),
    "another checkpoint": lambda text: text.replace('"step-1"', '"step-9"', 1),
    "a line twice": lambda text: text + text.splitlines()[-1] + "\n",
    "no digests": lambda text: re.sub(r',"digest":"\w+"', "", text),
    "an unknown field": lambda text: text.replace('"spec"', '"spice"'),
    "not even JSON": lambda text: text.replace("{", "<", 3),
    "a line of nothing": lambda text: text + "\n",
    "binary": lambda text: "\udcff" + text,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_an_error_and_stays_as_it_is(series: SeriesFile, damage: str) -> None:
    """Never a silent restart: reading and entering say so, and write nothing."""
    for step in ("step-1", "step-2", "step-3"):
        judge(series, step)
    text = DAMAGE[damage](series.path.read_text())
    series.path.write_text(text, errors="surrogateescape")
    before = series.path.read_bytes()
    for use in (series.read, lambda: judge(series, "step-4")):
        with pytest.raises(SeriesError, match=r"run-1\.jsonl: .*another series under a new name"):
            use()
    assert series.path.read_bytes() == before


@pytest.mark.parametrize("begun", [False, True])
def test_a_record_that_goes_during_a_run_is_an_error(series: SeriesFile, *, begun: bool) -> None:
    """Also where another process began it anew: the next case would have the first look's share."""
    judge(series, "step-1")
    judge(series, "step-2")
    series.path.unlink()
    if begun:
        judge(SeriesFile(series.path.parents[1], "run-1"), "step-3")
    for _ in range(2):
        with pytest.raises(SeriesError, match=r"what this run entered is gone\. .* restore it"):
            judge(series, "step-2", run="run of step-2", case="shapes/overall/failures")


def test_a_look_with_hardly_any_alpha_is_an_error(tmp_path: Path) -> None:
    """It ends where no drop could be told from noise; what was looked at keeps its number."""
    series = SeriesFile(tmp_path, "short", 1)
    judged = [judge(series, f"step-{number}") for number in range(1, 316)]
    assert judged[-1].share >= LEAST_SHARE
    with pytest.raises(SeriesError, match=r"checkpoint 316 .* begun for 1 .* another one"):
        judge(series, "step-316")
    assert judge(series, "step-3").look == 3


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "file above"])
def test_what_is_no_file_is_refused(series: SeriesFile, kind: str, tmp_path: Path) -> None:
    """Without waiting for it, or writing to what it leads to."""
    series.path.parents[kind == "file above"].mkdir(parents=True)
    target = tmp_path / "elsewhere"
    if kind == "file above":
        series.path.parent.write_text("")
    elif kind == "pipe":
        os.mkfifo(series.path)
    elif kind == "folder":
        series.path.mkdir()
    else:
        target.write_text("")
        series.path.symlink_to(target)
    with pytest.raises((SeriesError, WriteError)):
        series.read()
    with pytest.raises((SeriesError, WriteError)):
        judge(series, "step-1")
    assert not target.exists() or target.read_text() == ""


def _enter(root: Path, number: int) -> int:
    """One process of many: half of them are of one run, the others of runs of their own."""
    file = SeriesFile(root, "busy")
    run = "shared" if number % 2 else f"own {number}"
    return judge(file, f"model of {run}", run=run, case=f"s/{number}/gc").look


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Those of one run share a look, all others have one each; every line is there."""
    with ProcessPoolExecutor(8) as pool:
        looks = list(pool.map(_enter, [tmp_path] * 24, range(24)))
    shared, own = set(looks[1::2]), looks[0::2]
    assert len(shared) == 1
    assert sorted([*shared, *own]) == list(range(1, 14))
    assert len((tmp_path / "series" / "busy.jsonl").read_text().splitlines()) == 1 + 24


@pytest.mark.slow
def test_a_lock_ends_with_the_process_that_held_it(series: SeriesFile) -> None:
    """Killed while it wrote: the next one goes on."""
    judge(series, "step-1")
    reading, writing = os.pipe()
    holder = os.fork()
    if holder == 0:
        with series.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    began = time.monotonic()
    Timer(0.5, os.kill, (holder, signal.SIGKILL)).start()
    assert judge(series, "step-2").look == 2
    assert time.monotonic() - began > 0.4
    os.waitpid(holder, 0)


class Trainings(RuleBasedStateMachine):
    """Runs in any order, of any checkpoints and cases."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self._file = SeriesFile(Path(self._folder.name), "any")
        self._runs = 0
        self._known: set[str] = set()
        self._levels: dict[tuple[int, str, str, str], float] = {}

    @rule(
        model=st.integers(0, 4),
        cases=st.sets(st.integers(0, 3), min_size=1),
        references=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    )
    def gate(self, model: int, cases: set[int], references: tuple[int, int]) -> None:
        """A run judges some cases against checkpoints of the series, or what was before it."""
        self._runs += 1
        candidate = f"m{model}"
        baseline, anchor = (
            f"m{reference}" if f"m{reference}" in self._known else before
            for reference, before in zip(references, ("first", "second"), strict=True)
        )
        for case in sorted(cases):
            key = f"s/{case}/gc"
            place = judge(
                self._file, candidate, baseline, run=f"run {self._runs}", case=key,
                alpha=0.05 / len(cases), anchor=anchor,
            )  # fmt: skip
            assert max(place.baseline or 0, place.anchor or 0) < place.look
            self._known.add(candidate)
            looks = {anchor: place.anchor, baseline: place.baseline}
            for reference, look in looks.items():
                if reference != candidate:
                    level = place.alpha * place.share_beside(look)
                    self._levels[place.look, key, reference, candidate] = level

    @invariant()
    def alpha_is_never_exceeded(self) -> None:
        """All comparisons that may have been seen have no more than alpha together."""
        assert fsum(self._levels.values()) <= 0.05 + 1e-12

    def teardown(self) -> None:
        """Remove the record."""
        self._folder.cleanup()


TestTrainings = pytest.mark.slow(Trainings.TestCase)
TestTrainings.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
