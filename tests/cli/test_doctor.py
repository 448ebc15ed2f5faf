"""`cepbench doctor`: each fault of a set-up is named, with a remedy; a good set-up passes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, load_shapes
from pytest_cepbench.datasets.shapes.scene import COLORS, SHAPES, SIZES
from pytest_cepbench.errors import RoleError
from tests.cli.conftest import Ended, Home
from tests.cli.reports import GATED, Measured, accept_by_hand
from tests.studies.toy import write_suite

MODELS = f"python:{__name__}"

BLIND = "--encoder=python:tests.plugin.user_models:encoder?behaviour=blind"

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


class Faulty:
    """A model that says who it is."""

    seeded = False

    def __init__(self) -> None:
        self.fingerprint = f"{type(self).__name__}/1"


class GreyEncoder(Faulty):
    """Looks at how bright each part of an image is; exchanging channels changes nothing."""

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 256) float64."""
        small = [image.resize((16, 16), Image.Resampling.BOX) for image in images]
        return np.array(
            [np.asarray(pixels, np.float64).sum(axis=2).ravel() - 70 for pixels in small]
        )

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Raise: it reads no texts."""
        raise RoleError("reads images only")


class MonotoneDescriber(Faulty):
    """Has one answer for everything."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """The same scene for each image."""
        return ["one shape : small red circle top left"] * len(images)


class GuessingDescriber(Faulty):
    """Cannot read its images: what it says of each has nothing to do with what is there."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """A scene for each image, the same whenever it is asked."""
        digests = [ImageArtifact.from_pil(image).digest for image in images]
        captions = []
        for digest in digests:
            draw = np.random.default_rng(int(digest[:12], 16))
            objects = []
            for cell in sorted(draw.choice(9, size=3, replace=False).tolist()):
                size, color, shape = (draw.integers(len(own)) for own in (SIZES, COLORS, SHAPES))
                objects.append(SceneObject(cell, SIZES[size], COLORS[color], SHAPES[shape]))
            captions.append(caption(Scene(tuple(objects))))
        return captions


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
    return {row[0]: dict(zip(check["head"], row, strict=True)) for row in check["rows"]}


def test_a_good_set_up_passes(home: Home) -> None:
    """No problem, exit code 0; every check says what it looked at; no baseline is written."""
    ended = doctor(home, "--model=shapes:?miss=0.05")
    by_name = checks(home)
    assert ended.code == 0
    assert {
        name: entry["status"] for name, entry in by_name.items() if entry["status"] != "pass"
    } == {"visible drop": "remark"}
    assert list(by_name) == [
        "measurement", "chance floor", "visible drop", "constant outputs",
        "encoder on damaged images",
    ]  # fmt: skip
    assert all(entry["said"] for entry in by_name.values())
    assert not (home.path / "baselines").exists()
    assert "doctor of toy: 1 remark" in ended.out


@pytest.mark.parametrize(
    ("argv", "check", "said", "advice"),
    [
        (
            ["--model=shapes:", f"--encoder={MODELS}:GreyEncoder"],
            "encoder on damaged images",
            r"colors exchanged: moves the score by 0\.0000, less than the tolerance 0\.01",
            "use another encoder",
        ),
        (
            ["--model=shapes:", BLIND],
            "measurement",
            ".* gives one vector for .*",
            "use another encoder",
        ),
        (
            [f"--model={MODELS}:MonotoneDescriber"],
            "constant outputs",
            (
                "image-first chains: all 8 descriptions are the same, of images that differ"
                ".*: 'one shape : small red circle top left'"
            ),
            "look at what the model that repeats itself is given",
        ),
        (
            ["--model=shapes:", "--generator=shapes:?blank=1"],
            "measurement",
            ".*chains failed at the generator.*",
            "fix these cases first",
        ),
    ],
    ids=["no-colors", "blind", "one-answer", "blank"],
)
def test_a_fault_is_a_problem(
    home: Home, argv: list[str], check: str, said: str, advice: str
) -> None:
    """Of an encoder, a describer or a case: in words, with a remedy; the page is made all the same.

    Only what moves nothing is named of the damage; an encoder that sees nothing misses all of it.
    """
    ended = doctor(home, *argv)
    by_name = checks(home)
    assert ended.code == 1
    assert by_name[check]["status"] == "problem"
    assert re.fullmatch(said, by_name[check]["said"][0])
    assert len(by_name[check]["said"]) == 1 or check == "measurement"
    assert advice in ended.flat.partition(" what to do ")[2]
    assert "Traceback" not in ended.out + ended.err
    if argv[-1] == BLIND:
        assert by_name["encoder on damaged images"]["status"] == "problem"
        assert cells(by_name["encoder on damaged images"])["strong blur"]["starts"] == 8


def test_scores_at_chance_are_a_problem(home: Home) -> None:
    """Of a describer that cannot read its images, whose descriptions differ all the same."""
    write_suite(home.path, PHOTOS.replace('describer = "shapes:"', ""))
    (home.path / "photos").mkdir()
    scenes = load_shapes(samples_per_category=20).in_category("relation")
    for number, sample in enumerate(scenes):
        load_seed_image(sample).to_pil().save(home.path / "photos" / f"{number}.png")
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
    assert "use a describer and a generator that know this kind of images" in ended.flat


def test_the_accepted_model_stands_in(home: Home, measured: Measured) -> None:
    """In the role that it was accepted in, where neither suite nor command names a model."""
    write_suite(home.path, SMALL.replace('generator = "shapes:"', ""))
    accepted = {"role": "generator", "spec": "shapes:?move=0.3"}
    accept_by_hand(home.path / "baselines", measured()[:1], model=accepted)
    ended = doctor(home)
    assert ended.err.startswith("model: shapes:?move=0.3, which was accepted for this suite")
    assert "\ngenerator shapes:?move=0.3, seeds 0 to 1; models:\n" in ended.out


def test_text_starts(home: Home) -> None:
    """Of texts the longest word is dropped; each kind of starts has its own check."""
    text = SMALL.replace("iterations = 2", 'start = "both"\niterations = 2')
    write_suite(home.path, text.replace("[metrics.gc]", "[metrics.mcd]"))
    ended = doctor(home, "--model=shapes:?miss=0.05")
    check = checks(home)["encoder on damaged texts"]
    assert ended.code == 0
    assert "encoder on damaged images" in checks(home)
    assert cells(check)["word dropped"]["moves the score by"] > 0.01
    assert check["status"] == "pass"
