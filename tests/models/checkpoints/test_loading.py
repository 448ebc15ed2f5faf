"""What goes wrong while a checkpoint is loaded, and models that are divided among places."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, MissingDependencyError
from pytest_cepbench.models.checkpoints import loading
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.loading import explained
from pytest_cepbench.models.protocols import RoleName, VqaQuestion
from tests.models.binding import bind_text, plain
from tests.models.files import LLAVA, write_checkpoint
from tests.optional import needs
from tests.tiny import describers, detectors, encoders, generators, unified
from tests.tiny.common import JUDGE_WORDS, pictures

CHECKPOINT = Checkpoint(Path("step-8"), "transformers", "LlavaModel", (), {})


@pytest.mark.parametrize(
    ("raised", "expected", "words"),
    [
        (MemoryError(), DeviceMemoryError, "does not fit in memory .* --cep-residency=swap"),
        (RuntimeError("CUDA out of memory"), DeviceMemoryError, "step-8: LlavaModel does not fit"),
        (
            ImportError("no timm"),
            MissingDependencyError,
            "needs a package that is missing: no timm",
        ),
        (KeyError("lm_head"), CheckpointError, "could not be loaded: 'lm_head'"),
    ],
    ids=["host memory", "device memory", "package", "anything else"],
)
def test_the_error_says_what_can_be_done(
    raised: Exception, expected: type[Exception], words: str
) -> None:
    """What does not fit may fit alone, which the caller can tell by the kind of the error."""
    with pytest.raises(expected, match=words), explained(CHECKPOINT):
        raise raised


def _as_tuples(config: Any) -> Any:
    """A configuration by which every part of the model returns tuples, as for TorchScript."""
    if not isinstance(config, dict):
        return config
    own = {name: _as_tuples(value) for name, value in config.items()}
    return own | {"return_dict": False} if "model_type" in own else own


def _build_asked(folder: Path) -> Path:
    return describers.build_llava(folder, words=[*JUDGE_WORDS, "Yes", "No"])


def _describe(model: Any) -> Any:
    return plain(model.describe(pictures(), "describe the image", [0, 1, 2]))


def _answer(model: Any) -> Any:
    (reply,) = model.answer(pictures()[:1], [[VqaQuestion("is it red ?", ("Yes",))]])
    return reply.value


def _detect(model: Any) -> Any:
    (found,) = plain(model.detect(pictures()[:1], [["a circle"]]))
    return repr(found)


def _draw(model: Any) -> Any:
    return [np.asarray(image) for image in model.generate(["a red circle"], [0])]


@pytest.mark.models
@pytest.mark.parametrize(
    ("build", "role", "ask"),
    [
        (describers.build_qwen2_vl, "describer", _describe),
        (_build_asked, "vqa", _answer),
        (encoders.build_clip, "encoder", lambda model: model.encode_images(pictures())),
        (lambda folder: detectors.build_owl(folder, 2), "detector", _detect),
        (unified.build_janus, "generator", _draw),
        (generators.build_sdxl, "generator", _draw),
    ],
    ids=["describer", "vqa", "encoder", "detector", "unified", "pipeline"],
)
def test_answers_are_read_by_their_names(
    build: Callable[[Path], Path], role: RoleName, ask: Callable[[Any], Any], tmp_path: Path
) -> None:
    """A config.json may ask for tuples, and a generation_config.json for the scores as well."""
    folder = build(tmp_path / "m")
    short = "num_inference_steps=1" if (folder / "model_index.json").exists() else ""
    spec = f"{folder}?{'max_new_tokens=6' if role == 'describer' else short}"
    expected = ask(bind_text(spec, role).load())
    for config in folder.rglob("config.json"):
        config.write_text(json.dumps(_as_tuples(json.loads(config.read_text()))))
    generation = folder / "generation_config.json"
    stored = json.loads(generation.read_text()) if generation.exists() else {}
    generation.write_text(json.dumps(stored | {"return_dict_in_generate": True}))
    np.testing.assert_array_equal(ask(bind_text(spec, role).load()), expected)


needs("torch", "accelerate", reason="device maps need the [models] extra")

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
    import torch

    from pytest_cepbench.models.torch_runtime import quiet

    torch.set_num_threads(2)
    with quiet():
        llava = describers.build_llava(tmp_path / "llava")
    tally = CallCounts()
    handle = ModelHandle(bind_text(f"{llava}?{DIVIDED}", "describer"), DeviceSwap(swap=True))
    plain: Any = bind_text(f"{llava}?device=cpu", "describer").load()
    assert torch.get_num_threads() == 1  # as the context says
    texts = plain.describe(IMAGES, "what", [0, 0])
    for _ in range(2):
        model: Any = handle.model(tally)
        assert model.describe(IMAGES, "what", [0, 0]) == texts
        handle.unload()
        assert not handle.loaded
    assert tally.loads == 2

    monkeypatch.setattr(loading, "_HOST_SHARE", 1e-6)
    # transformers 4 refuses the place itself, as it opens the weights.
    refused = r"would lie on disk\. .*--cep-devices-per-worker|device disk is invalid"
    with pytest.raises((DeviceMemoryError, CheckpointError), match=refused):
        bind_text(f"{llava}?{DIVIDED}", "describer").load()
