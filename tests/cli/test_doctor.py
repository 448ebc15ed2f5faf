"""`cepbench doctor`: each fault of a set-up is named, with a remedy; a good set-up passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from tests.cli import doctor_models
from tests.cli.conftest import Ended, Home
from tests.cli.reports import GATED, Measured, accept_by_hand, result_of, write_report
from tests.studies.toy import write_suite

MODELS = f"python:{doctor_models.__name__}"

SMALL = GATED.replace("samples_per_category = 2", "samples_per_category = 1")

PHOTOS = """\
name = "toy"
version = 1
[data]
loader = "folder"
path = "photos"
[chain]
iterations = 1
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
"""


@pytest.fixture(autouse=True)
def _small_suite(home: Home) -> None:
    """A sample in each of the 8 categories: the doctor asks for much."""
    write_suite(home.path, SMALL)


def doctor(home: Home, *argv: str) -> Ended:
    """The command on the suite here."""
    return home.command("doctor", ".", *argv)


def checks(home: Home) -> dict[str, dict[str, Any]]:
    """The checks of the file that was written, by name."""
    path = home.path / ".cepbench" / "studies" / "doctor-toy.json"
    return {entry["name"]: entry for entry in json.loads(path.read_text("utf-8"))["checks"]}


def cells(check: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of a check's table, by their first cell, then by column."""
    (figures,) = check["figures"]
    return {row[0]: dict(zip(figures["head"], row, strict=True)) for row in figures["rows"]}


def flat(text: str) -> str:
    """A page without its line breaks."""
    return " ".join(text.split())


def photos(folder: Path, images: dict[str, np.ndarray[Any, Any]]) -> None:
    """Files below `photos`, one for each image."""
    for name, pixels in images.items():
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def test_a_good_set_up_passes(home: Home) -> None:
    """No problem, exit code 0; every check says what it looked at; no baseline is written."""
    ended = doctor(home, "--model=shapes:?miss=0.05")
    by_name = checks(home)
    assert ended.code == 0
    assert {
        name: entry["status"] for name, entry in by_name.items() if entry["status"] != "pass"
    } == {"visible drop": "remark", "encoder on changed images": "remark"}
    assert list(by_name) == [
        "measurement", "chance floor", "visible drop", "constant outputs",
        "duplicates among the samples", "encoder on changed images", "repeatable drawings",
        "cost of a run",
    ]  # fmt: skip
    assert all(entry["said"] for entry in by_name.values())
    assert not (home.path / "baselines").exists()
    assert "doctor of toy: 2 remarks" in ended.out
    page = (home.path / ".cepbench" / "studies" / "doctor-toy.md").read_text("utf-8")
    assert page.startswith("# doctor of toy: 2 remarks\n")


def test_distortions_are_measured_beside_chance(home: Home) -> None:
    """The exact encoder notices all that matters, and is itself when it is asked twice."""
    doctor(home, "--model=shapes:")
    rows = cells(checks(home)["encoder on changed images"])
    assert rows["none, asked twice"]["moves the score by"] == pytest.approx(0, abs=1e-12)
    for name in ("strong blur", "crop", "colors exchanged", "region covered"):
        assert rows[name]["starts"] == 8
        assert rows[name]["moves the score by"] > 0.05
        assert rows[name]["similarity"] == pytest.approx(1 - rows[name]["moves the score by"])
    assert 0 < rows["crop"]["by chance"] < 0.5


def test_an_encoder_that_does_not_see_colors_is_named(home: Home) -> None:
    """The distortion that moves nothing is a problem by name; the others are not."""
    ended = doctor(home, "--model=shapes:", f"--encoder={MODELS}:GreyEncoder")
    check = checks(home)["encoder on changed images"]
    assert ended.code == 1
    assert check["status"] == "problem"
    assert check["said"] == [
        "colors exchanged: moves the score by 0.0000, less than the tolerance 0.01"
    ]
    assert "use another encoder" in flat(ended.out.partition("\nwhat to do\n")[2])


def test_an_encoder_that_sees_nothing_is_a_problem(home: Home) -> None:
    """No case can be measured, and every change goes unnoticed."""
    ended = doctor(home, "--model=shapes:", f"--encoder={MODELS}:BlindEncoder")
    by_name = checks(home)
    assert ended.code == 1
    assert by_name["measurement"]["status"] == "problem"
    assert "gives one vector for" in by_name["measurement"]["said"][0]
    assert by_name["encoder on changed images"]["status"] == "problem"
    assert cells(by_name["encoder on changed images"])["crop"]["by chance"] == pytest.approx(1)


