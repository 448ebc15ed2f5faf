"""Which accelerators a process may use, as nvidia-smi and the caller's environment say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.models.devices import (
    CUDA,
    Device,
    DeviceAssignment,
    _amd,
    device_name,
    visible_devices,
)
from pytest_cepbench.models.torch_runtime import resolve_device
from tests.models.smi import GIB, install_smi, install_torch

A100 = "NVIDIA A100-SXM4-80GB"


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four A100, the last one almost full; the caller restricts nothing."""
    install_smi(
        tmp_path,
        monkeypatch,
        [(f"GPU-{digit * 4}", A100, 70 if digit != "d" else 1) for digit in "abcd"],
    )


@pytest.mark.usefixtures("four")
def test_all_are_there_by_their_uuids() -> None:
    """Where the caller says nothing, a UUID names a device whatever order CUDA counts in."""
    devices = visible_devices()
    assert [device.token for device in devices] == ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"]
    assert devices[3] == Device("GPU-dddd", A100, 1 * GIB, 80 * GIB, CUDA)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("listed", "tokens", "free"),
    [
        ("3,1", ["3", "1"], [1, 70]),
        ("GPU-dd, GPU-bbbb", ["GPU-dd", "GPU-bbbb"], [1, 70]),
        ("2,9,0", ["2"], [70]),
        ("1,-1,0", ["1"], [70]),
        ("", [], []),
        ("-1", [], []),
    ],
)
def test_the_callers_list_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, listed: str, tokens: list[str], free: list[int]
) -> None:
    """Tokens stay as they were written, in their order; CUDA stops at the first that is none."""
    monkeypatch.setenv(CUDA, listed)
    devices = visible_devices()
    assert [device.token for device in devices] == tokens
    assert [device.free for device in devices] == [amount * GIB for amount in free]


@pytest.mark.usefixtures("four")
def test_a_hidden_accelerator_of_amd_hides_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a model's device is chosen: either variable can say that there is none."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert visible_devices() == ()


@pytest.mark.usefixtures("four")
def test_devices_are_called_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the visible ones is "cuda"; what is not there keeps torch's word."""
    monkeypatch.setenv(CUDA, "2,3")
    assert [device_name(name) for name in ("cuda", "cuda:1", "cpu", "mps")] == [
        A100, A100, "cpu", "mps",
    ]  # fmt: skip
    assert device_name("cuda:2") == "cuda"


def test_instances_stand_for_a_divided_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a device in MIG mode only its instances can be used; the other device stays whole."""
    install_smi(
        tmp_path,
        monkeypatch,
        [("GPU-aaaa", A100, 70), ("GPU-bbbb", A100, 70)],
        divided={"GPU-bbbb": ["3g.40gb", "1g.10gb"]},
    )
    assert [(device.token, device.name) for device in visible_devices()] == [
        ("GPU-aaaa", A100),
        ("MIG-bbbb-0", f"{A100} MIG 3g.40gb"),
        ("MIG-bbbb-1", f"{A100} MIG 1g.10gb"),
    ]
    monkeypatch.setenv(CUDA, "MIG-bbbb-1")
    assert [device.token for device in visible_devices()] == ["MIG-bbbb-1"]


def test_an_index_on_a_mixed_machine_is_not_given_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA counts the fastest first, nvidia-smi by slot: memory of another device would mislead."""
    install_smi(tmp_path, monkeypatch, [("GPU-aaaa", "NVIDIA T4", 15), ("GPU-bbbb", A100, 70)])
    monkeypatch.setenv(CUDA, "0")
    assert visible_devices() == (Device("0", "device 0", None, None, CUDA),)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert visible_devices()[0].name == "NVIDIA T4"


def test_a_tool_without_a_driver_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi is installed in many images that run on machines without a device."""
    install_smi(tmp_path, monkeypatch, None)
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has devices of its own")
    assert visible_devices() == ()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine without nvidia-smi, with a torch for CUDA."""
    install_torch(tmp_path, monkeypatch, "13.2")
    monkeypatch.setenv("PATH", "")
    for name in (CUDA, "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "dev").mkdir()
    return tmp_path


def test_a_windows_around_linux_has_a_device(bare: Path) -> None:
    """WSL2 has one file for the devices of all makers: NVIDIA's is one with a driver beside it."""
    (bare / "dev/dxg").touch()
    assert visible_devices(bare) == ()
    driver = bare / "usr/lib/wsl/lib"
    driver.mkdir(parents=True)
    (driver / "libcuda.so.1").touch()
    assert visible_devices(bare) == (Device("0", "NVIDIA device 0"),)
    tool = driver / "nvidia-smi"  # on PATH of a login shell alone
    tool.write_text("#!/bin/sh\necho 'GPU-aaaa, 70, 80, [N/A], NVIDIA L4'\n", encoding="utf-8")
    tool.chmod(0o755)
    assert [device.token for device in visible_devices(bare)] == ["GPU-aaaa"]


def test_a_named_device_that_is_not_there_is_none(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters set the variable on nodes without a device, too."""
    monkeypatch.setenv(CUDA, "0")
    assert visible_devices(bare) == ()
    (bare / "dev/nvidia3").touch()
    assert [device.token for device in visible_devices(bare)] == ["0"]


@pytest.mark.usefixtures("four")
def test_a_torch_for_cpus_has_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a card it computes on the CPU: where models go and what workers share say the same."""
    assert (resolve_device("auto"), DeviceAssignment.of_process().count) == ("cuda", 4)
    install_torch(tmp_path / "other", monkeypatch, None)
    assert visible_devices() == ()
    assert (resolve_device("auto"), DeviceAssignment.of_process().count) == ("cpu", 0)


def write_amd(root: Path) -> Path:
    """The kernel's files of a processor and two devices of AMD, the second without a name."""
    (root / "dev").mkdir()
    (root / "dev/kfd").touch()
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for number, (units, minor) in enumerate([(0, 0), (416, 128), (416, 129)]):
        node = nodes / str(number)
        node.mkdir(parents=True)
        text = f"cpu_cores_count 0\nsimd_count {units}\ndrm_render_minor {minor}\n"
        (node / "properties").write_text(text)
    for minor, product in ((128, "Instinct MI300X\n"), (129, "")):
        card = root / f"sys/class/drm/renderD{minor}/device"
        card.mkdir(parents=True)
        (card / "mem_info_vram_total").write_text("1000\n")
        (card / "mem_info_vram_used").write_text("300\n")
        (card / "product_name").write_text(product)
    return root


def test_devices_of_amd_are_read_from_the_kernel(tmp_path: Path) -> None:
    """Free is what is not used; a processor's node is no device; without a file, unknown."""
    root = write_amd(tmp_path)
    first, second = _amd(root)
    assert first == Device("0", "Instinct MI300X", 700, 1000, "HIP_VISIBLE_DEVICES")
    assert (second.token, second.name) == ("1", "AMD device")
    _amd.cache_clear()
    (root / "sys/class/drm/renderD129/device/mem_info_vram_used").unlink()
    assert (_amd(root)[1].free, _amd(root)[1].total) == (None, 1000)
