"""Cores, memory, accelerators and precision: what a process sees, and what each model gets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import MissingDependencyError, ModelError
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
from pytest_cepbench.models.torch_runtime import (
    DeviceMemory,
    check_device,
    device_name,
    has,
    is_out_of_memory,
    need,
    release_memory,
    resolve_device,
    resolve_dtype,
)
from tests.models.binding import bind_text
from tests.models.files import LLAVA, VIT, write_checkpoint
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


def test_divided_devices_and_mixed_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a device in MIG mode only its instances can be used; the other device stays whole. An
    index on a mixed machine is not given a name: CUDA counts the fastest first, nvidia-smi by slot,
    so that memory of another device would mislead.
    """
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

    mixed = [("GPU-aaaa", "NVIDIA T4", 15), ("GPU-bbbb", A100, 70)]
    install_smi(tmp_path / "mixed", monkeypatch, mixed)
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


def test_a_named_device_that_is_not_there_is_none(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters set the variable on nodes without a device, too, and images have an nvidia-smi that
    finds no driver there.
    """
    monkeypatch.setenv(CUDA, "0")
    assert visible_devices(bare) == ()
    install_smi(bare / "other", monkeypatch, None)
    assert visible_devices(bare) == ()
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


def test_a_group_around_limits_what_is_in_it(tmp_path: Path) -> None:
    """The tightest limit on the way to the root counts, and half a core is still one."""
    files = {
        "proc/meminfo": f"MemTotal: 999 kB\nMemAvailable: {8 * GIB // 1024} kB\n",
        "proc/self/cgroup": "4:memory:/old\n0::/pods/one\n",
        "sys/fs/cgroup/pods/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/pods/one/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pods/one/memory.max": "max\n",
        "sys/fs/cgroup/pods/one/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/pods/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/pods/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/pods/memory.stat": f"anon 1\ninactive_file {GIB // 2}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == 1
    assert free_memory(tmp_path) == GIB + GIB // 2  # files in memory give way


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
    devices = [
        Device(f"GPU-{i}", "device", None if size is None else size * GIB)
        for i, size in enumerate(free)
    ]
    assert fits(models, devices, swap=swap) is room


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
    assert (first.name, second.token) == ("AMD device 0", "1")
    assert first.variable == "HIP_VISIBLE_DEVICES"
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert [device.token for device in visible_devices(bare)] == ["1"]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert visible_devices(bare) == ()


# -- what torch is asked ---------------------------------------------------------------------------


def test_precision_follows_device_and_checkpoint() -> None:
    """The default is float32 on the CPU and the checkpoint's own precision elsewhere."""
    rows: tuple[tuple[str, str, dict[str, str], str], ...] = (
        ("auto", "cpu", {"dtype": "bfloat16"}, "float32"),
        ("auto", "cuda", {"dtype": "bfloat16"}, "bfloat16"),
        ("auto", "cuda:1", {"torch_dtype": "float16"}, "float16"),
        ("auto", "cuda", {}, "float32"),
        ("auto", "cuda", {"dtype": "float8_e4m3fn"}, "float32"),
        ("bfloat16", "cpu", {}, "bfloat16"),
    )
    for name, device, config, expected in rows:
        assert resolve_dtype(name, device, config) == expected, (name, device, config)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A device of 10 GiB, as torch sees it: 2 GiB are the model's, a batch takes `batch` more."""
    import torch

    device = {"batch": 0, "free": 0, "reserved": 0, "emptied": 0}
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "reset_peak_memory_stats": lambda _: None,
        "memory_allocated": lambda _: 2 * GIB,
        "max_memory_allocated": lambda _: 2 * GIB + device["batch"],
        "mem_get_info": lambda _: (device["free"], 10 * GIB),
        "memory_reserved": lambda _: device["reserved"],
        "empty_cache": lambda: device.update(emptied=device["emptied"] + 1),
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
    memory = DeviceMemory("cuda:0")
    memory.watch()
    assert memory.fits_twice() is fits


@pytest.mark.models
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, gpu: dict[str, int]
) -> None:
    """Before any weights are read, and with the way out. To one that is there memory goes back that
    is released, where torch was imported at all.
    """
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
    release_memory()
    assert gpu["emptied"] == 1
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        release_memory()
    assert gpu["emptied"] == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=rf"'cuda': torch {version} sees no accelerator"):
        check_device("cuda")


def test_what_half_a_batch_may_mend_differs_from_the_rest() -> None:
    """Libraries report memory in several ways; another error would fail at any size."""
    for error, expected in (
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ):
        assert is_out_of_memory(error) is expected, error


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
