"""Small categories, grown together for small models: the same batches whichever process begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.models.binding import BoundRole, bind
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ChainRun, ModelPool
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.shards import WorkQueue
from tests.suites.world import Staged, stage

SUITE = """\
name = "small"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 12 }
[chain]
iterations = 1
[prompts]
describe = "describe"
[roles]
describer = "python:tests.suites.test_packing:teller"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
"""
"""Eight categories of twelve."""

TEXT = str(load_shapes(samples_per_category=1).samples[0].text)


class Teller:
    """A describer that keeps the batches it was shown."""

    fingerprint = "packed teller/1"
    seeded = False
    batch_size = 32

    def __init__(self) -> None:
        self.batches: list[tuple[bytes, ...]] = []

    def describe(self, images: Sequence[Image.Image], _: str, __: Sequence[int]) -> list[str]:
        """The same for every image."""
        self.batches.append(tuple(image.tobytes() for image in images))
        return [TEXT] * len(images)


TELLER = Teller()


def teller() -> Teller:
    """The one describer of this process."""
    return TELLER


def played(
    folder: Path, cases: Sequence[str], *, small: bool = True, needed: Sequence[str] = ()
) -> list[tuple[bytes, ...]]:
    """The batches of a run that judges cases in this order, and knows of others that it needs."""
    TELLER.__init__()  # type: ignore[misc] # it lives as long as the process

    def place(assignment: RoleAssignment) -> BoundRole:
        bound = bind(assignment.spec, assignment.role, pool.context)
        return replace(bound, resources=replace(bound.resources, small=small))

    with Store(folder / "store") as store:
        staged: Staged = stage(folder, SUITE, store)
        pool = ModelPool(store, place=place)
        old = staged.run
        run = ChainRun(old.suite, old.dataset, old.assignments, old.measures, pool)
        queue = WorkQueue(store, lambda _: run, "run", folder / "word", packs=True)
        for name in (*cases, *needed):
            queue.add(folder, staged.cases[name], None)
        for name in cases:
            queue.compute(folder, staged.cases[name])
            assert run.measure(staged.cases[name]).n in (12, 96)
    return TELLER.batches


def sizes(batches: Sequence[tuple[bytes, ...]]) -> list[int]:
    """Inputs of each, the largest first."""
    return sorted(map(len, batches), reverse=True)


def test_small_models_are_asked_for_neighbouring_categories_together(tmp_path: Path) -> None:
    """Of eight categories of twelve, two and two are grown together where the models are small."""
    assert sizes(played(tmp_path / "small", ["overall-gc"])) == [24] * 4
    assert sizes(played(tmp_path / "large", ["overall-gc"], small=False)) == [12] * 8


@pytest.mark.slow
def test_batches_do_not_depend_on_which_process_begins(tmp_path: Path) -> None:
    """A worker that judges one category first asks for the same batches as one that judges all."""
    together = played(tmp_path / "all", ["overall-gc", "color-gc"])
    single = played(tmp_path / "one", ["crowded-gc", "color-gc", "overall-gc"])
    assert sorted(together) == sorted(single)
    helper = played(tmp_path / "part", ["color-gc"], needed=["overall-gc"])
    assert len(helper) == 1
    assert set(helper) < set(together)


@pytest.mark.parametrize("case", ["color-gc", "crowded-gc"])
def test_nothing_is_grown_that_the_run_does_not_need(tmp_path: Path, case: str) -> None:
    """A run of one category asks for its twelve samples alone."""
    assert sizes(played(tmp_path, [case])) == [12]
