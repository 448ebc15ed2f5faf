"""The script of training curves in small: measures are the gate's own, what it writes is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import training_curves
from benchmarks.curves import playing
from benchmarks.curves.figures import Document, read
from benchmarks.curves.lineups import Pair, Series, find_series, perfect_pair
from benchmarks.curves.playing import Sampling, play
from benchmarks.curves.tables import fill_in, report
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]

INSTRUMENT = ROOT / "suites" / "instrument"

MISSES = {100: 0.5, 300: 0.2, 900: 0.0}


def ladder() -> list[Series]:
    """Both series as rule-based models with a known loss, the last of which has none."""

    def spec(miss: float) -> str:
        return f"shapes:?miss={miss}" if miss else "shapes:"

    describers = tuple(Pair(spec(miss), "shapes:", (step, 900)) for step, miss in MISSES.items())
    generators = tuple(Pair("shapes:", spec(miss), (900, step)) for step, miss in MISSES.items())
    return [Series("describer", describers, 900), Series("generator", generators, 900)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Document]:
    """The folder that the script was run in, with its store, and the figures that it wrote."""
    folder = tmp_path_factory.mktemp("curves")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_curves, "find_series", lambda *_: ladder())
        patch.setattr(training_curves, "QUICK", Sampling(samples=3, draws=20))
        flags = ["--quick", "--write", "--suites", str(INSTRUMENT)]
        places = ["--json", str(folder / "figures.json"), "--store", str(folder / "store")]
        assert training_curves.main([*flags, *places]) == 0
    return folder, read(folder / "figures.json")


def test_values_are_those_of_the_gate(measured: tuple[Path, Document]) -> None:
    """A pytest run of the same model on the same store asks no model, and says the same numbers."""
    folder, figures = measured
    run = [
        sys.executable, "-m", "pytest", str(INSTRUMENT), "-q", "-p", "no:cacheprovider",
        "-k", "overall or to-", "--cep-samples", "3", "--model", "shapes:?miss=0.5",
        "--cep-store", str(folder / "store"), "--cep-baselines", str(folder / "none"),
        "--cep-report", str(folder / "report"),
    ]  # fmt: skip
    subprocess.run(run, cwd=folder, check=False, stdout=subprocess.DEVNULL)

    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    gated = {
        (case["suite"], case["part"], case["metric"]): case["value"]
        for case in document["cases"]
        if case.get("value") is not None
    }
    checked = 0
    beside = {name for metrics in training_curves.FILES.values() for name in metrics}
    assert beside < {course.name for course in figures.series[0].courses}
    for course in figures.series[0].courses:
        metric, _, part = course.name.partition(" ")
        if metric != "sdr" and metric not in beside:
            point = course.points[0]
            assert point is not None
            assert point.value == gated[course.suite, part or "overall", metric]
            checked += 1
    assert checked >= 14
    assert document["effort"]["inputs"] == 0


def test_a_draw_of_every_sample_gives_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one sample per category there is one draw, of all: its means, distances and rates."""
    monkeypatch.setattr(playing, "recentred", lambda drawn, _: drawn)
    for name in ("suite.toml", "drift.toml"):
        with Store(tmp_path / "store") as store:
            lossy = Pair("shapes:?miss=0.2", "shapes:?miss=0.2", (1, 1))
            played = play(lossy, INSTRUMENT / name, ModelPool(store), Sampling(1, 2))

        for metric in played.metrics:
            expected = float("nan") if metric.value is None else metric.value
            assert metric.drawn == pytest.approx([expected] * 2, abs=1e-6, nan_ok=True), metric.name


def test_known_losses_are_seen(measured: tuple[Path, Document]) -> None:
    """Losses of 50, 20 and 0 percent: GC and the truth rise together, the last keeps all."""
    _, figures = measured
    for series in figures.series:
        assert series.steps == (100, 300, 900)
        gc, fid = (course for course in series.courses if course.name in ("gc", "gc_fid"))
        for course in (gc, fid):  # one is better higher, the other lower
            assert course.ordered
            assert course.tau["objects"] is not None
            assert course.tau["objects"].value == 1.0
        assert gc.points[-1] is not None
        assert gc.points[-1].value == gc.perfect == pytest.approx(1.0)
        assert [step.kept["exact"].value for step in series.beside][-1] == 1.0
        assert series.beside[0].kept["exact"].value < 1.0


