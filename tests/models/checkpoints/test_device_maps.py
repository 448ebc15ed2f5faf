"""Models that are divided among places, as far as host memory reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import DeviceMemoryError
from pytest_cepbench.models.checkpoints import loading
from tests.models.binding import bind_text
from tests.models.files import LLAVA, write_checkpoint
from tests.tiny import describers

pytest.importorskip("torch", reason="checkpoints need the [models] extra")
pytest.importorskip("accelerate", reason="device maps need the [models] extra")

pytestmark = pytest.mark.models

IMAGES = [Image.new("RGB", (32, 32), color) for color in ("red", "blue")]

DIVIDED = "device_map=auto&device=cpu"


def test_a_map_changes_no_key(tmp_path: Path) -> None:
    """Where the parts of a model lie changes none of its answers."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    plain = bind_text(f"{folder}?device=cpu", "describer")
    divided = bind_text(f"{folder}?{DIVIDED}", "describer")
    assert divided.identity == plain.identity
    assert (plain.resources.dispatched, divided.resources.dispatched) == (False, True)


def test_a_divided_model_answers_alike_and_is_loaded_again_where_others_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be moved as a whole. Parts that would lie on disk, which take a night where minutes
    were expected, are refused.
    """
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        llava = describers.build_llava(tmp_path / "llava")
    tally = CallCounts()
    handle = ModelHandle(bind_text(f"{llava}?{DIVIDED}", "describer"), DeviceSwap(swap=True))
    plain: Any = bind_text(f"{llava}?device=cpu", "describer").load()
    texts = plain.describe(IMAGES, "what", [0, 0])
    for _ in range(2):
        model: Any = handle.model(tally)
        assert model.describe(IMAGES, "what", [0, 0]) == texts
        handle.unload()
        assert not handle.loaded
    assert tally.loads == 2

    monkeypatch.setattr(loading, "_HOST_SHARE", 1e-6)
    with pytest.raises(DeviceMemoryError, match=r"would lie on disk\. .*--cep-devices-per-worker"):
        bind_text(f"{llava}?{DIVIDED}", "describer").load()
