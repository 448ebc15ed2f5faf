"""Models that are divided among places: real ones, as far as host memory and disk reach."""

from __future__ import annotations

import gc
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, ModelError
from pytest_cepbench.models.checkpoints.parameters import parse_max_memory
from tests.models.binding import bind_text
from tests.models.files import LLAVA, write_checkpoint
from tests.tiny import describers, encoders
from tests.tiny.adapters import edit_tensors
from tests.tiny.common import skip_before

pytest.importorskip("torch", reason="checkpoints need the [models] extra")
pytest.importorskip("accelerate", reason="device maps need the [models] extra")

pytestmark = pytest.mark.models

IMAGES = [Image.new("RGB", (32, 32), color) for color in ("red", "blue")]

ON_DISK = "device_map=auto&max_memory=cpu:100KiB&offload=disk"
"""About half of the tiny describer lies on disk, the rest in memory."""


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny describer."""
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        return describers.build_llava(tmp_path_factory.mktemp("maps") / "llava")


def _describe(text: str) -> list[str]:
    model: Any = bind_text(text, "describer").load()
    texts: list[str] = model.describe(IMAGES, "what", [0, 0])
    return texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:20GiB,1:1.5GiB,cpu:60GB", {0: 20 << 30, 1: 3 << 29, "cpu": 60 * 10**9}),
        (" cpu:100MiB ", {"cpu": 100 << 20}),
    ],
)
def test_limits_are_read_with_their_units(text: str, expected: dict[int | str, int]) -> None:
    """Binary and decimal units differ by 7 % of a GiB, so that one has to be said."""
    assert parse_max_memory(text) == expected


@pytest.mark.parametrize(
    "text", ["", "20GiB", "0:20", "0:20GiB,", "0:1GiB,0:2GiB", "gpu:1GiB", "0:-1GiB", "cpu:1 GiB"]
)
def test_other_limits_are_refused(text: str) -> None:
    """A limit that is read as another one puts the model where nobody wants it."""
    with pytest.raises(ValueError, match="max_memory must name each device once with its limit"):
        parse_max_memory(text)


def test_a_map_changes_no_key(tmp_path: Path) -> None:
    """Where the parts of a model lie changes none of its answers."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    plain = bind_text(str(folder), "describer")
    divided = bind_text(f"{folder}?{ON_DISK}&offload_folder={tmp_path}", "describer")
    assert divided.identity == plain.identity
    assert (plain.resources.dispatched, divided.resources.dispatched) == (False, True)


