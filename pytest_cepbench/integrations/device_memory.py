"""A training's memory on its device, given back while a gate uses the device.

Tensors stay the objects that they are: their storages are copied to the host, emptied, and filled
again with the same bytes. Views, tied weights and gradients that lie in one buffer stay so.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pytest_cepbench.errors import DeviceMemoryError, TrainingGateError

_HOST = frozenset({"cpu", "meta"})

_ATTEMPTS = 20  # a process that has just ended gives its memory back a little later
_PAUSE = 0.5  # seconds between two of them


@contextmanager
def release_memory(holders: Sequence[Any]) -> Iterator[None]:
    """Give the device memory of a training back, and put it back bit for bit afterwards.

    holders: modules, optimizers, tensors, and lists or dictionaries of them. What else lies on the
    device stays there: the CUDA context, the buckets of DistributedDataParallel.
    Raises TrainingGateError where a holder has no tensors that can be found, and DeviceMemoryError
    where the memory cannot be taken back, after which the training cannot go on.
    """
    import torch

    storages = [each for each in find_storages(holders) if each.device.type not in _HOST]
    with moved_to_host(storages):
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.memory.empty_cache()
        yield


@contextmanager
def moved_to_host(storages: Sequence[Any]) -> Iterator[None]:
    """Hold the bytes of storages on the host, and none in the storages themselves.

    storages: untyped storages of torch, each once.
    Raises DeviceMemoryError where the memory cannot be taken back.
    """
    copies = []
    try:
        for storage in storages:
            on_host = storage.device.type == "cpu"
            copy = storage.clone() if on_host else storage.cpu()
            copies.append((storage, storage.nbytes(), copy))
            storage.resize_(0)
        yield
    finally:
        for storage, size, copy in copies:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    storage.resize_(size)
                    break
                except RuntimeError as error:
                    if attempt == _ATTEMPTS:
                        raise DeviceMemoryError(
                            f"the training's memory cannot be taken back after a gate ({error}): "
                            "another process uses the device, or the gate needs a device of its "
                            "own (device=)"
                        ) from error
                    time.sleep(_PAUSE)
            storage.copy_(copy)


def find_storages(holders: Iterable[Any]) -> list[Any]:
    """The storages of all tensors that a training's objects hold, each once.

    Of modules: parameters, their gradients, buffers. Of optimizers: their state.
    Raises TrainingGateError for an object that is neither, nor a list or dictionary of them.
    """
    found = {}
    for tensor in _tensors(list(holders)):
        storage = tensor.untyped_storage()
        if storage.nbytes():
            found[storage.device, storage.data_ptr()] = storage
    return list(found.values())


def visible_device() -> str | None:
    """The training's device as CUDA_VISIBLE_DEVICES names it; None where it has none."""
    import torch

    if not torch.cuda.is_available():
        return None
    index = torch.cuda.current_device()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(index) if visible is None else visible.split(",")[index].strip()


def _tensors(holder: Any, *, in_state: bool = False) -> Iterator[Any]:
    """A holder's tensors and their gradients; those inside a wrapper: a shard, quantized parts.

    in_state: of an optimizer, which has numbers too.
    """
    import torch

    if isinstance(holder, torch.Tensor):
        if hasattr(holder, "__tensor_flatten__"):
            for part in (getattr(holder, name) for name in holder.__tensor_flatten__()[0]):
                if isinstance(part, torch.Tensor):  # a DTensor names its mesh too
                    yield from _tensors(part)
        else:
            yield holder
        if holder.is_leaf and holder.grad is not None:
            yield from _tensors(holder.grad)
    elif isinstance(holder, torch.nn.Module):
        for tensor in (*holder.parameters(), *holder.buffers()):
            yield from _tensors(tensor)
    elif isinstance(holder, torch.optim.Optimizer):
        yield from _tensors(holder.state, in_state=True)
    elif isinstance(holder, Mapping | list | tuple):
        for value in holder.values() if isinstance(holder, Mapping) else holder:
            yield from _tensors(value, in_state=in_state)
    elif not in_state:
        raise TrainingGateError(
            f"the memory of a {type(holder).__name__} cannot be given back: modules, optimizers "
            "and tensors are expected"
        )
