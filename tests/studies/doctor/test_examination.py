"""The doctor's checks that call models or read chains; the set-ups' numbers can be worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.errors import RoleError
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import Trial, prepare_calibration
from pytest_cepbench.studies.doctor import Check, Diagnosis, examine
from pytest_cepbench.studies.doctor.model_checks import IMAGE_DISTORTIONS, TEXT_DISTORTIONS
from pytest_cepbench.suites import ChainRun, ModelPool, RoleChoices, load_data, load_suite
from pytest_cepbench.suites.estimate import Forecast
from tests.studies.doctor.test_measurement_checks import only
from tests.studies.toy import write_suite

HERE = f"python:{__name__}"

SUITE = f"""\
name = "toy"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = 1 }}
[chain]
iterations = 1
[prompts]
describe = "describe"
[roles]
describer = "{HERE}:Describer"
generator = "{HERE}:Generator"
encoder = "{HERE}:Encoder"
[gate]
gate = "regression"
[metrics.gc]
"""

PHOTOS = SUITE.replace('"shapes"', '"folder"').replace(
    "options = { samples_per_category = 1 }", 'path = "photos"'
)

CHECKS = [
    "measurement", "chance floor", "visible drop", "constant outputs",
    "duplicates among the samples", "encoder on changed images", "repeatable drawings",
    "cost of a run",
]  # fmt: skip


class Describer:
    """Gives the checksum of an image as its description."""

    fingerprint = "describer/1"
    seeded = False

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        return [f"image {crc32(image.tobytes())}" for image in images]


class Generator:
    """Draws noise that depends on text and seed."""

    fingerprint = "generator/1"
    seeded = True
    calls = 0

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """One image for each text."""
        return [self.draw(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def draw(self, text: str, seed: int) -> Image.Image:
        """16 x 16 pixels."""
        draw = np.random.default_rng([crc32(text.encode()), seed])
        return Image.fromarray(draw.integers(0, 256, (16, 16, 3), np.uint8))


class RestlessGenerator(Generator):
    """Draws something else each time for every second text."""

    fingerprint = "restless/1"

    def draw(self, text: str, seed: int) -> Image.Image:
        """16 x 16 pixels."""
        type(self).calls += 1
        return super().draw(text, seed if crc32(text.encode()) % 2 else self.calls)


class FailingGenerator(Generator):
    """Draws nothing where it is asked again."""

    fingerprint = "failing/1"

    def __init__(self) -> None:
        self.drawn: set[tuple[str, int]] = set()

    def draw(self, text: str, seed: int) -> Image.Image:
        """16 x 16 pixels."""
        again = (text, seed) in self.drawn
        self.drawn.add((text, seed))
        return Image.new("RGB", (16, 16)) if again else super().draw(text, seed)


class UnseededGenerator(Generator):
    """Draws each text in one way."""

    fingerprint = "unseeded/1"
    seeded = False

    def draw(self, text: str, seed: int) -> Image.Image:
        """16 x 16 pixels."""
        return super().draw(text, 0)


class Encoder:
    """Looks at the pixels of a small image."""

    fingerprint = "encoder/1"
    shift = 0.0

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 192) float64."""
        small = [np.asarray(image.resize((8, 8)), np.float64).ravel() for image in images]
        return np.array(small) - 90 + self.shift

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Raise: it reads no texts."""
        raise RoleError("reads images only")


class LetterEncoder(Encoder):
    """Counts the letters of texts."""

    fingerprint = "letters/1"

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n, 26) float64."""
        letters = "abcdefghijklmnopqrstuvwxyz"
        return np.array([[1.0 + text.lower().count(c) for c in letters] for text in texts])


class DriftingEncoder(Encoder):
    """Moves its vectors a little with every call."""

    fingerprint = "drifting/1"
    calls = 0

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 192) float64."""
        type(self).calls += 1
        self.shift = 0.4 * self.calls
        return super().encode_images(images)


class SharpnessEncoder(Encoder):
    """Sees the mean red and blue, which no blur changes, and how much neighboring pixels differ.

    weight: of the differences, against that of the colors.
    """

    fingerprint = "sharpness/1"
    weight = 0.9

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 3) float64."""
        return np.array([self.look(np.asarray(image, np.float64)) for image in images])

    def look(self, pixels: npt.NDArray[np.float64]) -> list[float]:
        """The vector of one image."""
        red, _, blue = pixels.mean(axis=(0, 1))
        detail = np.abs(np.diff(pixels[..., 1], axis=0)).mean()
        return [red, blue, self.weight * detail]


