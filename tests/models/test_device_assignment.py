"""Which device each model of a process gets, and how many devices models need."""

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
    Device,
    DeviceAssignment,
    Footprint,
    fits,
    needed_memory,
    spread,
    usable_together,
)
from pytest_cepbench.models.spec import parse_spec
from tests.models.files import LLAVA, write_checkpoint

GIB = 1 << 30


def _devices(*free: int | None) -> list[Device]:
    return [
        Device(f"GPU-{i}", "device", None if size is None else size * GIB)
        for i, size in enumerate(free)
    ]


def _models(*sizes: int, divided: Sequence[int] = ()) -> list[Footprint]:
    """Models of so many GiB, named by their place; divided: places of those with a device map."""
    return [Footprint(str(i), size * GIB, i in divided) for i, size in enumerate(sizes)]


def test_the_largest_model_goes_first_to_where_least_lies() -> None:
    """Describer and generator on devices of their own, the small encoder beside the smaller one."""
    assert spread(_models(3, 14, 10), [0, 0]) == {"1": 0, "2": 1, "0": 1}


def test_a_divided_model_lies_on_all_devices() -> None:
    """It gets no number, and counts on each of them."""
    loads = [0, 4 * GIB]
    assert spread(_models(20, 3, divided=[0]), loads) == {"1": 0}
    assert loads == [13 * GIB, 14 * GIB]


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


def test_needed_memory_is_that_of_all_models_or_of_the_largest() -> None:
    """Where models take turns, only one is there."""
    assert needed_memory(_models(10, 5), swap=False) == 18 * GIB
    assert needed_memory(_models(10, 5), swap=True) == 12 * GIB
    assert needed_memory([], swap=True) == 0


def test_a_process_uses_one_mig_instance() -> None:
    """CUDA shows a process the first of several only."""
    instances = [Device(f"MIG-{i}", "H100 MIG 3g.40gb") for i in range(3)]
    assert usable_together(instances) == 1
    assert usable_together(_devices(1, 1)) == 2
    assert usable_together([]) == 0


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


def test_one_device_leaves_no_choice(tmp_path: Path) -> None:
    """A spec without a device then means the device, as torch itself does."""
    assignment = DeviceAssignment(1)
    assignment.assign([parse_spec(str(_checkpoint(tmp_path / "m", 10)))])
    assert assignment.devices == {}
