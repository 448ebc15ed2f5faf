"""What a cluster's driver costs for a sample, 10 thousand, a million and 100 million of them.

    python -m benchmarks.projection                 # about ten minutes
    python -m benchmarks.projection --quick

The models cost nothing and sit in actors on this machine, so what is measured is the driver:
pytest's process, which hands out batches, checks what comes back, stores it and judges. Two runs of
different size tell what one more sample costs. Its wall time has the actors of the same machine in
it, so what is projected is its CPU time, as if it had one core: Python's lock leaves it little
more. What models cost is taken from the command line.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.whole_runs import Project, Spent, machine, seed_images

_MODELS = "python:benchmarks.waiting_models"

_SIZES = (10_000, 1_000_000, 100_000_000)

_ITERATIONS = 3  # of a run that is projected; one is measured

_DAY = 86_400.0


@dataclass(frozen=True)
class Cost:
    """One more sample, of one iteration. wall, cpu: seconds. index, images: bytes in the store."""

    side: int
    wall: float
    cpu: float
    index: float
    images: float

    @property
    def moved(self) -> float:
        """Bytes through the object store: an image goes out three times, and comes in once."""
        return 4 * 3 * self.side**2


@dataclass(frozen=True)
class Models:
    """Seconds of a device for an input of each role, and what a device costs an hour."""

    describer: float
    generator: float
    encoder: float
    price: float

    def hours(self, samples: int) -> float:
        """Of devices, for so many samples."""
        each = _ITERATIONS * (self.describer + self.generator) + (_ITERATIONS + 1) * self.encoder
        return samples * each / 3600


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 512, 1024])
    parser.add_argument("--images", type=int, nargs=2, default=[256, 1024])
    parser.add_argument("--describer", type=float, default=0.25, help="seconds of a device")
    parser.add_argument("--generator", type=float, default=2.0, help="seconds of a device")
    parser.add_argument("--encoder", type=float, default=0.01, help="seconds of a device")
    parser.add_argument("--price", type=float, default=2.5, help="of a device for an hour")
    parser.add_argument("--quick", action="store_true", help="64 and 128 images, small ones")
    options = parser.parse_args()
    sides, sizes = ([64], [64, 128]) if options.quick else (options.sides, options.images)
    models = Models(options.describer, options.generator, options.encoder, options.price)
    print(machine())
    costs = _measured(sides, sizes)
    print(f"\none more sample of one iteration (4 steps), from {sizes[0]} and {sizes[1]} images")
    print(
        f"{'side':>5}{'wall':>10}{'CPU':>10}{'steps/s':>10}{'rows':>9}{'images':>10}{'moved':>10}"
    )
    for cost in costs:
        print(
            f"{cost.side:>5}{cost.wall * 1e3:>8.1f}ms{cost.cpu * 1e3:>8.1f}ms{4 / cost.cpu:>10.0f}"
            f"{cost.index / 1e3:>7.1f}kB{cost.images / 1e3:>8.0f}kB{cost.moved / 1e6:>8.2f}MB"
        )
    print(f"\nprojected, {_ITERATIONS} iterations, at {models.price:g} an hour of a device")
    print(
        f"{'side':>5}{'samples':>13}{'device hours':>14}{'cost':>13}{'driver days':>13}"
        f"{'index':>11}{'images':>11}{'files':>14}{'devices':>9}"
    )
    for cost in costs:
        for samples in _SIZES:
            _print_projection(cost, models, samples)
    print("devices: as many as the driver keeps busy; more of them wait for it")


def _print_projection(cost: Cost, models: Models, samples: int) -> None:
    hours, driver = models.hours(samples), samples * _ITERATIONS * cost.cpu
    scale = samples * _ITERATIONS
    print(
        f"{cost.side:>5}{samples:>13,}{hours:>14,.0f}{hours * models.price:>13,.0f}"
        f"{driver / _DAY:>13,.2f}{cost.index * scale / 1e9:>9,.1f}GB"
        f"{cost.images * scale / 1e9:>9,.0f}GB"
        f"{scale:>14,}{hours * 3600 / driver:>9,.0f}"
    )


def _measured(sides: Sequence[int], sizes: Sequence[int]) -> list[Cost]:
    from ray.cluster_utils import Cluster

    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    head = {"num_cpus": 2, "object_store_memory": 512 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            return [_cost(Path(temporary), cluster.address, side, sizes) for side in sides]
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call] # Ray's


def _cost(folder: Path, address: str, side: int, sizes: Sequence[int]) -> Cost:
    (few, few_index, few_images), (many, index, images) = (
        _run(folder / f"{side}-{size}", address, side, size) for size in sizes
    )
    more = sizes[1] - sizes[0]
    return Cost(
        side,
        (many.wall - few.wall) / more,
        (many.cpu - few.cpu) / more,
        (index - few_index) / more,
        (images - few_images) / more,
    )


def _run(folder: Path, address: str, side: int, size: int) -> tuple[Spent, int, int]:
    """One run with an empty store; its time, and the bytes of the index and of the images."""
    project = Project(folder)
    seed_images(folder / "images", size, 4)
    project.suite(folder / "images", {"sim": ""})
    spent = project.run(
        "--snapshot-update",
        "--cep-engine=ray",
        f"--cep-ray-address={address}",
        f"--model={_MODELS}:Describer",
        "--cep-role=describer",
        f"--generator={_MODELS}:Generator?side={side}",
        f"--encoder={_MODELS}:Encoder",
    )
    store = folder / ".cepbench" / "store"
    index = sum(path.stat().st_size for path in store.glob("index*"))
    images = sum(path.stat().st_size for path in (store / "images").rglob("*") if path.is_file())
    return spent, index, images


if __name__ == "__main__":
    main()
