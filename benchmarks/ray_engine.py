"""The cost of Ray compared with one process, on one machine: trained models, an empty store.

    python -m benchmarks.ray_engine            # 1,000 samples, five runs of each in turns
    python -m benchmarks.ray_engine --quick

The models are those of suites/shapes: a describer, a generator of eight steps, a CLIP. Each run
starts and ends its cluster, so the start of the cluster and its actors is in the figure.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.whole_runs import Project, Spent, in_turns, machine, median_wall

_REPOSITORY = Path(__file__).resolve().parents[1]

_SUITE = """\
name = "engines"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {each}, seed = 5 }}
[chain]
start = "image"
iterations = 1
[prompts]
describe = "describe the image"
[roles]
describer = "{checkpoints}/describer-step2000?dtype=float32"
generator = "{checkpoints}/generator-step3000?dtype=float32&{drawing}"
encoder = "{checkpoints}/clip?dtype=float32"
[metrics.gc]
parts = "overall"
"""

_DRAWING = "num_inference_steps=8&guidance_scale=1&height=64&width=64&batch_size=24"

_CATEGORIES = 8  # of the world of shapes

# A process for each role: on one machine more of them would share the same cores, and load the same
# libraries again.
_POOLS = ("describer:actors=1", "generator:actors=1", "encoder:actors=1")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pool", action="append", help=f"instead of {' '.join(_POOLS)}")
    parser.add_argument("--quick", action="store_true", help="64 samples, once")
    options = parser.parse_args()
    samples, repeats = (64, 1) if options.quick else (options.samples, options.repeats)
    pools = options.pool or list(_POOLS)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(f"{machine()}, ray {version('ray')}, torch {version('torch')}")
    print(f"{samples} samples, one iteration; pools {' '.join(pools)}")
    with tempfile.TemporaryDirectory() as temporary:
        project = Project(Path(temporary))
        _write(project, samples)
        ray = ["--cep-engine=ray", *(f"--cep-ray-pool={pool}" for pool in pools)]
        values: set[float] = set()
        sides = {
            "in process": partial(_cold, project, [], values),
            "ray": partial(_cold, project, ray, values),
        }
        measured = in_turns(sides, repeats)
    print(f"\nmedians of {repeats} in turns")
    for name, runs in measured.items():
        walls = " ".join(f"{run.wall:.1f}" for run in runs)
        print(f"{name:12}{median_wall(runs):8.2f}s   ({walls})")
    in_process, on_ray = measured.values()
    ratios = [b.wall / a.wall for a, b in zip(in_process, on_ray, strict=True)]
    print(
        f"ratio of medians {median_wall(on_ray) / median_wall(in_process):.3f} "
        f"(pair by pair {min(ratios):.3f} to {max(ratios):.3f}); GC@1 {sorted(values)}"
    )


def _write(project: Project, samples: int) -> None:
    folder = project.root / "engines"
    folder.mkdir(parents=True)
    (project.root / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_engines.py").write_text(
        "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n"
    )
    checkpoints = _REPOSITORY / "reference" / "checkpoints"
    each = samples // _CATEGORIES
    text = _SUITE.format(each=each, checkpoints=checkpoints, drawing=_DRAWING)
    (folder / "suite.toml").write_text(text)


def _cold(project: Project, arguments: Sequence[str], values: set[float]) -> Spent:
    """One run with nothing in the store, whose measurement is accepted."""
    project.forget()
    spent = project.run("--snapshot-update", *arguments)
    values.update(case["value"] for case in project.report()["cases"])
    return spent


if __name__ == "__main__":
    main()
