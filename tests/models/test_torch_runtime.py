"""Where and in which precision a model runs; mostly known without torch."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pytest_cepbench.errors import MissingDependencyError, ModelError
from pytest_cepbench.models.torch_runtime import (
    check_device,
    device_memory,
    has,
    is_out_of_memory,
    need,
    release_memory,
    resolve_dtype,
)
from tests.models.binding import bind_text
from tests.models.files import VIT, write_checkpoint


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


GIB = 1 << 30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A device of 10 GiB, as torch sees it: 2 GiB are the model's, a batch takes `batch` more."""
    import torch

    device = {"batch": 0, "free": 0, "reserved": 0, "emptied": 0}

    def empty_cache() -> None:
        device["emptied"] += 1

    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "reset_peak_memory_stats": lambda _: None,
        "memory_allocated": lambda _: 2 * GIB,
        "max_memory_allocated": lambda _: 2 * GIB + device["batch"],
        "mem_get_info": lambda _: (device["free"], 10 * GIB),
        "memory_reserved": lambda _: device["reserved"],
        "empty_cache": empty_cache,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return device


@pytest.mark.models
@pytest.mark.parametrize(
    ("batch", "free", "reserved", "fits"),
    [
        (3 * GIB, 6 * GIB, 3 * GIB, True),  # 2 + 2 * 3 = 8 of 0.9 * 9 = 8.1
        (3 * GIB + GIB // 8, 6 * GIB, 3 * GIB, False),  # 8.25
        (3 * GIB, 5 * GIB, 3 * GIB, False),  # 8 of 7.2
    ],
)
def test_a_batch_may_double_where_nine_tenths_hold_it(
    gpu: dict[str, int], batch: int, free: int, reserved: int, *, fits: bool
) -> None:
    """The model's memory counts once, the batch's twice, against what torch has and can get."""
    gpu.update(batch=batch, free=free, reserved=reserved)
    memory = device_memory("cuda:0")
    assert memory is not None
    memory.watch()
    assert memory.fits_twice() is fits


@pytest.mark.models
@pytest.mark.usefixtures("gpu")
def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any weights are read, and with the way out."""
    import torch

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    version = re.escape(torch.__version__)
    check_device("cpu")
    check_device("cuda")
    check_device("cuda:0")
    with pytest.raises(ModelError, match=r"'cuda:1': torch sees 1 device\(s\), from cuda:0"):
        check_device("cuda:1")
    with pytest.raises(ModelError, match=rf"'mps': torch {version} cannot use it here"):
        check_device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=rf"'cuda': torch {version} sees no accelerator"):
        check_device("cuda")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_half_a_batch_may_mend_differs_from_the_rest(
    error: Exception, *, expected: bool
) -> None:
    """Libraries report memory in several ways; another error would fail at any size."""
    assert is_out_of_memory(error) is expected


@pytest.mark.models
def test_released_memory_goes_back_to_the_device(
    monkeypatch: pytest.MonkeyPatch, gpu: dict[str, int]
) -> None:
    """Where there is a device, and torch was imported at all."""
    release_memory()
    assert gpu["emptied"] == 1
    monkeypatch.delitem(sys.modules, "torch")
    release_memory()
    assert gpu["emptied"] == 1


def test_a_setting_that_would_be_passed_over_is_refused(tmp_path: Path) -> None:
    """Wherever it stands: transformers 4 ignores it, and would turn positions as by default."""
    need("a feature", "numpy", "1.26")
    with pytest.raises(MissingDependencyError, match=r"a feature needs numpy >= 99, and \d\S+ is"):
        need("a feature", "numpy", "99")
    pytest.importorskip("transformers", reason="needs the [models] extra")
    folder = write_checkpoint(tmp_path / "m", {**VIT, "text_config": {"rope_parameters": {}}})
    if has("transformers", "5.0"):
        assert bind_text(str(folder), "encoder").fingerprint
    else:
        with pytest.raises(MissingDependencyError, match=r"rope_parameters .* transformers >= 5"):
            bind_text(str(folder), "encoder")
