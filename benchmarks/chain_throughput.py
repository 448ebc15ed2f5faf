r"""Chain throughput: this project, the papers' procedure and a bare loop, on the same checkpoints.

The papers' procedure is GenCeption's Algorithm 1 as its released code runs it: one image after the
other, and for each image one describe, one generate and one encode call per iteration, the seed
encoded anew for every image. The bare loop is what one would write by hand for one evening: all
images of a step in batches of the same sizes, everything in memory, nothing kept. All sides use the
same adapters and loaded models; they take turns, and what is printed are ratios of their medians,
so that a busy machine slows all of them.

    python -m benchmarks.chain_throughput                      # tiny random checkpoints, built here
    python -m benchmarks.chain_throughput --describer DIR --generator "DIR?num_inference_steps=8" \
        --encoder DIR --images 64

The second table says where the wall time of this project's side went: inside the models, or outside
(store, digests, decoding, bookkeeping).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.chains import ChainModels, ChainPlan, RoleRunner
from pytest_cepbench.chains.chain import derive_seed
from pytest_cepbench.chains.features import trace
from pytest_cepbench.chains.growth import ChainGroup
from pytest_cepbench.datasets.sample import Sample, load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.metrics.gc import cosine_to_start, gc_at_t
from pytest_cepbench.models.protocols import (
    Describer,
    Encoder,
    Generator,
    Model,
    Reply,
    RoleName,
)
from pytest_cepbench.models.roles import check_text
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.model_pool import ModelPool
from pytest_cepbench.suites.role_assignment import RoleAssignment


@dataclass(frozen=True)
class Team:
    """The runners of the three roles, on one store."""

    describer: RoleRunner
    generator: RoleRunner
    encoder: RoleRunner


@dataclass(frozen=True)
class Side:
    """One run of one side: wall seconds, seconds inside models, and the scores it came to."""

    wall: float
    inside: float
    scores: np.ndarray


def batched(plan: ChainPlan, samples: Sequence[Sample], crew: Team, folder: Path) -> Side:
    """This project's chains on an empty store, models already loaded."""
    with Store(folder) as store:
        describer, generator, encoder = fresh = [
            RoleRunner(replace(runner.bound, load=partial(_same, runner.model)), store)
            for runner in (crew.describer, crew.generator, crew.encoder)
        ]
        started = time.perf_counter()
        game = ChainGroup(plan, samples, ChainModels(describer, generator, store))
        generations = range(2, plan.generations + 1, 2)
        traces = game.read(lambda chains: trace(chains, generations, encoder, store))
        wall = time.perf_counter() - started
    inside = sum(runner.tally.seconds for runner in fresh)
    return Side(wall, inside, gc_at_t(np.array([trace.similarities for trace in traces])))


def _same(model: Model) -> Model:
    return model


def one_at_a_time(plan: ChainPlan, samples: Sequence[Sample], crew: Team) -> Side:
    """Algorithm 1: every image through all its iterations before the next."""
    describer, generator, encoder = crew.describer.model, crew.generator.model, crew.encoder.model
    assert isinstance(describer, Describer)
    assert isinstance(generator, Generator)
    assert isinstance(encoder, Encoder)
    started = time.perf_counter()
    traces = np.zeros((len(samples), plan.iterations))
    for row, sample in enumerate(samples):
        image: Image.Image = load_seed_image(sample).to_pil()
        start = encoder.encode_images([image])
        for t in range(plan.iterations):
            seeds = [derive_seed(plan.seed, sample.id, 2 * t + step) for step in (1, 2)]
            said = describer.describe([image], plan.describe, seeds[:1])[0]
            text = check_text(said.value if isinstance(said, Reply) else said)
            if isinstance(text, Failure):
                break
            prompt = plan.generate.replace("{description}", text)
            drawn = check_image(generator.generate([prompt], seeds[1:])[0])
            if isinstance(drawn, Failure):
                break
            image = drawn.to_pil()
            later = encoder.encode_images([image])
            traces[row, t] = cosine_to_start(start, later[None])[0, 0]
    wall = time.perf_counter() - started
    return Side(wall, wall, gc_at_t(traces))


def bare(plan: ChainPlan, samples: Sequence[Sample], crew: Team) -> Side:
    """Everything in batches, from memory to memory."""
    describer, generator, encoder = crew.describer.model, crew.generator.model, crew.encoder.model
    assert isinstance(describer, Describer)
    assert isinstance(generator, Generator)
    assert isinstance(encoder, Encoder)
    started = time.perf_counter()
    images = [load_seed_image(sample).to_pil() for sample in samples]
    start = np.concatenate([encoder.encode_images(part) for part in cut(images, crew.encoder)])
    later = []
    for t in range(plan.iterations):
        of_texts, of_images = (
            [derive_seed(plan.seed, sample.id, 2 * t + step) for sample in samples]
            for step in (1, 2)
        )
        texts: list[str] = []
        for part, seeds in zip(
            cut(images, crew.describer), cut(of_texts, crew.describer), strict=True
        ):
            told = describer.describe(part, plan.describe, seeds)
            texts += [str(text.value if isinstance(text, Reply) else text) for text in told]
        prompts = [plan.drawing_prompt(text) for text in texts]
        images = []
        for part, seeds in zip(
            cut(prompts, crew.generator), cut(of_images, crew.generator), strict=True
        ):
            images += [to_image(drawn) for drawn in generator.generate(part, seeds)]
        later.append(np.concatenate([encoder.encode_images(p) for p in cut(images, crew.encoder)]))
    traces = cosine_to_start(start, np.stack(later, axis=1))
    wall = time.perf_counter() - started
    return Side(wall, wall, gc_at_t(traces))


