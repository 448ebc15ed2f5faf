"""Loaded weights and tokenizers, and what goes wrong in loading: refused, warned of, or ignored.

At the end quantized checkpoints: loaded by their libraries, and explained where that cannot be.
"""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains import CallCounts
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, MissingDependencyError
from pytest_cepbench.models.binding import weights_bytes
from pytest_cepbench.models.checkpoints import loading
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.loaded_checks import (
    TruncationNotice,
    check_image_token,
    check_tokens,
    check_vocabulary,
    cut_off,
    embedded_tokens,
    media_tokens,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import explained
from pytest_cepbench.models.protocols import RoleName, VqaQuestion
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import bind_text, plain
from tests.models.files import LLAVA, LOADED, write_checkpoint
from tests.tiny import describers, detectors, encoders, generators, unified
from tests.tiny.common import JUDGE_WORDS, edit_json, edit_tensors, pictures

torch = pytest.importorskip("torch", reason="loaded weights need the [models] extra")

pytestmark = pytest.mark.models

CHECKPOINT = Checkpoint("LlavaModel", (), path=Path("step-8"), kind="transformers", config={})


def module(**parameters: Any) -> Any:
    """A module that holds these tensors as parameters, and one healthy layer."""
    made = torch.nn.Module()
    made.layer = torch.nn.Linear(2, 2)
    for name, tensor in parameters.items():
        made.register_parameter(name, torch.nn.Parameter(tensor))
    return made


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_number_that_is_none_is_refused_by_name(value: float, dtype: Any) -> None:
    """One NaN of millions spoils every answer that it reaches."""
    broken = torch.ones(3, 3, dtype=dtype)
    broken[1, 2] = value
    with pytest.raises(CheckpointError, match=r"LlavaModel holds NaN .* unet\.weight \(\w*float"):
        take_weights(CHECKPOINT, {"vae": module(), "unet": module(weight=broken)})


def test_masks_may_hold_infinity_and_no_nan() -> None:
    """A mask's minus infinity is meant; NaN never is."""
    masked = module()
    masked.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    take_weights(CHECKPOINT, {"": masked})
    masked.register_buffer("mean", torch.tensor([torch.nan]))
    with pytest.raises(CheckpointError, match=r"in mean \(float32\)"):
        take_weights(CHECKPOINT, {"": masked})


def test_a_matrix_of_zeros_is_told_and_loads() -> None:
    """Some layers begin with zeros, so it is no error; a reader has to know of it."""
    with pytest.warns(UserWarning, match=r"^step-8: zero throughout: weight\. A layer may"):
        take_weights(CHECKPOINT, {"": module(weight=torch.zeros(4, 4))})


def test_layers_that_a_model_is_published_with_and_leaves_out_are_none_that_lack() -> None:
    """DeepSeek's 62nd predicts several tokens at once, for engines that serve it."""
    from transformers import DeepseekV3Config, DeepseekV3Model

    with torch.device("meta"):
        model = DeepseekV3Model(DeepseekV3Config(num_hidden_layers=1))
    names = [f"model.layers.{number}.input_layernorm.weight" for number in (0, 1, 61)]
    assert cut_off(model, names) == names[1:2]


@pytest.mark.parametrize("name", [name for name, kind in LOADED.items() if kind[2]])
def test_every_adapter_refuses_a_tensor_of_nan_and_one_that_is_missing(
    name: str, tmp_path: Path
) -> None:
    """Whatever library loads the weights, and in whichever part of a model they are: it would go on
    with random numbers in the place of the latter, which measure like any other.
    """
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported
    from safetensors.torch import load_file

    from pytest_cepbench.models.torch_runtime import quiet

    role, build, tensor = LOADED[name]
    with quiet():
        folder = build(tmp_path / name)
    part, _, inner = tensor.partition(".") if name == "generator" else (".", "", tensor)
    (file,) = (folder / part).glob("*.safetensors")
    spoilt = next(key for key in sorted(load_file(file)) if key.endswith(inner))
    edit_tensors(file, lambda tensors: tensors[spoilt].view(-1)[-1].fill_(torch.nan))
    with pytest.raises(CheckpointError, match=inner.rpartition(".")[0]):
        bind_text(str(folder), role).load()
    edit_tensors(file, lambda tensors: tensors.pop(spoilt))
    with pytest.raises(CheckpointError, match=inner.rpartition(".")[0]):
        bind_text(str(folder), role).load()


# -- tokenizers, without a checkpoint --

FOLDER = Path("checkpoints/step-8")


def knows(rows: int, added: int = 0) -> Any:
    """A model whose embedding table has that many rows. added: rows of a table of added tokens."""
    from transformers import GPT2Config, GPT2Model
    from transformers.models.idefics.modeling_idefics import IdeficsDecoupledEmbedding

    sizes = {"n_embd": 2, "n_layer": 1, "n_head": 1, "n_positions": 1}
    tokens = {"bos_token_id": None, "eos_token_id": None}
    model = GPT2Model(GPT2Config(vocab_size=rows, **sizes, **tokens))
    if added:
        model.set_input_embeddings(IdeficsDecoupledEmbedding(rows, added, 2))
    return model


def has(*ids: int, **named: int) -> Any:
    """A tokenizer with tokens of these ids. named: other tokens, by name."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"<{i}>": i for i in ids} | {f"<{name}>": i for name, i in named.items()}
    words = models.WordLevel(vocabulary, unk_token=min(vocabulary))
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))


def test_tokens_that_the_weights_do_not_know_are_refused() -> None:
    """The last row is known, the next one is not; the message names the first token beyond."""
    check_tokens(FOLDER, has(0, 9), knows(10))
    check_tokens(FOLDER, has(0, 10), knows(10), apart={10})  # as several models' image token
    assert embedded_tokens(knows(10, added=2)) == 12  # Idefics has a table of added tokens
    with pytest.raises(CheckpointError, match=r"the token '<10>' at 10, and .* know 10 tokens"):
        check_tokens(FOLDER, has(0, 9, 10), knows(10))
    with pytest.raises(CheckpointError, match="'<10>' at 10 and 2 more"):
        check_tokens(FOLDER, has(12, 11, 10), knows(10))
    # Networks that do not say may know any token: transformers raises, torch has no such method.
    from transformers import ConvNextConfig, ConvNextModel

    backbone = ConvNextModel(ConvNextConfig(hidden_sizes=[2], depths=[1], num_stages=1))
    for network in (backbone, torch.nn.Linear(1, 1)):
        assert embedded_tokens(network) is None
        check_tokens(FOLDER, has(10**6), network)


def test_a_tokenizer_without_its_files_is_refused(tmp_path: Path) -> None:
    """Transformers 5 makes one that makes nothing of any text; 4 says what it lacks."""
    from transformers import AutoTokenizer

    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    with pytest.raises(CheckpointError, match="no vocabulary for LlamaTokenizer"):
        check_vocabulary(tmp_path, "LlamaTokenizer")
    (tmp_path / "vocab.json").write_text("{}")
    check_vocabulary(tmp_path, "LlamaTokenizer")
    lacking = r"knows </s>, <s>, <unk> and no other tokens|model_file or model_proto must be"
    with pytest.raises((CheckpointError, ValueError), match=lacking):
        check_tokens(FOLDER, AutoTokenizer.from_pretrained(tmp_path), knows(10))


def test_cut_texts_are_warned_of_once() -> None:
    """A text of as many tokens as are read is not cut."""
    notice = TruncationNotice("CLIPModel")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notice.check([3, 77], 77)
    with pytest.warns(UserWarning, match=r"CLIPModel reads 77 tokens: 2 longer text\(s\)"):
        notice.check([78, 77, 90], 77)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notice.check([78], 77)


def test_processor_and_model_agree_on_the_images_token() -> None:
    """Another token leaves the image no place, or that of a word; who names none is not judged."""
    from transformers import CLIPImageProcessor, LlavaProcessor, PretrainedConfig

    images = CLIPImageProcessor()
    processor = LlavaProcessor(image_processor=images, tokenizer=has(image=7))
    check_image_token(FOLDER, images, PretrainedConfig(image_token_id=7))
    for config in ({"image_token_id": 7}, {}):
        check_image_token(FOLDER, processor, PretrainedConfig(**config))
    for name in ("image_token_id", "image_token_index"):
        with pytest.raises(CheckpointError, match=r"with token 7, and .* says 8"):
            check_image_token(FOLDER, processor, PretrainedConfig(**{name: 8}))
    others = {"vision_start_token_id": 6, "video_token_index": 7, "image_size": 336}
    assert media_tokens(PretrainedConfig(image_token_id=5, audio_token_id=None, **others)) == {
        5, 6, 7,
    }  # fmt: skip


# -- errors in words, models that are divided ------------------------------------------------------


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


ASKED: dict[RoleName, Callable[[Any], Any]] = {
    "describer": lambda model: plain(model.describe(pictures(), "describe the image", [0, 1, 2])),
    "vqa": lambda model: plain(
        model.answer(pictures()[:1], [[VqaQuestion("is it red ?", ("Yes",))]])
    ),
    "encoder": lambda model: model.encode_images(pictures()),
    "detector": lambda model: repr(plain(model.detect(pictures()[:1], [["a circle"]]))),
    "generator": lambda model: np.asarray(model.generate(["a red circle"], [0])[0]),
}


@pytest.mark.parametrize(
    ("build", "role"),
    [
        (describers.build_qwen2_vl, "describer"),
        (partial(describers.build_llava, words=[*JUDGE_WORDS, "Yes", "No"]), "vqa"),
        (encoders.build_clip, "encoder"),
        (partial(detectors.build_owl, version=2), "detector"),
        (unified.build_janus, "generator"),
        (generators.build_sdxl, "generator"),
    ],
    ids=["describer", "vqa", "encoder", "detector", "unified", "pipeline"],
)
def test_answers_are_read_by_their_names(
    build: Callable[[Path], Path], role: RoleName, tmp_path: Path
) -> None:
    """A config.json may ask for tuples, and a generation_config.json for the scores as well."""
    folder, ask = build(tmp_path / "m"), ASKED[role]
    short = "num_inference_steps=1" if (folder / "model_index.json").exists() else ""
    spec = f"{folder}?{'max_new_tokens=6' if role == 'describer' else short}"
    expected = ask(bind_text(spec, role).load())
    for config in folder.rglob("config.json"):
        config.write_text(json.dumps(_as_tuples(json.loads(config.read_text()))))
    edit_json(folder / "generation_config.json", return_dict_in_generate=True)
    np.testing.assert_array_equal(ask(bind_text(spec, role).load()), expected)


def embed_texts(model: Any) -> Any:
    """The vectors of two texts."""
    return model.encode_texts(["two red circles", "cyan"])


@pytest.mark.parametrize(
    ("name", "query", "ask", "file"),
    [
        ("describer", "max_new_tokens=6", ASKED["describer"], "pytorch_model.bin"),
        ("generator", "num_inference_steps=1", ASKED["generator"],
         "unet/diffusion_pytorch_model.bin"),
        ("sentences", "batch_size=2", embed_texts, "pytorch_model.bin"),
    ],
    ids=["describer", "generator", "sentences"],
)  # fmt: skip
def test_pickled_weights_are_read_only_where_that_is_allowed(
    name: str, query: str, ask: Callable[[Any], Any], file: str, tmp_path: Path
) -> None:
    """They answer as the safetensors that they were made of; tensors are allowed, not programs."""
    from safetensors.torch import load_file

    role, build, _ = LOADED[name]
    folder = build(tmp_path / name)
    spec, pickled = f"{folder}?{query}", folder / file
    expected = ask(bind_text(spec, role).load())
    (weights,) = pickled.parent.glob("*.safetensors")
    torch.save(load_file(weights), pickled)
    weights.unlink()
    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        bind_text(spec, role)
    allowed = f"{spec}&allow_pickle=true"
    np.testing.assert_array_equal(ask(bind_text(allowed, role).load()), expected)

    class Program:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    pickled.write_bytes(pickle.dumps({"w": Program()}))
    with pytest.raises(CheckpointError, match="could not be loaded"):
        bind_text(allowed, role).load()
    assert not (tmp_path / "ran").exists()


IMAGES = [Image.new("RGB", (32, 32), color) for color in ("red", "blue")]

DIVIDED = "device_map=auto&device=cpu"


def test_a_map_changes_no_key(tmp_path: Path) -> None:
    """Where the parts of a model lie changes none of its answers."""
    pytest.importorskip("accelerate")
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
    pytest.importorskip("accelerate")
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


# -- quantized checkpoints, by their libraries -----------------------------------------------------


METHODS = ("bitsandbytes 8 bit", "bitsandbytes 4 bit", "torchao")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA whose layers are wide enough for blocks of 64 numbers."""
    return describers.build_llava(tmp_path_factory.mktemp("whole") / "llava", width=64)


def save_quantized(folder: Path, whole: Path, method: str) -> Path:
    """A copy of a checkpoint whose weights a library has quantized and saved."""
    import transformers

    from pytest_cepbench.models.torch_runtime import quiet

    if method == "torchao":
        quantization = pytest.importorskip("torchao.quantization")
        config = transformers.TorchAoConfig(quantization.Int8WeightOnlyConfig())
    else:
        pytest.importorskip("bitsandbytes")
        config = transformers.BitsAndBytesConfig(
            load_in_8bit="8 bit" in method, load_in_4bit="4 bit" in method
        )
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            whole, quantization_config=config, device_map={"": "cpu"}
        )
        shutil.copytree(whole, folder)
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder)
    return folder


