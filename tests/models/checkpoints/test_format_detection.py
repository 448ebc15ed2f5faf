"""Roles are told from a checkpoint's configuration, by rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint import stored_precision
from pytest_cepbench.models.checkpoints.checkpoint_files import readable_files
from pytest_cepbench.models.checkpoints.parameters import SourceOptions
from tests.models.binding import bind_text
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    VIT,
    inspect,
    write_checkpoint,
    write_pipeline,
)
from tests.tiny import describers as tiny_describers
from tests.tiny import detectors as tiny_detectors
from tests.tiny import encoders as tiny_encoders
from tests.tiny import unified as tiny_unified

MODEL = "architectures"


def config_of(architecture: str, model_type: str = "", **rest: Any) -> dict[str, Any]:
    """A config.json as far as the rules look at it."""
    named = {MODEL: [architecture]} if architecture else {}
    return named | ({"model_type": model_type} if model_type else {}) | rest


ROLES: dict[str, list[dict[str, Any]]] = {
    "describer": [
        config_of("BlipForConditionalGeneration", "blip", vision_config={}),
        config_of("VisionEncoderDecoderModel", "vision-encoder-decoder"),
        config_of("Pix2StructForConditionalGeneration", "pix2struct"),
        config_of("", "blip", vision_config={}),
        config_of("", "vision-encoder-decoder"),
        config_of("WhisperForConditionalGeneration", num_mel_bins=80, decoder_layers=4),
        config_of("MoonshineForConditionalGeneration", "moonshine"),
    ],
    "describer writer": [
        LLAVA,
        config_of("ChameleonForConditionalGeneration", "chameleon", vq_config={}),
        config_of("", "blip-2", vision_config={}),
        config_of("", "qwen2_vl", vision_config={}, image_token_id=1),
        config_of("Gemma3nForConditionalGeneration", vision_config={}, audio_config={})
        | {"image_token_id": 1},
    ],
    "describer generator writer interleaver": [
        config_of(f"{name}ForConditionalGeneration", name.lower(), vq_config={})
        for name in ("Janus", "Emu3")
    ],
    "encoder": [
        config_of("CLIPModel", "clip", vision_config={}, text_config={}),
        config_of("BlipModel", "blip", vision_config={}, text_config={}),
        VIT,
        config_of("", "siglip", vision_config={}, text_config={}),
        config_of("", "vit_mae", num_channels=3, patch_size=8),
        config_of("Dinov2ForImageClassification", "dinov2"),
        config_of("NovelViTModel", "novel", num_channels=3, patch_size=4),
        config_of("ClapModel", "clap", audio_config={}),
        config_of("ASTForAudioClassification", num_mel_bins=128, patch_size=16),
        config_of("HubertModel", "hubert", num_feat_extract_layers=7),
        config_of("WavLMForCTC", "wavlm", num_feat_extract_layers=7),
        config_of("NovelForCTC", "novel_ctc"),
        {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {}},
    ],
    "generator": [
        config_of("BarkModel", "bark"),
        config_of("VitsModel", vocab_size=38, sampling_rate=16000, upsample_rates=[8, 8, 2, 2]),
        config_of("MusicgenForConditionalGeneration", text_encoder={}, audio_encoder={})
        | {"decoder": {}},
    ],
    "detector": [
        config_of("", "yolos", num_channels=3, patch_size=8),
        config_of("", "mask2former"),
        config_of("Owlv2ForObjectDetection", "owlv2", vision_config={}, text_config={}),
        config_of("Mask2FormerForUniversalSegmentation", "mask2former"),
        config_of("DetrForObjectDetection", "detr", num_channels=3),
    ],
}


@pytest.mark.parametrize(
    ("config", "roles"),
    [(config, roles) for roles, configs in ROLES.items() for config in configs],
    ids=lambda value: value if isinstance(value, str) else str(value.get(MODEL, ["timm"])[0]),
)
def test_config_json_tells_the_role(tmp_path: Path, config: dict[str, Any], roles: str) -> None:
    """An architecture, even one that no list names, is recognised by the shape of its config."""
    detection = inspect(write_checkpoint(tmp_path / "m", config))
    assert detection.roles == tuple(roles.split())
    assert detection.unified is roles.startswith("describer generator")


@pytest.mark.parametrize(
    "build",
    [
        tiny_describers.build_llava,
        tiny_unified.build_janus,
        tiny_encoders.build_clip,
        tiny_encoders.build_dinov2,
        partial(tiny_detectors.build_owl, version=2),
        *(
            pytest.param(build, marks=pytest.mark.slow)
            for build in (
                *(b for b in tiny_describers.BUILDERS.values() if b.__name__ != "build_llava"),
                tiny_unified.build_emu3,
                tiny_encoders.build_siglip,
                tiny_encoders.build_vit_mae,
                tiny_detectors.build_yolos,
                tiny_detectors.build_mask2former,
            )
        ),
    ],
    ids=lambda build: getattr(build, "__name__", "build_owl"),
)
@pytest.mark.models
def test_a_model_type_tells_the_role_where_nothing_else_does(
    build: Callable[[Path], Path], tmp_path: Path
) -> None:
    """`config.save_pretrained` writes no architectures."""
    folder = build(tmp_path / "m")
    roles = inspect(folder).roles
    config = json.loads((folder / "config.json").read_text())
    del config[MODEL]
    (folder / "config.json").write_text(json.dumps(config))
    assert inspect(folder).roles == roles != ()
    bind_text(str(folder), roles[0]).load()


@pytest.mark.parametrize(
    ("config", "because"),
    [
        (config_of("LlamaForCausalLM", "llama", vocab_size=9), "reads no images"),
        (config_of("T5ForConditionalGeneration", "t5"), "reads no images"),
        (config_of("JanusForCausalLM", "janus_text_model"), "reads no images"),
        (config_of("Emu3ForCausalLM", "emu3_text_model"), "reads no images"),
        (config_of("DPTForDepthEstimation", "dpt", num_channels=3), "depths"),
        (config_of("SegformerForSemanticSegmentation", "segformer"), "masks"),
        (
            config_of("GroundingDinoForObjectDetection", "grounding-dino", text_config={}),
            "phrases of one text",
        ),
        (
            config_of("ClapForTagging", "clap", audio_config={}),
            "reads sounds, but no rule recognises what it gives",
        ),
        (config_of("SpeechT5ForTextToSpeech", num_mel_bins=80), "a voice that it is shown"),
        (
            config_of("CsmForConditionalGeneration", "csm", audio_token_id=1),
            "a voice that it is shown",
        ),
        (
            config_of("NovelForTagging", "novel", vision_config={}),
            "reads images, but no rule recognises what it gives",
        ),
        (
            config_of(
                "Qwen3VLModel", "qwen3_vl", vision_config={}, text_config={}, image_token_id=1
            ),
            "an image has several vectors",
        ),
        (
            config_of("GlmImageForConditionalGeneration", "glm_image", visual={}),
            "makes image tokens that a second model decodes",
        ),
    ],
)
def test_models_of_other_kinds_get_no_role_and_a_reason(
    tmp_path: Path, config: dict[str, Any], because: str
) -> None:
    """A model that no role fits must not be taken for one, and the reason must be in words."""
    detection = inspect(write_checkpoint(tmp_path / "m", config))
    assert detection.roles == ()
    assert because in detection.because


PIPELINES: dict[str, str] = {
    "StableDiffusion Flux": "generator editor",
    "PixArtSigma SomethingNew Cosmos2TextToImage": "generator",
    "StableDiffusionImg2Img StableDiffusionInstructPix2Pix QwenImageEditPlus": "editor",
    "Kandinsky5I2I": "editor",
    "QwenImageEditInpaint StableDiffusionDiffEdit AudioLDM Kandinsky5T2V": "",
    "MarigoldDepth FluxControlNet": "",
}


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        (f"{name}Pipeline", tuple(roles.split()))
        for names, roles in PIPELINES.items()
        for name in names.split()
    ],
)
def test_model_index_tells_text_to_image_from_the_rest(
    tmp_path: Path, name: str, roles: tuple[str, ...]
) -> None:
    """One that reads a text draws, one that reads an image too edits; others want more."""
    folder = write_pipeline(tmp_path / "p", STABLE_DIFFUSION | {"_class_name": name})
    detection = inspect(folder)
    assert (detection.kind, detection.what, detection.roles) == ("diffusers", name, roles)


def test_a_pipeline_without_text_encoder_is_no_generator(tmp_path: Path) -> None:
    """An unconditional pipeline cannot draw a text, whatever its name."""
    index = {k: v for k, v in STABLE_DIFFUSION.items() if k not in ("text_encoder", "tokenizer")}
    detection = inspect(write_pipeline(tmp_path / "p", index))
    assert (detection.roles, detection.unified) == ((), False)
    assert "no text encoder" in detection.because


@pytest.mark.parametrize(
    ("index", "config", "where"),
    [
        ("config.json", {"model_type": ["clip"]}, "model_type"),
        ("config.json", {"model_type": "clip", "architectures": "CLIPModel"}, "architectures"),
        ("config.json", {"architecture": "vit", "pretrained_cfg": 3}, "pretrained_cfg"),
        ("open_clip_config.json", {"model_cfg": {"text_cfg": "bert"}}, r"model_cfg\.text_cfg"),
    ],
)
def test_a_configuration_of_other_types_is_named(
    tmp_path: Path, index: str, config: dict[str, Any], where: str
) -> None:
    """By the entry; of a checkpoint's own code it may be anything else."""
    folder = write_checkpoint(tmp_path / "m", config, index=index)
    with pytest.raises(CheckpointError, match=rf"{index}: not as .*\$\.{where}"):
        inspect(folder)
    inspect(write_checkpoint(tmp_path / "own", LLAVA | {"model_cfg": "large", "model_args": 3}))


