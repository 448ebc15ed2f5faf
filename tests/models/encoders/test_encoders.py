"""What holds for the encoders of every library: tiny checkpoints, bound and loaded as a user's.

Then the encoders as the papers use them: which vector, which pixels, which texts. Folders of
sentence-transformers: every file accounted for. At the end transformers' own: which vector is an
image's, and what a checkpoint without one says.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import BindContext, bind, detect
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.encoders.transformers_encoder import pool
from pytest_cepbench.models.encoders.vectors import to_vectors
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import CONTEXT
from tests.models.encoders.conftest import (
    BUILDERS,
    FOLDERS,
    IMAGE_ENCODERS,
    IMAGES,
    bind_encoder,
    load,
    shared,
)
from tests.optional import needs
from tests.tiny import encoders as tiny
from tests.tiny.common import edit_json, edit_tensors, skip_before
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
def test_an_image_vector_does_not_depend_on_its_batch(specs: dict[str, str], name: str) -> None:
    """Alone or among others an image has the same vector, and other images have others. A vision
    tower says that it reads no texts, and what kind of model would.
    """
    encoder = shared(specs[name])
    vectors = encoder.encode_images(IMAGES)
    assert vectors.shape == (3, DIMENSIONS[name])
    assert vectors.dtype == np.float32
    alone = np.concatenate([encoder.encode_images([image]) for image in IMAGES])
    assert np.abs(vectors - alone).max() < 1e-5 * (np.abs(alone).max() if name == "unicom" else 1)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() > 1e-3
    if name not in DUAL:
        with pytest.raises(RoleError, match=r"reads no texts.*dual encoder"):
            encoder.encode_texts(TEXTS)


@pytest.mark.parametrize("name", DUAL)
def test_texts_share_the_space_of_images_and_ignore_their_neighbours(name: str) -> None:
    """One dimension for both kinds, the empty text included, and padding changes nothing."""
    encoder = shared(str(FOLDERS[name]))
    vectors = encoder.encode_texts(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, encoder.encode_images(IMAGES[:1]).shape[1])
    alone = np.concatenate([encoder.encode_texts([text]) for text in TEXTS])
    assert np.abs(vectors - alone).max() < 1e-5
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4


def test_a_missing_tensor_that_the_library_renames_is_an_error(tmp_path: Path) -> None:
    """As transformers 5 does while it reads a ViT: it reports the new name."""
    folder = Path(shutil.copytree(FOLDERS["vit"], tmp_path / "vit"))
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


BINDING = """
import sys
from pytest_cepbench.models.binding import BindContext, bind, detect
from pytest_cepbench.models.spec import parse_spec
for text in sys.argv[1:]:
    detect(parse_spec(text))
    assert bind(parse_spec(text), "encoder", BindContext(lambda path: path.name)).fingerprint
