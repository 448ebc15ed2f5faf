"""suites/sdp: pairs in both published forms, two chains of 20 generations, four mappings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains import Link, Modality
from tests.acceptance.suites import plainly
from tests.acceptance.suites.conftest import Checkpoint, MakeProject
from tests.acceptance.suites.data import LISTED, SDP_CAPTIONS, write_listed, write_sdp
from tests.acceptance.suites.project import Cast, Project, Run, assert_held_unasked

pytestmark = pytest.mark.models

GENERATIONS = 20

CASES = (4 + 1) + (2 + 1) + 1


class Gated(NamedTuple):
    """The project, what was typed, and the run that accepted it."""

    project: Project
    cast: Cast
    run: Run


def cast(tiny: Checkpoint, data: Path, describer: str) -> Cast:
    """LLaVA, Stable Diffusion, and the three encoders: MPNet, CLIP, DINO."""
    return Cast(
        model=f"{tiny(describer)}?max_new_tokens=8",
        roles={
            "generator": f"{tiny('stable-diffusion')}?num_inference_steps=2&height=64&width=64"
        },
        encoders={
            "text": str(tiny("mpnet")),
            "cross": str(tiny("clip")),
            "image": f"{tiny('dino')}?crop_pct=0.875&interpolation=bilinear",
        },
        data={"sdp": data},
        samples=2,
    )


@pytest.fixture(scope="module", params=["folders", "list"])
def gated(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_project: MakeProject,
    tiny: Checkpoint,
) -> Gated:
    """The suite over either form of the data, with a first checkpoint accepted."""
    write = {"folders": write_sdp, "list": write_listed}[request.param]
    typed = cast(tiny, write(tmp_path_factory.mktemp("pairs")), "llava")
    project = make_project("sdp")
    return Gated(project, typed, project.accept(typed))
def test_x(gated):
    print(gated.run.output)
    for s in ('text','image'):
      for n, l in gated.project.chains(gated.cast,'sdp/suite.toml',s).items(): print(n, [x.text for x in l if x.text])
    assert 0