def describe_quantized(folder: Path) -> tuple[Any, list[Any]]:
    """A loaded describer and what it says of three pictures."""
    loaded: Any = bind_text(f"{folder}?max_new_tokens=6", "describer").load()
    return loaded, list(loaded.describe(pictures(), "describe the image", [0, 1, 2]))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_quantized_weights_stay_packed(method: str, whole: Path, tmp_path: Path) -> None:
    """They are loaded as they are stored, their files may be overwritten, and they describe."""
    folder = save_quantized(tmp_path / "quantized", whole, method)
    estimate = weights_bytes(parse_spec(str(folder)), "cpu")
    assert estimate is not None
    assert estimate < (whole / "model.safetensors").stat().st_size / 2

    loaded, texts = describe_quantized(folder)
    (folder / "model.safetensors").write_bytes(bytes((folder / "model.safetensors").stat().st_size))
    assert list(loaded.describe(pictures(), "describe the image", [0, 1, 2])) == texts
    assert any(texts)
    weight = loaded.loaded.model.model.language_model.layers[0].self_attn.q_proj.weight
    packed = getattr(weight, "qdata", weight)
    assert packed.dtype in (torch.int8, torch.uint8)


@pytest.mark.slow
def test_broken_scales_are_found(whole: Path, tmp_path: Path) -> None:
    """NaN among the scales of quantized weights is NaN among the weights."""

    def spoil(tensors: dict[str, Any]) -> None:
        tensors[min(n for n in tensors if "q_proj" in n and "scale" in n)].fill_(float("nan"))

    folder = save_quantized(tmp_path / "quantized", whole, "torchao")
    edit_tensors(folder / "model.safetensors", spoil)
    with pytest.raises(CheckpointError, match=r"NaN or infinite values in .*q_proj"):
        describe_quantized(folder)


@pytest.mark.slow
def test_an_adapter_works_beside_a_quantized_base(whole: Path, tmp_path: Path) -> None:
    """As it was trained (QLoRA): the weights of the base stay packed and unchanged."""
    pytest.importorskip("peft", reason="adapters need the [models] extra")
    from tests.tiny.adapters import build_lora

    base = save_quantized(tmp_path / "quantized", whole, "bitsandbytes 8 bit")
    adapter = build_lora(tmp_path / "adapter", whole)
    edit_json(adapter / "adapter_config.json", base_model_name_or_path=str(base))

    bound = bind_text(str(adapter), "describer")
    assert any("which is quantized" in remark for remark in bound.remarks)
    loaded, texts = describe_quantized(adapter)
    assert texts != describe_quantized(base)[1]
    layer = loaded.loaded.model.model.language_model.layers[0].self_attn.q_proj
    assert layer.base_layer.weight.dtype.itemsize == 1
    assert not layer.merged
