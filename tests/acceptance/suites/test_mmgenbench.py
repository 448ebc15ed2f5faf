"""suites/mmgenbench: tables of base64 images, several patterns per image, SIM and FID on Unicom."""

from __future__ import annotations

import csv
import json
import shutil
from base64 import b64decode
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from pytest_cepbench.chains import Link
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.datasets.sample import EmbeddedImage
from tests.acceptance.conftest import MakeProject, Tiny
from tests.acceptance.suites import plainly
from tests.acceptance.suites.data import PATTERNS, mmgenbench_images, write_mmgenbench
from tests.acceptance.suites.project import Cast, Gated

pytestmark = [pytest.mark.models, pytest.mark.slow]

TINY = "num_inference_steps=2&height=64&width=64&dtype=float32"

CASES = (len(PATTERNS) + 1) + 1 + 1 + 3

IDS = {f"{index:06}": index for index in mmgenbench_images()}

FIRST_WORDS = 70


def preset(tiny: Tiny, name: str, family: str, length: int) -> str:
    """A preset of the suite with a tiny model in the place of the published one."""
    return f"preset:{name}?model={tiny(family)}&{TINY}&max_sequence_length={length}"


def quoting(describer: Path, folder: Path) -> Path:
    """A copy of a describer some of whose words begin with a quote."""
    copy = Path(shutil.copytree(describer, folder))
    file = copy / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for word in ("a", "the", "circle", "red", "on", "left", "top", "of", "two", "and"):
        vocabulary[f'"{word}'] = vocabulary.pop(word)
    file.write_text(json.dumps(tokenizer))
    return copy


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory, make_project: MakeProject, tiny: Tiny) -> Gated:
    """Both suites of the folder with a first checkpoint accepted.

    Its descriptions have 90 words, some of which begin with a quote.
    """
    data = write_mmgenbench(tmp_path_factory.mktemp("LMUData"))
    describer = quoting(tiny("llava"), tmp_path_factory.mktemp("checkpoints") / "quoting")
    cast = Cast(
        model=f"{describer}?max_new_tokens=90",
        roles={
            "generator": preset(tiny, "flux-1-dev", "flux", 512),
            "encoder": f"unicom:{tiny('unicom')}?allow_pickle=true",
        },
        data={"mmgenbench": data, "mmgenbench-domain": data},
        samples=3,
    )
    project = make_project("mmgenbench")
    return Gated(project, cast, project.accept(cast))


@pytest.fixture(scope="module")
def chains(gated: Gated) -> dict[str, list[Link]]:
    """What was made of each image of MMGenBench-Test."""
    return gated.project.chains(gated.cast, "mmgenbench/suite.toml", "image")


@pytest.fixture(scope="module")
def seeds(gated: Gated) -> dict[str, Image.Image]:
    """The images of the table as Pillow shows them, upright and in RGB, by sample."""
    images = {}
    with (gated.cast.data["mmgenbench"] / "MMGenBench-Test.tsv").open(newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            image: Image.Image = Image.open(BytesIO(b64decode(row["image"])))
            if image.mode.startswith("I"):
                image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
            images[f"{int(row['index']):06}"] = ImageOps.exif_transpose(image).convert("RGB")
    return images


def test_patterns_share_images_and_the_whole_counts_each_once(gated: Gated) -> None:
    """Three images of each pattern at most, five in all; SIM by pattern, FID over the whole."""
    cases = gated.run.cases
    assert len(cases) == CASES
    n = {name: case["n"] for name, case in cases.items()}
    assert {name: n[f"mmgenbench/{name}/sim"] for name in PATTERNS} == {
        "Surreal": 3, "Anime": 2, "Host": 3,
    }  # fmt: skip
    assert n["mmgenbench/overall/sim"] == n["mmgenbench/overall/failures"] == len(IDS)
    assert n["mmgenbench-domain/overall/sim"] == 3

    scores = {name: gated.project.scores(f"mmgenbench/{name}/sim")[name] for name in PATTERNS}
    whole = gated.project.scores("mmgenbench/overall/sim")["overall"]
    for name, members in scores.items():
        assert set(members) <= {f"{index:06}" for index in PATTERNS[name]}
        assert cases[f"mmgenbench/{name}/sim"]["value"] == pytest.approx(
            mean(members.values()), abs=2e-6
        )
        assert members == {sample: whole[sample] for sample in members}
    assert cases["mmgenbench/overall/sim"]["value"] == pytest.approx(mean(whole.values()), abs=2e-6)


def test_images_of_every_kind_are_seen_upright_and_in_color(
    chains: Mapping[str, list[Link]], seeds: Mapping[str, Image.Image]
) -> None:
    """The describer is shown what the table's files show: turned, CMYK, deep grey, palette."""
    for name, index in IDS.items():
        source = chains[name][0].source
        assert isinstance(source, EmbeddedImage)
        shown = source.load().to_pil()
        assert np.array_equal(np.asarray(shown), np.asarray(seeds[name]))
        original = mmgenbench_images()[index]
        expected = original.convert("L").convert("RGB") if index == 31 else original
        apart = np.abs(np.asarray(shown, float) - np.asarray(expected, float))
        assert apart.mean() < 8


def test_scores_are_those_of_a_plain_unicom(
    gated: Gated,
    tiny: Tiny,
    chains: Mapping[str, list[Link]],
    seeds: Mapping[str, Image.Image],
) -> None:
    """SIM is the cosine of features, FID is on the features as they are, not normalised."""
    starts = plainly.unicom(tiny("unicom"), [seeds[name] for name in IDS])
    ends = plainly.unicom(tiny("unicom"), gated.project.drawn([chains[name][2] for name in IDS]))

    scores = gated.project.scores("mmgenbench/overall/sim")["overall"]
    for name, expected in zip(IDS, plainly.cosines(starts, ends), strict=True):
        assert scores[name] == pytest.approx(expected, abs=1e-5)
    distance = gated.run.cases["mmgenbench/overall/fid"]["value"]
    assert distance == pytest.approx(plainly.frechet(starts, ends), rel=1e-4)


def test_descriptions_are_cleaned_and_cut_before_they_are_drawn(
    gated: Gated, tiny: Tiny, chains: Mapping[str, list[Link]]
) -> None:
    """Drawing the first 70 words without the quote around them gives the stored image to the pixel;
    all 90 words, or the quote, give another.
    """
    name = next(iter(IDS))
    text = chains[name][1].text
    assert text is not None
    assert text.startswith('"')
    assert len(text.split(" ")) > FIRST_WORDS
    words = text.strip('"').split(" ")[:FIRST_WORDS]
    (stored,) = gated.project.drawn([chains[name][2]])
    seed = derive_seed(0, name, 2)

    def unlike(prompt: str) -> float:
        return float((redraw(tiny("flux"), prompt, seed) != np.asarray(stored)).mean())

    assert unlike(" ".join(words)) < 0.005
    assert unlike(text.strip('"')) > 0.05
    assert unlike(" ".join(text.split(" ")[:FIRST_WORDS])) > 0.05


def redraw(folder: Path, prompt: str, seed: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """(64, 64, 3) levels by diffusers itself, with the settings of the suite's preset."""
    import torch
    from diffusers import FluxPipeline

    pipeline = FluxPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(
        prompt,
        generator=torch.Generator().manual_seed(seed),
        num_inference_steps=2,
        guidance_scale=3.5,
        height=64,
        width=64,
        max_sequence_length=512,
        output_type="np",
    ).images
    levels: np.ndarray[Any, np.dtype[np.int16]] = (images[0] * 255).round().astype(np.int16)
    return levels
