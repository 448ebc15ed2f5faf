"""Cores and memory that a process may use, read from the system's files as a container has them."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.models.devices import free_memory, usable_cores

GIB = 1 << 30


def _system(root: Path, files: dict[str, str]) -> Path:
    """A root with the files of a process in the control group /pods/one."""
    meminfo = f"MemTotal: 999 kB\nMemAvailable: {8 * GIB // 1024} kB\n"
    for name, text in {
        "proc/meminfo": meminfo,
        "proc/self/cgroup": "4:memory:/old\n0::/pods/one\n",
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_group_around_limits_what_is_in_it(tmp_path: Path) -> None:
    """The tightest limit on the way to the root counts, and half a core is still one."""
    root = _system(
        tmp_path,
        {
            "sys/fs/cgroup/pods/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/pods/one/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/one/memory.max": "max\n",
            "sys/fs/cgroup/pods/one/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/pods/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/pods/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/pods/memory.stat": f"anon 1\ninactive_file {GIB // 2}\n",
        },
    )
    assert usable_cores(root) == 1
    assert free_memory(root) == GIB + GIB // 2  # files in memory give way


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    """Memory that can be had without swapping, and every core that this process may run on."""
    root = _system(tmp_path, {"sys/fs/cgroup/pods/one/cpu.max": "max 100000\n"})
    assert free_memory(root) == 8 * GIB
    assert usable_cores(root) == usable_cores(tmp_path / "nothing")


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    """Elsewhere than on Linux nothing is known of memory, and there is a core at least."""
    assert free_memory(tmp_path) is None
    assert usable_cores(tmp_path) >= 1