def test_a_tolerance_that_hides_a_distortion_is_named(home: Home) -> None:
    """What is noticed at one tolerance is hidden by a larger one."""
    ended = doctor(home, "--model=shapes:", "--tolerance=0.6")
    sentence = " ".join(checks(home)["encoder on changed images"]["said"])
    assert ended.code == 1
    assert "less than the tolerance 0.6" in sentence


def test_an_encoder_that_never_repeats_itself_is_a_problem(home: Home) -> None:
    """Asked twice, although the store knows its vectors, it gives others."""
    ended = doctor(home, "--model=shapes:", f"--encoder={MODELS}:NoisyEncoder")
    check = checks(home)["encoder on changed images"]
    assert ended.code == 1
    assert cells(check)["none, asked twice"]["moves the score by"] > 0.05
    assert check["said"][0].startswith("the same image encoded twice moves the score by")
    assert any("make the encoder repeatable" in line for line in check["advice"])


def test_a_generator_that_does_not_obey_its_seed_is_a_problem(home: Home) -> None:
    """The same text and seed give other pixels, farther apart than the tolerance."""
    generator = f"--generator={MODELS}:RestlessGenerator"
    ended = doctor(home, "--model=shapes:", generator, f"--encoder={MODELS}:GreyEncoder")
    check = checks(home)["repeatable drawings"]
    assert ended.code == 1
    assert check["status"] == "problem"
    assert "the same text and seed give other pixels (8 of 8 texts)" in check["said"][0]
    assert any("obey its seed" in line for line in check["advice"])


def test_how_drawings_scatter_with_the_seed(home: Home) -> None:
    """The spread is that of the similarity to the start over three seeds, in the score's unit."""
    doctor(home, "--model=shapes:", "--generator=shapes:?move=0.3")
    check = checks(home)["repeatable drawings"]
    row = cells(check)["drawings"]
    assert (row["texts"], row["seeds"]) == (8, 3)
    assert 0.3 < row["similarity"] < 0.99
    assert 0.02 < row["sd of the score"] < 0.5
    assert check["said"][0] == "the same text and seed give the same pixels (8 texts)"
    assert check["status"] == "remark"
    assert "[chain] seeds" in check["advice"][0]


def test_a_describer_with_one_answer_is_a_problem(home: Home) -> None:
    """All descriptions are the same: said in words, with how many."""
    ended = doctor(home, f"--model={MODELS}:MonotoneDescriber")
    check = checks(home)["constant outputs"]
    assert ended.code == 1
    assert check["status"] == "problem"
    (sentence,) = check["said"]
    assert sentence.startswith(
        "image-first chains: all 8 descriptions are the same, of images that differ"
    )
    assert sentence.endswith(": 'one shape : small red circle top left'")
    assert "look at what the model that repeats itself is given" in flat(ended.out)


def test_scores_at_chance_are_a_problem(home: Home) -> None:
    """Of a describer that cannot read its images, whose descriptions differ all the same."""
    write_suite(home.path, PHOTOS.replace('describer = "shapes:"', ""))
    photos(home.path, {f"{i}.png": _scene(i) for i in range(20)})
    ended = doctor(home, f"--describer={MODELS}:GuessingDescriber")
    by_name = checks(home)
    row = cells(by_name["chance floor"])["overall/gc"]
    assert ended.code == 1
    assert by_name["chance floor"]["status"] == "problem"
    assert by_name["constant outputs"]["status"] == "pass"
    assert abs(row["value"] - row["by chance"]) < 0.05
    assert row["share of the range"] < 0.05
    sentence = by_name["chance floor"]["said"][0]
    assert sentence.startswith(f"at chance: overall/gc: {row['value']:.4g} of a range from ")
    assert "use a describer and a generator that know this kind of images" in flat(ended.out)


def _scene(number: int) -> np.ndarray[Any, Any]:
    """A picture of the shapes world."""
    sample = load_shapes(samples_per_category=20).in_category("relation")[number]
    return load_seed_image(sample).pixels


