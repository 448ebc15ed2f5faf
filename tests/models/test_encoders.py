"""Encoders: tiny vision towers and dual encoders, bound and loaded as a user's would be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models import BindContext, BoundRole, Encoder, bind, parse_spec
from tests.tiny import encoders as tiny
from tests.tiny.generators import build_stable_diffusion, drop_tensor

pytest.importorskip("torch", reason="encoders need the [models] extra")
pytest.importorskip("transformers", reason="encoders need the [models] extra")
pytest.importorskip("open_clip", reason="encoders need the [models] extra")
pytest.importorskip("timm", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models

LAB = Path(__file__).parents[3] / "shared" / "lab" / "checkpoints"

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

DIMENSIONS = dict.fromkeys(BUILDERS, 32) | {"clip": 24, "open_clip": 24}

DUAL = ("clip", "siglip", "open_clip")
TEXTS = ["two red circles", "a small green triangle at the top left", "cyan", ""]


def bind_encoder(text: str) -> BoundRole:
    """Bind as the plugin does, every file hashed."""
    context = BindContext(lambda path: sha256(path.read_bytes()).hexdigest(), threads=1)
    return bind(parse_spec(text), "encoder", context)


def load(text: str) -> Encoder:
    """Bind and load."""
    model = bind_encoder(text).load()
    assert isinstance(model, Encoder)
    return model


def cosine(left: npt.NDArray[np.floating], right: npt.NDArray[np.floating]) -> float:
    """Cosine similarity of two vectors."""
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny checkpoint of each kind."""
    root = tmp_path_factory.mktemp("encoders")
    return {name: build(root / name) for name, build in BUILDERS.items()}


@pytest.fixture(scope="session")
def images() -> list[Image.Image]:
    """Three noise images of different sizes and shapes."""
    random = np.random.default_rng(5)
    sizes = [(40, 52), (64, 33), (32, 32)]
    return [Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]


@pytest.mark.parametrize("name", BUILDERS)
def test_an_image_vector_does_not_depend_on_its_batch(
    folders: dict[str, Path], images: list[Image.Image], name: str
) -> None:
    """Alone or among others an image has the same vector, and other images have others."""
    encoder = load(str(folders[name]))
    vectors = encoder.encode_images(images)
    assert vectors.shape == (3, DIMENSIONS[name])
    assert vectors.dtype == np.float32
    alone = np.concatenate([encoder.encode_images([image]) for image in images])
    assert np.abs(vectors - alone).max() < 1e-5
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


@pytest.mark.parametrize("name", sorted(set(BUILDERS) - set(DUAL)))
def test_a_vision_tower_refuses_texts(folders: dict[str, Path], name: str) -> None:
    """The message says that this model reads no texts and what kind would."""
    with pytest.raises(RoleError, match="dual encoder"):
        load(str(folders[name])).encode_texts(TEXTS)


@pytest.mark.parametrize("name", DUAL)
def test_a_text_that_is_cut_is_reported_once(folders: dict[str, Path], name: str) -> None:
    """Cutting hides drift at the end of a caption: it is said, and a text that fits is not blamed."""
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


def test_pooling_is_what_the_model_computes(
    folders: dict[str, Path], images: list[Image.Image]
) -> None:
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


def test_a_missing_pooler_is_never_made_up(
    folders: dict[str, Path], images: list[Image.Image]
) -> None:
    """Without pooler weights "auto" is the CLS token, and asking for the pooler is an error."""
    folder = folders["vit-without-pooler"]
    by_default = load(str(folder)).encode_images(images)
    cls = load(f"{folder}?pooling=cls").encode_images(images)
    assert np.array_equal(by_default, cls)
    bound = bind_encoder(f"{folder}?pooling=pooler")
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight"):
        bound.load()


@pytest.mark.parametrize(
    ("name", "tensor", "named"),
    [
        # transformers renames the tensor while it reads it, and reports the new name.
        ("vit", "encoder.layer.0.attention.attention.query.weight", "attention.q_proj.weight"),
        ("clip", "visual_projection.weight", "visual_projection.weight"),
        ("open_clip", "visual.ln_post.weight", "visual.ln_post.weight"),
        ("timm-classifier", "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight"),
    ],
)
def test_a_missing_tensor_is_an_error_and_not_a_random_one(
    folders: dict[str, Path], tmp_path: Path, name: str, tensor: str, named: str
) -> None:
    """A measurement with random weights looks like any other, so loading must fail by name."""
    folder = Path(shutil.copytree(folders[name], tmp_path / name))
    (file,) = folder.glob("*.safetensors")
    drop_tensor(file, tensor)
    bound = bind_encoder(str(folder))
    with pytest.raises(CheckpointError) as caught:
        bound.load()
    assert named in str(caught.value)


@pytest.mark.parametrize("name", ["siglip", "convnext"])
def test_a_model_without_cls_token_refuses_cls_and_offers_the_mean(
    folders: dict[str, Path], images: list[Image.Image], name: str
) -> None:
    """The first patch of a SigLIP is no summary of an image."""
    bound = bind_encoder(f"{folders[name]}?pooling=cls")
    with pytest.raises(SpecError, match=r"no CLS token.*pooling=mean"):
        bound.load()
    assert load(f"{folders[name]}?pooling=mean").encode_images(images).shape == (3, 32)


