"""Shards of a suite whose roles lie on different devices: grown together, and read meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image
from pytest_cepbench.models.rule_based.scene_models import ShapesDetector
from pytest_cepbench.store import Store
from pytest_cepbench.suites.shards import ShardQueue
from tests.suites.world import SUITE, TASKS, Staged, stage, vector

CALLS: list[tuple[str, int, str]] = []
"""Role, inputs and thread of each call."""


def note(role: str, inputs: Sequence[Any]) -> None:
    """Note a call."""
    CALLS.append((role, len(inputs), threading.current_thread().name))


class Describer:
    """Says what it sees, on a device of its own."""

    fingerprint, seeded, batch_size, device = "lanes/1", False, 2, "cuda:0"

    def describe(self, images: Sequence[Image.Image], _: str, __: Sequence[int]) -> list[str]:
        """One text for each image."""
        note("describer", images)
        return [caption(parse_image(ImageArtifact.from_pil(image))) for image in images]


class Encoder:
    """The embedded encoder, on a device of its own."""

    fingerprint, batch_size, device = "lanes/1", 2, "cuda:1"

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, dimension)."""
        note("encoder", images)
        return [vector(image) for image in images]

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, dimension)."""
        return [vector(text) for text in texts]


class Detector(ShapesDetector):
    """The embedded detector, on a device of its own."""

    fingerprint, queries, batch_size, device = "lanes/1", "classes", 2, "cuda:2"

    def detect(self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]) -> Any:
        """One answer for each image."""
        note("detector", images)
        return super().detect(images, queries)


def on_devices(text: str) -> str:
    """A suite with the roles above in place of its own."""
    kept = [line for line in text.splitlines() if line.partition(" = ")[0] not in ROLES]
    roles = [
        f'{role} = "python:tests.suites.test_lanes:{role.title()}"'
        for role in ROLES
        if f"\n{role} = " in text
    ]
    return "\n".join(kept).replace("[roles]", "\n".join(["[roles]", *roles])) + "\n"


ROLES = ("describer", "encoder", "detector")


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Each test has the notes to itself."""
    CALLS.clear()


def queued(folder: Path, text: str, store: Store, *, overlap: bool) -> tuple[ShardQueue, Staged]:
    """The cases of a suite, and the queue of their shards."""
    staged = stage(folder / "suite", text, store)
    queue = ShardQueue(store, lambda _: staged.run, "run", folder / "notes", overlap=overlap)
    for case in staged.cases.values():
        queue.add(folder, case, None)
    return queue, staged


def measured(folder: Path, text: str, *, overlap: bool) -> tuple[dict[str, Any], Counter[str]]:
    """Scores of all cases of a suite, and how many inputs each role had."""
    CALLS.clear()
    with Store(folder / f"store-{overlap}") as store:
        queue, staged = queued(folder, text, store, overlap=overlap)
        scores = {}
        for name, case in staged.cases.items():
            queue.compute(folder, case)
            scores[name] = staged.measure(name).scores
    inputs = Counter[str]()
    for role, count, _ in CALLS:
        inputs[role] += count
    return scores, inputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "readers"),
    [
        (SUITE + "[metrics.gc]\n[metrics.failures]\n[metrics.sim]\n", {"encoder"}),
        (TASKS + '[metrics.mgg]\ncolors = "detector"\n', {"detector"}),
        (TASKS + "[metrics.mgg]\n[metrics.failures]\n", {"detector"}),
    ],
    ids=["encoder", "detector", "cut-outs too"],
)
def test_readers_work_while_chains_grow(text: str, readers: set[str], tmp_path: Path) -> None:
    """Scores and inputs are those of roles in turns; what reads does so on a device's thread."""
    text = on_devices(text)
    assert measured(tmp_path, text, overlap=True) == measured_in_turns(tmp_path, text)
    measured(tmp_path / "again", text, overlap=True)
    threads = {role: thread for role, _, thread in CALLS}
    assert threads["describer"] == "cepbench-cuda:0"
    assert all(threads[reader].startswith("cepbench-cuda:") for reader in readers)


def measured_in_turns(folder: Path, text: str) -> tuple[dict[str, Any], Counter[str]]:
    """The same, one role after the other, all on the thread that asks."""
    measurement = measured(folder, text, overlap=False)
    assert {thread for *_, thread in CALLS} == {"MainThread"}
    return measurement


def test_neighbors_of_a_small_case_are_grown_with_it(tmp_path: Path) -> None:
    """Six samples are three lanes: those of other cases fill the time, and are done then."""
    with Store(tmp_path / "store") as store:
        queue, staged = queued(tmp_path, on_devices(SUITE + "[metrics.gc]\n"), store, overlap=True)
        for role in ("describer", "generator", "encoder"):
            staged.run.runner(role).progress = queue.progress
        queue.compute(tmp_path, staged.cases["a-gc"])
        assert queue.progress.steps == queue.progress.of_steps
        calls = len(CALLS)
        queue.compute(tmp_path, staged.cases["b-gc"])
        staged.measure("overall-gc")
        assert len(CALLS) == calls


def test_a_run_that_is_to_stop_grows_nothing_for_others(tmp_path: Path) -> None:
    """An idle worker of such a run ends before it calls a model."""
    with Store(tmp_path / "store") as store:
        queue, _ = queued(tmp_path, on_devices(SUITE + "[metrics.gc]\n"), store, overlap=True)
        queue.stopped = lambda: True
        queue.compute_others()
        assert CALLS == []
        queue.stopped = lambda: False
        queue.compute_others()
        assert {thread for *_, thread in CALLS} == {"cepbench-cuda:0", "cepbench-cuda:1"}