MPNET = {"architectures": ["MPNetModel"], "model_type": "mpnet", "vocab_size": 9}
CLIP = {"architectures": ["CLIPModel"], "model_type": "clip", "vision_config": {}}

# The names of releases before 6.0, which most published models still state.
MODULES = [
    {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for i, (path, kind) in enumerate(
        (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    )
]


def write_modules(folder: Path, modules: Any = MODULES) -> Path:
    """A modules.json in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return folder


def test_which_index_decides(tmp_path: Path) -> None:
    """A text model's config.json alone says that no role fits; modules.json says how its tokens are
    pooled. A model that sees and also carries modules.json is read as one, images included, and one
    that carries both formats as open_clip, which it is named after.
    """
    folder = write_checkpoint(tmp_path / "m", {**MPNET, "dtype": "float16"})
    assert inspect(folder).roles == ()
    checkpoint = inspect(write_modules(folder))
    assert (checkpoint.kind, checkpoint.roles) == ("sentence_transformers", ("encoder",))
    assert stored_precision(checkpoint)["dtype"] == "float16"

    for config, role in ((CLIP, "encoder"), (LLAVA, "describer")):
        checkpoint = inspect(write_modules(write_checkpoint(tmp_path / "m", config)))
        assert (checkpoint.kind, checkpoint.roles[:1]) == ("transformers", (role,))

    write_checkpoint(folder, {"model_cfg": {}}, None, index="open_clip_config.json")
    checkpoint = inspect(folder)
    assert (checkpoint.kind, checkpoint.roles) == ("open_clip", ("encoder",))


def test_a_model_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    """Old releases put the transformer into 0_Transformer; then the root holds no config.json."""
    modules = [MODULES[0] | {"path": "0_Transformer"}, MODULES[1]]
    folder = write_modules(tmp_path / "m", modules)
    with pytest.raises(CheckpointError, match="names a component '0_Transformer'"):
        inspect(folder)
    write_checkpoint(folder / "0_Transformer", {**MPNET, "dtype": "float16"}, None)
    with pytest.raises(CheckpointError, match="0_Transformer: no weights"):
        inspect(folder)
    write_checkpoint(folder / "0_Transformer", {**MPNET, "dtype": "float16"})
    assert inspect(folder).roles == ("encoder",)
    assert stored_precision(inspect(folder))["dtype"] == "float16"
    write_checkpoint(folder / "0_Transformer", {}, None, index="adapter_config.json")
    with pytest.raises(CheckpointError, match="0_Transformer: a PEFT adapter"):
        inspect(folder)


@pytest.mark.parametrize(
    ("modules", "because"),
    [
        ([*MODULES, {"path": "3", "type": "sentence_transformers.models.Dense"}], "models.Dense"),
        ([{"path": "", "type": "jina.custom.Transformer"}], "has the module jina.custom"),
        ([*MODULES, {"path": "3", "type": "sentence_transformers_evil.Pooling"}], "rs_evil.Pool"),
        (MODULES[:1], "has no module Pooling"),
        (MODULES[1:], "begins with the module sentence_transformers.models.Pooling"),
    ],
)
def test_other_modules_get_no_role_and_a_reason(
    tmp_path: Path, modules: list[dict[str, Any]], because: str
) -> None:
    """The first one that is not read must be named."""
    folder = write_modules(write_checkpoint(tmp_path / "m", MPNET), modules)
    (folder / "1_Pooling").mkdir()
    checkpoint = inspect(folder)
    assert checkpoint.roles == ()
    assert because in checkpoint.because


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({}, "expected a JSON list"),
        ([], "expected a JSON list"),
        ([{"path": ""}], "each with a path and a type"),
        ([MODULES[0] | {"path": "../other"}], "leads out of the checkpoint"),
        ([MODULES[0] | {"path": "/etc"}], "leads out of the checkpoint"),
        ([MODULES[0] | {"path": "..\\other"}], "leads out of the checkpoint"),
    ],
)
def test_a_wrong_list_of_modules_is_named(tmp_path: Path, modules: Any, expected: str) -> None:
    """A list that is none, or that reaches for another folder's files."""
    with pytest.raises(CheckpointError, match=rf"modules\.json: .*{expected}"):
        inspect(write_modules(tmp_path / "m", modules))


def test_of_a_published_repository_only_the_modules_files_count() -> None:
    """The layout of all-mpnet-base-v2: exports for other runtimes and training scripts stay."""
    left = {
        ".gitattributes", "README.md", "pytorch_model.bin", "train_script.py", "onnx/model.onnx",
        "openvino/openvino_model.bin", "openvino/openvino_model.xml",
    }  # fmt: skip
    read = {
        "1_Pooling/config.json", "config.json", "config_sentence_transformers.json",
        "data_config.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
        "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    }  # fmt: skip
    config = {"modules": MODULES}
    assert set(readable_files(read | left, "sentence_transformers", config)) == read
    names = read | left
    names.remove("model.safetensors")
    pickled = readable_files(
        names, "sentence_transformers", config, SourceOptions(allow_pickle=True)
    )
    assert "pytorch_model.bin" in pickled
    assert "pytorch_model.bin" not in readable_files(names, "sentence_transformers", config)
