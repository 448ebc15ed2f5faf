"""Roles on several accelerators: working at the same time against one after the other."""

from __future__ import annotations

import time
from itertools import cycle

import numpy as np

from benchmarks.accelerator_figures.memory import devices_beside
from benchmarks.accelerator_figures.setting import Setting, plan_of
from benchmarks.chain_throughput import seed_images
from pytest_cepbench.chains import (
    ChainGroup,
    ChainModels,
    LaneGroup,
    Reading,
    RoleRunner,
    grow_in_lanes,
    trace,
)
from pytest_cepbench.chains.features import store_vectors
from pytest_cepbench.metrics import gc_at_t
from pytest_cepbench.suites.model_pool import ModelPool

_ROLES = {"generator": 8, "describer": 16, "encoder": 32}
"""Inputs of a call. In the order in which they get devices: most take the longest for drawing."""


def overlap(setting: Setting) -> None:
    """Wall time of chains whose roles overlap, against roles in turns and against the slowest.

    On a CPU both are the same; that is for rehearsals.
    """
    name = "roles in turns against at the same time"
    devices = devices_beside(setting.device)
    if setting.accelerated and len(devices) < 2:
        setting.record(name, None, note="one accelerator: its roles take turns")
        return
    with setting.store("loaded") as loaded:
        pool = ModelPool(loaded)
        runners = [
            setting.runner(pool, role, f"batch_size={size}", f"device={device}")
            for (role, size), device in zip(_ROLES.items(), cycle(devices), strict=False)
        ]
        _play(setting, runners, "first", lanes=False)  # loads
        turns, scores, _ = _play(setting, runners, "turns", lanes=False)
        overlapping, others, busy = _play(setting, runners, "lanes", lanes=True)
    placed = ", ".join(f"{role} on {d}" for role, d in zip(_ROLES, cycle(devices), strict=False))
    setting.record(name, turns / overlapping, "x", note=placed)
    goal = "at most 1.15"
    setting.record("wall time against the slowest role", overlapping / busy, "x", goal=goal)
    setting.record("largest difference of a score", float(np.abs(scores - others).max()))


def _play(
    setting: Setting, roles: list[RoleRunner], name: str, *, lanes: bool
) -> tuple[float, np.ndarray, float]:
    """Wall seconds of chains from an empty store, each sample's GC, seconds of the slowest role."""
    plan, samples = plan_of(2), seed_images(4 if setting.toy else 64)
    with setting.store(name) as store:
        generator, describer, encoder = (
            RoleRunner(runner.bound, store, runner.handle) for runner in roles
        )
        group = ChainGroup(plan, samples, ChainModels(describer, generator, store))
        every = range(0, plan.generations + 1, 2)
        started = time.perf_counter()
        if lanes:
            reading = Reading(
                encoder,
                tuple(every),
                lambda chains, generation: store_vectors(chains, generation, encoder, store),
            )
            grow_in_lanes([LaneGroup(group, [reading])])
        traces = group.read(lambda made: trace(made, every[1:], encoder, store))
        wall = time.perf_counter() - started
        busy = max(runner.tally.seconds for runner in (describer, generator, encoder))
    return wall, gc_at_t(np.array([entry.similarities for entry in traces])), busy
