"""Where and in which precision a model runs, told without torch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import ClassVar

import pytest

from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.torch_runtime import (
    check_device,
    device_memory,
    is_out_of_memory,
    library_versions,
    release_memory,
    resolve_device,
    resolve_dtype,
    set_threads,
    threads_set_by_user,
)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_accelerators_are_not_used(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    """CUDA_VISIBLE_DEVICES is how users and schedulers say that a process has no accelerator."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert resolve_device("auto") == "cpu"


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "", "cuda:0 "])
def test_unknown_devices_are_refused(name: str) -> None:
    """A device that nobody knows must fail at binding, not after the models of other roles ran."""
    with pytest.raises(ValueError, match="device must be auto, cpu, cuda, cuda:N or mps"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("name", "device", "config", "expected"),
    [
        ("auto", "cpu", {"dtype": "bfloat16"}, "float32"),
        ("auto", "cuda", {"dtype": "bfloat16"}, "bfloat16"),
        ("auto", "cuda:1", {"torch_dtype": "float16"}, "float16"),
        ("auto", "cuda", {}, "float32"),
        ("auto", "cuda", {"dtype": "float8_e4m3fn"}, "float32"),
        ("bfloat16", "cpu", {}, "bfloat16"),
    ],
)
def test_precision_follows_device_and_checkpoint(
    name: str, device: str, config: dict[str, str], expected: str
) -> None:
    """The default is float32 on the CPU and the checkpoint's own precision elsewhere."""
    assert resolve_dtype(name, device, config) == expected


WAITS = """\
import os, sys
from pytest_cepbench.models.torch_runtime import bound_spinning
sys.modules.update(dict.fromkeys(sys.argv[1:]))
bound_spinning()
print({name: value for name, value in os.environ.items() if name.startswith(("GOMP_", "OMP_"))})
"""


@pytest.mark.parametrize(
    ("said", "imported", "expected"),
    [
        ({}, (), {"GOMP_SPINCOUNT": "20000"}),
        ({}, ("torch",), {}),
        ({"GOMP_SPINCOUNT": "7"}, (), {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, (), {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"OMP_NUM_THREADS": "3"}, (), {"GOMP_SPINCOUNT": "20000", "OMP_NUM_THREADS": "3"}),
    ],
    ids=["unsaid", "torch is there", "count said", "policy said", "threads said"],
)
def test_threads_wait_briefly_unless_the_user_said_how(
    said: dict[str, str], imported: tuple[str, ...], expected: dict[str, str]
) -> None:
    """What the user said stands, and once torch is imported nothing is changed that it would not read."""
    calm = {k: v for k, v in os.environ.items() if not k.startswith(("GOMP_", "OMP_", "KMP_"))}
    ended = subprocess.run(
        [sys.executable, "-c", WAITS, *imported],
        env=calm | said,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(ended.stdout) == expected


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"])
def test_threads_are_the_users_to_say(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whoever says how many threads there are is not overruled."""
    for known in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"):
        monkeypatch.delenv(known, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # as before its import
    assert not threads_set_by_user()
    monkeypatch.setenv(name, "1")
    assert threads_set_by_user()


def test_threads_are_set_when_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking imports no torch, which rule-based models never need; the last number counts, once."""

    class FakeTorch:
        numbers: ClassVar[list[int]] = []
        set_num_threads = numbers.append

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    set_threads(3)
    set_threads(2)
    set_threads(None)
    assert "torch" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch", FakeTorch)
    set_threads(None)
    set_threads(None)
    assert FakeTorch.numbers == [2]
    set_threads(5)
    assert FakeTorch.numbers == [2, 5]


GIB = 1 << 30


def fake_cuda(batch: int = 0, free: int = 0, reserved: int = 0) -> SimpleNamespace:
    """torch.cuda with one device of 10 GiB: 2 GiB are the model's, a batch takes `batch` more."""
    return SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        reset_peak_memory_stats=lambda _device: None,
        memory_allocated=lambda _device: 2 * GIB,
        max_memory_allocated=lambda _device: 2 * GIB + batch,
        mem_get_info=lambda _device: (free, 10 * GIB),
        memory_reserved=lambda _device: reserved,
    )


def fake_torch(monkeypatch: pytest.MonkeyPatch, cuda: object) -> None:
    """A torch with this `cuda` and no MPS."""
    mps = SimpleNamespace(is_available=lambda: False)
    backends = SimpleNamespace(mps=mps)
    torch = SimpleNamespace(
        cuda=cuda, backends=backends, __version__="2.9", OutOfMemoryError=OutOfMemoryError
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("batch", "free", "reserved", "fits"),
    [
        (3 * GIB, 6 * GIB, 3 * GIB, True),  # 2 + 2 * 3 = 8 of 0.9 * 9 = 8.1
        (3 * GIB + GIB // 8, 6 * GIB, 3 * GIB, False),  # 8.25
        (3 * GIB, 5 * GIB, 3 * GIB, False),  # 8 of 7.2
    ],
)
def test_a_batch_may_double_where_nine_tenths_hold_it(
    monkeypatch: pytest.MonkeyPatch, batch: int, free: int, reserved: int, fits: bool
) -> None:
    """The model's memory counts once, the batch's twice, against what torch has and can get."""
    fake_torch(monkeypatch, fake_cuda(batch, free, reserved))
    memory = device_memory("cuda:0")
    assert memory is not None
    memory.watch()
    assert memory.fits_twice() is fits


def test_a_processor_does_not_tell_its_memory() -> None:
    """Batches on it keep their size."""
    assert device_memory("cpu") is None
    assert device_memory("mps") is None


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any weights are read, and with the way out."""
    fake_torch(monkeypatch, fake_cuda())
    check_device("cpu")
    check_device("cuda")
    check_device("cuda:0")
    with pytest.raises(ModelError, match=r"'cuda:1': torch sees 1 device\(s\), from cuda:0"):
        check_device("cuda:1")
    with pytest.raises(ModelError, match=r"'mps': torch 2\.9 cannot use it here"):
        check_device("mps")
    fake_torch(monkeypatch, SimpleNamespace(is_available=lambda: False))
    with pytest.raises(ModelError, match=r"'cuda': torch 2\.9 sees no accelerator"):
        check_device("cuda")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA error"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_half_a_batch_may_mend_is_told_from_the_rest(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: bool
) -> None:
    """Libraries report memory in several ways; another error would fail at any size."""
    fake_torch(monkeypatch, fake_cuda())
    assert is_out_of_memory(error) is expected


def test_released_memory_goes_back_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a device, and torch was imported at all."""
    cuda, emptied = fake_cuda(), []
    cuda.empty_cache = lambda: emptied.append(True)
    fake_torch(monkeypatch, cuda)
    release_memory()
    assert emptied == [True]
    monkeypatch.delitem(sys.modules, "torch")
    release_memory()


def test_versions_are_those_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is absent is left out."""

    def version(name: str) -> str:
        if name != "timm":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    assert library_versions() == {"timm": "1.0"}
