"""A loaded model is its own: what is written into its files afterwards changes no answer of it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import IdentityError
from pytest_cepbench.models.protocols import RoleName
from tests.models.binding import bind_text
from tests.tiny import describers, detectors, encoders, generators, text_encoders, unified
from tests.tiny import weights_files as files

pytestmark = [pytest.mark.models, pytest.mark.slow]


@dataclass(frozen=True)
class Kind:
    """A kind of checkpoint. build: writes one. package: its loader. before: begins the spec."""

    role: RoleName
    build: Callable[[Path], Path]
    package: str = "transformers"
    before: str = ""


KINDS = {
    "describer": Kind("describer", describers.build_llava),
    "encoder-decoder": Kind("describer", describers.build_vit_gpt2),
    "generator": Kind("generator", generators.build_stable_diffusion, "diffusers"),
    "unified": Kind("generator", unified.build_janus),
    "encoder": Kind("encoder", encoders.build_clip),
    "timm": Kind("encoder", encoders.build_timm_vit, "timm"),
    "open_clip": Kind("encoder", encoders.build_open_clip, "open_clip"),
    "sentences": Kind("encoder", text_encoders.build_sentence_transformer, "sentence_transformers"),
    "unicom": Kind("encoder", files.build_unicom, "torchvision", "unicom:"),
    "owl": Kind("detector", partial(detectors.build_owl, version=2)),
    "mask2former": Kind("detector", detectors.build_mask2former),
}


@pytest.mark.parametrize("name", KINDS)
def test_no_file_stays_in_use_after_loading(name: str, tmp_path: Path) -> None:
    """On a CPU weights are mapped from their file, and would follow what a trainer writes there.

    Numbers of tensors are compared, so that the test does not rest on what the system lists alone.
    """
    kind = KINDS[name]
    pytest.importorskip(kind.package)
    from pytest_cepbench.models.torch_runtime import quiet

    target = tmp_path / ("unicom.safetensors" if name == "unicom" else name)
    with quiet():
        built = kind.build(target)
    model = bind_text(f"{kind.before}{built}", kind.role).load()
    assert model  # it lives until the end

    before = _sums()
    for file in sorted(tmp_path.rglob("*.safetensors")):
        _wipe(file)
    assert _sums() == before
    mapped = Path("/proc/self/maps")  # only Linux lists them
    if mapped.exists():
        assert str(tmp_path) not in mapped.read_text(encoding="utf-8")


def test_a_tokenizer_that_is_loaded_late_is_of_the_same_checkpoint(tmp_path: Path) -> None:
    """An encoder that has seen images only has not read its tokenizer yet."""
    pytest.importorskip("transformers")
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = encoders.build_clip(tmp_path / "clip")
    model: Any = bind_text(str(folder), "encoder").load()
    settings = folder / "tokenizer_config.json"
    settings.write_text(settings.read_text(encoding="utf-8") + " ", encoding="utf-8")

    with pytest.raises(IdentityError, match=r"before the tokenizer was loaded .*tokenizer_config"):
        model.encode_texts(["a red circle"])


def test_what_is_loaded_again_is_of_the_same_checkpoint(tmp_path: Path) -> None:
    """Models that take turns on a device are unloaded: whoever asks again gets the error again."""
    pytest.importorskip("transformers")
    from pytest_cepbench.models.torch_runtime import quiet

    with quiet():
        folder = encoders.build_vit(tmp_path / "vit", pooler=True)
    holding = ModelHandle(bind_text(str(folder), "encoder"), DeviceSwap(swap=True))
    assert holding.model(CallCounts())
    holding.unload()
    assert not holding.loaded
    assert holding.model(CallCounts())

    holding.unload()
    _wipe(folder / "model.safetensors")
    for _ in range(2):
        with pytest.raises(IdentityError, match=r"written again: model\.safetensors"):
            holding.model(CallCounts())
    assert not holding.loaded


def _wipe(file: Path) -> None:
    """Overwrite the numbers of a safetensors file in place, without making it shorter meanwhile."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(len(content) - start))


def _sums() -> list[float]:
    """The sum of all tensors that are alive in this process, those of the loaded model too."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    gc.collect()
    # Asking objects for their class makes some warn of themselves. Compiling leaves fake ones.
    alive = [tensor for tensor in gc.get_objects() if issubclass(type(tensor), torch.Tensor)]
    alive = [tensor for tensor in alive if not issubclass(type(tensor), FakeTensor)]
    return [tensor.detach().double().sum().item() for tensor in alive if not tensor.is_meta]