class KeenEncoder(SharpnessEncoder):
    """Looks more at differences."""

    fingerprint = "keen/1"
    weight = 1.0


def unit(image: Image.Image) -> npt.NDArray[np.float64]:
    """The vector of an image at length 1."""
    (vector,) = Encoder().encode_images([image])
    length = np.linalg.norm(vector)
    return np.asarray(vector / length, dtype=np.float64)


def diagnose(folder: Path, text: str = SUITE, **roles: str) -> Diagnosis:
    """The examination of a suite, on a store in the folder. roles: models in place of its own."""
    # the keys are names of roles
    choices = RoleChoices(
        roles={role: f"{HERE}:{name}" for role, name in roles.items()}  # type: ignore[misc]
    )
    trial = Trial(write_suite(folder, text), choices, 2)
    with Store(folder / "store") as store:
        pool = ModelPool(store)
        return examine(prepare_calibration(trial, pool), pool, folder / "baselines", lambda _: None)


def checks(diagnosis: Diagnosis) -> dict[str, Check]:
    """The checks by name."""
    return {check.name: check for check in diagnosis.checks}


def photos(folder: Path, names: Sequence[str], copies: Sequence[str] = ()) -> None:
    """Noise in files below `photos`, and copies of the first one."""
    (folder / "photos").mkdir()
    for i, name in enumerate((*names, *copies)):
        draw = np.random.default_rng(i if i < len(names) else 0)
        image = Image.fromarray(draw.integers(0, 256, (16, 16, 3), np.uint8))
        image.save(folder / "photos" / name)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """The diagnosis of the suite as it is."""
    return diagnose(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image.Image]:
    """The starts of that suite by sample."""
    suite = load_suite(write_suite(tmp_path_factory.mktemp("starts"), SUITE))
    samples = load_data(suite, {}).samples
    return {sample.id: load_seed_image(sample).to_pil() for sample in samples}


def test_a_diagnosis_says_what_was_examined(toy: Diagnosis) -> None:
    """The suite, its seeds, every model that was called, and the work that it took."""
    assert (toy.suite, toy.version, toy.samples, toy.seeds) == ("toy", 1, 8, (0, 1))
    assert [model.seat for model in toy.players] == ["describer", "generator", "encoder"]
    assert (toy.under_test, toy.model) == ("describer", f"{HERE}:Describer")
    assert [check.name for check in toy.checks] == CHECKS
    assert toy.problems == tuple(check for check in toy.checks if check.status == "problem")
    assert toy.effort.inputs > 0
    assert toy.damage == ()


def test_distortions_are_measured_as_distances_from_the_start(
    toy: Diagnosis, starts: dict[str, Image.Image]
) -> None:
    """Each row has the mean of 1 - cosine over the starts that changed, and the mean by chance."""
    rows = only(checks(toy)["encoder on changed images"])
    vectors = [unit(image) for image in starts.values()]
    chance = np.mean([a @ b for a, b in combinations(vectors, 2)])
    assert rows["none, asked twice"] == (8, pytest.approx(1), pytest.approx(0, abs=1e-9), None)
    assert len(rows) == 1 + len(IMAGE_DISTORTIONS)
    for distortion in IMAGE_DISTORTIONS:
        images = [distortion.apply(ImageArtifact.from_pil(image)) for image in starts.values()]
        moved = np.mean(
            [1 - unit(i.to_pil()) @ vector for i, vector in zip(images, vectors, strict=True)]
        )
        expected = (8, 1 - moved, moved, chance)
        assert rows[distortion.name] == pytest.approx(expected, abs=1e-9)


def test_texts_are_distorted_too(tmp_path: Path) -> None:
    """An encoder that counts letters sees no order; a start that stays as it was is not counted."""
    text = SUITE.replace("iterations = 1", 'start = "text"\niterations = 1')
    check = checks(diagnose(tmp_path, text, encoder="LetterEncoder"))["encoder on changed texts"]
    rows = only(check)
    texts = [
        sample.text or "" for sample in load_data(load_suite(tmp_path / "suite.toml"), {}).samples
    ]
    assert rows["none, asked twice"][0] == len(texts)
    for distortion in TEXT_DISTORTIONS:
        changed = [(t, distortion.apply(t)) for t in texts if distortion.apply(t) != t]
        vectors = [LetterEncoder().encode_texts(pair) for pair in changed]
        cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in vectors]
        assert rows[distortion.name][0] == len(changed) > 0
        assert rows[distortion.name][2] == pytest.approx(np.mean(1 - np.array(cosines)), abs=1e-9)
    assert check.status == "problem"
    assert "words swapped: moves the score by 0.0000, less than the tolerance 0.01" in check.said