def test_copies_among_the_samples_are_named(home: Home) -> None:
    """Equal images in other files and categories count as copies; a tenth of them is a problem."""
    draw = np.random.default_rng(0)
    images = {
        f"{name}/{i}.png": draw.integers(0, 256, (64, 64, 3), np.uint8)
        for name in "ab"
        for i in range(8)
    }
    write_suite(
        home.path, PHOTOS.replace('encoder = "shapes:"', f'encoder = "{MODELS}:GreyEncoder"')
    )
    photos(home.path, images | {"b/copy.png": images["a/0.png"]})
    doctor(home)
    few = checks(home)["duplicates among the samples"]
    photos(home.path, {"b/again.png": images["a/0.png"], "a/copy.png": images["b/3.png"]})
    doctor(home)
    many = checks(home)["duplicates among the samples"]
    assert (few["status"], many["status"]) == ("remark", "problem")
    assert few["said"] == ["1 of 17 samples have the image of another one: a/0.png = b/copy.png"]
    assert many["said"][0].startswith("3 of 19 samples")
    assert "drop the copies" in many["advice"][0]


def test_near_equal_samples_are_named(home: Home) -> None:
    """Images that differ by a level are near-equal to the encoder; others are not."""
    draw = np.random.default_rng(0)
    images = {f"{i}.png": draw.integers(0, 200, (64, 64, 3), np.uint8) for i in range(6)}
    write_suite(
        home.path, PHOTOS.replace('encoder = "shapes:"', f'encoder = "{MODELS}:GreyEncoder"')
    )
    photos(home.path, images | {"near.png": images["2.png"] + np.uint8(1)})
    doctor(home)
    check = checks(home)["duplicates among the samples"]
    assert check["status"] == "remark"
    (sentence,) = check["said"]
    assert sentence.startswith("pairs of images that differ and are near-equal to the encoder")
    assert sentence.endswith("(cosine of 0.999 or more): 1, 2.png = near.png")


def test_seeds_of_a_sample_are_no_copies(home: Home) -> None:
    """`[chain] seeds` plays each start several times, as one unit."""
    write_suite(home.path, SMALL.replace("iterations = 2", "iterations = 2\nseeds = 2"))
    doctor(home, "--model=shapes:?miss=0.1")
    assert checks(home)["duplicates among the samples"]["status"] == "pass"


def test_text_starts(home: Home) -> None:
    """Texts lose words, exchange words, are denied; what reads no grammar sees no denial."""
    text = SMALL.replace("iterations = 2", 'start = "both"\niterations = 2')
    write_suite(home.path, text.replace("[metrics.gc]", "[metrics.mcd]"))
    ended = doctor(home, "--model=shapes:?miss=0.05")
    check = checks(home)["encoder on changed texts"]
    rows = cells(check)
    assert ended.code == 0
    assert "encoder on changed images" in checks(home)
    assert rows["words swapped"]["moves the score by"] > 0.01
    assert rows["negation"]["moves the score by"] == pytest.approx(0, abs=1e-12)
    assert check["status"] == "remark"
    assert "negation: moves the score by 0.0000, less than the tolerance 0.01" in check["said"]


def test_what_a_run_costs(home: Home) -> None:
    """Inputs of a whole run on an empty store; tokens and money as the server counted them."""
    doctor(home, f"--model={MODELS}:PricedDescriber")
    check = checks(home)["cost of a run"]
    rows = {row["role"]: row for row in cells(check).values()}
    assert {role: row["inputs"] for role, row in rows.items()} == {
        "describer": rows["generator"]["inputs"], "generator": rows["generator"]["inputs"],
        "encoder": 8 + rows["generator"]["inputs"],
    }  # fmt: skip
    inputs = rows["describer"]["inputs"]
    assert rows["describer"]["tokens in"] == 100 * inputs
    assert rows["describer"]["cost"] == pytest.approx(0.02 * inputs)
    assert rows["generator"]["cost"] is None
    assert all(row["seconds"] > 0 for row in rows.values())
    assert f"servers count about {100 * inputs} tokens in" in check["said"][1]


def test_a_second_look_asks_only_what_is_to_be_repeated(home: Home) -> None:
    """What the first one measured is in the store, and so is what it distorted."""
    doctor(home, "--model=shapes:?miss=0.05")
    ended = doctor(home, "--model=shapes:?miss=0.05")
    path = home.path / ".cepbench" / "studies" / "doctor-toy.json"
    assert json.loads(path.read_text())["effort"]["inputs"] == 8 + 8  # encoder, generator
    assert ended.code == 0


