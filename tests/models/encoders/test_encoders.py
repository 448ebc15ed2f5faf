"""What holds for the encoders of every library: tiny checkpoints, bound and loaded as a user's."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import imported_by_binding
from tests.models.encoders.conftest import BUILDERS, IMAGE_ENCODERS, bind_encoder, load
from tests.tiny import encoders as tiny
from tests.tiny.generators import build_stable_diffusion, drop_tensor
from tests.tiny.weights_files import UNICOM

pytest.importorskip("open_clip", reason="encoders need the [models] extra")
pytest.importorskip("timm", reason="encoders need the [models] extra")
pytest.importorskip("cleanfid", reason="encoders need the [models] extra")
pytest.importorskip("sentence_transformers", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models

DIMENSIONS = dict.fromkeys(BUILDERS, 32) | {
    "clip": 24, "open_clip": 24, "unicom": UNICOM["features"], "cleanfid": 2048,
}  # fmt: skip

DUAL = ("clip", "siglip", "open_clip")
TEXTS = ["two red circles", "a small green triangle at the top left", "cyan", ""]


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_an_image_vector_does_not_depend_on_its_batch(
    specs: dict[str, str], images: list[Image.Image], name: str
) -> None:
    """Alone or among others an image has the same vector, and other images have others."""
    encoder = load(specs[name])
    vectors = encoder.encode_images(images)
    assert vectors.shape == (3, DIMENSIONS[name])
    assert vectors.dtype == np.float32
    alone = np.concatenate([encoder.encode_images([image]) for image in images])
    assert np.abs(vectors - alone).max() < 1e-5 * (np.abs(alone).max() if name == "unicom" else 1)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() > 1e-3


@pytest.mark.parametrize("name", DUAL)
def test_texts_share_the_space_of_images_and_ignore_their_neighbours(
    folders: dict[str, Path], images: list[Image.Image], name: str
) -> None:
    """One dimension for both kinds, the empty text included, and padding changes nothing."""
    encoder = load(str(folders[name]))
    vectors = encoder.encode_texts(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, encoder.encode_images(images[:1]).shape[1])
    alone = np.concatenate([encoder.encode_texts([text]) for text in TEXTS])
    assert np.abs(vectors - alone).max() < 1e-5
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4


@pytest.mark.parametrize("name", sorted(set(IMAGE_ENCODERS) - set(DUAL)))
def test_a_vision_tower_refuses_texts(specs: dict[str, str], name: str) -> None:
    """The message says that this model reads no texts and what kind would."""
    with pytest.raises(RoleError, match=r"reads no texts.*dual encoder"):
        load(specs[name]).encode_texts(TEXTS)


@pytest.mark.parametrize("name", DUAL)
def test_a_text_that_is_cut_is_reported_once(folders: dict[str, Path], name: str) -> None:
    """Cutting hides drift at a caption's end: it is reported, but not for a text that fits."""
    encoder = load(str(folders[name]))
    fitting = "red " * (tiny.TEXT_LENGTH - 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode_texts(["red", fitting])
    with pytest.warns(UserWarning, match=r"reads 32 tokens: 1 longer text"):
        encoder.encode_texts(["red", fitting + "red red red"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode_texts([fitting + "red red red"])


@pytest.mark.parametrize(
    ("name", "tensor", "named"),
    [
        # transformers 5 renames the tensor while it reads it, and reports the new name.
        ("vit", "encoder.layer.0.attention.attention.query.weight", "attention.q_proj.weight"),
        ("clip", "visual_projection.weight", "visual_projection.weight"),
        ("open_clip", "visual.ln_post.weight", "visual.ln_post.weight"),
        ("timm-classifier", "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight"),
        ("mpnet", "encoder.layer.0.attention.attn.q.weight", "attn.q.weight"),
    ],
)
def test_a_missing_tensor_is_an_error_and_not_a_random_one(
    specs: dict[str, str], tmp_path: Path, name: str, tensor: str, named: str
) -> None:
    """A measurement with random weights looks like any other, so loading must fail by name."""
    folder = Path(shutil.copytree(specs[name], tmp_path / name))
    (file,) = folder.glob("*.safetensors")
    drop_tensor(file, tensor)
    bound = bind_encoder(str(folder))
    with pytest.raises(CheckpointError) as caught:
        bound.load()
    assert any(known in str(caught.value) for known in (named, tensor))


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("clip", "poling=cls", "Did you mean 'pooling'"),
        ("clip", "pooling=max", "pooling must be auto, cls, pooler, mean, got 'max'"),
        ("clip", "backend=cv2", "backend must be pil or torchvision"),
        ("clip", "batch_size=none", "'batch_size' must be int"),
        ("timm", "pooling=cls", "unknown parameter for the encoder timm vit_tiny_patch16_224"),
        ("open_clip", "attn_implementation=eager", "unknown parameter for the encoder open_clip"),
        ("open_clip", "dtype=half", "dtype must be auto, float32"),
        ("timm", "device=gpu", "device must be auto, cpu"),
        ("mpnet", "pooling=cls", "unknown parameter for the encoder sentence-transformers"),
        ("unicom", "revision=v2", "unknown parameter .*'revision'"),
        ("unicom", "dtype=half", "dtype must be auto"),
        ("cleanfid", "mode=clean", "unknown parameter for the encoder clean-fid"),
        ("cleanfid", "dtype=float16", "unknown parameter"),
        ("cleanfid", "batch_size=0", "batch_size must be at least 1"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    specs: dict[str, str], name: str, parameter: str, expected: str
) -> None:
    """A parameter that an adapter does not know must not be dropped in silence."""
    with pytest.raises(SpecError, match=expected):
        bind_encoder(f"{specs[name]}{'&' if '?' in specs[name] else '?'}{parameter}")


def test_binding_imports_no_library(specs: dict[str, str]) -> None:
    """A run that finds everything in the store never pays for importing torch."""
    assert imported_by_binding([*specs.values()], "encoder") == []


@pytest.mark.parametrize(
    ("name", "pickle"),
    [("open_clip", "open_clip_pytorch_model.bin"), ("timm", "pytorch_model.bin")],
)
def test_a_pickle_beside_the_safetensors_is_not_what_is_loaded(
    folders: dict[str, Path], images: list[Image.Image], tmp_path: Path, name: str, pickle: str
) -> None:
    """Both libraries prefer some pickles to some safetensors; the fingerprint vouches for the
    safetensors alone, so those are loaded or nothing is.
    """
    folder = Path(shutil.copytree(folders[name], tmp_path / name))
    (weights,) = folder.glob("*.safetensors")
    weights = weights.rename(folder / "weights.safetensors")
    (folder / pickle).write_bytes(b"never read")
    if name == "open_clip":
        with pytest.raises(CheckpointError, match=r"open_clip_pytorch_model\.bin"):
            bind_encoder(str(folder))
    else:
        vectors = load(str(folder)).encode_images(images)
        assert np.array_equal(vectors, load(str(folders[name])).encode_images(images))


def test_the_configuration_of_a_text_tower_from_elsewhere_is_part_of_the_model(
    tmp_path: Path,
) -> None:
    """open_clip builds a tower of transformers by a configuration that is not in the folder: the
    same weights embed texts otherwise under another activation.
    """
    folder = tiny.build_open_clip_with_transformers(tmp_path / "clip", tmp_path / "tower")
    first = bind_encoder(str(folder))
    before = load(str(folder)).encode_texts(["red"])
    config = tmp_path / "tower" / "config.json"
    config.write_text(config.read_text().replace('"gelu"', '"relu"'))
    second = bind_encoder(str(folder))
    assert not np.array_equal(load(str(folder)).encode_texts(["red"]), before)
    assert first.fingerprint != second.fingerprint
    config.unlink()
    with pytest.raises(CheckpointError, match="builds its text tower by"):
        bind_encoder(str(folder))


def test_a_pipeline_is_refused(tmp_path: Path) -> None:
    """Forced into the role, a pipeline says what it is and what an encoder would be."""
    folder = build_stable_diffusion(tmp_path / "stable-diffusion")
    context = BindContext(lambda path: path.name)
    with pytest.raises(RoleError, match=r"StableDiffusionPipeline.*gives no vectors"):
        bind(parse_spec(str(folder)), "encoder", context, force=True)


@pytest.mark.parametrize(
    ("files", "query", "words"),
    [
        (["a.safetensors", "b.safetensors"], "", "found a.safetensors, b.safetensors"),
        (["a.bin", "b.pth"], "?allow_pickle=true", "found a.bin, b.pth|no weights"),
    ],
)
def test_one_file_of_weights_is_timms(
    folders: dict[str, Path], tmp_path: Path, files: list[str], query: str, words: str
) -> None:
    """Of several, none of them model.safetensors, any could be the one that was trained."""
    folder = tmp_path / "timm"
    folder.mkdir()
    shutil.copy(folders["timm"] / "config.json", folder)
    (weights,) = folders["timm"].glob("*.safetensors")
    for name in files:
        shutil.copy(weights, folder / name)
    with pytest.raises(CheckpointError, match=words):
        bind_encoder(f"{folder}{query}")
    shutil.copy(weights, folder / "model.safetensors")
    assert bind_encoder(f"{folder}{query}").adapter == "timm-encoder/1"
