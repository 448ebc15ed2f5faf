"""`cepbench calibrate`: what is measured and shown, and what becomes of the baselines."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.gate import FreshMeasurement, Noise, Policy
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.gate.sensitivity import design_of, power_of
from pytest_cepbench.studies.calibration import noise_of
from tests.cli.conftest import Ended, Home
from tests.cli.reports import GATED, Measured, accept_by_hand, measure_toy
from tests.cli.test_process import MODULE
from tests.optional import known
from tests.plugin.project import contents
from tests.studies.toy import write_suite

MODEL = "shapes:?miss=0.3"


def calibrate(home: Home, *argv: str, model: str = MODEL) -> Ended:
    """The command on the suite here."""
    return home.command("calibrate", ".", f"--model={model}", *argv)


def noise_in(root: Path, measurement: FreshMeasurement) -> Noise | None:
    """What the baseline of a case says of its noise."""
    table = tomllib.loads(baseline_path(root, measurement.key).read_text())
    return Noise(**table["noise"]) if "noise" in table else None


@pytest.fixture(scope="session")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of what the model does under five seeds, and one that seeds do not change."""
    root = tmp_path_factory.mktemp("computed")
    file, store = str(write_suite(root, GATED)), f"--store={root / 'store'}"
    for model, seeds in ((MODEL, 5), ("shapes:", 2)):
        assert main(["calibrate", file, f"--model={model}", f"--seeds={seeds}", store]) == 0
    return root / "store"


@pytest.fixture
def home(home: Home, computed: Path) -> Home:
    """A folder with the toy suite, and with that store."""
    shutil.copytree(computed, home.path / ".cepbench" / "store")
    return home


def test_the_noise_of_every_case_is_kept(home: Home, measured: Measured) -> None:
    """It is that of the gate's own measurements under the seeds; all else stays.

    A dry run says which baselines would be written, and writes none; nor is any written where a
    folder is in the way of a new file.
    """
    root = home.path / "baselines"
    accept_by_hand(root, measured(MODEL))
    before = contents(root)
    dry = calibrate(home, "--seeds=3", "--dry-run")
    assert "to be written, but for --dry-run: color/gc, count/gc, " in dry.out
    path = baseline_path(root, measured()[0].key)
    way = path.with_name(f".{path.name}.new")
    way.mkdir()
    ended = calibrate(home, "--seeds=3")
    assert ended.code == 1
    assert "could not be written: Is a directory; none of the" in ended.flat
    way.rmdir()
    assert contents(root) == before
    ended = calibrate(home, "--seeds=3")
    assert ended.code == 0
    section = re.compile(rb"\n\[noise\]\n(.+\n)+")
    assert {name: section.sub(b"", data) for name, data in contents(root).items()} == before
    texts = [GATED.replace("iterations = 2", f"iterations = 2\nseed = {s}") for s in range(3)]
    seeded = [list(measure_toy(home.path / ".cepbench", MODEL, text)) for text in texts]
    # Of the seed 0, that of the suite, in a store that no calibration has written as well.
    assert [own.scores for own in seeded[0]] == [own.scores for own in measured(MODEL)]
    for under_seeds in zip(*seeded, strict=True):
        noise = noise_in(root, under_seeds[0])
        assert noise == noise_of(under_seeds)
        assert noise is not None
        assert (noise.seeds, noise.units) == (3, under_seeds[0].n)
    assert len({tuple(own.value for own in each) for each in seeded}) == 3
    assert f"written: {', '.join(f'{o.key.part}/{o.key.metric}' for o in measured())}" in ended.flat


def test_what_is_printed(home: Home, measured: Measured) -> None:
    """Value, noise, units, alpha, tolerance; what can be seen, and a warning where it is more."""
    accept_by_hand(home.path / "baselines", measured(MODEL))
    ended = calibrate(home)
    (measurement,) = [m for m in measured(MODEL) if (m.key.part, m.key.metric) == ("overall", "gc")]
    noise = known(noise_in(home.path / "baselines", measurement))
    cells = ended.row("overall/gc")
    assert cells[:6] == [
        f"{measurement.value:.4f}", f"{noise.value_sd:.4f}", f"{noise.sd:.4f}", "16",
        "0.005", "0.01",
    ]  # fmt: skip
    # 80 % power at alpha 0.005 and few degrees of freedom: a bit more than (z + z) sd / 4.
    plain = (2.5758 + 0.8416) * noise.sd / 4
    assert plain < float(cells[6]) < 2 * plain
    design = known(design_of(noise, 16))
    power = power_of(design, Policy(tolerance=0.01, alpha=0.005))
    assert cells[6:] == [f"{power.visible:.4f}", str(power.held_of_100), str(power.needed)]
    (small,) = re.findall(r"its baseline is often undecided: (.*?) give these", ended.flat)
    assert small.split(", ") == [
        f"{m.key.part}/gc" for m in measured(MODEL) if m.key.metric == "gc"
    ]
    assert "seeds 0 to 4" in ended.out
    assert ended.err.splitlines() == [f"{i + 1} of 5: seed {i}" for i in range(5)]


