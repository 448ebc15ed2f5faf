"""Memory that a training gives back comes back bit for bit, with everything that shared it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.errors import DeviceMemoryError, TrainingGateError
from pytest_cepbench.integrations import device_memory

torch = pytest.importorskip("torch", reason="device memory needs the [models] extra")

from pytest_cepbench.integrations.device_memory import (  # noqa: E402
    find_storages,
    moved_to_host,
    release_memory,
)

pytestmark = pytest.mark.models


def trained(steps: int = 2) -> tuple[Any, Any]:
    """A model with tied weights, buffers and gradients, and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(16, 8), torch.nn.Flatten(), torch.nn.BatchNorm1d(24),
        torch.nn.Linear(24, 8), torch.nn.Linear(8, 16, bias=False),
    )  # fmt: skip
    model[4].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model: Any, optimizer: Any) -> float:
    """A step of the training; the gradients of the last one stay."""
    optimizer.zero_grad()
    loss = model(torch.randint(16, (4, 3))).logsumexp(-1).sum()
    loss.backward()
    optimizer.step()
    value: float = loss.item()
    return value


def test_memory_is_empty_meanwhile_and_the_same_afterwards() -> None:
    """Parameters, gradients, buffers and moments keep every bit; objects stay the same objects."""
    model, optimizer = trained()
    storages = find_storages([model, optimizer])
    before = [bytes(storage.tolist()) for storage in storages]
    weight = model[0].weight

    with moved_to_host(storages):
        assert [storage.nbytes() for storage in storages] == [0] * len(storages)

    assert [bytes(storage.tolist()) for storage in storages] == before
    assert model[0].weight is model[4].weight is weight
    parameters = list(model.parameters())
    # Each parameter with gradient, two moments and a count of steps; three buffers.
    assert len(storages) == 5 * len(parameters) + 3


def test_training_goes_on_as_if_nothing_had_happened() -> None:
    """Losses after the memory came back are those of a training that was left alone."""
    left_alone, resumed = trained(), trained()
    torch.manual_seed(1)
    expected = [step(*left_alone) for _ in range(3)]
    with moved_to_host(find_storages(resumed)):
        pass
    torch.manual_seed(1)

    assert [step(*resumed) for _ in range(3)] == expected


def test_views_of_one_buffer_stay_views() -> None:
    """Gradients in one flat buffer, as distributed trainings have them, are moved once."""
    flat = torch.arange(6.0)
    views = [flat[:2], flat[2:].view(2, 2)]
    storages = find_storages([views, {"flat": flat}])

    with moved_to_host(storages):
        assert len(storages) == 1
    views[0][0] = 7.0

    assert flat.tolist() == [7.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_memory_comes_back_after_an_error() -> None:
    """Whatever ends the gate, the training has its weights."""
    tensor = torch.arange(4.0)

    with pytest.raises(KeyboardInterrupt), moved_to_host(find_storages([tensor])):
        raise KeyboardInterrupt

    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_what_is_on_the_host_stays_there() -> None:
    """A training on the CPU has no memory to give back."""
    tensor = torch.arange(4.0)

    with release_memory([tensor]):
        assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_parts_of_wrapped_tensors_are_found() -> None:
    """The shard of a DTensor is memory too."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DTensor.from_local(
            torch.arange(4.0), init_device_mesh("cpu", (1,)), [Replicate()]
        )
        storages = find_storages([wrapped])
        with moved_to_host(storages):
            assert len(storages) == 1
        assert wrapped.to_local().tolist() == [0.0, 1.0, 2.0, 3.0]
    finally:
        dist.destroy_process_group()


def test_what_holds_no_tensors_is_an_error() -> None:
    """A scheduler in the place of an optimizer would keep the memory: one line says so."""
    with pytest.raises(TrainingGateError, match="memory of a str"):
        find_storages(["model"])


class Storage:
    """A storage of 4 bytes whose device is full for a while when they are taken back."""

    def __init__(self, kind: str, times: int = 0) -> None:
        self.device, self.size, self.times = SimpleNamespace(type=kind), 4, times
        self.copied: Any = None
        self.moved: list[int] = []

    def nbytes(self) -> int:
        """As of torch's."""
        return self.size

    def cpu(self) -> str:
        """As of torch's."""
        return "bytes on the host"

    def resize_(self, size: int) -> None:
        """Fail as torch does, so many times."""
        if size:
            self.times -= 1
            if self.times >= 0:
                raise RuntimeError(f"CUDA out of memory. Tried to allocate {size} bytes")
        self.size = size
        self.moved.append(size)

    def copy_(self, copy: Any) -> None:
        """As of torch's."""
        self.copied = copy


@pytest.mark.parametrize("times", [0, 1, 19, 20])
def test_memory_of_a_process_that_has_just_ended_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Twenty attempts with half a second between them; then the training cannot go on."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    storage = Storage("cuda", times)
    words = r"4 bytes.*another process uses the device"

    refused = pytest.raises(DeviceMemoryError, match=words)
    with nullcontext() if times < 20 else refused, moved_to_host([storage]):
        assert storage.size == 0

    assert pauses == [0.5] * min(times, 19)
    assert storage.copied == ("bytes on the host" if times < 20 else None)


def test_what_is_on_another_device_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storages of accelerators are held by the host meanwhile, and those of the host stay."""
    storages = [Storage("cuda"), Storage("cpu"), Storage("meta")]
    monkeypatch.setattr(device_memory, "find_storages", lambda holders: storages)

    with release_memory([]):
        assert [storage.moved for storage in storages] == [[0], [], []]

    assert [storage.moved for storage in storages] == [[0, 4], [], []]
    assert [storage.copied for storage in storages] == ["bytes on the host", None, None]


@pytest.mark.parametrize(
    ("visible", "name"), [(None, "1"), ("4,7", "7"), ("GPU-a, GPU-b", "GPU-b")]
)
def test_device_has_the_name_that_a_child_process_needs(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, name: str
) -> None:
    """The second of those that the training sees; none where there is none."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert device_memory.visible_device() == name
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_memory.visible_device() is None


def test_gradients_of_results_are_not_asked_for() -> None:
    """Only leaves have gradients of their own; asking others is a warning of torch."""
    leaf = torch.ones(2, requires_grad=True)
    result = leaf * 2
    assert len(find_storages([result])) == 1
    result.sum().backward()
    assert len(find_storages([leaf])) == 2
