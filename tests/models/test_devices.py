"""Cores, memory and accelerators that a process sees, and which of them each model gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.devices import (
    CUDA,
    Device,
    DeviceAssignment,
    Footprint,
    fits,
    free_memory,
    spread,
    usable_cores,
    visible_devices,
)
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.torch_runtime import device_name, resolve_device
from tests.models.files import LLAVA, write_checkpoint
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
    """Tokens stay as they were written, in their order; CUDA stops at the first that is none.

    Where the caller says nothing, a UUID names a device whatever order CUDA counts in.
    """
    devices = visible_devices()
    assert [device.token for device in devices] == ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"]
    assert devices[3] == Device("GPU-dddd", A100, 1 * GIB, 80 * GIB, CUDA)
    monkeypatch.setenv(CUDA, listed)
    devices = visible_devices()
    names = ["cuda", *(f"cuda:{number}" for number in range(1, len(devices)))] if devices else []
    assert [device_name(name) for name in (*names, "cpu")] == [*[A100] * len(devices), "cpu"]
    assert device_name("cuda:9") == "cuda"
    assert [device.token for device in devices] == tokens
    assert [device.free for device in devices] == [amount * GIB for amount in free]


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


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine without nvidia-smi, with a torch for CUDA."""
    install_torch(tmp_path, monkeypatch, "13.2")
    monkeypatch.setenv("PATH", "")
    for name in (CUDA, "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "dev").mkdir()
    return tmp_path


def test_a_tool_without_a_driver_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi is installed in many images that run on machines without a device."""
    install_smi(tmp_path, monkeypatch, None)
    (tmp_path / "empty").mkdir()
    assert visible_devices(tmp_path / "empty") == ()


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


def _devices(*free: int | None) -> list[Device]:
    return [
        Device(f"GPU-{i}", "device", None if size is None else size * GIB)
        for i, size in enumerate(free)
    ]


def _models(*sizes: int, divided: Sequence[int] = ()) -> list[Footprint]:
    """Models of so many GiB, named by their place; divided: places of those with a device map."""
    return [Footprint(str(i), size * GIB, i in divided) for i, size in enumerate(sizes)]


@given(
    sizes=st.lists(st.integers(1, 50), max_size=6), order=st.randoms(), devices=st.integers(1, 4)
)
def test_the_order_of_the_models_does_not_matter(
    sizes: list[int], order: Random, devices: int
) -> None:
    """Every process of a run gives the models the same devices, whichever it meets first."""
    models = _models(*sizes)
    mixed = list(models)
    order.shuffle(mixed)
    numbers = spread(models, [0] * devices)
    assert spread(mixed, [0] * devices) == numbers
    assert set(numbers.values()) <= set(range(devices))


@pytest.mark.parametrize(
    ("models", "free", "swap", "room"),
    [
        (_models(10), [12], False, True),
        (_models(11), [12], False, False),
        (_models(10, 10), [12], False, False),
        (_models(10, 10), [12], True, True),
        (_models(10, 10), [12, 12], False, True),
        (_models(10, 10, 1), [12, 12], False, False),
        (_models(20), [12, 12], False, False),
        (_models(20, divided=[0]), [12, 12], False, True),
        (_models(20, divided=[0]), [12], True, False),
        (_models(10, 9, divided=[1]), [14, 14], False, True),
        (_models(99), [None], False, True),
    ],
)
def test_models_fit_with_a_fifth_of_their_weights_to_spare(
    models: list[Footprint], free: list[int | None], swap: bool, room: bool
) -> None:
    """One device for each model that no map divides; the rest of all devices for those it does."""
    assert fits(models, _devices(*free), swap=swap) is room


def _checkpoint(folder: Path, mebibytes: int) -> Path:
    header = {"w": {"dtype": "BF16", "shape": [mebibytes, 1 << 19], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    write_checkpoint(folder, {**LLAVA, "dtype": "bfloat16"}, None)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return folder


def test_models_are_bound_to_the_devices_that_they_are_given(tmp_path: Path) -> None:
    """Those that name a device of their own, and those that a map divides, are left alone; models
    of suites that are met later go where least lies by then.
    """
    large, small = _checkpoint(tmp_path / "large", 30), _checkpoint(tmp_path / "small", 10)
    texts = [
        str(small), str(large), f"{large}?device=cuda", f"{small}?device_map=auto",
        f"{large}?offload=model", "shapes:",
    ]  # fmt: skip
    assignment = DeviceAssignment(2)
    context = BindContext(lambda path: path.name, devices=assignment.devices)
    assignment.assign(map(parse_spec, texts))
    later = parse_spec(f"{small}?batch_size=2")
    assignment.assign([later, parse_spec(texts[0])])

    assert assignment.devices == {texts[0]: "cuda:1", texts[1]: "cuda:0", later.text: "cuda:1"}
    devices = [bind(parse_spec(text), "describer", context).device for text in texts[:3]]
    assert devices == ["cuda:1", "cuda:0", "cuda"]


def test_devices_of_amd_are_counted(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's nodes, of which the processor's has no id; HIP's own variable names them."""
    for node, number in enumerate(("0", "4098", "4099")):
        file = bare / f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id"
        file.parent.mkdir(parents=True)
        file.write_text(f"{number}\n")
    first, second = visible_devices(bare)
    assert (first.name, first.variable, second.token) == (
        "AMD device 0",
        "HIP_VISIBLE_DEVICES",
        "1",
    )
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert [device.token for device in visible_devices(bare)] == ["1"]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert visible_devices(bare) == ()
