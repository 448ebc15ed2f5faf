"""The measurements of an accelerator, each a function of its setting that records figures."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accelerator_figures.setting import (
    TEXTS,
    TRAINED,
    Setting,
    allocated_bytes,
    limited_memory,
    peak_bytes,
    plan_of,
    read_figures,
    reset_peak,
    synchronize,
    total_bytes,
    utilization,
)
from benchmarks.chain_throughput import Side, Team, bare, batched, one_at_a_time, seed_images
from benchmarks.real_size import build
from pytest_cepbench.chains import ChainModels, RoleRunner
from pytest_cepbench.chains.batching import LARGEST, BatchCaller, CallCounts
from pytest_cepbench.chains.chain import ChainPlan
from pytest_cepbench.chains.features import trace
from pytest_cepbench.chains.growth import ChainGroup
from pytest_cepbench.chains.role_runner import DeviceSwap
from pytest_cepbench.datasets.sample import Sample, load_seed_image
from pytest_cepbench.metrics.gc import gc_at_t
from pytest_cepbench.models.protocols import Describer, Encoder, Generator, RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.torch_runtime import is_out_of_memory
from pytest_cepbench.suites.model_pool import ModelPool
from pytest_cepbench.suites.role_assignment import RoleAssignment

GIB = 2**30

_BATCHES: Mapping[RoleName, int] = {"describer": 32, "generator": 8, "encoder": 32}
"""Inputs of a call where growth was not measured."""

_BRIEF: Mapping[RoleName, Sequence[str]] = {
    "describer": ["max_new_tokens=16"],
    "generator": ["num_inference_steps=4"],
    "encoder": [],
}
"""Time by the size of a batch does not depend on how many steps or tokens there are."""

_MOST_ROUNDS = 5
_ROOT = Path(__file__).parents[2]


def _sizes(setting: Setting) -> dict[RoleName, int]:
    """Inputs of a call, the same for all sides: the sizes that growth chose in `batches`."""
    chosen = {figure.name: figure.value for figure in read_figures(setting.file)}
    return {
        role: int(chosen.get(f"{role}: size that growth chose") or size)
        for role, size in _BATCHES.items()
    }


def build_checkpoints(setting: Setting) -> None:
    """Write the checkpoints of the three roles, with weights that are drawn on the device."""
    from tests.tiny import describers, encoders, generators

    toys: Mapping[RoleName, Callable[..., object]] = {
        "describer": describers.build_llava,
        "generator": generators.build_stable_diffusion,
        "encoder": encoders.build_clip,
    }
    for name, toy in toys.items():
        folder = setting.folder / name
        started = time.perf_counter()
        if setting.toy:
            toy(folder)
            size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
        else:
            size = build(name, folder, setting.device)
        took = time.perf_counter() - started
        setting.record(f"{name}: weights", size / 1e9, "GB", note=f"built in {took:.0f} s")


def loading(setting: Setting) -> None:
    """Fingerprinting and loading the describer, against the library's own loading."""
    import torch
    from transformers import AutoModelForImageTextToText

    path = setting.folder / "describer"
    size = sum(file.stat().st_size for file in path.rglob("*.safetensors"))
    dtype = torch.bfloat16 if setting.accelerated else torch.float32
    prints, ours, plain = [], [], []
    with setting.store("first") as store:  # imports the libraries, and begins with the device
        assert setting.runner(ModelPool(store), "encoder").model is not None
    for round_number in range(_MOST_ROUNDS):
        with setting.store(f"loading-{round_number}") as store:
            started = time.perf_counter()
            runner = setting.runner(ModelPool(store), "describer")
            prints.append(time.perf_counter() - started)
            started = time.perf_counter()
            assert runner.model is not None
            synchronize(setting.device)
            ours.append(time.perf_counter() - started)
            runner.handle.unload()
            del runner
        started = time.perf_counter()
        model = AutoModelForImageTextToText.from_pretrained(path, dtype=dtype).to(setting.device)
        synchronize(setting.device)
        plain.append(time.perf_counter() - started)
        del model
        fingerprint, load, bare_load = (statistics.median(side) for side in (prints, ours, plain))
        note = f"medians of {len(ours)}; {size / 1e9:.2f} GB, in the page cache"
        setting.record("fingerprint of the describer", fingerprint, "s", note=note)
        setting.record("loading it through this project", load, "s", note=note)
        setting.record("plain from_pretrained and .to(device)", bare_load, "s", note=note)
        setting.record("fingerprint and load against plain", (fingerprint + load) / bare_load, "x")
        if setting.seconds_left < 2 * (ours[-1] + plain[-1] + prints[-1]):
            break