def test_nan_features_are_returned_as_they_are(
    folders: dict[str, Path], images: list[Image.Image], tmp_path: Path
) -> None:
    """The engine counts NaN vectors as failures, so an encoder must neither hide nor raise them."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(folders["clip"], tmp_path / "clip"))
    tensors = load_file(folder / "model.safetensors")
    tensors["visual_projection.weight"][0] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    vectors = load(str(folder)).encode_images(images)
    assert np.isnan(vectors).any(axis=1).all()


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("clip", "poling=cls", "Did you mean 'pooling'"),
        ("clip", "pooling=max", "pooling must be auto, cls, pooler, mean, got 'max'"),
        ("clip", "backend=cv2", "backend must be pil, torchvision"),
        ("clip", "batch_size=none", "'batch_size' must be int"),
        ("timm", "pooling=cls", "unknown parameter for the encoder timm vit_tiny_patch16_224"),
        ("open_clip", "attn_implementation=eager", "unknown parameter for the encoder open_clip"),
        ("open_clip", "dtype=half", "dtype must be auto, float32"),
        ("timm", "device=gpu", "device must be auto, cpu"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    folders: dict[str, Path], name: str, parameter: str, expected: str
) -> None:
    """A parameter that an adapter does not know must not be dropped in silence."""
    with pytest.raises(SpecError, match=expected):
        bind_encoder(f"{folders[name]}?{parameter}")


def test_attention_and_precision_are_part_of_the_identity(
    folders: dict[str, Path], images: list[Image.Image]
) -> None:
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
    full = load(str(folders["vit"])).encode_images(images)
    assert half.dtype == np.float32
    assert 0 < np.abs(half - full).max() < 0.1


@pytest.mark.parametrize("name", ["clip", "timm", "open_clip"])
def test_binding_imports_no_torch(folders: dict[str, Path], name: str) -> None:
    """A run that finds everything in the store never pays for importing torch."""
    code = (
        "import sys; from pytest_cepbench.models import BindContext, bind, parse_spec; "
        "bind(parse_spec(sys.argv[1]), 'encoder', BindContext(lambda path: 'ab')); "
        "assert not {'torch', 'transformers', 'open_clip', 'timm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folders[name])], check=True)


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


def test_a_text_tower_without_tokenizer_is_explained(
    folders: dict[str, Path], images: list[Image.Image], tmp_path: Path
) -> None:
    """Images can be embedded without a tokenizer; texts cannot. The library would go on with a
    vocabulary of three tokens, in which all texts of one length are the same.
    """
    folder = Path(shutil.copytree(folders["clip"], tmp_path / "clip"))
    for file in folder.glob("tokenizer*"):
        file.unlink()
    encoder = load(str(folder))
    assert encoder.encode_images(images).shape == (3, 24)
    with pytest.raises(CheckpointError, match=r"no vocabulary"):
        encoder.encode_texts(["red"])


def test_a_pipeline_is_refused(tmp_path: Path) -> None:
    """Forced into the role, a pipeline says what it is and what an encoder would be."""
    folder = build_stable_diffusion(tmp_path / "stable-diffusion")
    context = BindContext(lambda path: path.name)
    with pytest.raises(RoleError, match=r"StableDiffusionPipeline.*gives no vectors"):
        bind(parse_spec(str(folder)), "encoder", context, force=True)


def test_a_saved_image_tower_keeps_its_projection(
    folders: dict[str, Path], images: list[Image.Image], tmp_path: Path
) -> None:
    """A CLIP's vision tower saved with its projection gives the CLIP's own joint-space features."""
    from transformers import AutoImageProcessor, CLIPVisionModelWithProjection

    folder = tmp_path / "tower"
    model = CLIPVisionModelWithProjection.from_pretrained(
        folders["clip"], projection_dim=tiny.JOINT_DIMENSION
    )
    model.save_pretrained(folder)
    AutoImageProcessor.from_pretrained(folders["clip"]).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "clip_vision_model"
    tower = load(str(folder)).encode_images(images)
    assert np.abs(tower - load(str(folders["clip"])).encode_images(images)).max() < 1e-5


def test_a_trained_clip_tells_captions_apart() -> None:
    """The small trained CLIP finds the drawn scene's caption among ones with a single change."""
    if not (LAB / "clip").is_dir() or not (LAB / "generator-step2000").is_dir():
        pytest.skip("the trained checkpoints of ../shared/lab are not here")
    from pytest_cepbench.models import Generator

    captions = [
        "one shape : large red square middle center",
        "one shape : large blue square middle center",
        "two shapes : small red circle middle left , large blue square bottom right",
        "two shapes : small red circle middle left , large blue square top right",
    ]
    spec = f"{LAB / 'generator-step2000'}?num_inference_steps=8&guidance_scale=1&height=64&width=64"
    context = BindContext(lambda path: path.name, threads=1)
    generator = bind(parse_spec(spec), "generator", context).load()
    assert isinstance(generator, Generator)
    drawn = [np.asarray(image) for image in generator.generate(captions, [1, 2, 3, 4])]
    pictures = [Image.fromarray(np.rint(pixels * 255).astype(np.uint8)) for pixels in drawn]
    encoder = load(str(LAB / "clip"))
    seen, read = encoder.encode_images(pictures), encoder.encode_texts(captions)
    similarities = np.array([[cosine(image, text) for text in read] for image in seen])
    assert (similarities.argmax(axis=1) == np.arange(4)).all()