def test_the_truth_of_a_generator_is_its_own(measured: tuple[Path, Document]) -> None:
    """Generation 1 is the describer's in an image-first chain, the generator's in a text-first."""
    _, figures = measured
    describers, generators = (
        {(kept.suite, kept.start): kept.aspects["exact"][0] for kept in series.kept}
        for series in figures.series
    )

    assert describers["instrument", "image"][1] < 1 == generators["instrument", "image"][1]
    assert (
        generators["instrument-tasks", "text"][1] < 1 == describers["instrument-tasks", "text"][1]
    )
    own = {truth.suite: truth.reach for truth in figures.series[1].truths if truth.name == "own"}
    assert own["instrument"] == "image-first 2"
    assert own["instrument-tasks"] == "text-first 1"


def test_describers_move_nothing_in_the_first_drawing(measured: tuple[Path, Document]) -> None:
    """GenEval judges a drawing of the data set's own text: it cannot tell describers apart."""
    _, figures = measured
    (geneval,) = (course for course in figures.series[0].courses if course.name == "geneval")

    assert geneval.tau["step"] is None
    assert geneval.saturates == 100


def test_tables_go_between_the_marks_of_a_page(measured: tuple[Path, Document]) -> None:
    """A filled page can be filled again; a mark that no table has is named."""
    _, figures = measured
    empty = "\n".join(
        f"<!-- figures: {line[3:]} -->\nold\n<!-- end -->"
        for line in report(figures).splitlines()
        if line.startswith("## ")
    )

    page = fill_in(empty, figures)

    assert "| GC@3 |" in page
    assert "old" not in page
    assert fill_in(page, figures) == page
    with pytest.raises(ValueError, match="describer-vaules"):
        fill_in(page.replace("describer-values", "describer-vaules"), figures)


def test_series_are_found_by_their_names(tmp_path: Path) -> None:
    """By step, with the best of the other role; a series of one is refused with what was found."""
    for name in (
        "describer-step900",
        "describer-step1000",
        "generator-step50",
        "clip",
        "describer",
    ):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match="at least two generators, named generator-stepN; found 1"):
        find_series(tmp_path)
    (tmp_path / "generator-step70").mkdir()

    describers, generators = find_series(tmp_path)

    assert (describers.steps, describers.fixed) == ((900, 1000), 70)
    assert (generators.steps, generators.fixed) == ((50, 70), 1000)
    assert all("describer-step1000?" in pair.describer for pair in generators.pairs)
    assert perfect_pair() not in (*describers.pairs, *generators.pairs)


def test_what_is_missing_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without checkpoints and figures that are none end with exit code 2, no traceback."""
    assert training_curves.main(["--checkpoints", str(tmp_path), "--store", str(tmp_path)]) == 2
    assert "at least two describers" in capsys.readouterr().err
    (tmp_path / "figures.json").write_text("{}")

    assert training_curves.main(["--read", "--json", str(tmp_path / "figures.json")]) == 2
    assert "measure the figures again" in capsys.readouterr().err


def test_real_checkpoints_are_played(tmp_path: Path) -> None:
    """The first describer and the first generator that are shipped, on a scene of each task."""
    pytest.importorskip("diffusers", reason="checkpoints need the [models] extra")
    describers, generators = find_series(ROOT / "reference" / "checkpoints")
    pair = Pair(describers.pairs[0].describer, generators.pairs[0].generator, (1, 1))

    with Store(tmp_path / "store") as store:
        pool = ModelPool(store, threads=1)
        played = play(pair, ROOT / "suites" / "shapes" / "tasks.toml", pool, Sampling(1, 5))

    exact = played.truth["text"][:, :, 0].mean(axis=0)
    assert exact[0] == 1
    assert exact[-1] < 1
    assert {metric.name for metric in played.metrics} == {"geneval", "mgg", "failures", "truth"}
    assert all(metric.scores is not None and len(metric.scores) == 6 for metric in played.metrics)