heavy = (
    "torch", "torchvision", "transformers", "diffusers", "open_clip", "timm", "cleanfid", "scipy",
    "sentence_transformers", "safetensors", "huggingface_hub",
)
print(*(name for name in heavy if name in sys.modules))
"""


def test_binding_imports_no_library(specs: dict[str, str]) -> None:
    """A run that finds everything in the store never pays for importing torch."""
    command = [sys.executable, "-c", BINDING, *specs.values()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_a_pickle_beside_the_safetensors_is_not_what_is_loaded(tmp_path: Path) -> None:
    """Timm and open_clip prefer some pickles to some safetensors; the fingerprint vouches for the
    safetensors alone, so those are loaded or nothing is.
    """
    timm, folder = (
        Path(shutil.copytree(FOLDERS[name], tmp_path / name)) for name in ("timm", "open_clip")
    )
    (timm / "model.safetensors").rename(timm / "weights.safetensors")
    (timm / "pytorch_model.bin").write_bytes(b"never read")
    vectors = load(str(timm)).encode_images(IMAGES)
    assert np.array_equal(vectors, shared(str(FOLDERS["timm"])).encode_images(IMAGES))
    (weights,) = folder.glob("*.safetensors")
    pickle = folder / "open_clip_pytorch_model.bin"
    pickle.write_bytes(b"never read")
    weights = weights.rename(folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"open_clip_pytorch_model\.bin"):
        bind_encoder(str(folder))
    # Nor may another file of safetensors be what it would prefer.
    pickle.unlink()
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


def test_one_file_of_weights_is_timms(tmp_path: Path) -> None:
    """Of several, none of them model.safetensors, any could be the one that was trained."""
    (weights,) = FOLDERS["timm"].glob("*.safetensors")
    for files, query, words in (
        (["a.safetensors", "b.safetensors"], "", "found a.safetensors, b.safetensors"),
        (["a.bin", "b.pth"], "?allow_pickle=true", "found a.bin, b.pth|no weights"),
    ):
        folder = tmp_path / f"timm-{files[0]}"
        folder.mkdir()
        shutil.copy(FOLDERS["timm"] / "config.json", folder)
        for name in files:
            shutil.copy(weights, folder / name)
        with pytest.raises(CheckpointError, match=words):
            bind_encoder(f"{folder}{query}")
        shutil.copy(weights, folder / "model.safetensors")
        assert bind_encoder(f"{folder}{query}").adapter == "timm-encoder/1"


def test_a_timm_encoder_is_read_strictly_whatever_its_model_args_say(tmp_path: Path) -> None:
    """Both of these have timm make up what the weights lack: with none lacking, it is the same."""
    expected = shared(str(FOLDERS["timm"])).encode_images(IMAGES)
    config = json.loads((FOLDERS["timm"] / "config.json").read_text())
    for loose in ({"num_classes": 7}, {"pretrained_strict": False}):
        folder = Path(shutil.copytree(FOLDERS["timm"], tmp_path / str(*loose)))
        edit_json(folder / "config.json", model_args=config["model_args"] | loose)
        encoder: Any = bind_encoder(str(folder)).load()
        assert np.array_equal(encoder.encode_images(IMAGES), expected)
        edit_tensors(folder, lambda tensors: tensors.pop("norm.weight"))
        with pytest.raises(CheckpointError, match=r"norm\.weight"):
            bind_encoder(str(folder)).load()


IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


@pytest.mark.parametrize(
    ("query", "resized", "interpolation"),
    [("", 35, "bicubic"), ("?crop_pct=0.875&interpolation=bilinear", 36, "bilinear")],
    ids=["timm", "SDP"],
)
def test_dino_is_its_cls_token_behind_the_stated_crop(
    tmp_path: Path, query: str, resized: int, interpolation: str
) -> None:
    """By default what the checkpoint states, as timm does for vit_base_patch16_224.dino; by
    parameters, which are in the key then, SDP's 256 to 224, here 36 to 32.
    """
    import timm
    import torch
    from safetensors.torch import load_file
    from torchvision import transforms

    dino = Path(shutil.copytree(FOLDERS["timm"], tmp_path / "dino"))
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
        pixels = torch.stack([transform(image) for image in IMAGES])
        expected = model.forward_features(pixels)[:, 0].numpy()
    bound = bind_encoder(f"{dino}{query}")
    given = {"crop_pct": 0.875, "interpolation": "bilinear"} if query else {}
    assert bound.params == {"dtype": "float32", **given}
    encoder: Any = bound.load()
    assert np.abs(encoder.encode_images(IMAGES) - expected).max() < 1e-5


def test_siglip_reads_texts_padded_to_their_full_length() -> None:
    """SigLIP is trained so; a shorter padding gives other vectors."""
    skip_before("an output that has more than features", "transformers", "5.0")
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = FOLDERS["siglip"]
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


def test_modules_are_named_and_covered(folder: Path) -> None:
    """modules.json goes before config.json of a text model; alone that one is refused in words. How
    tokens are pooled decides a vector as much as the weights do, so each module's files are
    covered.
    """
    detection = detect(parse_spec(str(folder)))
    assert detection.what == "sentence-transformers Transformer+Pooling+Normalize"
    assert (detection.roles, detection.because) == (("encoder",), "embeds texts")
    with pytest.raises(RoleError, match=r"reads no images.*modules\.json of sentence-transformers"):
        bind_encoder(str(folder.with_name("mpnet-plain")))
    with pytest.raises(RoleError, match=r"embeds texts only.*dual encoder"):
        shared(str(folder)).encode_images(IMAGES)

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
    edit_json(file, default_prompt_name="query", prompts={"query": "two small "})
    encoder: Any = load(str(copy))
    assert encoder.text_lengths(["red"])[0] == [5]
    expected = encoder.encode_texts(["red"])
    edit_json(file, default_prompt_name=None)
    assert np.abs(load(str(copy)).encode_texts(["two small red"]) - expected).max() < 1e-5


def test_other_modules_and_what_lies_elsewhere_are_refused(copy: Path) -> None:
    """Modules of other kinds could bring code, and neither detection nor an insisting user gets one
    loaded. A tokenizer of another folder would answer under a fingerprint that never saw it.
    """
    modules = (copy / "modules.json").read_text()
    router = {"path": "9", "type": "sentence_transformers.models.Router"}
    (copy / "modules.json").write_text(json.dumps([*json.loads(modules), router]))
    for force in (False, True):
        with pytest.raises(RoleError, match=r"models\.Router, and only"):
            bind(parse_spec(str(copy)), "encoder", CONTEXT, force=force)

    (copy / "modules.json").write_text(modules)
    file = copy / "sentence_bert_config.json"
    whole = file.read_text()
    edit_json(file, tokenizer_name_or_path="/elsewhere")
    with pytest.raises(CheckpointError, match="tokenizer_name_or_path is '/elsewhere'"):
        bind_encoder(str(copy))
    for key, name, value in (
        ("model_args", "variant", "fp16"),
        ("processor_kwargs", "tokenizer_file", "/elsewhere/tokenizer.json"),
        ("model_kwargs", "attn_implementation", "org/kernel"),
    ):
        file.write_text(whole)
        edit_json(file, **{key: {name: value}})
        with pytest.raises(CheckpointError, match=f"{key} has {name}='{value}'"):
            bind_encoder(str(copy))
    file.write_text(whole)
    edit_json(file, model_args={"torch_dtype": "float32"})
    assert bind_encoder(str(copy))
    file.write_text(whole)
    (copy / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="PEFT adapter"):
        bind_encoder(str(copy))


# -- encoders of transformers: which vector is an image's ------------------------------------------


def test_pooling_is_what_the_model_computes() -> None:
    """CLS, pooler and mean are those of the model run by hand on its own processor's pixels.
    Without pooler weights "auto" is the CLS token, and asking for the pooler is an error; so is
    asking for a CLS token where the first patch is none.
    """
    import torch
    from transformers import AutoImageProcessor, ViTModel

    folder = FOLDERS["vit"]
    model = ViTModel.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.inference_mode():
        output = model(**processor(images=IMAGES, return_tensors="pt"))
    expected = {
        "auto": output.pooler_output,
        "pooler": output.pooler_output,
        "cls": output.last_hidden_state[:, 0],
        "mean": output.last_hidden_state.mean(dim=1),
    }
    for pooling, reference in expected.items():
        bound = bind_encoder(f"{folder}?pooling={pooling}")
        assert bound.params == {"dtype": "float32", "pooling": pooling, "backend": "pil"}
        model_vectors = load(f"{folder}?pooling={pooling}").encode_images(IMAGES)
        assert np.abs(model_vectors - reference.numpy()).max() < 1e-6, pooling

    folder = FOLDERS["vit-without-pooler"]
    by_default = shared(str(folder)).encode_images(IMAGES)
    cls = load(f"{folder}?pooling=cls").encode_images(IMAGES)
    assert np.array_equal(by_default, cls)
    bound = bind_encoder(f"{folder}?pooling=pooler")
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight"):
        bound.load()

    skip_before("an output that has more than features", "transformers", "5.0")
    for name in ("siglip", "convnext"):
        bound = bind_encoder(f"{FOLDERS[name]}?pooling=cls")
        with pytest.raises(SpecError, match=r"no CLS token.*pooling=mean"):
            bound.load()
        assert load(f"{FOLDERS[name]}?pooling=mean").encode_images(IMAGES).shape == (3, 32)


def test_attention_and_precision_are_part_of_the_identity() -> None:
    """Both change the numbers a little, so neither may share stored results with the default."""
    text = f"{FOLDERS['vit']}?attn_implementation=eager&dtype=bfloat16&backend=torchvision"
    bound = bind_encoder(text)
    assert bound.params == {
        "dtype": "bfloat16",
        "pooling": "auto",
        "backend": "torchvision",
        "attn_implementation": "eager",
    }
    assert not bound.seeded
    half = load(text).encode_images(IMAGES)
    full = shared(str(FOLDERS["vit"])).encode_images(IMAGES)
    assert half.dtype == np.float32
    assert 0 < np.abs(half - full).max() < 0.1


def test_a_text_tower_without_tokenizer_is_explained(tmp_path: Path) -> None:
    """Images can be embedded without a tokenizer; texts cannot. The library would go on with a
    vocabulary of three tokens, in which all texts of one length are the same.
    """
    skip_before("a tokenizer that makes do without a vocabulary", "transformers", "5.0")
    folder = Path(shutil.copytree(FOLDERS["clip"], tmp_path / "clip"))
    for file in folder.glob("tokenizer*"):
        file.unlink()
    encoder = load(str(folder))
    assert encoder.encode_images(IMAGES).shape == (3, 24)
    with pytest.raises(CheckpointError, match=r"no vocabulary"):
        encoder.encode_texts(["red"])


def test_a_saved_image_tower_keeps_its_projection(tmp_path: Path) -> None:
    """A CLIP's vision tower saved with its projection gives the CLIP's own joint-space features."""
    import torch
    from transformers import AutoImageProcessor, CLIPVisionModelWithProjection

    folder = tmp_path / "tower"
    model = CLIPVisionModelWithProjection.from_pretrained(
        FOLDERS["clip"], projection_dim=tiny.JOINT_DIMENSION
    )
    model.save_pretrained(folder)
    AutoImageProcessor.from_pretrained(FOLDERS["clip"]).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "clip_vision_model"
    # Layers of the text tower are none of its own, however many there are.
    deep = {"text_model.encoder.layers.7.mlp.fc1.bias": torch.ones(2)}
    edit_tensors(folder / "model.safetensors", lambda tensors: tensors.update(deep))
    tower = load(str(folder)).encode_images(IMAGES)
    assert np.abs(tower - shared(str(FOLDERS["clip"])).encode_images(IMAGES)).max() < 1e-5


CHECKPOINT = Checkpoint(
    "NovelModel", ("encoder",), path=Path("step-8"), kind="transformers", config={}
)


def test_only_one_vector_per_input_is_taken() -> None:
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
            pool(CHECKPOINT, shared(str(FOLDERS[name])).model, output, pooling)
