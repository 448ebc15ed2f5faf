"""The encoders as the papers use them: which vector, which pixels, which texts are read whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.errors import SpecError
from tests.models.encoders.conftest import bind_encoder, load
from tests.tiny import encoders as tiny
from tests.tiny.common import skip_before

pytest.importorskip("open_clip", reason="encoders need the [models] extra")
pytest.importorskip("timm", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


@pytest.fixture
def dino(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A tiny ViT with the preprocessing that timm states for vit_base_patch16_224.dino."""
    folder = Path(shutil.copytree(folders["timm"], tmp_path / "dino"))
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= {"crop_pct": 0.9, "crop_mode": "center", **IMAGENET}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("query", "resized", "interpolation"),
    [("", 35, "bicubic"), ("?crop_pct=0.875&interpolation=bilinear", 36, "bilinear")],
    ids=["timm", "SDP"],
)
def test_dino_is_its_cls_token_behind_the_stated_crop(
    dino: Path, images: list[Image.Image], query: str, resized: int, interpolation: str
) -> None:
    """By default what the checkpoint states; by parameters SDP's 256 to 224, here 36 to 32."""
    import timm
    import torch
    from safetensors.torch import load_file
    from torchvision import transforms

    shape = json.loads((dino / "config.json").read_text())["model_args"]
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, **shape).eval()
    model.load_state_dict(load_file(dino / "model.safetensors"))
    transform = transforms.Compose(
        [
            transforms.Resize(resized, transforms.InterpolationMode(interpolation)),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            transforms.Normalize(**IMAGENET),
        ]
    )
    with torch.inference_mode():
        pixels = torch.stack([transform(image) for image in images])
        expected = model.forward_features(pixels)[:, 0].numpy()
    assert np.abs(load(f"{dino}{query}").encode_images(images) - expected).max() < 1e-5


def test_the_given_crop_is_part_of_the_identity(dino: Path) -> None:
    """What is given changes the key; what is not leaves the one of before."""
    assert bind_encoder(str(dino)).params == {"dtype": "float32"}
    params = bind_encoder(f"{dino}?crop_pct=0.875&interpolation=bilinear").params
    assert params == {"dtype": "float32", "crop_pct": 0.875, "interpolation": "bilinear"}
    for query in ("crop_pct=0", "crop_pct=1.5", "crop_pct=nan", "interpolation=nearest"):
        with pytest.raises(SpecError, match=query.partition("=")[0] + " must be"):
            bind_encoder(f"{dino}?{query}")


def test_siglip_reads_texts_padded_to_their_full_length(folders: dict[str, Path]) -> None:
    """SigLIP is trained so; a shorter padding gives other vectors."""
    skip_before("an output that has more than features", "transformers", "5.0")
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = folders["siglip"]
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model.eval()
    with torch.inference_mode():
        full, short = (
            model.get_text_features(
                **tokenizer(["red circle"], padding="max_length", max_length=n, return_tensors="pt")
            ).pooler_output.numpy()
            for n in (tiny.TEXT_LENGTH, 8)
        )
    vectors = load(str(folder)).encode_texts(["red circle"])
    assert np.abs(vectors - full).max() < 1e-6
    assert np.abs(vectors - short).max() > 1e-4


@pytest.mark.parametrize(("name", "special"), [("clip", 2), ("siglip", 1), ("open_clip", 2)])
def test_the_tokens_of_texts_are_counted(folders: dict[str, Path], name: str, special: int) -> None:
    """A text of as many tokens as are read is whole; a report needs the count, not a warning."""
    encoder = load(str(folders[name]))
    room = tiny.TEXT_LENGTH - special
    texts = ["", "red", "red " * room, "red " * (room + 1), "red " * (room + 40)]
    lengths = [special, special + 1, special + room, special + room + 1, special + room + 40]
    # The method is optional.
    assert encoder.text_lengths(texts) == (lengths, tiny.TEXT_LENGTH)  # type: ignore[attr-defined]
    assert encoder.text_lengths([]) == ([], tiny.TEXT_LENGTH)  # type: ignore[attr-defined]


def test_an_open_clip_model_with_a_tokenizer_of_its_own_counts_too(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """SigLIP and multilingual models of open_clip bring a tokenizer of transformers."""
    folder = Path(shutil.copytree(folders["open_clip"], tmp_path / "own"))
    tiny.clip_tokenizer().save_pretrained(folder)
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = str(folder)
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    encoder = load(str(folder))
    # The method is optional.
    lengths, most = encoder.text_lengths(["red", "red " * 40])  # type: ignore[attr-defined]
    assert (lengths, most) == ([3, 42], tiny.TEXT_LENGTH)
