"""Encoders of transformers: which vector is an image's, and what a checkpoint without one says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.encoders.transformers_encoder import pool
from pytest_cepbench.models.encoders.vectors import to_vectors
from tests.models.encoders.conftest import Folders, Images, bind_encoder, load, shared
from tests.optional import needs
from tests.tiny import encoders as tiny
from tests.tiny.common import edit_tensors, skip_before

needs("open_clip", "timm", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models


def test_pooling_is_what_the_model_computes(folders: Folders, images: Images) -> None:
    """CLS, pooler and mean are those of the model run by hand on its own processor's pixels."""
    import torch
    from transformers import AutoImageProcessor, ViTModel

    folder = folders["vit"]
    model = ViTModel.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.inference_mode():
        output = model(**processor(images=images, return_tensors="pt"))
    expected = {
        "auto": output.pooler_output,
        "pooler": output.pooler_output,
        "cls": output.last_hidden_state[:, 0],
        "mean": output.last_hidden_state.mean(dim=1),
    }
    for pooling, reference in expected.items():
        bound = bind_encoder(f"{folder}?pooling={pooling}")
        assert bound.params == {"dtype": "float32", "pooling": pooling, "backend": "pil"}
        model_vectors = load(f"{folder}?pooling={pooling}").encode_images(images)
        assert np.abs(model_vectors - reference.numpy()).max() < 1e-6, pooling


def test_a_missing_pooler_is_never_made_up(folders: Folders, images: Images) -> None:
    """Without pooler weights "auto" is the CLS token, and asking for the pooler is an error."""
    folder = folders["vit-without-pooler"]
    by_default = shared(str(folder)).encode_images(images)
    cls = load(f"{folder}?pooling=cls").encode_images(images)
    assert np.array_equal(by_default, cls)
    bound = bind_encoder(f"{folder}?pooling=pooler")
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight"):
        bound.load()


@pytest.mark.parametrize("name", ["siglip", "convnext"])
def test_a_model_without_cls_token_refuses_cls_and_offers_the_mean(
    folders: Folders, images: Images, name: str
) -> None:
    """The first patch of a SigLIP is no summary of an image."""
    skip_before("an output that has more than features", "transformers", "5.0")
    bound = bind_encoder(f"{folders[name]}?pooling=cls")
    with pytest.raises(SpecError, match=r"no CLS token.*pooling=mean"):
        bound.load()
    assert load(f"{folders[name]}?pooling=mean").encode_images(images).shape == (3, 32)


def test_attention_and_precision_are_part_of_the_identity(folders: Folders, images: Images) -> None:
    """Both change the numbers a little, so neither may share stored results with the default."""
    text = f"{folders['vit']}?attn_implementation=eager&dtype=bfloat16&backend=torchvision"
    bound = bind_encoder(text)
    assert bound.params == {
        "dtype": "bfloat16",
        "pooling": "auto",
        "backend": "torchvision",
        "attn_implementation": "eager",
    }
    assert not bound.seeded
    half = load(text).encode_images(images)
    full = shared(str(folders["vit"])).encode_images(images)
    assert half.dtype == np.float32
    assert 0 < np.abs(half - full).max() < 0.1


def test_a_text_tower_without_tokenizer_is_explained(
    folders: Folders, images: Images, tmp_path: Path
) -> None:
    """Images can be embedded without a tokenizer; texts cannot. The library would go on with a
    vocabulary of three tokens, in which all texts of one length are the same.
    """
    skip_before("a tokenizer that makes do without a vocabulary", "transformers", "5.0")
    folder = Path(shutil.copytree(folders["clip"], tmp_path / "clip"))
    for file in folder.glob("tokenizer*"):
        file.unlink()
    encoder = load(str(folder))
    assert encoder.encode_images(images).shape == (3, 24)
    with pytest.raises(CheckpointError, match=r"no vocabulary"):
        encoder.encode_texts(["red"])


def test_a_saved_image_tower_keeps_its_projection(
    folders: Folders, images: Images, tmp_path: Path
) -> None:
    """A CLIP's vision tower saved with its projection gives the CLIP's own joint-space features."""
    import torch
    from transformers import AutoImageProcessor, CLIPVisionModelWithProjection

    folder = tmp_path / "tower"
    model = CLIPVisionModelWithProjection.from_pretrained(
        folders["clip"], projection_dim=tiny.JOINT_DIMENSION
    )
    model.save_pretrained(folder)
    AutoImageProcessor.from_pretrained(folders["clip"]).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "clip_vision_model"
    # Layers of the text tower are none of its own, however many there are.
    deep = {"text_model.encoder.layers.7.mlp.fc1.bias": torch.ones(2)}
    edit_tensors(folder / "model.safetensors", lambda tensors: tensors.update(deep))
    tower = load(str(folder)).encode_images(images)
    assert np.abs(tower - shared(str(folders["clip"])).encode_images(images)).max() < 1e-5


CHECKPOINT = Checkpoint(
    "NovelModel", ("encoder",), path=Path("step-8"), kind="transformers", config={}
)


def test_only_one_vector_per_input_is_taken(folders: Folders) -> None:
    """Token states or maps are no vector of an image; the message names the shape.

    The first place of a model without a CLS token is a patch like any other.
    """
    import torch
    from transformers.modeling_outputs import BaseModelOutput, ImageClassifierOutput

    for shape in ((2, 3, 5), (2, 5, 2, 1), (4,)):
        with pytest.raises(RoleError, match="NovelModel gives features of shape"):
            to_vectors(CHECKPOINT, torch.ones(shape))
    states = torch.arange(24.0).reshape(2, 3, 4)
    for name, output, pooling, words in (
        ("vit", BaseModelOutput(states), "pooler", "gives no pooled output"),
        ("vit", ImageClassifierOutput(logits=states), "mean", "gives no token states"),
        ("convnext", BaseModelOutput(states), "auto", "nor a CLS token"),
    ):
        with pytest.raises(SpecError, match=words):
            pool(CHECKPOINT, shared(str(folders[name])).model, output, pooling)