def test_the_noise_of_a_baseline_stands_in_where_seeds_change_nothing(
    home: Home, measured: Measured
) -> None:
    """A calibrated baseline of the same thing tells which drop shows."""
    write_suite(home.path, GATED)
    calm = doctor(home, "--model=shapes:")
    unknown = checks(home)["visible drop"]
    assert calm.code == 0
    assert "not known, since the seeds change nothing" in unknown["said"][0]
    accept_by_hand(home.path / "baselines", measured("shapes:"))
    for path in (home.path / "baselines").rglob("overall-gc-*.toml"):
        noise = "[noise]\nseeds = 2\nunits = 16\nsd = 0.02\nvalue_sd = 0.01\n\n[failures]"
        path.write_text(path.read_text().replace("[failures]", noise))
    doctor(home, "--model=shapes:")
    row = cells(checks(home)["visible drop"])["overall/gc"]
    assert (row["noise of"], row["sd"], row["units"]) == ("baseline", 0.02, 16)
    assert row["visible"] > 0.01


def test_a_case_that_cannot_be_measured_is_a_problem(home: Home) -> None:
    """What is wrong is said once, and the page is made all the same."""
    ended = doctor(home, "--model=shapes:", "--generator=shapes:?blank=1")
    by_name = checks(home)
    assert ended.code == 1
    assert by_name["measurement"]["status"] == "problem"
    assert "chains failed at the generator" in by_name["measurement"]["said"][0]
    assert "Traceback" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--seeds=1"], "noise shows between at least 2 seeds"),
        (["--model=nobody/"], "nobody"),
        (["--samples=none"], "--samples 'none': a number of at least 1"),
        (["--model=replay:chains"], "made elsewhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(home: Home, argv: list[str], sentence: str) -> None:
    """Nothing is measured, no page is printed."""
    ended = doctor(home, *argv)
    ended.refused(sentence)
    assert ended.out == ""
    assert "Traceback" not in ended.err


def test_a_page_that_cannot_be_written_is_printed(home: Home) -> None:
    """What was found is not lost with the disk."""
    (home.path / "taken").write_text("")
    ended = doctor(home, "--model=shapes:", "--out=taken")
    assert ended.code == 1
    assert "doctor of toy" in ended.out
    assert "the results could not be written to 'taken'" in ended.err


def test_one_sample_shows_no_spread(home: Home) -> None:
    """Everything is checked as far as one sample goes, and what cannot be told is said."""
    write_suite(home.path, PHOTOS)
    photos(home.path, {"one.png": _scene(0)})
    ended = doctor(home)
    by_name = checks(home)
    assert "Traceback" not in ended.out + ended.err
    assert by_name["chance floor"]["status"] == "not done"
    assert by_name["visible drop"]["status"] == "remark"
    assert "at least 2 are needed" in by_name["visible drop"]["said"][0]
    assert cells(by_name["encoder on changed images"])["crop"]["starts"] == 1


def test_a_bug_report_has_versions_settings_and_the_outcome(
    home: Home, monkeypatch: pytest.MonkeyPatch, measured: Measured
) -> None:
    """No keys, no names of models: what stands in the environment under a key's value is masked."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret_secret")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--cep-x=hf_secret_secret")
    (home.path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ncep_alpha = "0.1"\n')
    write_report(home.path / "r.json", [result_of(measured()[0])])
    ended = home.command("doctor", "--report", "r.json")

    assert ended.code == 0, ended.err
    for expected in ("pytest-cepbench", "Python", "numpy", "syrupy", "HF_TOKEN=[key]"):
        assert expected in ended.out
    assert "pyproject.toml: cep_alpha = 0.1" in ended.out
    assert "verdict: " in ended.out
    assert "secret" not in ended.out
    assert "shapes:" not in ended.out


def test_without_a_report_settings_are_printed(home: Home) -> None:
    """Of the file that pytest reads; a file that is no report is one line."""
    (home.path / "pytest.ini").write_text("[pytest]\ncep_baselines = kept\n")
    ended = home.command("doctor", "--report")
    assert ended.code == 0
    assert "pytest.ini: cep_baselines = kept" in ended.out
    assert "outcome" not in ended.out
    ended = home.command("doctor", "--report", "pytest.ini")
    ended.refused("not the JSON report of a run")


def test_a_suite_is_needed(home: Home) -> None:
    """Unless a bug report is asked for."""
    ended = home.command("doctor")
    ended.refused("a SUITE is expected")
