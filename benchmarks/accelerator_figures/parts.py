"""The measurements of an accelerator, each a function of its setting that records figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.accelerator_figures.memory import (
    allocated_bytes,
    limited_memory,
    peak_bytes,
    reset_peak,
    synchronize,
    total_bytes,
    utilization,
)
from benchmarks.accelerator_figures.setting import ROLES, TEXTS, Setting, plan_of
from benchmarks.chain_throughput import Side, Team, bare, batched, one_at_a_time, seed_images
from benchmarks.real_size import BUILDERS, build
from pytest_cepbench.chains import ChainGroup, ChainModels, RoleRunner, trace
from pytest_cepbench.chains.batching import BatchCaller, CallCounts
from pytest_cepbench.chains.chain_plan import ChainPlan
from pytest_cepbench.chains.model_handle import DeviceSwap
from pytest_cepbench.datasets.sample import Sample, load_seed_image
from pytest_cepbench.errors import CepError
from pytest_cepbench.metrics import gc_at_t
from pytest_cepbench.models.protocols import Describer, Encoder, Generator
from pytest_cepbench.models.torch_runtime import is_out_of_memory
from pytest_cepbench.suites.model_pool import ModelPool

GIB = 2**30

_BATCHES = {"describer": 16, "generator": 8, "encoder": 32}
"""Inputs of a call, the same for all sides that are compared."""

_MOST_ROUNDS = 5


def build_checkpoints(setting: Setting) -> None:
    """Write the checkpoints, those of real size with weights that are drawn on the device."""
    from tests.tiny import describers, encoders, generators

    toys: Mapping[str, Callable[..., object]] = {
        "describer": describers.build_llava,
        "generator": generators.build_stable_diffusion,
        "encoder": encoders.build_clip,
        "sdxl": generators.build_sdxl,
        "dinov2": encoders.build_dinov2,
    }
    for name in BUILDERS:
        folder = setting.folder / name
        started = time.perf_counter()
        if setting.toy:
            toys[name](folder)
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
    few = samples[: max(2, count // 8)]
    with setting.store("team") as store:
        pool = ModelPool(store)
        describer, generator, encoder = (
            setting.runner(pool, role, f"batch_size={size}") for role, size in _BATCHES.items()
        )
        team = Team(describer, generator, encoder)
        bare(plan_of(1), samples[: _BATCHES["generator"]], team)  # loads, and compiles kernels
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
    note = f"{count} images, T = {iterations}, {setting.spec('generator').rpartition('?')[2]}"
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
        for role in ("describer", "generator", "encoder"):
            runner = setting.runner(pool, role)
            ask, inputs = _caller(runner, 2 * largest)
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
    if not runner.bound.grows:
        setting.record(f"{role}: size that growth chose", None, note="batches grow on accelerators")
        return
    caller = BatchCaller.resume(runner.bound, CallCounts(), runner.store)
    ask, _ = _caller(runner, 1)
    for _ in range(12):
        batch = (list(inputs) * 32)[: caller.size]
        caller.call(
            runner.model, batch, [0] * len(batch), lambda _m, inside, _s: _listed(ask(inside))
        )
        if caller.settled or setting.seconds_left < 4 * caller.size * max(per_input.values()):
            break
    setting.record(f"{role}: size that growth chose", caller.size, "inputs")


def _listed(outputs: Any) -> list[Any]:
    return list(outputs)


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
            lambda _m, b, _s: _listed(ask(b)),
        )
    note = (
        f"asked for {largest} with room for fewer ({room / GIB:.2f} of "
        f"{total_bytes(setting.device) / GIB:.0f} GiB): {len(outputs)} results"
    )
    setting.record(name, caller.size, "inputs", note=note)


def residency(setting: Setting) -> None:
    """Models that take turns on the device against models that stay."""
    plan, samples = plan_of(1), seed_images(4 if setting.toy else 32)
    walls: dict[bool, list[float]] = {False: [], True: []}
    scores: dict[bool, np.ndarray] = {}
    with setting.store("loaded") as loaded:
        pools = {swap: ModelPool(loaded, residency=DeviceSwap(swap=swap)) for swap in walls}
        for number in range(_MOST_ROUNDS):
            started = time.monotonic()
            for swap, pool in pools.items():
                side, scores[swap] = _play(setting, pool, plan, samples, f"{swap}-{number}")
                if number:  # the first loads
                    walls[swap].append(side)
            if walls[False]:
                ratio = statistics.median(walls[True]) / statistics.median(walls[False])
                note = f"medians of {len(walls[False])} in turns; T = 1, {len(samples)} images"
                setting.record("--cep-residency=swap against all, wall time", ratio, "x", note=note)
                gap = float(np.abs(scores[True] - scores[False]).max())
                setting.record("largest difference of a score", gap)
            if number and setting.seconds_left < 1.2 * (time.monotonic() - started):
                break


def _play(
    setting: Setting, pool: ModelPool, plan: ChainPlan, samples: Sequence[Sample], name: str
) -> tuple[float, np.ndarray]:
    """Wall seconds of chains from an empty store, and each sample's GC."""
    with setting.store(name) as store:
        loaded = [setting.runner(pool, role, f"batch_size={n}") for role, n in _BATCHES.items()]
        describer, generator, encoder = (
            RoleRunner(runner.bound, store, runner.handle) for runner in loaded
        )
        started = time.perf_counter()
        group = ChainGroup(plan, samples, ChainModels(describer, generator, store))
        generations = range(2, plan.generations + 1, 2)
        traces = group.read(lambda made: trace(made, generations, encoder, store))
        wall = time.perf_counter() - started
    return wall, gc_at_t(np.array([entry.similarities for entry in traces]))


