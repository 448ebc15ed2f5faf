"""suites/geneval: built-in prompts with Mask2Former, GenEval-Rewritten's generations with OWLv2."""

from __future__ import annotations

from dataclasses import replace
from operator import ge, lt
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.conftest import MakeProject, Tiny, geneval_objects
from tests.acceptance.suites import plainly
from tests.acceptance.suites.data import REWRITTEN, write_lines, write_rewritten
from tests.acceptance.suites.project import Cast, Gated

pytestmark = [pytest.mark.models, pytest.mark.slow]

TINY = "num_inference_steps=2&height=64&width=64&dtype=float32"

TASKS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")

PROMPTS = ("suites/geneval/test_geneval.py::test_tasks",)

GENERATIONS = ("suites/geneval/test_geneval.py::test_generations",)

COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")

COLOR_TEXTS = [
    [
        f"a photo of a {color} scissors",
        f"a photo of a {color}-colored scissors",
        f"a photo of a {color} object",
    ]
    for color in COLORS
]
"""As GenEval's evaluator asks."""

IMAGES = range(1, 20, 2)

SURE = 0.625
"""A score that so small an OWLv2 reaches in some images and not in others."""


@pytest.fixture(scope="module")
def prompts(make_project: MakeProject, tiny: Tiny) -> Gated:
    """The prompt suite, two images of each task, with a first generator accepted."""
    detector = tiny("mask2former-of-two")
    cast = Cast(
        model=f"preset:sd-1-5?model={tiny('stable-diffusion')}&{TINY}",
        roles={"detector": str(detector)},
        encoders={"color": str(tiny("clip"))},
        samples=2,
    )
    project = make_project("geneval")
    return Gated(project, cast, project.accept(cast, paths=PROMPTS))


def test_built_in_prompts_are_judged_by_task(prompts: Gated) -> None:
    """One prompt's umbrella is found, nothing else that is asked for: half a task, 1/12 in all."""
    cases = prompts.run.cases
    assert set(cases) == {
        *(f"geneval/{part}/geneval" for part in (*TASKS, "overall")),
        "geneval/overall/failures",
    }
    assert {cases[f"geneval/{task}/geneval"]["n"] for task in TASKS} == {2}
    value = {task: cases[f"geneval/{task}/geneval"]["value"] for task in TASKS}
    assert value == dict.fromkeys(TASKS, 0.0) | {"single_object": 0.5}
    assert cases["geneval/overall/geneval"]["value"] == pytest.approx(0.5 / 6, abs=1e-6)
    scores = prompts.project.scores("geneval/single_object/geneval")["single_object"]
    chains = prompts.project.chains(prompts.cast, "geneval/suite.toml", "text")
    texts = {chains[name][0].text: score for name, score in scores.items()}
    assert texts == {"a photo of an umbrella": 1.0, "a photo of a cell phone": 0.0}


def test_colors_are_told_by_clip_on_what_the_masks_cut_out(
    prompts: Gated, make_project: MakeProject, tiny: Tiny, tmp_path: Path
) -> None:
    """Right is what a plain Mask2Former and a plain CLIP tell of the image.

    Blue and yellow scissors are asked for, which are most of what so small a CLIP tells.
    """
    entries = [
        {
            "tag": "colors",
            "include": [{"class": "scissors", "count": 1, "color": color}],
            "prompt": f"a photo of a {color} scissors",
        }
        for color in ("blue", "yellow") * 2
    ]
    file = write_lines(tmp_path / "evaluation_metadata.jsonl", entries)
    cast = replace(prompts.cast, data={"geneval": file}, samples=None)
    project = make_project("geneval")
    project.accept(cast, paths=PROMPTS)

    scores = project.scores("geneval/overall/geneval")["colors"]
    chains = project.chains(cast, "geneval/suite.toml", "text")
    detector, clip = tiny("mask2former-of-two"), tiny("clip")
    names = plainly.color_names(clip, COLOR_TEXTS)
    expected = {}
    for name, (start, link) in chains.items():
        (image,) = project.drawn([link])
        cut_out = plainly.object_on_grey(detector, image, geneval_objects().index("scissors"))
        nearest = COLORS[plainly.nearest(clip, cut_out, names)]
        expected[name] = float(start.text == f"a photo of a {nearest} scissors")
    assert scores == expected
    assert len(scores) == 4 * len(entries)
    assert 0 < sum(scores.values()) < len(scores)


@pytest.fixture(scope="module")
def generations(
    tmp_path_factory: pytest.TempPathFactory, make_project: MakeProject, tiny: Tiny
) -> Gated:
    """The suite of long captions over ten generations, with a first describer accepted."""
    cast = Cast(
        model=f"{tiny('llava')}?max_new_tokens=8",
        roles={
            "generator": f"{tiny('stable-diffusion')}?num_inference_steps=2&height=64&width=64",
            "detector": f"{tiny('owlv2')}?threshold={SURE}",
        },
        encoders={"color": str(tiny("clip"))},
        data={"geneval-r": write_rewritten(tmp_path_factory.mktemp("R") / "metadata.jsonl")},
    )
    project = make_project("geneval")
    return Gated(project, cast, project.accept(cast, paths=GENERATIONS))


def test_mgg_is_what_plain_owl_finds_over_the_generations(generations: Gated, tiny: Tiny) -> None:
    """A prompt's score is the share of its ten images that are right by the counts of boxes."""
    chains = generations.project.chains(generations.cast, "geneval/mgg.toml", "text")
    scores = generations.project.scores("mgg/overall/mgg")
    for number, entry in enumerate(REWRITTEN):
        task, name = entry["tag"], f"{number:05}"
        links = chains[name]
        assert links[0].text == f"{entry['prompt']}, small, on the left of a large green square."
        if task == "colors":
            continue
        queries = [f"a photo of a {clause['class']}" for clause in entry["include"]]
        right = []
        for image in generations.project.drawn([links[g] for g in IMAGES]):
            counts = plainly.owl_counts(tiny("owlv2"), image, queries, SURE)
            least = [clause["count"] for clause in entry["include"]]
            most = [clause["count"] for clause in entry.get("exclude", ())]
            right.append(all(map(ge, counts, least)) and all(map(lt, counts, most)))
        assert scores[task][name] == pytest.approx(np.mean(right))
    by_task = [np.mean(list(of_samples.values())) for of_samples in scores.values()]
    case = generations.run.cases["mgg/overall/mgg"]
    assert case["value"] == pytest.approx(np.mean(by_task), abs=1e-6)
    assert case["value"] == pytest.approx(np.mean(case["curve"]), abs=1e-6)
    assert len(case["curve"]) == len(IMAGES)
    shares = {share for of_samples in scores.values() for share in of_samples.values()}
    assert shares - {0.0, 1.0}