@pytest.mark.parametrize(
    ("encoder", "colors", "remarked"),
    [
        ("SharpnessEncoder", ["red", "blue"], False),
        ("KeenEncoder", ["red", "blue"], True),
        ("KeenEncoder", ["red"], False),
    ],
)
def test_a_faint_blur_may_move_a_score_half_of_the_way_to_chance(
    encoder: str, colors: Sequence[str], remarked: bool, tmp_path: Path
) -> None:
    """Beyond that it is a remark, and advice; of one start alone chance is not known."""
    (tmp_path / "photos").mkdir()
    for color in colors:
        pixels = np.array(Image.new("RGB", (64, 64), color))
        pixels[::2, :, 1] = 255
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{color}.png")
    check = checks(diagnose(tmp_path, PHOTOS, encoder=encoder))["encoder on changed images"]
    _, _, moved, chance = only(check)["middle blur"]
    assert (moved > 0.5 * (1 - (chance or 0.0))) is remarked
    said = [sentence for sentence in check.said if sentence.startswith("middle blur")]
    remark = f"middle blur: moves the score by {moved:.4f}, more than half of the way to chance"
    assert said == ([f"{remark} ({chance:.4f})"] if remarked else [])
    advice = "use an encoder that looks less at sharpness, or sharper images"
    assert (advice in check.advice) is remarked


def test_drawings_scatter_with_the_seed(toy: Diagnosis, starts: dict[str, Image.Image]) -> None:
    """Similarity of drawings of one text, and the spread of their similarity to the start."""
    check = checks(toy)["repeatable drawings"]
    alike, variances = [], []
    for name, start in starts.items():
        (text,) = Describer().describe([start], "", [0])
        seeds = [derive_seed(seed, name, 2) for seed in range(3)]
        drawings = [unit(image) for image in Generator().generate([text] * 3, seeds)]
        alike += [a @ b for a, b in combinations(drawings, 2)]
        variances.append(np.var([unit(start) @ drawing for drawing in drawings], ddof=1))
    sd = np.sqrt(np.mean(variances))
    row = only(check)["drawings"]
    assert row[:2] == (8, 3)
    assert row[2:] == pytest.approx((np.mean(alike), sd, 0.01), abs=1e-9)
    assert check.status == "remark"
    assert check.said[0] == "the same text and seed give the same pixels (8 texts)"
    assert check.said[1].endswith(
        f"scatters by {sd:.4f} with the seed alone (tolerance 0.01), the mean of 8 by "
        f"{sd / np.sqrt(8):.4f}"
    )
    assert "[chain] seeds" in check.advice[0]


def test_a_scatter_below_the_tolerance_is_no_remark(tmp_path: Path) -> None:
    """It is said all the same."""
    text = SUITE.replace('gate = "regression"', 'gate = "regression"\ntolerance = 0.5')
    check = checks(diagnose(tmp_path, text))["repeatable drawings"]
    assert (check.status, check.advice) == ("pass", ())
    assert "the mean of 8 by" in check.said[1]


def test_a_generator_without_seeds_has_one_drawing(tmp_path: Path) -> None:
    """There is no spread to show."""
    check = checks(diagnose(tmp_path, generator="UnseededGenerator"))["repeatable drawings"]
    assert check.status == "pass"
    assert check.said[1] == "the generator uses no seed: a text has one drawing"
    assert check.figures == ()


def test_drawings_that_cannot_be_repeated_are_counted(
    tmp_path: Path, starts: dict[str, Image.Image]
) -> None:
    """Of the texts that were drawn twice, those with other pixels, and how far apart they are."""
    check = checks(diagnose(tmp_path, generator="RestlessGenerator"))["repeatable drawings"]
    texts = Describer().describe(list(starts.values()), "", [0] * 8)
    restless = sum(crc32(text.encode()) % 2 == 0 for text in texts)
    assert 0 < restless < 8
    assert check.status == "problem"
    assert f"give other pixels ({restless} of 8 texts); to the encoder they lie 0." in check.said[0]
    assert "obey its seed" in check.advice[0]


