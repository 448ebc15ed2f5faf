"""suites/mmeception: MME's folders, three iterations, GC@3, GC@1 and GC_FID@3 on Inception."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest
from PIL import Image

from tests.acceptance.conftest import MakeProject, Tiny
from tests.acceptance.suites import plainly
from tests.acceptance.suites.data import write_mme
from tests.acceptance.suites.project import Cast, Gated

pytestmark = [pytest.mark.models, pytest.mark.slow]

DRAW = "num_inference_steps=2&height=64&width=64&max_sequence_length=256"

CASES = 3 * (14 + 2 + 1) + 1

TEXTUAL = ("OCR", "code_reasoning", "numerical_calculation", "text_translation")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MME's folders."""
    return write_mme(tmp_path_factory.mktemp("MME"))


@pytest.fixture(scope="module")
def gated(make_project: MakeProject, tiny: Tiny, data: Path) -> Gated:
    """Two images of each category; LLaVA, Flux, ViT and an Inception stand-in, accepted.

    Flux because it reads prompts to their end: with so small a vocabulary the words before the
    description fill CLIP's context.
    """
    accepted = Cast(
        model=f"{tiny('llava')}?max_new_tokens=8",
        roles={
            "generator": f"{tiny('flux')}?{DRAW}",
            "encoder": f"{tiny('vit')}?pooling=cls",
        },
        encoders={"inception": f"cleanfid:?weights={tiny('inception')}"},
        data={"mme": data},
        samples=2,
    )
    project = make_project("mmeception")
    return Gated(project, accepted, project.accept(accepted))


def test_every_category_and_group_is_measured(gated: Gated) -> None:
    """14 categories, two groups and the whole, over two images of each category."""
    cases = gated.run.cases
    assert len(cases) == CASES
    assert cases["mmeception/OCR/gc"]["n"] == 2
    assert cases["mmeception/textual-intensive/gc"]["n"] == 8
    assert cases["mmeception/overall/failures"]["n"] == 28
    labels = {case["label"] for case in cases.values()}
    assert labels == {"GC@3", "GC@1", "GC_FID@3 [Inception]", "failure rate"}


def test_scores_are_those_of_the_libraries_themselves(gated: Gated, tiny: Tiny, data: Path) -> None:
    """GC@3 and GC@1 of each image by a plain ViT, GC_FID@3 of a category by a plain Inception."""
    chains = gated.project.chains(gated.cast, "mmeception/suite.toml", "image")
    scores = {m: gated.project.scores(f"mmeception/overall/{m}") for m in ("gc", "gc1", "gc_fid")}
    for category in ("OCR", "scene"):
        names = sorted(name for name in chains if name.startswith(f"{category}/"))
        home = data / category / ("images" if category == "scene" else "")
        sets: list[list[Image.Image]] = [[Image.open(home / Path(name).name) for name in names]]
        sets += [gated.project.drawn([chains[name][g] for name in names]) for g in (2, 4, 6)]

        start, *later = [plainly.vit_cls(tiny("vit"), images) for images in sets]
        s1, s2, s3 = (plainly.cosines(start, images) for images in later)
        for name, gc, gc1 in zip(names, (s1 + 2 * s2 + 3 * s3) / 6, s1, strict=True):
            assert scores["gc"][category][name] == pytest.approx(gc, abs=1e-5)
            assert scores["gc1"][category][name] == pytest.approx(gc1, abs=1e-5)

        start, *later = [plainly.inception(tiny("inception"), images) for images in sets]
        f1, f2, f3 = (plainly.frechet(start, images) for images in later)
        expected = (f1 + 2 * f2 + 3 * f3) / 6
        assert scores["gc_fid"][category]["all images"] == pytest.approx(expected, rel=1e-4)


def test_groups_and_the_whole_are_means_of_categories(gated: Gated) -> None:
    """As in the paper's Table 2."""
    cases = gated.run.cases
    parts = {case["part"] for case in cases.values()} - {
        "overall", "visual-intensive", "textual-intensive",
    }  # fmt: skip
    for metric in ("gc", "gc1", "gc_fid"):
        value = {part: cases[f"mmeception/{part}/{metric}"]["value"] for part in parts}
        for group, members in {
            "overall": parts,
            "textual-intensive": TEXTUAL,
            "visual-intensive": parts.difference(TEXTUAL),
        }.items():
            expected = mean(value[member] for member in members)
            assert cases[f"mmeception/{group}/{metric}"]["value"] == pytest.approx(
                expected, abs=2e-6
            )
