"""Images of real size prepared ahead of a describer: against one that prepares each batch in turn.

A describer of a few hundred thousand random weights with LLaVA's processor at its real size reads
photographs from files. Both sides are the same checkpoint, in the same batches; one is called by
`describe` alone, as are models that cannot prepare images apart. They take turns, and what is
printed is the ratio of their times. The wait after each batch stands for a describer of real size
on a device of its own.

    python -m benchmarks.image_preparation
    python -m benchmarks.image_preparation --side 1024 --images 48 --wait 0.2
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.whole_runs import machine
from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains import RoleRunner, Step
from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.model_pool import ModelPool

_PROMPT = "describe the image"

_BATCH = 8


class InTurn:
    """A describer that prepares a batch when it is asked about it. wait: seconds after each."""

    def __init__(self, model: Any, wait: float) -> None:
        self._model, self._wait = model, wait

    def describe(self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]) -> Any:
        """One text for each image."""
        texts = self._model.describe(images, prompt, seeds)
        time.sleep(self._wait)
        return texts


class Ahead(InTurn):
    """The same, of which batches can be prepared apart."""

    def prepare(self, images: Sequence[Image.Image], prompt: str) -> Any:
        """What the model reads."""
        return self._model.prepare(images, prompt)

    def describe_prepared(self, prepared: Any, seeds: Sequence[int]) -> Any:
        """One text for each image."""
        texts = self._model.describe_prepared(prepared, seeds)
        time.sleep(self._wait)
        return texts


def photographs(folder: Path, count: int, side: int) -> list[Path]:
    """JPEG files with the detail of photographs."""
    random = np.random.default_rng(side)
    paths = []
    for number in range(count):
        coarse = random.integers(0, 256, (side // 16, side // 16, 3), np.uint8)
        image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
        grain = random.integers(0, 12, (side, side, 3), np.uint8)
        paths.append(folder / f"{number:03}.jpg")
        Image.fromarray(np.asarray(image) // 2 + grain).save(paths[-1], quality=92)
    return paths


def build(folder: Path, side: int) -> Path:
    """A tiny LLaVA whose processor resizes as that of the real one."""
    import json

    from tests.tiny import describers

    describers.build_llava(folder)
    path = folder / "processor_config.json"
    config = json.loads(path.read_text())
    own = config.get("image_processor", config)
    own["size"] = {"shortest_edge": side}
    path.write_text(json.dumps(config))
    return folder


def describe(
    runner: RoleRunner, model: InTurn, folder: Path, images: Sequence[Path]
) -> tuple[float, list[Any]]:
    """Seconds that a loaded model takes for all images, on an empty store, and its texts."""
    with Store(folder) as store:
        own = RoleRunner(replace(runner.bound, load=partial(_same, model), files=None), store)

        def steps(paths: Sequence[Path]) -> list[Step]:
            return [Step(digest_text(str(path)), 0, partial(_load, path)) for path in paths]

        own.describe(_PROMPT, steps(images[:_BATCH]))()  # so that it is known what takes long
        started = time.perf_counter()
        texts = own.describe(_PROMPT, steps(images[_BATCH:]))()
        return time.perf_counter() - started, texts


def _same(model: Any) -> Any:
    return model


def _load(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", type=int, default=1024, help="pixels of the images")
    parser.add_argument("--resized", type=int, default=336, help="pixels that the processor makes")
    parser.add_argument("--images", type=int, default=40, help="beside a first batch")
    parser.add_argument("--wait", type=float, default=None, help="seconds after each batch")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images = photographs(folder, options.images + _BATCH, options.side)
        spec = f"{build(folder / 'model', options.resized)}?max_new_tokens=8&batch_size={_BATCH}"
        with Store(folder / "store") as store:
            assignment = RoleAssignment("describer", parse_spec(spec), "benchmark")
            runner = ModelPool(store, 1).runner(assignment)
            model = runner.model
            for wait in (0.0, 0.1, 0.3) if options.wait is None else (options.wait,):
                sides = {"turn": InTurn(model, wait), "ahead": Ahead(model, wait)}
                seconds: dict[str, list[float]] = {name: [] for name in sides}
                texts = {}
                for repeat in range(options.repeats):
                    for name, side in sides.items():
                        own = folder / f"{name}-{wait}-{repeat}"
                        taken, texts[name] = describe(runner, side, own, images)
                        seconds[name].append(taken)
                assert texts["turn"] == texts["ahead"], "the texts are to be the same"
                turn, ahead = map(statistics.median, seconds.values())
                print(
                    f"{options.side} px to {options.resized} px, {wait:g} s of waiting a batch of "
                    f"{_BATCH}: {turn / ahead:.2f} times as fast ahead "
                    f"({turn:.2f} s in turn, {ahead:.2f} s ahead)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