def cut(values: Sequence[Any], runner: RoleRunner) -> list[Sequence[Any]]:
    """The values in parts of a runner's batch size."""
    size = runner.caller.size
    return [values[low : low + size] for low in range(0, len(values), size)]


def to_image(drawn: object) -> Image.Image:
    """What a pipeline returned as Pillow's image."""
    admitted = check_image(drawn)
    assert not isinstance(admitted, Failure)
    return admitted.to_pil()


def seed_images(count: int) -> list[Sample]:
    """Distinct seed images from the embedded world."""
    dataset = load_shapes(samples_per_category=-(-count // 8))
    return list(dataset.samples[:count])


def tiny_checkpoints(folder: Path) -> dict[str, str]:
    """Random LLaVA, Stable Diffusion and CLIP of a few hundred thousand weights, built offline."""
    from tests.tiny import describers, encoders, generators

    describers.build_llava(folder / "describer")
    generators.build_stable_diffusion(folder / "generator")
    encoders.build_clip(folder / "encoder")
    return {
        "describer": f"{folder / 'describer'}?max_new_tokens=24&batch_size=32",
        "generator": (
            f"{folder / 'generator'}?num_inference_steps=4&height=16&width=16&batch_size=32"
        ),
        "encoder": f"{folder / 'encoder'}",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--describer")
    parser.add_argument("--generator")
    parser.add_argument("--encoder")
    parser.add_argument("--prompt", default="describe the image")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--bare-only", action="store_true", help="leave out the papers' procedure, which takes long"
    )
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    plan = ChainPlan("image", 2 * options.iterations, options.prompt, "{description}")
    samples = seed_images(options.images)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        roles: tuple[RoleName, ...] = ("describer", "generator", "encoder")
        texts: dict[str, str] = {role: getattr(options, role) for role in roles}
        if not all(texts.values()):
            texts = tiny_checkpoints(folder)
        with Store(folder / "store") as store:
            pool = ModelPool(store, options.threads)
            assigned = (
                RoleAssignment(role, parse_spec(texts[role]), "benchmark") for role in roles
            )
            crew = Team(*map(pool.runner, assigned))
            one_at_a_time(plan, samples[:2], crew)  # loads, and compiles what is at first use
            ours, by_hand, theirs = [], [], []
            for repeat in range(options.repeats):
                ours.append(batched(plan, samples, crew, folder / f"run-{repeat}"))
                by_hand.append(bare(plan, samples, crew))
                if not options.bare_only:
                    theirs.append(one_at_a_time(plan, samples, crew))
    report(options, texts, ours, by_hand, theirs)


def report(
    options: argparse.Namespace,
    specs: dict[str, str],
    ours: Sequence[Side],
    by_hand: Sequence[Side],
    theirs: Sequence[Side],
) -> None:
    """Print medians, ratios, shares, and how far the sides' scores differ."""
    steps = options.images * options.iterations
    print(f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} thread(s) per model")
    for role, spec in specs.items():
        print(f"  {role}: {spec}")
    print(
        f"{options.images} images, T = {options.iterations}, "
        f"medians of {options.repeats} runs each\n"
    )
    names = ("this project", "bare loop, batched by hand", "papers: one image at a time")
    print(f"{'':34}{'seconds':>9}{'iterations/s':>14}")
    for name, sides in zip(names, (ours, by_hand, theirs), strict=True):
        if sides:
            wall = statistics.median(side.wall for side in sides)
            print(f"{name:34}{wall:9.2f}{steps / wall:14.1f}")
    print()
    for name, sides in (("the papers' procedure", theirs), ("the bare loop", by_hand)):
        if sides:
            print(f"throughput against {name}: {versus(ours, sides)}")
            gap = float(np.abs(ours[0].scores - sides[0].scores).max())
            print(f"  largest difference of a sample's GC@{options.iterations}: {gap:.2e}")
    outside = [1 - side.inside / side.wall for side in ours]
    print(f"share of this project's time outside the models: {statistics.median(outside):.1%}")


def versus(ours: Sequence[Side], others: Sequence[Side]) -> str:
    """The ratio of the medians, and of the pairs that ran one after the other."""
    ratio = statistics.median(o.wall for o in others) / statistics.median(o.wall for o in ours)
    pairs = [b.wall / a.wall for a, b in zip(ours, others, strict=True)]
    return f"{ratio:.2f} (pair by pair: {min(pairs):.2f} to {max(pairs):.2f})"


if __name__ == "__main__":
    main()