def chains(setting: Setting) -> None:
    """Chains against the papers' procedure and against a bare batched loop; memory; idle time."""
    iterations, count = (1, 8) if setting.toy else (2, 32)
    plan, samples = plan_of(iterations), seed_images(count)
    few, sizes = samples[: max(2, count // 8)], _sizes(setting)
    with setting.store("team") as store:
        pool = ModelPool(store)
        describer, generator, encoder = (
            setting.runner(pool, role, f"batch_size={size}") for role, size in sizes.items()
        )
        team = Team(describer, generator, encoder)
        # Loads, and meets the shapes of all sides.
        bare(plan_of(1), samples, team)
        one_at_a_time(plan_of(1), samples[:1], team)
        reset_peak(setting.device)
        ours, by_hand, papers, busy = [], [], [], []
        for number in range(_MOST_ROUNDS):
            started = time.monotonic()
            with utilization(setting.device) as readings:
                folder = setting.folder / "stores" / setting.part / f"run-{number}"
                ours.append(batched(plan, samples, team, folder))
            busy += readings
            _record_busy(setting, ours, busy)
            by_hand.append(bare(plan, samples, team))
            _record_ratio(setting, "a bare batched loop", ours, by_hand, 1.0, "at least 0.95")
            papers.append(one_at_a_time(plan, few, team))
            share = len(few) / len(samples)
            _record_ratio(setting, "the papers' procedure", ours, papers, share, "at least 8")
            if setting.seconds_left < 1.2 * (time.monotonic() - started):
                break
    rate = statistics.median(len(samples) * iterations / side.wall for side in ours)
    batches = ", ".join(f"{role} {size}" for role, size in sizes.items())
    note = f"{count} images, T = {iterations}, in batches of: {batches}"
    setting.record("chains: iterations per second", rate, "1/s", note=note)
    if setting.accelerated:
        setting.record("peak memory of all three models", peak_bytes(setting.device) / GIB, "GiB")


def _record_busy(setting: Setting, ours: Sequence[Side], busy: Sequence[float]) -> None:
    inside = statistics.median(side.inside / side.wall for side in ours)
    note = "time inside the models' calls, of the wall time; all models on one device"
    setting.record("device busy", 100 * inside, "%", goal="at least 90", note=note)
    if busy:
        mean = statistics.fmean(busy)
        setting.record("device busy, by the driver", mean, "%", note=f"{len(busy)} readings")


def _record_ratio(
    setting: Setting,
    other: str,
    ours: Sequence[Side],
    others: Sequence[Side],
    share: float,
    goal: str,
) -> None:
    """share: of the samples that the other side worked off; its time per sample is constant."""
    pairs = [b.wall / share / a.wall for a, b in zip(ours, others, strict=False)]
    note = f"{len(pairs)} in turns: {min(pairs):.2f} to {max(pairs):.2f}"
    if share < 1:
        note += f"; the other side on {share:.0%} of the images"
    setting.record(f"chains against {other}", statistics.median(pairs), "x", goal=goal, note=note)


def batches(setting: Setting) -> None:
    """Time for an input by the size of the batch, the size that is chosen, halving without room."""
    largest = 4 if setting.toy else 32
    with setting.store("batches") as store:
        pool = ModelPool(store)
        quick_first: tuple[RoleName, ...] = ("encoder", "describer", "generator")
        for role in quick_first:
            runner = setting.runner(pool, role, *_BRIEF[role])
            ask, inputs = _caller(runner, largest)
            per_input: dict[int, float] = {}
            peaks: dict[int, int] = {}
            for size in (2**power for power in range(largest.bit_length())):
                held = allocated_bytes(setting.device)
                reset_peak(setting.device)
                try:
                    ask(inputs[:size])
                    started = time.perf_counter()
                    ask(inputs[:size])
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    break
                per_input[size] = (time.perf_counter() - started) / size
                peaks[size] = peak_bytes(setting.device) - held
                if setting.seconds_left < 4 * size * per_input[size]:
                    break
            best = min(per_input, key=per_input.__getitem__)
            shown = ", ".join(f"{size}: {seconds:.3g}" for size, seconds in per_input.items())
            note = f"seconds for an input by size of the batch: {shown}"
            gain = per_input[1] / per_input[best]
            setting.record(f"{role}: one at a time against batches of {best}", gain, "x", note=note)
            _chosen_size(setting, role, runner, inputs, per_input)
            _halving(setting, role, runner, inputs, peaks)
            runner.handle.unload()


def _caller(runner: RoleRunner, count: int) -> tuple[Callable[[Sequence[Any]], object], list[Any]]:
    """A function that has a role's model work on a batch, and inputs for it."""
    model = runner.model
    images = [load_seed_image(sample).to_pil().resize((512, 512)) for sample in seed_images(count)]
    texts = [TEXTS[number % len(TEXTS)] for number in range(count)]
    if isinstance(model, Describer):
        describe = model.describe
        return (lambda batch: describe(batch, "describe the image", [0] * len(batch))), images
    if isinstance(model, Generator):
        generate = model.generate
        return (lambda batch: generate(batch, list(range(len(batch))))), list(texts)
    assert isinstance(model, Encoder)
    return model.encode_images, images


def _chosen_size(
    setting: Setting,
    role: str,
    runner: RoleRunner,
    inputs: Sequence[Any],
    per_input: Mapping[int, float],
) -> None:
    """The batch size that growth comes to where the user gives none."""
    if not runner.bound.resources.grows:
        setting.record(f"{role}: size that growth chose", None, note="batches grow on accelerators")
        return
    caller = BatchCaller.resume(runner.bound, CallCounts(), runner.store)
    ask, _ = _caller(runner, 1)
    for _ in range(12):
        batch = (list(inputs) * caller.size)[: caller.size]
        caller.call(runner.model, batch, [0] * len(batch), lambda _m, b, _s: partial(ask, b))
        if caller.settled or setting.seconds_left < 2 * caller.size * min(per_input.values()):
            break
    ended = caller.settled or caller.size == LARGEST
    note = "" if ended else "or larger: the time ended the search"
    setting.record(f"{role}: size that growth chose", caller.size, "inputs", note=note)


def _halving(
    setting: Setting,
    role: str,
    runner: RoleRunner,
    inputs: Sequence[Any],
    peaks: Mapping[int, int],
) -> None:
    """A batch that does not fit, by a real limit of the device's memory, is halved."""
    name = f"{role}: size that fits where memory is short"
    largest = max(peaks)
    if not setting.accelerated or largest < 2:
        setting.record(name, None, note="needs an accelerator, whose memory can be limited")
        return
    room = (peaks[largest // 2] + peaks[largest]) // 2
    caller = BatchCaller(runner.bound, CallCounts(), largest)
    ask, _ = _caller(runner, 1)
    with limited_memory(setting.device, allocated_bytes(setting.device) + room):
        outputs = caller.call(
            runner.model,
            inputs[:largest],
            [0] * largest,
            lambda _m, b, _s: partial(ask, b),
        )
    note = (
        f"asked for {largest} with room for fewer ({room / GIB:.2f} of "
        f"{total_bytes(setting.device) / GIB:.0f} GiB): {len(outputs)} results"
    )
    setting.record(name, caller.size, "inputs", note=note)


def residency(setting: Setting) -> None:
    """Models that take turns on the device against models that stay."""
    plan, samples = plan_of(1), seed_images(4 if setting.toy else 16)
    specs = [setting.spec(role, f"batch_size={size}") for role, size in _sizes(setting).items()]
    walls: dict[bool, list[float]] = {False: [], True: []}
    scores: dict[bool, np.ndarray] = {}
    with setting.store("loaded") as loaded:
        # Both sides' models share the device: clearing it took longer than a turn.
        pools = {swap: ModelPool(loaded, residency=DeviceSwap(swap=swap)) for swap in walls}
        for swap, pool in pools.items():  # loads
            _play(setting, pool, specs, plan, samples[:1], f"{swap}-first")
        for number in range(_MOST_ROUNDS):
            started = time.monotonic()
            for swap, pool in pools.items():
                wall, scores[swap] = _play(setting, pool, specs, plan, samples, f"{swap}-{number}")
                walls[swap].append(wall)
            pairs = [swap / stay for stay, swap in zip(walls[False], walls[True], strict=True)]
            spread = f"{len(pairs)} in turns: {min(pairs):.2f} to {max(pairs):.2f}"
            note = f"{spread}; T = 1, {len(samples)} images"
            ratio = statistics.median(pairs)
            setting.record("--cep-residency=swap against all, wall time", ratio, "x", note=note)
            seconds = statistics.median(walls[True]) - statistics.median(walls[False])
            note = "three models, each once away and back"
            setting.record("seconds that swapping takes", seconds, "s", note=note)
            gap = float(np.abs(scores[True] - scores[False]).max())
            setting.record("largest difference of a score", gap)
            if setting.seconds_left < 1.5 * (time.monotonic() - started):
                break
        for runner in pools[False].runners.values():
            runner.handle.unload()
        reset_peak(setting.device)
        _play(setting, pools[True], specs, plan, samples, "peak")
        if setting.accelerated:
            setting.record("peak memory, swap", peak_bytes(setting.device) / GIB, "GiB")


def _play(
    setting: Setting,
    pool: ModelPool,
    specs: Sequence[str],
    plan: ChainPlan,
    samples: Sequence[Sample],
    name: str,
) -> tuple[float, np.ndarray]:
    """Wall seconds of chains from an empty store, and each sample's GC.

    specs: of describer, generator and encoder.
    """
    with setting.store(name) as store:
        describer, generator, encoder = (
            RoleRunner(runner.bound, store, runner.handle)
            for runner in (
                pool.runner(RoleAssignment(role, parse_spec(spec), "benchmark"))
                for role, spec in zip(TRAINED, specs, strict=True)
            )
        )
        started = time.perf_counter()
        group = ChainGroup(plan, samples, ChainModels(describer, generator, store))
        generations = range(2, plan.generations + 1, 2)
        traces = group.read(lambda made: trace(made, generations, encoder, store))
        wall = time.perf_counter() - started
    return wall, gc_at_t(np.array([entry.similarities for entry in traces]))


def precision(setting: Setting) -> None:
    """What device and precision change: texts, pictures, similarities and scores of chains.

    Of the trained checkpoints of this repository, against float32 on a CPU; then how long calls of
    the checkpoints of real size take in float32 against bfloat16.
    """
    import torch

    samples = seed_images(8 if setting.toy else 32)
    images = [load_seed_image(sample).to_pil() for sample in samples]
    texts = [TEXTS[number % len(TEXTS)] for number in range(len(images) // 2)]
    plan = plan_of(1 if setting.toy else 3)
    kinds = {"float32, CPU": ("cpu", "float32", False)}
    if setting.accelerated:
        kinds["float32"] = (setting.device, "float32", True)
        kinds["float32 without TF32"] = (setting.device, "float32", False)
    kinds["bfloat16"] = (setting.device, "bfloat16", True)
    first: tuple[list[str], np.ndarray, np.ndarray, np.ndarray] | None = None
    default = torch.backends.cudnn.allow_tf32
    for kind, (device, dtype, tf32) in kinds.items():
        torch.backends.cudnn.allow_tf32 = tf32
        specs = [f"{spec}device={device}&dtype={dtype}" for spec in TRAINED.values()]
        with setting.store(kind.replace(" ", "-")) as store:
            pool = ModelPool(store)
            _, scores = _play(setting, pool, specs, plan, samples, f"chains-{kind}")
            describer, generator, encoder = (runner.model for runner in pool.runners.values())
            assert isinstance(describer, Describer)
            assert isinstance(generator, Generator)
            assert isinstance(encoder, Encoder)
            vectors = encoder.encode_images(images)
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            said = list(map(str, describer.describe(images, plan.describe, [0] * len(images))))
            drawn = np.stack(
                [np.asarray(d) for d in generator.generate(texts, list(range(len(texts))))]
            )
        setting.record(f"{kind}: mean GC@{plan.iterations}", float(scores.mean()))
        if first is None:
            first = said, drawn, vectors, scores
            continue
        alike = statistics.fmean(a == b for a, b in zip(first[0], said, strict=True))
        setting.record(f"{kind}: texts as they are", 100 * alike, "%", note=f"of {len(said)}")
        apart = 255 * float(np.abs(first[1] - drawn).mean())
        note = f"{len(drawn)} of the same texts"
        setting.record(f"{kind}: pictures, mean difference", apart, "grey levels", note=note)
        cosines = np.abs(first[2] @ first[2].T - vectors @ vectors.T)
        setting.record(f"{kind}: cosines of images, largest difference", float(cosines.max()))
        gap = np.abs(first[3] - scores)
        note = f"mean {gap.mean():.2g} over {len(gap)} chains"
        setting.record(f"{kind}: a chain's score, largest difference", float(gap.max()), note=note)
    torch.backends.cudnn.allow_tf32 = default
    _precision_times(setting)


def _precision_times(setting: Setting) -> None:
    sizes: Mapping[RoleName, int] = {"describer": 8, "generator": 4, "encoder": 32}
    with setting.store("times") as store:
        for role, size in sizes.items():
            seconds: dict[str, float] = {}
            for dtype in ("bfloat16", "float32"):
                runner = setting.runner(ModelPool(store), role, f"dtype={dtype}", *_BRIEF[role])
                ask, inputs = _caller(runner, size)
                ask(inputs)
                times = []
                for _ in range(3):
                    started = time.perf_counter()
                    ask(inputs)
                    times.append(time.perf_counter() - started)
                seconds[dtype] = statistics.median(times)
                runner.handle.unload()
            ratio = seconds["float32"] / seconds["bfloat16"]
            note = f"batches of {size}, medians of 3"
            setting.record(f"{role}: float32 against bfloat16, time", ratio, "x", note=note)


def suite(setting: Setting) -> None:
    """Whole runs of pytest with the trained checkpoints, against baselines that a CPU made."""
    name = "suites/instrument" if setting.toy else "suites/shapes"
    # pytest-benchmark, where it is installed, warns beside xdist, and warnings are errors here.
    command = [sys.executable, "-m", "pytest", name, "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:benchmark", "--cep-history=off"]
    if not any(entry.name == "cepbench" for entry in entry_points(group="pytest11")):
        command += ["-p", "pytest_cepbench.plugin"]  # run from a checkout that is not installed
    hidden = {} if setting.accelerated else {"CUDA_VISIBLE_DEVICES": ""}
    runs = {"empty store": [], "full store": [], "empty store, -n auto": ["-n", "auto"]}
    for number, (what, workers) in enumerate(runs.items()):
        folder = setting.folder / "stores" / setting.part / ("workers" if workers else "one")
        options = [*workers, f"--cep-store={folder}", f"--cep-report={folder}-{number}.json"]
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [*command, *options],
                cwd=_ROOT,
                env=os.environ | hidden,
                capture_output=True,
                text=True,
                timeout=max(setting.seconds_left, 1),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            setting.record(f"{name}, {what}", None, note=f"not done after {error.timeout:.0f} s")
            continue
        wall = time.perf_counter() - started
        print(what, done.stdout, done.stderr, flush=True)
        verdict = next((line for line in done.stdout.splitlines() if "ship" in line), "no verdict")
        note = f"exit status {done.returncode}: {verdict}"
        setting.record(f"{name}, {what}", wall, "s", note=note)


PARTS: Mapping[str, tuple[Callable[[Setting], None], float]] = {
    "build": (build_checkpoints, 0.08),
    "loading": (loading, 0.07),
    "batches": (batches, 0.24),
    "chains": (chains, 0.29),
    "residency": (residency, 0.15),
    "precision": (precision, 0.13),
    "suite": (suite, 0.18),
}
"""Each part's measurement and its share of the time, in the order of their worth."""
