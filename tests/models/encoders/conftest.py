"""Fixtures of the encoder tests: tiny checkpoints of each library built once, binding, loading."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.models.protocols import Encoder
from tests.models.binding import bind_text, load_once
from tests.tiny import encoders as tiny
from tests.tiny.common import Built, noise_images
from tests.tiny.weights_files import UNICOM, build_inception, make_unicom, randomize, save_unicom

BUILDERS: dict[str, Callable[[Path], Path]] = {
    "clip": tiny.build_clip,
    "siglip": tiny.build_siglip,
    "open_clip": tiny.build_open_clip,
    "dinov2": tiny.build_dinov2,
    "vit": partial(tiny.build_vit, pooler=True),
    "vit-without-pooler": partial(tiny.build_vit, pooler=False),
    "vit-mae": tiny.build_vit_mae,
    "convnext": tiny.build_convnext,
    "timm": tiny.build_timm_vit,
    "timm-classifier": partial(tiny.build_timm_vit, classes=5),
}

FOLDERS = Built(BUILDERS)

IMAGE_ENCODERS = [*BUILDERS, "unicom", "cleanfid"]
"""All encoders of images, with those of a scheme of their own."""

IMAGES = noise_images(5, [(52, 40), (33, 64), (32, 32)])
"""Three of different sizes and shapes."""

bind_encoder = partial(bind_text, role="encoder")
"""Binds as the plugin does, every file hashed."""


def load(text: str) -> Encoder:
    """Bind and load."""
    model = bind_encoder(text).load()
    assert isinstance(model, Encoder)
    return model


def shared(text: str) -> Any:
    """Bind and load, once; not to be changed."""
    return load_once(text, "encoder")


@pytest.fixture(scope="session")
def reference() -> Any:
    """The torch.nn model of Unicom's tiny file, rounded to the float16 of the file."""
    return randomize(make_unicom(**UNICOM)).half().float()


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny TorchScript file of the interface of clean-fid's Inception."""
    return build_inception(tmp_path_factory.mktemp("inception"))


@pytest.fixture(scope="session")
def specs(
    reference: Any, weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The spec of each of them, of a sentence-transformers folder, and of an open_clip folder with
    a tokenizer of its own.
    """
    root = tmp_path_factory.mktemp("files")
    unicom = save_unicom(root / "u.safetensors", reference.state_dict())
    own = Path(shutil.copytree(FOLDERS["open_clip"], root / "own"))
    tiny.clip_tokenizer().save_pretrained(own)
    config = json.loads((own / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = str(own)
    (own / "open_clip_config.json").write_text(json.dumps(config))
    return {name: str(FOLDERS[name]) for name in BUILDERS} | {
        "open_clip-own": str(own),
        "unicom": f"unicom:{unicom}",
        "cleanfid": f"cleanfid:?weights={weights}",
        "mpnet": str(tiny.build_sentence_transformer(root / "mpnet")),
    }