@pytest.mark.slow
def test_a_describer_that_lies_on_disk_in_part_writes_the_same_texts(
    llava: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights are the same wherever they lie. Nothing of them is left behind, or logged."""
    model: Any = bind_text(f"{llava}?{ON_DISK}&offload_folder={tmp_path}", "describer").load()
    places = set(model.loaded.model.hf_device_map.values())
    assert places == {"cpu", "disk"}
    assert list(tmp_path.rglob("*.safetensors"))
    assert not caplog.records
    assert model.describe(IMAGES, "what", [0, 0]) == _describe(str(llava))

    del model
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fault", ["shape", "limit"])
def test_loading_that_fails_leaves_no_folder(llava: Path, tmp_path: Path, fault: str) -> None:
    """Each would have the size of the parts that were written before the error."""
    folder = Path(shutil.copytree(llava, tmp_path / "copy"))
    query = ON_DISK
    if fault == "shape":
        edit_tensors(folder / "model.safetensors", lambda t: t.update({max(t): t[max(t)][:1]}))
    else:
        query = ON_DISK.replace("cpu:", "0:1GiB,cpu:")
    (tmp_path / "parts").mkdir()
    bound = bind_text(f"{folder}?{query}&offload_folder={tmp_path / 'parts'}", "describer")
    with pytest.raises((CheckpointError, ModelError)):
        bound.load()
    assert not list((tmp_path / "parts").iterdir())


def test_parts_go_to_disk_only_where_that_is_asked_for(
    llava: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that reads its weights at every token takes a night where minutes were expected."""
    expected = r"would lie on disk\. .*--cep-devices-per-worker.*offload=disk"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    query = "device_map=auto&max_memory=cpu:100KiB"
    with pytest.raises(DeviceMemoryError, match=expected):
        bind_text(f"{llava}?{query}", "describer").load()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_encoder_is_divided_as_well(tmp_path: Path) -> None:
    """Every transformers checkpoint takes a map; its inputs go where its first part works."""
    import numpy as np

    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = encoders.build_clip(tmp_path / "clip")
    encode: list[Any] = [
        bind_text(f"{folder}{query}", "encoder").load()
        for query in ("", "?device_map=sequential&max_memory=cpu:20KiB&offload=disk")
    ]
    assert "disk" in encode[1].model.hf_device_map.values()
    plain, divided = (model.encode_images(IMAGES) for model in encode)
    np.testing.assert_array_equal(divided, plain)
    plain, divided = (model.encode_texts(["a red circle"]) for model in encode)
    np.testing.assert_array_equal(divided, plain)


@pytest.mark.slow
@pytest.mark.parametrize("query", [ON_DISK, "device_map=auto&max_memory=cpu:0KiB&offload=disk"])
def test_a_divided_model_does_not_follow_its_files(llava: Path, tmp_path: Path, query: str) -> None:
    """The library reads what lies on disk from the checkpoint itself, at every call; a trainer that
    writes there would change the model between two answers.
    """
    folder = shutil.copytree(llava, tmp_path / "copy")
    expected = _describe(str(folder))
    model: Any = bind_text(f"{folder}?{query}", "describer").load()
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    with weights.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(len(content) - start))
    assert model.describe(IMAGES, "what", [0, 0]) == expected


def test_weights_on_disk_are_looked_over_too(llava: Path, tmp_path: Path) -> None:
    """A NaN in a part that was offloaded, whose parameter is an empty shell, is found by name."""
    skip_before("weights on disk", "transformers", "5.0")
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(llava, tmp_path / "copy")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "layers.1.mlp.down_proj" in name)
    tensors[name][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"NaN or infinite values in .*layers\.1\.mlp\.down"):
        bind_text(f"{folder}?device_map=auto&max_memory=cpu:0KiB&offload=disk", "describer").load()


def test_weights_in_host_memory_are_taken_from_the_hooks(llava: Path) -> None:
    """As they are beside an accelerator: here accelerate brings them from host memory to the CPU.

    They are checked, and none is still mapped from a file.
    """
    import torch
    from accelerate import cpu_offload
    from transformers import AutoModelForImageTextToText

    from pytest_cepbench.models.checkpoints import inspect_checkpoint
    from pytest_cepbench.models.checkpoints.loaded_checks import (
        check_values,
        offloaded_weight,
        own_offloaded_weights,
    )
    from pytest_cepbench.models.spec import parse_spec

    model = AutoModelForImageTextToText.from_pretrained(llava).eval()
    cpu_offload(model, execution_device=torch.device("cpu"))
    names = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    own_offloaded_weights(model)
    weights = [offloaded_weight(model, name) for name in names]
    assert names
    assert all(weight is not None and weight.untyped_storage().resizable() for weight in weights)

    assert weights[-1] is not None
    weights[-1].fill_(float("inf"))
    checkpoint = inspect_checkpoint(parse_spec(str(llava)))
    with pytest.raises(CheckpointError, match=re.escape(names[-1])):
        check_values(checkpoint, {"": model})


@pytest.mark.slow
def test_a_divided_model_is_loaded_again_where_others_are_moved(llava: Path) -> None:
    """Its parts cannot be moved as a whole: with --cep-residency=swap it goes, and comes back."""
    swap, tally = DeviceSwap(swap=True), CallCounts()
    bound = bind_text(f"{llava}?{ON_DISK}", "describer")
    handle = ModelHandle(bound, swap)
    first: Any = handle.model(tally)
    texts = first.describe(IMAGES, "what", [0, 0])
    handle.unload()
    assert not handle.loaded
    again: Any = handle.model(tally)
    assert again is not first
    assert again.describe(IMAGES, "what", [0, 0]) == texts
    assert tally.loads == 2
