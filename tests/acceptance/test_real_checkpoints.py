"""Chains of three iterations over real photographs, by every family of checkpoints in turn.

The checkpoints have random weights: they say nothing sensible, and go the whole way through the
code that a user's checkpoint goes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.suites import ChainRun, RoleChoices
from tests.acceptance.conftest import PHOTOS, Checkpoint
from tests.acceptance.suites.project import chain_run, measure_all

pytestmark = [pytest.mark.models, pytest.mark.slow]

SUITE = Path(__file__).parents[2] / "suites" / "folder" / "suite.toml"

COUNT = sum(len(names) for names in PHOTOS.values())

LINEUPS = [
    ("llava", "stable-diffusion", "clip"),
    ("qwen2-vl", "stable-diffusion", "siglip"),
    ("idefics3", "sdxl", "dinov2"),
    ("blip", "pixart", "vit"),
    ("vit-gpt2", "stable-diffusion", "open-clip"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for all line-ups, as a team's runner has."""
    return Store(tmp_path_factory.mktemp("store"))


def suite_run(
    photos: Path, store: Store, checkpoint: Checkpoint, assignments: tuple[str, ...]
) -> ChainRun:
    """The run of suites/folder that the command line would make for this line-up."""
    describer, generator, encoder = assignments
    choices = RoleChoices(
        model=checkpoint("describer", describer),
        roles={
            "generator": checkpoint("generator", generator),
            "encoder": checkpoint("encoder", encoder),
        },
    )
    return chain_run(SUITE, choices, {"folder": photos}, store)


@pytest.mark.parametrize("assignments", LINEUPS, ids="+".join)
def test_whole_chains_over_photographs(
    photos: Path, store: Store, checkpoint: Checkpoint, assignments: tuple[str, ...]
) -> None:
    """Every photograph gets six generations and a score; each case has its value."""
    run = suite_run(photos, store, checkpoint, assignments)

    measurements = measure_all(run)

    assert len(measurements) == len(PHOTOS) + 2
    overall = measurements["overall-gc"]
    assert overall.n == COUNT
    assert set(overall.scores) == {
        "people", "animals and things", "science/sky", "science/medicine", "greys",
    }  # fmt: skip
    traces = run.data.traces("image", "encoder", (2, 4, 6), run.dataset.samples)
    whole = [trace for trace in traces.values() if trace.failure is None]
    # Random weights may fall silent on a picture; that is a failure that is counted, not a crash.
    silent = [
        np.mean([traces[sample.id].failure is not None for sample in run.dataset.in_category(name)])
        for name in run.dataset.categories
    ]
    assert measurements["overall-failures"].value == pytest.approx(np.mean(silent), abs=1e-6)
    assert len(whole) >= COUNT - 2
    for trace in whole:
        kinds = [link.kind for link in trace.chain.links]
        assert kinds == ["image", "text"] * 3 + ["image"]
        assert all(-1.0 <= value <= 1.0 for value in trace.similarities)
        assert store.get_artifact(trace.chain.links[6].digest) is not None


def test_photographs_are_encoded_once_for_all_describers(
    photos: Path, store: Store, checkpoint: Checkpoint
) -> None:
    """A new describer finds the fixed encoder's vectors of the photographs in the store.

    The chains of both line-ups may be there already; no CLIP has seen those of the second.
    """
    measure_all(suite_run(photos, store, checkpoint, ("llava", "stable-diffusion", "clip")))
    second = suite_run(photos, store, checkpoint, ("blip", "pixart", "clip"))
    measure_all(second)

    tally = second.data.runner("encoder").tally
    assert tally.hits >= COUNT
    assert 0 < tally.inputs <= 3 * COUNT
