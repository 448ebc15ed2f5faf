"""The cost of a node that dies half way through a run on two nodes of this machine.

    python -m benchmarks.ray_node_loss         # 512 images, three runs of each in turns
    python -m benchmarks.ray_node_loss --quick

The node is killed as when power fails. The describer waits so long for each image that everything
else is small in comparison, and logs its batches. So of a run in which a node dies it is known what
the other must still do: the images that are left, one after the other. That is the ideal. Batches
in flight on the dead node are made twice and counted apart; the figure is what the run takes over
both. An undisturbed run on both nodes is shown as well.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.whole_runs import Project, machine, seed_images

_MODELS = "python:benchmarks.waiting_models"

_MEMORY = 100 << 20  # bytes of each node's object store


@dataclass(frozen=True)
class Work:
    """What the describers did, by their log.

    began, ended: time of the first and the last batch.
    inputs: images that were described.
    twice: images that were begun and never ended.
    """

    began: float
    ended: float
    inputs: int
    twice: int

    @property
    def seconds(self) -> float:
        """From the first batch to the last."""
        return self.ended - self.began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument(
        "--milliseconds", type=float, default=80.0, help="of the describer, for an image"
    )
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="128 images, once")
    options = parser.parse_args()
    images, repeats = (128, 1) if options.quick else (options.images, options.repeats)
    wait = options.milliseconds / 1000
    print(machine())
    print(
        f"{images} images in 8 categories, {options.milliseconds:g} ms each in batches of "
        f"{options.batch}"
    )
    undisturbed, disturbed = [], []
    with tempfile.TemporaryDirectory() as temporary:
        project = Project(Path(temporary) / "project")
        seed_images(project.root / "images", images, 8)
        project.suite(project.root / "images", {"sim": ""})
        for number in range(repeats):
            log = Path(temporary) / f"log-{number}"
            undisturbed.append(
                _run(project, log / "undisturbed", wait, options.batch, kill_at=None)[0]
            )
            disturbed.append(
                _run(project, log / "disturbed", wait, options.batch, kill_at=images // 2)
            )
            print(_line(undisturbed[-1], *disturbed[-1], wait), flush=True)
    over = statistics.median(_over(*run, wait) for run in disturbed)
    print(f"median over the ideal and the work in flight: {over:+.1%} (at most +10 % is wanted)")


def _ideal(work: Work, killed: float, done: int, wait: float) -> tuple[float, float]:
    """Seconds that a run with a death should take, and those of the batches that were lost."""
    return killed - work.began + (work.inputs - done) * wait, work.twice * wait


def _over(work: Work, killed: float, done: int, wait: float) -> float:
    ideal, flight = _ideal(work, killed, done, wait)
    return work.seconds / (ideal + flight) - 1


def _line(undisturbed: Work, work: Work, killed: float, done: int, wait: float) -> str:
    ideal, flight = _ideal(work, killed, done, wait)
    return (
        f"both nodes {undisturbed.seconds:.1f} s; killed after {killed - work.began:.1f} s "
        f"with {done} of {undisturbed.inputs} done: {work.seconds:.1f} s, ideal {ideal:.1f} s, "
        f"in flight {work.twice} images ({flight:.1f} s), "
        f"over both {_over(work, killed, done, wait):+.1%}"
    )


def _run(
    project: Project, log: Path, wait: float, batch: int, *, kill_at: int | None
) -> tuple[Work, float, int]:
    """One run with an empty store; the second node is killed when so many images are described.

    Returns the work, when it was killed (0 if not), and how many were described by then.
    """
    from ray.cluster_utils import Cluster

    log.mkdir(parents=True)
    project.forget()
    os.environ["RAY_AUTH_MODE"] = "disabled"
    head = {"num_cpus": 1, "object_store_memory": _MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(num_cpus=1, object_store_memory=_MEMORY)
    kills: list[tuple[float, int]] = []
    over = threading.Event()
    watch = threading.Thread(target=_kill, args=(cluster, second, log, kill_at, kills, over))
    try:
        if kill_at is not None:
            watch.start()
        project.run(
            "--snapshot-update",
            "--cep-engine=ray",
            f"--cep-ray-address={cluster.address}",
            f"--model={_MODELS}:Describer?wait={wait}&log={log}&batch={batch}",
            "--cep-role=describer",
        )
    finally:
        over.set()
        if kill_at is not None:
            watch.join()
        cluster.shutdown()  # type: ignore[no-untyped-call] # Ray's
    killed, done = kills[0] if kills else (0.0, 0)
    assert kill_at is None or kills, "the run was over before a node could be killed"
    losses = project.report()["infrastructure"]
    assert bool(losses) == (kill_at is not None), losses
    return _work(log), killed, done


def _kill(
    cluster: Any,
    node: Any,
    log: Path,
    at: int,
    kills: list[tuple[float, int]],
    over: threading.Event,
) -> None:
    while not over.wait(0.02):
        done = sum(count for _, _, count in _batches(log))
        if done >= at:
            raylet = node.all_processes["raylet"][0].process.pid
            actors = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
            kills.append((time.time(), done))
            for pid in (raylet, *map(int, actors)):
                os.kill(pid, signal.SIGKILL)
            cluster.remove_node(node, allow_graceful=False)
            return


def _batches(log: Path) -> list[tuple[float, float, int]]:
    """Begin, end and number of images of every batch that ended."""
    batches = []
    for path in log.glob("done-*"):
        for line in path.read_text().splitlines():
            began, ended, count = line.split()
            batches.append((float(began), float(ended), int(count)))
    return batches


def _work(log: Path) -> Work:
    batches = _batches(log)
    unfinished = [int(path.read_text() or 0) for path in log.glob("begun-*")]
    began, ended = min(b for b, _, _ in batches), max(e for _, e, _ in batches)
    described = sum(count for _, _, count in batches)
    return Work(began, ended, described, sum(unfinished))


if __name__ == "__main__":
    main()
