"""suites/sdp: pairs in both published forms, two chains of 20 generations, four mappings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains import Link, Modality
from tests.acceptance.conftest import MakeProject, Tiny
from tests.acceptance.suites import plainly
from tests.acceptance.suites.data import LISTED, SDP_CAPTIONS, write_listed, write_sdp
from tests.acceptance.suites.project import Cast, Gated

pytestmark = [pytest.mark.models, pytest.mark.slow]

GENERATIONS = 20

Encode = Callable[[list[Link]], plainly.FloatArray]

CASES = (4 + 1) + (2 + 1) + 1


@pytest.fixture(scope="module", params=["list", "folders"])
def gated(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_project: MakeProject,
    tiny: Tiny,
) -> Gated:
    """The suite over two samples of either form of the data, accepted.

    LLaVA, Stable Diffusion, and the three encoders: MPNet, CLIP, DINO.
    """
    write, samples = {"folders": (write_sdp, 2), "list": (write_listed, 1)}[request.param]
    typed = Cast(
        model=f"{tiny('llava')}?max_new_tokens=8",
        roles={"generator": f"{tiny('stable-diffusion')}?num_inference_steps=2&height=64&width=64"},
        encoders={
            "text": str(tiny("mpnet")),
            "cross": str(tiny("clip")),
            "image": f"{tiny('dino')}?crop_pct=0.875&interpolation=bilinear",
        },
        data={"sdp": write(tmp_path_factory.mktemp("pairs"))},
        samples=samples,
    )
    project = make_project("sdp")
    return Gated(project, typed, project.accept(typed))


def grown(gated: Gated, start: Modality) -> dict[str, list[Link]]:
    """The whole chains of a start, by sample."""
    chains = gated.project.chains(gated.cast, "sdp/suite.toml", start)
    assert {len(links) for links in chains.values()} == {GENERATIONS + 1}
    return chains


def seed_images(chains: dict[str, list[Link]]) -> list[Image.Image]:
    """The photographs that image-first chains start from, opened where they lie."""
    opened = []
    for links in chains.values():
        place = getattr(links[0].source, "path", None)
        assert isinstance(place, Path)
        opened.append(Image.open(place).convert("RGB"))
    return opened


def written(links: Sequence[Link]) -> list[str]:
    """The texts of these links."""
    return [link.text for link in links if link.text is not None]


def curves(
    chains: dict[str, list[Link]],
    generations: Sequence[int],
    start: plainly.FloatArray,
    encode: Callable[[list[Link]], plainly.FloatArray],
) -> dict[str, float]:
    """By sample, the mean similarity to its start over these generations."""
    later = encode([links[g] for g in generations for links in chains.values()])
    similarities = plainly.cosines(np.tile(start, (len(generations), 1)), later)
    means = similarities.reshape(len(generations), -1).mean(axis=0)
    return dict(zip(chains, means.tolist(), strict=True))


def test_both_chains_and_all_mappings_are_measured(gated: Gated) -> None:
    """Four mappings by the paper's encoders, two by CLIP as well, and the means of both."""
    assert len(gated.run.cases) == CASES
    labels = {case["label"] for case in gated.run.cases.values()}
    assert labels == {"MCD", "MCD [mcd-clip]", "failure rate"}
    value = {name.removeprefix("sdp/"): c["value"] for name, c in gated.run.cases.items()}
    mappings = [f"{a}-to-{b}/mcd" for a in ("text", "image") for b in ("text", "image")]
    assert value["overall/mcd"] == pytest.approx(mean(value[name] for name in mappings), abs=2e-6)
    own = [f"{modality}-to-{modality}/mcd-clip" for modality in ("text", "image")]
    assert value["overall/mcd-clip"] == pytest.approx(mean(value[name] for name in own), abs=2e-6)


def test_starts_are_the_published_pairs(gated: Gated) -> None:
    """Captions and photographs of the same samples, whichever form the data has."""
    texts = grown(gated, "text")
    images = grown(gated, "image")
    assert texts.keys() == images.keys()
    if (gated.cast.data["sdp"] / "text-first").is_dir():
        captions = {Path(name).stem: text.strip() for name, text in SDP_CAPTIONS.items()}
    else:
        described = ["a small red circle, 0.", "a small red circle, 1."]
        noted = ["two green shapes, 2.", "two green shapes, 3."]
        captions = dict(zip([name for _, name in LISTED], described + noted, strict=True))
        sources = {name: source for source, name in LISTED}
        assert {sources[name] for name in texts} == {"docci", "nocaps"}
    assert len(texts) == 2
    for name, links in texts.items():
        assert links[0].text == captions[name]
        assert [link.kind for link in links] == ["text", "image"] * 10 + ["text"]


def test_mcd_is_that_of_plain_encoders(gated: Gated, tiny: Tiny) -> None:
    """Each mapping's score of each sample, by MPNet, CLIP and DINO called directly."""
    texts = grown(gated, "text")
    images = grown(gated, "image")
    captions = [written(links[:1])[0] for links in texts.values()]
    photographs = seed_images(images)

    def by_text(encode: Callable[[Path, list[str]], plainly.FloatArray], model: str) -> Encode:
        return lambda links: encode(tiny(model), written(links))

    def by_image(
        encode: Callable[[Path, list[Image.Image]], plainly.FloatArray], model: str
    ) -> Encode:
        return lambda links: encode(tiny(model), gated.project.drawn(links))

    even, odd = range(2, GENERATIONS + 1, 2), range(1, GENERATIONS, 2)
    expected = {
        "text-to-text/mcd": curves(
            texts,
            even,
            plainly.sentences(tiny("mpnet"), captions),
            by_text(plainly.sentences, "mpnet"),
        ),
        "text-to-image/mcd": curves(
            texts,
            odd,
            plainly.clip_texts(tiny("clip"), captions),
            by_image(plainly.clip_images, "clip"),
        ),
        "image-to-image/mcd": curves(
            images,
            even,
            plainly.dino_cls(tiny("dino"), photographs),
            by_image(plainly.dino_cls, "dino"),
        ),
        "image-to-text/mcd": curves(
            images,
            odd,
            plainly.clip_images(tiny("clip"), photographs),
            by_text(plainly.clip_texts, "clip"),
        ),
    }
    for name, scores in expected.items():
        part = name.partition("/")[0]
        accepted = gated.project.scores(f"sdp/{name}")[part]
        assert accepted == pytest.approx(scores, abs=1e-4)


def test_texts_longer_than_clip_reads_are_told(gated: Gated) -> None:
    """What was compared by its beginning is counted in the case's notes: the long caption, or words
    that so small a vocabulary spells letter by letter.
    """
    notes = gated.run.cases["sdp/text-to-text/mcd-clip"]["notes"]
    pattern = r"text-to-text: [1-9]\d* of \d+ texts were longer than the 32 tokens"
    assert [bool(re.match(pattern, note)) for note in notes].count(True) == 1
