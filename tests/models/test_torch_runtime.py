"""Where and in which precision a model runs, told without torch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import ClassVar

import pytest

from pytest_cepbench.models.torch_runtime import (
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
