"""The Semantic Drift Protocol by models of its three families, which describe and draw.

Shared weights: Janus and Emu3, one checkpoint each. Partially shared: a repository's own object
with a decoder of its own, through `python:`, as the documentation's example wraps it. Decoupled:
LLaVA and SDXL. Random weights drift at once; what is held here is that chains are whole, loads are
few and numbers are the same again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ChainRun, RoleChoices
from tests.acceptance.conftest import Checkpoint
from tests.acceptance.suites.data import write_listed
from tests.acceptance.suites.project import chain_run, measure_all

pytestmark = [pytest.mark.models, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

GENERATIONS = 4

SAMPLES = 2

TALKS = "min_new_tokens=4"
"""Random weights may fall silent at once, which ends a chain."""


class Family(NamedTuple):
    """What is typed, how many models that is, and what may be added to have one input per call."""

    model: Callable[[Checkpoint], str]
    loads: int
    generator: Callable[[Checkpoint], str] | None = None
    singly: str = ""


def unified(name: str) -> Family:
    """The family of a tiny checkpoint that describes and draws."""
    return Family(
        lambda tiny: f"{tiny('unified', name)}&{TALKS}",
        1,
        singly="&batch_size=1&image_batch_size=1",
    )


FAMILIES = {
    "shared-janus": unified("janus"),
    "shared-emu3": unified("emu3"),
    "partially-shared": Family(lambda _: "python:unified_model:load?path=omni", 1),
    "decoupled": Family(
        lambda tiny: f"{tiny('describer', 'llava')}&{TALKS}",
        2,
        lambda tiny: tiny("generator", "sdxl"),
    ),
}


@pytest.fixture(autouse=True)
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The documentation's modules in reach, and a checkpoint of theirs in the current folder."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    monkeypatch.chdir(tmp_path)
    import_module("tiny_omni").save(tmp_path / "omni", [])
    yield
    from pytest_cepbench.models.python_model import make_model

    make_model.cache_clear()
    for name in ("tiny_omni", "unified_model"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def suite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped suite with shorter chains, and its data beside it."""
    folder = tmp_path_factory.mktemp("sdp")
    text = (ROOT / "suites" / "sdp" / "suite.toml").read_text(encoding="utf-8")
    assert "generations = 20" in text
    text = text.replace("generations = 20", f"generations = {GENERATIONS}")
    (folder / "suite.toml").write_text(text, encoding="utf-8")
    write_listed(folder / "data")
    return folder / "suite.toml"


def play(
    suite_file: Path, tiny: Checkpoint, family: Family, store: Store, extra: str = ""
) -> ChainRun:
    """The run that the command line would make, nothing measured yet."""
    from pytest_cepbench.models.python_model import make_model

    make_model.cache_clear()  # as a new process would
    roles: dict[RoleName, str] = {}
    if family.generator is not None:
        roles["generator"] = family.generator(tiny)
    encoders = dict.fromkeys(("text", "cross", "image"), tiny("encoder", "clip"))
    choices = RoleChoices(family.model(tiny) + extra, roles=roles, encoders=encoders)
    return chain_run(suite_file, choices, {"sdp": suite_file.parent / "data"}, store, SAMPLES // 2)


def numbers(run: ChainRun) -> dict[str, float]:
    """The value of every case."""
    return {name: measured.value for name, measured in measure_all(run).items()}


def chains(run: ChainRun, start: Modality) -> list[Chain]:
    """The chains of all samples, out of the store."""
    return list(run.data.chains(start, run.dataset.samples).values())


def spent(run: ChainRun) -> tuple[int, int]:
    """Loads and inputs of describer and generator together."""
    tallies = [run.data.runner(role).tally for role in ("describer", "generator")]
    return sum(tally.loads for tally in tallies), sum(tally.inputs for tally in tallies)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_each_family_plays_both_chains(
    suite_file: Path,
    tmp_path: Path,
    checkpoint: Checkpoint,
    family: Family,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Whole chains of both starts, one load of what is one model, the same again without a load.

    One by one the first steps come out the same: texts equal, drawings to the last level.
    """
    with Store(tmp_path / "store") as store:
        first = play(suite_file, checkpoint, family, store)
        measured = numbers(first)
        again = play(suite_file, checkpoint, family, store)
        repeated = numbers(again)

        both = ("describer", "generator")
        assert first.assignments.gated == (both if family.generator is None else both[:1])
        assert spent(first) == (family.loads, 2 * SAMPLES * GENERATIONS)
        assert (repeated, spent(again)) == (measured, (0, 0))
        for chain in [*chains(first, "text"), *chains(first, "image")]:
            kinds = [link.kind for link in chain.links]
            assert len(kinds) == GENERATIONS + 1
            assert [len(set(kinds[::2])), len(set(kinds[1::2])), len(set(kinds))] == [1, 1, 2]
        texts, images = first_steps(first, store)

    if family.singly:
        text = suite_file.read_text(encoding="utf-8")
        short = suite_file.with_name("short.toml")
        short.write_text(text.replace(f"generations = {GENERATIONS}", "generations = 2"), "utf-8")
        with Store(tmp_path / "another") as store:
            alone = play(short, checkpoint, family, store, family.singly)
            lone_texts, lone_images = first_steps(alone, store)
        assert texts == lone_texts
        assert max(np.abs(a - b).max() for a, b in zip(images, lone_images, strict=True)) <= 1


def first_steps(
    run: ChainRun, store: Store
) -> tuple[list[str | None], list[npt.NDArray[np.int64]]]:
    """The descriptions and the drawings of the seeds."""
    stored = [store.get_image(c.links[1].digest) for c in chains(run, "text")]
    images = [image.pixels.astype(np.int64) for image in stored if image is not None]
    assert len(images) == SAMPLES
    return [chain.links[1].text for chain in chains(run, "image")], images
