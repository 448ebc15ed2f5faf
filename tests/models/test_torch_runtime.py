"""Where and in which precision a model runs, told without torch."""

from __future__ import annotations

import pytest

from pytest_cepbench.models.torch_runtime import resolve_device, resolve_dtype


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