def precision(setting: Setting) -> None:
    """What bfloat16 changes against float32: texts, pictures, similarities, scores of chains."""
    count = 4 if setting.toy else 16
    images = [load_seed_image(sample).to_pil() for sample in seed_images(count)]
    texts = [TEXTS[number % len(TEXTS)] for number in range(count // 2)]
    outputs: dict[str, tuple[list[object], np.ndarray, np.ndarray]] = {}
    for dtype in ("float32", "bfloat16"):
        with setting.store(dtype) as store:
            pool = ModelPool(store)
            describer, generator, encoder = (
                setting.runner(pool, role, f"dtype={dtype}").model
                for role in ("describer", "generator", "encoder")
            )
            assert isinstance(describer, Describer)
            assert isinstance(generator, Generator)
            assert isinstance(encoder, Encoder)
            vectors = encoder.encode_images(images)
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            said = describer.describe(images, "describe the image", [0] * count)
            drawn = generator.generate(texts, list(range(len(texts))))
            outputs[dtype] = (list(said), np.stack([np.asarray(d) for d in drawn]), vectors)
    full, half = outputs["float32"], outputs["bfloat16"]
    alike = statistics.fmean(a == b for a, b in zip(full[0], half[0], strict=True))
    setting.record("texts that bfloat16 leaves as they are", 100 * alike, "%", note=f"of {count}")
    levels = 255 * float(np.abs(full[1] - half[1]).mean())
    setting.record("pictures: mean difference", levels, "grey levels", note=f"{len(texts)} of them")
    apart = np.abs(full[2] @ full[2].T - half[2] @ half[2].T)
    setting.record("cosines between images: largest difference", float(apart.max()))
    setting.record("cosines between images: mean difference", float(apart.mean()))


def compiled(setting: Setting) -> None:
    """torch.compile against eager, after the warm-up, and how often it compiled again."""
    with setting.store("compiled") as store:
        pool = ModelPool(store)
        for role in ("describer", "generator", "encoder"):
            size = 2 if setting.toy else _BATCHES[role]
            seconds: dict[str, float] = {}
            for option in ("false", "true"):
                params = (f"batch_size={size}", *(("compile=true",) if option == "true" else ()))
                try:
                    runner = setting.runner(pool, role, *params)
                    started = time.perf_counter()
                    ask, inputs = _caller(runner, size)
                    ask(inputs)
                    warm_up = time.perf_counter() - started
                except CepError as error:
                    setting.record(f"{role}: compiled", None, note=str(error)[:120])
                    break
                times: list[float] = []
                while len(times) < 3:
                    started = time.perf_counter()
                    ask(inputs)
                    times.append(time.perf_counter() - started)
                seconds[option] = statistics.median(times)
                runner.handle.unload()
            if len(seconds) == 2:
                gain = seconds["false"] / seconds["true"]
                note = f"batch of {size}; load and warm-up {warm_up:.0f} s"
                setting.record(f"{role}: eager against compiled", gain, "x", note=note)


def speed(setting: Setting) -> None:
    """Seconds for an input of each model, as a fixed part and one for each step or token."""
    pairs = {"generator": ("num_inference_steps", 2, 10), "sdxl": ("num_inference_steps", 2, 6)}
    pairs["describer"] = ("max_new_tokens", 8, 64)
    with setting.store("speed") as store:
        for name, role in ROLES.items():
            size = 2 if setting.toy else 4 if name == "sdxl" else _BATCHES[role]
            param, few, many = pairs.get(name, ("", 0, 1))
            values = (few, many) if param else (1,)
            seconds = []
            for value in values:
                params = [f"batch_size={size}"]
                if param:
                    params.append(f"{param}={value}")
                if name == "describer":
                    params.append(f"min_new_tokens={value}")
                runner = setting.runner(ModelPool(store), name, *params)
                ask, inputs = _caller(runner, size)
                ask(inputs)
                reset_peak(setting.device)
                started = time.perf_counter()
                ask(inputs)
                seconds.append((time.perf_counter() - started) / size)
                peak = peak_bytes(setting.device)
                runner.handle.unload()
            where = f"batch of {size}" + (f", {peak / GIB:.1f} GiB at most" if peak else "")
            if not param:
                setting.record(f"{name}: an input", seconds[0], "s", note=where)
                continue
            each = (seconds[1] - seconds[0]) / (many - few)
            unit = "step" if param == "num_inference_steps" else "token"
            setting.record(f"{name}: each {unit}", each, "s", note=where)
            setting.record(
                f"{name}: the rest of an input", seconds[0] - few * each, "s", note=where
            )


PARTS: Mapping[str, tuple[Callable[[Setting], None], float]] = {
    "build": (build_checkpoints, 0.15),
    "loading": (loading, 0.1),
    "chains": (chains, 0.3),
    "speed": (speed, 0.15),
    "batches": (batches, 0.12),
    "precision": (precision, 0.08),
    "residency": (residency, 0.1),
    "compiled": (compiled, 0.15),
}
"""Each part's measurement and its share of the time, in the order of their worth."""