def test_a_generator_that_fails_the_second_time_is_a_remark(tmp_path: Path) -> None:
    """There is nothing to compare; the drawings under other seeds are compared all the same."""
    check = checks(diagnose(tmp_path, generator="FailingGenerator"))["repeatable drawings"]
    assert check.said[0] == "no text could be drawn twice"
    assert only(check)["drawings"][0] == 8


def test_an_encoder_that_gives_other_vectors_is_found(tmp_path: Path) -> None:
    """A drift below the tolerance is a remark, one above it a problem."""
    name = "encoder on changed images"
    DriftingEncoder.calls = 0
    check = checks(diagnose(tmp_path, encoder="DriftingEncoder"))[name]
    drop = only(check)["none, asked twice"][2]
    assert 1e-6 < drop < 0.01
    assert check.said[0] == f"the same image encoded twice moves the score by {drop:.6f}"
    assert "make the encoder repeatable" in check.advice[0]
    (tmp_path / "small").mkdir()
    text = SUITE.replace('gate = "regression"', f'gate = "regression"\ntolerance = {drop / 2}')
    DriftingEncoder.calls = 0
    check = checks(diagnose(tmp_path / "small", text, encoder="DriftingEncoder"))[name]
    assert check.status == "problem"


def test_outputs_are_counted_step_by_step(toy: Diagnosis) -> None:
    """Inputs, different outputs, and how often the most frequent one came."""
    check = checks(toy)["constant outputs"]
    assert check.status == "pass"
    assert only(check) == {
        "image-first, descriptions": (8, 8, 1),
        "image-first, drawings": (8, 8, 1),
    }


def test_a_run_costs_what_its_models_are_given(toy: Diagnosis) -> None:
    """One description, one drawing and two vectors for each sample, in the time of this run."""
    check = checks(toy)["cost of a run"]
    (table,) = check.figures
    assert table.head == ("role", "model", "inputs", "seconds")
    assert {row[0]: row[2] for row in table.rows} == {"describer": 8, "generator": 8, "encoder": 16}
    seconds = [row[3] for row in table.rows if isinstance(row[3], float)]
    assert len(seconds) == 3
    cost = f"9 cases on an empty store: 32 model inputs, about {sum(seconds):.1f} s in models"
    assert check.said == (f"a run of {cost}, loading not counted",)


def test_the_time_of_stored_results_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the pace of earlier calls, a model that was given nothing in this run has none."""
    real = ChainRun.forecast

    def unpaced(*arguments: Any) -> Forecast:
        whole = real(*arguments)
        return replace(whole, needs=tuple(replace(need, throughput=None) for need in whole.needs))

    monkeypatch.setattr(ChainRun, "forecast", unpaced)
    first, second = (checks(diagnose(tmp_path))["cost of a run"] for _ in range(2))
    assert all(isinstance(row[3], float) for row in first.figures[0].rows)
    assert len(first.said) == 1
    seconds = {row[0]: row[3] for row in second.figures[0].rows}
    assert seconds["describer"] is None
    assert isinstance(seconds["encoder"], float)
    assert "model inputs, at least " in second.said[0]
    assert second.said[1] == "time is not known of models whose results all came from the store"


@pytest.mark.parametrize(("copies", "status"), [(1, "remark"), (2, "problem")])
def test_copies_are_counted_beside_all_samples(copies: int, status: str, tmp_path: Path) -> None:
    """From a tenth of the samples on they are a problem; five groups are named."""
    photos(tmp_path, [f"{i:02}.png" for i in range(18)], ["y.png", "z.png"][:copies])
    check = checks(diagnose(tmp_path, PHOTOS))["duplicates among the samples"]
    names = " = ".join(["00.png", "y.png", "z.png"][: copies + 1])
    assert check.status == status
    assert check.said == (
        f"{copies} of {18 + copies} samples have the image of another one: {names}",
    )
    assert check.advice[0].startswith("drop the copies: each counts")


def test_samples_that_differ_are_no_copies(toy: Diagnosis) -> None:
    """Said with what was looked at."""
    check = checks(toy)["duplicates among the samples"]
    assert check.said[0].startswith("no two of 8 samples start from the same, none with a cosine")
    assert check.status == "pass"
