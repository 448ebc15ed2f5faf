"""sentence-transformers folders: the library's own vectors of texts, every file accounted for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import BindContext, bind, detect
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import CONTEXT
from tests.models.encoders.conftest import Images, bind_encoder, load
from tests.optional import needs
from tests.tiny.text_encoders import (
    DIMENSION,
    build_mpnet,
    build_sentence_transformer,
)

needs("sentence_transformers", reason="encoders need the [models] extra")

pytestmark = pytest.mark.models

TEXTS = ["two red circles", "a small green triangle at the top left", "cyan", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MPNet, mean pooling, normalisation; the plain MPNet lies beside it as mpnet-plain."""
    folder = tmp_path_factory.mktemp("sentence") / "mpnet"
    build_mpnet(folder.with_name("mpnet-plain"))
    return build_sentence_transformer(folder)


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
    vectors = load(str(folder)).encode_texts(TEXTS)
    assert vectors.shape == (4, DIMENSION)
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
        load(str(folder)).encode_images(images)


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


def test_pickled_weights_need_permission(copy: Path) -> None:
    """As everywhere: refused with the remedy, read once the spec says so."""
    import torch
    from safetensors.torch import load_file

    expected = load(str(copy)).encode_texts(TEXTS)
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        bind_encoder(str(copy))
    assert np.array_equal(load(f"{copy}?allow_pickle=true").encode_texts(TEXTS), expected)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ({"path": "", "type": "custom_code.Transformer"}, "has the module custom_code.Transformer"),
        ({"path": "9", "type": "sentence_transformers.models.Router"}, "models.Router, and only"),
        ({"path": "9", "type": "sentence_transformers_evil.Pooling"}, "has the module sentence_tr"),
    ],
)
def test_modules_of_other_kinds_are_refused(
    copy: Path, module: dict[str, str], expected: str
) -> None:
    """They could bring code; neither detection nor an insisting user gets one loaded."""
    listed = json.loads((copy / "modules.json").read_text())
    (copy / "modules.json").write_text(json.dumps([*listed, module]))
    with pytest.raises(RoleError, match=expected):
        bind_encoder(str(copy))
    with pytest.raises(RoleError, match=expected):
        bind(parse_spec(str(copy)), "encoder", CONTEXT, force=True)


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
