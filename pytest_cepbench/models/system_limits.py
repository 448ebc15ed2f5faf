"""Processor cores and memory that a process may use, within its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def usable_cores(root: Path = ROOT) -> int:
    """Processor cores that this process may keep busy, at least 1.

    root: where the system's own files lie.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    allowed = [cores or 1]
    for group in _groups(root):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdecimal():
            allowed.append(max(1, int(quota) // int(period)))
    return min(allowed)


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes of memory that this process could still fill, None where the system does not say.

    root: as above.
    """
    known = [
        int(line.split()[1]) * 1024
        for line in _text(root / "proc/meminfo").splitlines()
        if line.startswith("MemAvailable:")
    ]
    for group in _groups(root):
        limit, used = (_text(group / f"memory.{name}").strip() for name in ("max", "current"))
        if limit.isdecimal() and used.isdecimal():
            known.append(max(0, int(limit) - int(used) + _reclaimable(group)))
    return min(known, default=None)


def _reclaimable(group: Path) -> int:
    """Bytes of cached files, which the kernel gives up when memory is needed."""
    lines = (line.split() for line in _text(group / "memory.stat").splitlines())
    return next((int(words[1]) for words in lines if words[0] == "inactive_file"), 0)


def _groups(root: Path) -> Iterator[Path]:
    """The folder of this process's control group (version 2), and those of the groups around it."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            own = mounted / line.removeprefix("0::/")
            yield from (group for group in (own, *own.parents) if group.is_relative_to(mounted))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
