"""What holds for the encoders of every library: tiny checkpoints, bound and loaded as a user's.

Then the encoders as the papers use them: which vector, which pixels, which texts. At the end
folders of sentence-transformers: every file accounted for.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import BindContext, bind, detect
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import CONTEXT, imported_by_binding
from tests.models.encoders.conftest import (
    BUILDERS,
    IMAGE_ENCODERS,
    Folders,
    Images,
    bind_encoder,
    load,
    shared,
)
from tests.optional import needs
from tests.tiny import encoders as tiny
from tests.tiny.common import edit_tensors, skip_before
from tests.tiny.weights_files import UNICOM

LIBRARIES = ("open_clip", "timm", "cleanfid", "sentence_transformers")
needs(*LIBRARIES, reason="encoders need the [models] extra")

pytestmark = pytest.mark.models

DIMENSIONS = dict.fromkeys(BUILDERS, 32) | {
    "clip": 24, "open_clip": 24, "unicom": UNICOM["features"], "cleanfid": 2048,
}  # fmt: skip

DUAL = ("clip", "siglip", "open_clip")
TEXTS = ["two red circles", "a small green triangle at the top left", "cyan", ""]


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_an_image_vector_does_not_depend_on_its_batch(
    specs: dict[str, str], images: Images, name: str
) -> None:
    """Alone or among others an image has the same vector, and other images have others. A vision
    tower says that it reads no texts, and what kind of model would.
    """
    encoder = shared(specs[name])
    vectors = encoder.encode_images(images)
    assert vectors.shape == (3, DIMENSIONS[name])
    assert vectors.dtype == np.float32
    alone = np.concatenate([encoder.encode_images([image]) for image in images])
    assert np.abs(vectors - alone).max() < 1e-5 * (np.abs(alone).max() if name == "unicom" else 1)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() > 1e-3
    if name not in DUAL:
        with pytest.raises(RoleError, match=r"reads no texts.*dual encoder"):
            encoder.encode_texts(TEXTS)


@pytest.mark.parametrize("name", DUAL)
def test_texts_share_the_space_of_images_and_ignore_their_neighbours(
    folders: Folders, images: Images, name: str
) -> None:
    """One dimension for both kinds, the empty text included, and padding changes nothing."""
    encoder = shared(str(folders[name]))
    vectors = encoder.encode_texts(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, encoder.encode_images(images[:1]).shape[1])
    alone = np.concatenate([encoder.encode_texts([text]) for text in TEXTS])
    assert np.abs(vectors - alone).max() < 1e-5
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4


def test_a_missing_tensor_that_the_library_renames_is_an_error(
    folders: Folders, tmp_path: Path
) -> None:
    """As transformers 5 does while it reads a ViT: it reports the new name."""
    folder = Path(shutil.copytree(folders["vit"], tmp_path / "vit"))
    name = "encoder.layer.0.attention.attention.query.weight"
    edit_tensors(folder / "model.safetensors", lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=r"random numbers: .*(q_proj|query)\.weight"):
        load(str(folder))


@pytest.mark.parametrize("name", ["vit-without-pooler", "clip", "mpnet"])
def test_layers_that_would_be_left_out_are_an_error(
    specs: dict[str, str], tmp_path: Path, name: str
) -> None:
    """Of a config.json that counts fewer, or LoRA beside the weights, the library says nothing."""
    import torch

    folder = Path(shutil.copytree(specs[name], tmp_path / name))
    config, file = folder / "config.json", folder / "model.safetensors"
    text, content = config.read_text(), file.read_bytes()
    config.write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 1'))
    assert config.read_text() != text
    with pytest.raises(CheckpointError, match=r"would leave out layers .*layers?\.1\."):
        load(str(folder))
    config.write_text(text)
    edit_tensors(file, lambda t: t.update({f"{min(t)}.lora_A": torch.ones(2)}))
    with pytest.raises(CheckpointError, match=r"would leave out layers .*\.lora_A"):
        load(str(folder))
    file.write_bytes(content)
    load(str(folder))


def test_binding_imports_no_library(specs: dict[str, str]) -> None:
    """A run that finds everything in the store never pays for importing torch."""
    assert imported_by_binding([*specs.values()], "encoder") == []


@pytest.mark.parametrize(
    ("name", "pickle"),
    [("open_clip", "open_clip_pytorch_model.bin"), ("timm", "pytorch_model.bin")],
)
def test_a_pickle_beside_the_safetensors_is_not_what_is_loaded(
    folders: Folders, images: Images, tmp_path: Path, name: str, pickle: str
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
        # Nor may another file of safetensors be what it would prefer.
        (folder / pickle).unlink()
        shutil.copy(weights, folder / "model.safetensors")
        weights.rename(folder / "open_clip_ema.safetensors")
        with pytest.raises(CheckpointError, match=r"read model\.safetensors and not open_clip_ema"):
            bind_encoder(str(folder))
        # Nor another pickle.
        for file in ("model.safetensors", "open_clip_ema.safetensors"):
            (folder / file).unlink()
        for file in ("ema.bin", "own_pytorch_model.bin"):
            (folder / file).write_bytes(b"pickled")
        with pytest.raises(CheckpointError, match=r"read ema\.bin and not own_pytorch_model\.bin"):
            bind_encoder(f"{folder}?allow_pickle=true")
    else:
        vectors = load(str(folder)).encode_images(images)
        assert np.array_equal(vectors, shared(str(folders[name])).encode_images(images))


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


def test_one_file_of_weights_is_timms(folders: Folders, tmp_path: Path) -> None:
    """Of several, none of them model.safetensors, any could be the one that was trained."""
    (weights,) = folders["timm"].glob("*.safetensors")
    for files, query, words in (
        (["a.safetensors", "b.safetensors"], "", "found a.safetensors, b.safetensors"),
        (["a.bin", "b.pth"], "?allow_pickle=true", "found a.bin, b.pth|no weights"),
    ):
        folder = tmp_path / f"timm-{files[0]}"
        folder.mkdir()
        shutil.copy(folders["timm"] / "config.json", folder)
        for name in files:
            shutil.copy(weights, folder / name)
        with pytest.raises(CheckpointError, match=words):
            bind_encoder(f"{folder}{query}")
        shutil.copy(weights, folder / "model.safetensors")
        assert bind_encoder(f"{folder}{query}").adapter == "timm-encoder/1"


def test_a_timm_encoder_is_read_strictly_whatever_its_model_args_say(
    folders: Folders, tmp_path: Path, images: Images
) -> None:
    """Both of these have timm make up what the weights lack: with none lacking, it is the same."""
    expected = shared(str(folders["timm"])).encode_images(images)
    config = json.loads((folders["timm"] / "config.json").read_text())
    for loose in ({"num_classes": 7}, {"pretrained_strict": False}):
        folder = Path(shutil.copytree(folders["timm"], tmp_path / str(*loose)))
        arguments = {"model_args": config["model_args"] | loose}
        (folder / "config.json").write_text(json.dumps(config | arguments))
        encoder: Any = bind_encoder(str(folder)).load()
        assert np.array_equal(encoder.encode_images(images), expected)
        edit_tensors(folder / "model.safetensors", lambda tensors: tensors.pop("norm.weight"))
        with pytest.raises(CheckpointError, match=r"norm\.weight"):
            bind_encoder(str(folder)).load()


IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


@pytest.mark.parametrize(
    ("query", "resized", "interpolation"),
    [("", 35, "bicubic"), ("?crop_pct=0.875&interpolation=bilinear", 36, "bilinear")],
    ids=["timm", "SDP"],
)
def test_dino_is_its_cls_token_behind_the_stated_crop(
    folders: Folders, tmp_path: Path, images: Images, query: str, resized: int, interpolation: str
) -> None:
    """By default what the checkpoint states, as timm does for vit_base_patch16_224.dino; by
    parameters, which are in the key then, SDP's 256 to 224, here 36 to 32.
    """
    import timm
    import torch
    from safetensors.torch import load_file
    from torchvision import transforms

    dino = Path(shutil.copytree(folders["timm"], tmp_path / "dino"))
    config = json.loads((dino / "config.json").read_text())
    config["pretrained_cfg"] |= {"crop_pct": 0.9, "crop_mode": "center", **IMAGENET}
    (dino / "config.json").write_text(json.dumps(config))
    shape = config["model_args"]
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
    bound = bind_encoder(f"{dino}{query}")
    given = {"crop_pct": 0.875, "interpolation": "bilinear"} if query else {}
    assert bound.params == {"dtype": "float32", **given}
    encoder: Any = bound.load()
    assert np.abs(encoder.encode_images(images) - expected).max() < 1e-5


def test_siglip_reads_texts_padded_to_their_full_length(folders: Folders) -> None:
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
    vectors = shared(str(folder)).encode_texts(["red circle"])
    assert np.abs(vectors - full).max() < 1e-6
    assert np.abs(vectors - short).max() > 1e-4


@pytest.mark.parametrize(
    ("name", "special", "most"),
    [
        ("clip", 2, tiny.TEXT_LENGTH),
        ("siglip", 1, tiny.TEXT_LENGTH),
        ("open_clip", 2, tiny.TEXT_LENGTH),
        # SigLIP and multilingual models of open_clip bring a tokenizer of transformers.
        ("open_clip-own", 2, tiny.TEXT_LENGTH),
        ("mpnet", 2, tiny.SENTENCE_LENGTH),
    ],
)
def test_the_tokens_of_texts_are_counted_and_a_cut_is_reported_once(
    specs: dict[str, str], name: str, special: int, most: int
) -> None:
    """Cutting hides drift at a caption's end: it is reported, but not for a text that fits."""
    encoder: Any = load(specs[name])
    room = most - special
    texts = ["", "red", "red " * room, "red " * (room + 1), "red " * (room + 40)]
    lengths = [special, special + 1, special + room, special + room + 1, special + room + 40]
    assert encoder.text_lengths(texts) == (lengths, most)
    assert encoder.text_lengths([]) == ([], most)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode_texts(texts[:3])
    with pytest.warns(UserWarning, match=f"reads {most} tokens: 1 longer text"):
        encoder.encode_texts([texts[0], texts[3]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut, longer = encoder.encode_texts(texts[3:])
    assert np.abs(cut - longer).max() < 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MPNet, mean pooling, normalisation; the plain MPNet lies beside it as mpnet-plain."""
    folder = tmp_path_factory.mktemp("sentence") / "mpnet"
    tiny.build_mpnet(folder.with_name("mpnet-plain"))
    return tiny.build_sentence_transformer(folder)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(folder, tmp_path / "mpnet"))


def test_vectors_are_mean_pooled_and_normalised(folder: Path) -> None:
    """What the modules say, computed by hand on the plain model; neighbours and padding aside."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    plain = folder.with_name("mpnet-plain")
    model, tokenizer = AutoModel.from_pretrained(plain).eval(), AutoTokenizer.from_pretrained(plain)
    vectors = shared(str(folder)).encode_texts(TEXTS)
    assert vectors.shape == (4, 32)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = states.mean(dim=0)
        assert np.abs(vector - (mean / mean.norm()).numpy()).max() < 1e-5
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_detection_names_the_modules(folder: Path, images: Images) -> None:
    """modules.json goes before config.json of a text model; alone that one is refused in words."""
    detection = detect(parse_spec(str(folder)))
    assert detection.what == "sentence-transformers Transformer+Pooling+Normalize"
    assert (detection.roles, detection.because) == (("encoder",), "embeds texts")
    with pytest.raises(RoleError, match=r"reads no images.*modules\.json of sentence-transformers"):
        bind_encoder(str(folder.with_name("mpnet-plain")))
    with pytest.raises(RoleError, match=r"embeds texts only.*dual encoder"):
        shared(str(folder)).encode_images(images)


def test_the_fingerprint_covers_the_files_of_every_module(folder: Path) -> None:
    """How tokens are pooled decides a vector as much as the weights do."""
    hashed = set[str]()

    def bind_with(changed: str) -> str:
        def hash_file(path: Path) -> str:
            name = path.relative_to(folder).as_posix()
            hashed.add(name)
            return "changed" if name == changed else CONTEXT.hash_file(path)

        return bind(parse_spec(str(folder)), "encoder", BindContext(hash_file)).fingerprint

    before = bind_with("")
    assert {
        "modules.json", "model.safetensors", "config.json", "tokenizer.json",
        "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
    } <= hashed  # fmt: skip
    assert "README.md" not in hashed
    assert all(bind_with(name) != before for name in sorted(hashed))


def test_the_models_own_prompt_counts(copy: Path) -> None:
    """A default prompt goes before every text, so it takes room and changes the vector."""
    file = copy / "config_sentence_transformers.json"
    settings = json.loads(file.read_text())
    settings |= {"default_prompt_name": "query", "prompts": {"query": "two small "}}
    file.write_text(json.dumps(settings))
    encoder: Any = load(str(copy))
    assert encoder.text_lengths(["red"])[0] == [5]
    expected = encoder.encode_texts(["red"])
    file.write_text(json.dumps(settings | {"default_prompt_name": None}))
    assert np.abs(load(str(copy)).encode_texts(["two small red"]) - expected).max() < 1e-5


def test_pickled_weights_need_permission(folder: Path, copy: Path) -> None:
    """As everywhere: refused with the remedy, read once the spec says so."""
    import torch
    from safetensors.torch import load_file

    expected = shared(str(folder)).encode_texts(TEXTS)
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        bind_encoder(str(copy))
    assert np.array_equal(load(f"{copy}?allow_pickle=true").encode_texts(TEXTS), expected)


def test_modules_of_other_kinds_are_refused(copy: Path) -> None:
    """They could bring code; neither detection nor an insisting user gets one loaded."""
    listed = json.loads((copy / "modules.json").read_text())
    router = {"path": "9", "type": "sentence_transformers.models.Router"}
    (copy / "modules.json").write_text(json.dumps([*listed, router]))
    for force in (False, True):
        with pytest.raises(RoleError, match=r"models\.Router, and only"):
            bind(parse_spec(str(copy)), "encoder", CONTEXT, force=force)


def test_what_lies_elsewhere_is_refused(copy: Path) -> None:
    """A tokenizer of another folder would answer under a fingerprint that never saw it."""
    file = copy / "sentence_bert_config.json"
    whole = file.read_text()
    file.write_text(json.dumps(json.loads(whole) | {"tokenizer_name_or_path": "/elsewhere"}))
    with pytest.raises(CheckpointError, match="tokenizer_name_or_path is '/elsewhere'"):
        bind_encoder(str(copy))
    for key, name, value in (
        ("model_args", "variant", "fp16"),
        ("processor_kwargs", "tokenizer_file", "/elsewhere/tokenizer.json"),
        ("model_kwargs", "attn_implementation", "org/kernel"),
    ):
        file.write_text(json.dumps(json.loads(whole) | {key: {name: value}}))
        with pytest.raises(CheckpointError, match=f"{key} has {name}='{value}'"):
            bind_encoder(str(copy))
    file.write_text(json.dumps(json.loads(whole) | {"model_args": {"torch_dtype": "float32"}}))
    assert bind_encoder(str(copy))
    file.write_text(whole)
    (copy / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="PEFT adapter"):
        bind_encoder(str(copy))
