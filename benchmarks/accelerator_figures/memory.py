"""The memory and the load of an accelerator; everything is zero or nothing on a CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


def synchronize(device: str) -> None:
    """Wait until the device has done what it was given."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def allocated_bytes(device: str) -> int:
    """Bytes of tensors on the device."""
    import torch

    return 0 if device == "cpu" else torch.cuda.memory_allocated(device)


def total_bytes(device: str) -> int:
    """Bytes of the device's memory."""
    import torch

    return 0 if device == "cpu" else torch.cuda.get_device_properties(device).total_memory


def reset_peak(device: str) -> None:
    """Begin to look for the most memory anew."""
    import torch

    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: str) -> int:
    """The most bytes of tensors since `reset_peak`."""
    import torch

    return 0 if device == "cpu" else torch.cuda.max_memory_allocated(device)


@contextmanager
def limited_memory(device: str, most: int) -> Iterator[None]:
    """Allow this process so many bytes of the device: more is a real error of its allocator."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(most / total_bytes(device), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


@contextmanager
def utilization(device: str, period: float = 0.2) -> Iterator[list[float]]:
    """The driver's own readings of how busy the device is, in per cent, while inside.

    Empty on a CPU and where the driver's library (nvidia-ml-py) is not installed.
    """
    import torch

    readings: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(period):
            try:
                readings.append(float(torch.cuda.utilization(device)))
            except (ModuleNotFoundError, RuntimeError):
                return

    watcher = threading.Thread(target=watch, daemon=True)
    if device != "cpu":
        watcher.start()
    try:
        yield readings
    finally:
        stop.set()
        if watcher.is_alive():
            watcher.join()
