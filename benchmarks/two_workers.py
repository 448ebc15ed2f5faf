r"""Two workers against one: whole pytest runs with `-n 1` and `-n 2`, each with an empty store.

By default the models keep a core busy for 20 ms an image, describing as well as drawing; what comes
after the options of this script goes to both runs, so that checkpoints can be given in their place.
Their threads are held at one: two workers would share the cores of one otherwise.

    OMP_NUM_THREADS=1 python -m benchmarks.two_workers
    OMP_NUM_THREADS=1 python -m benchmarks.two_workers --samples 64 --categories 1 \
        --model=checkpoints/describer --generator="checkpoints/generator?num_inference_steps=8" \
        --encoder=checkpoints/clip

Seconds in the models are those of all workers together: where two of them disturb each other on the
machine itself (shared caches, memory, other tenants), it is there that it shows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.whole_runs import (
    Project,
    Spent,
    in_turns,
    machine,
    median_cpu,
    median_wall,
    seed_images,
)

_MODELS = "python:benchmarks.cheap_models"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--categories", type=int, default=4)
    parser.add_argument("--milliseconds", type=float, default=20.0, help="of a model, for an image")
    parser.add_argument("--workers", type=int, nargs=2, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    options, models = parser.parse_known_args()
    spin = f"spin={options.milliseconds / 1000}"
    models = models or [
        f"--model={_MODELS}:Describer?step=1&{spin}",
        f"--generator={_MODELS}:Generator?{spin}",
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(machine())
    print(f"{options.samples} images in {options.categories} categories; {' '.join(models)}")
    with tempfile.TemporaryDirectory() as temporary:
        project = Project(Path(temporary) / "project")
        seed_images(project.root / "images", options.samples, options.categories)
        project.suite(project.root / "images", {"sim": ""})
        inside: dict[str, list[float]] = {f"-n {count}": [] for count in options.workers}
        sides = {name: partial(_cold, project, name, models, inside[name]) for name in inside}
        spent_by_side = in_turns(sides, options.repeats)
    print(f"\nmedians of {options.repeats} in turns")
    print(f"{'workers':10}{'wall':>9}{'CPU':>9}{'in models':>12}{'wall, each':>30}")
    for name, runs in spent_by_side.items():
        models_seconds = sorted(inside[name])[len(inside[name]) // 2]
        each = " ".join(f"{run.wall:.1f}" for run in runs)
        print(
            f"{name:10}{median_wall(runs):8.2f}s{median_cpu(runs):8.2f}s{models_seconds:11.2f}s"
            f"{each:>30}"
        )
    first, second = spent_by_side.values()
    ratios = [a.wall / b.wall for a, b in zip(first, second, strict=True)]
    print(
        f"ratio of medians {median_wall(first) / median_wall(second):.2f} "
        f"(pair by pair: {min(ratios):.2f} to {max(ratios):.2f})"
    )


def _cold(project: Project, workers: str, models: Sequence[str], inside: list[float]) -> Spent:
    """One run with nothing in the store, whose measurements are accepted: baselines are needed."""
    project.forget()
    spent = project.run(*workers.split(), "--snapshot-update", *models)
    inside.append(project.effort()["model_seconds"])
    return spent


if __name__ == "__main__":
    main()