def test_a_gate_without_statistics_has_no_power(home: Home) -> None:
    """Its cases take no share of alpha, and nothing is said of what they can see.

    Without baselines nothing is written; the table is there all the same, and how to accept.
    """
    write_suite(home.path, GATED.replace('"regression"', '"threshold"'))
    ended = calibrate(home, "--seeds=2")
    assert ended.code == 0
    assert "not kept, no baseline was accepted yet: run pytest with --snapshot-update" in ended.out
    assert not (home.path / "baselines").exists()
    assert ended.row("overall/gc")[3:] == ["16", "-", "0.01", "-", "-", "-"]
    assert "cases that are often undecided" not in ended.out


def test_a_model_that_seeds_do_not_change(home: Home, measured: Measured) -> None:
    """All differences are 0: it is told so, and nothing is warned of.

    Noise of another model is written, since checkpoints of one family are alike, and that is said.
    """
    accept_by_hand(home.path / "baselines", measured())
    ended = calibrate(home, "--seeds=2", model="shapes:")
    assert ended.code == 0
    assert "the seeds change nothing" in ended.out
    assert ended.row("overall/gc")[1:3] == ["0.0000", "0.0000"]
    assert ended.row("overall/gc")[-3:] == ["-", "-", "-"]
    assert "often undecided" not in ended.out
    noise = known(noise_in(home.path / "baselines", measured()[0]))
    assert (noise.seeds, noise.units, noise.sd, noise.value_sd) == (2, 2, 0.0, 0.0)
    noisy = calibrate(home, "--seeds=2").out
    assert "the seeds change nothing" not in noisy
    assert "is not known" not in noisy
    assert "the baseline is of another model (shapes:) than the calibrated one: color/gc" in noisy
    kept = known(noise_in(home.path / "baselines", measured()[0]))
    assert kept.value_sd > 0


def test_a_case_that_cannot_be_measured_leaves_the_others(home: Home, tmp_path: Path) -> None:
    """What could be measured is calibrated and kept; the exit code is 1 all the same."""
    text = GATED.replace("samples_per_category = 2", "samples_per_category = 1")
    measurements = tuple(measure_toy(tmp_path, MODEL, text))
    accept_by_hand(home.path / "baselines", measurements)
    write_suite(home.path, text + "[metrics.fid]\n")
    ended = calibrate(home, "--seeds=2")
    assert ended.code == 1
    assert (
        "toy/color/fid: not measured under seed 0: FID [shapes] needs at least 2 images"
        in ended.flat
    )
    assert "toy/color/gc: one independent sample shows no spread" in ended.flat
    assert "written: overall/gc, overall/failures" in ended.flat
    assert noise_in(home.path / "baselines", measurements[-2]) is not None


def test_interrupted_it_keeps_what_was_computed(home: Home) -> None:
    """Ctrl-C gives one line and exit code 130, and nothing is written."""
    module = MODULE.format(when=3)
    (home.path / "interrupted.py").write_text(module)
    ended = calibrate(home, "--seeds=2", model="python:interrupted:describer")
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[-1].startswith("cepbench: interrupted; what was computed is in")


EDITS: dict[str, Callable[[str], str]] = {
    "more than its noise: accept it again first": lambda text: text.replace("# Acc", "# Our acc"),
    "not as this version writes it": lambda text: text.replace("\n", "\r\n"),
    "and would change in": lambda text: text.replace('"GC@2"', '"GC@2"  # why'),
    "cannot be read: ": lambda _: "<<<<<<<",
    "by a newer pytest-cepbench": lambda text: text.replace("format = ", "format = 9"),
}
"""What a remark on the file says -> how it was edited."""


def test_a_baseline_that_was_edited_or_is_of_something_else_stays(
    home: Home, measured: Measured
) -> None:
    """Calibrating would change more of it than its noise; the others are calibrated."""
    root = home.path / "baselines"
    odd, *rest = measured(MODEL)[len(EDITS) :]
    accept_by_hand(root, measured(MODEL))
    accept_by_hand(root, [odd], identity={**odd.identity, "generate prompt": "paint this"})
    path = baseline_path(root, odd.key)
    edited = {path: path.read_bytes()}
    for measurement, edit in zip(measured(MODEL), EDITS.values(), strict=False):
        path = baseline_path(root, measurement.key)
        path.write_bytes(edit(path.read_text()).encode())
        edited[path] = path.read_bytes()
    ended = calibrate(home, "--seeds=2")
    assert ended.code == 0
    for sentence in (*EDITS, "made from something else: generate prompt: baseline paint"):
        assert sentence in ended.flat
    assert {path: path.read_bytes() for path in edited} == edited
    assert rest
    assert all(noise_in(root, measurement) is not None for measurement in rest)


def test_the_suites_own_seed_is_the_first(home: Home) -> None:
    """Seeds go on from that of the suite, whose measurement is compared with the baseline."""
    text = GATED.replace("iterations = 2", "iterations = 2\nseed = 40")
    accept_by_hand(home.path / "baselines", measure_toy(home.path / ".cepbench", MODEL, text))
    write_suite(home.path, text)
    ended = calibrate(home, "--seeds=2")
    assert "seeds 40 to 41" in ended.out
    assert "\nwritten: color/gc, " in ended.out
