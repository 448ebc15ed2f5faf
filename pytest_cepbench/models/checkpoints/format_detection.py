"""What a folder is, and which roles it can play, by rule, from the JSON files that describe it.

Rules rather than a list of architectures: new ones appear weekly, and they keep to the same few
shapes. Where no rule fits, no role is claimed, and the user can say which one to try.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import msgspec

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.files import parse_json, read_text
from pytest_cepbench.models.binding import DetectedModel
from pytest_cepbench.models.protocols import READS, UNIFIED_ROLES, RoleName, is_unified

CheckpointKind = Literal[
    "transformers", "diffusers", "open_clip", "timm", "sentence_transformers", "weights_file"
]


_OTHER_PIPELINES = {
    "makes video": (
        "Video", "Animat", "Wan", "LTX", "Mochi", "Allegro", "Latte", "ChronoEdit", "I2V", "T2V",
        "World", "SkyReels", "Helios", "AnyFlow", "Cosmos2_5", "PIA", "LucyEdit",
    ),
    "makes audio": ("AceStep", "Audio", "Music"),
    "makes three-dimensional shapes": ("ShapE",),
    "makes or decodes embeddings": ("Prior", "Decoder"),
    "writes text": ("LLaDA",),
    "needs a mask, a depth, a control image or an inversion beside the text": (
        "Depth2Img", "Inpaint", "Fill", "DiffEdit", "LEdits", "Control", "Adapter",
    ),
    "enlarges, varies, refines or takes apart an image that it is given": (
        "Upscal", "SuperResolution", "Variation", "Refiner", "Layered", "Marigold",
    ),
}  # fmt: skip
"""What the names of pipelines hold that have a text encoder and yet need, or make, something else
than text and an image."""

_EDITING = ("Img2Img", "Image2Image", "I2I", "Edit", "Pix2Pix")
"""In the names of pipelines that take an image and a text and give an image."""

_REDRAWING = {
    "Flux2KleinPipeline", "Flux2Pipeline", "FluxKontextPipeline", "FluxPipeline",
    "Kandinsky3Pipeline", "KolorsPipeline", "LatentConsistencyModelPipeline", "QwenImagePipeline",
    "StableDiffusion3Pipeline", "StableDiffusionPipeline", "StableDiffusionXLPipeline",
    "ZImagePipeline",
}  # fmt: skip
"""Text-to-image pipelines that start from an image too, or whose components do in another class."""

_VISION_KEYS = (
    "vision_config", "vision_tower", "mm_vision_tower", "visual", "vq_config", "image_token_id",
    "image_token_index", "img_processor",
)  # fmt: skip

_TEXT_KEYS = {"image_token_id", "image_token_index", "mm_vision_tower", "visual", "vq_config"}
"""Those of them that only models which write text have."""

# Text-writing models with a vision part that their config does not show by any of `_VISION_KEYS`.
_IMAGE_TO_TEXT_TYPES = {
    "blip", "blip-2", "florence2", "fuyu", "git", "idefics", "kosmos-2", "mllama",
    "pix2struct", "qwen_vl", "udop", "vision-encoder-decoder",
}  # fmt: skip

# Those of them that know captions alone: they would write on after a question, or never see it.
_CAPTIONERS = {"blip", "git", "pix2struct", "vision-encoder-decoder"}

_WRITES_TEXT = (
    "ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "ForVision2Seq", "ForChat",
    "ChatModel", "ForImageTextToText", "VisionText2Text", "VisionEncoderDecoderModel",
)  # fmt: skip

# Those of transformers' image-to-text models that also decode images out of their tokens. A
# codebook alone says nothing: Chameleon's has no decoder.
_UNIFIED_TYPES = {"emu3", "janus"}

_DUAL_ENCODERS = {
    "align", "altclip", "blip_retrieval", "chinese_clip", "clip", "flava", "groupvit", "metaclip_2",
    "siglip", "siglip2", "tipsv2", "vision-text-dual-encoder", "aimv2",
}  # fmt: skip

_VISION_TYPES = {
    "aimv2_vision_model", "beit", "bit", "clip_vision_model", "convnext", "convnextv2", "cvt",
    "data2vec-vision", "deit", "dinat", "dinov2", "dinov2_with_registers", "dinov3_convnext",
    "dinov3_vit", "efficientformer", "efficientnet", "focalnet", "hgnet_v2", "hiera", "ijepa",
    "levit", "metaclip_2_vision_model", "mlcd", "mlcd_vision_model", "mobilenet_v1", "mobilenet_v2",
    "mobilevit", "mobilevitv2", "pixio", "poolformer", "pvt", "pvt_v2", "regnet", "resnet",
    "siglip2_vision_model", "siglip_vision_model", "swiftformer", "swin", "swinv2", "timm_wrapper",
    "tipsv2_vision_model", "van", "vit", "vit_hybrid", "vit_mae", "vit_msn",
}  # fmt: skip

# Detectors that ground the phrases of one running text, not a list of queries.
_GROUNDED = {"grounding-dino", "mm-grounding-dino", "omdet-turbo"}

_DETECTORS = {
    "conditional_detr", "d_fine", "dab-detr", "deformable_detr", "detr", "mask2former", "owlv2",
    "owlvit", "rt_detr", "rt_detr_v2", "table-transformer", "yolos",
}  # fmt: skip

# Heads over a vision backbone whose outputs are boxes, masks or depth, not a vector of the image.
_DENSE_HEADS = ("ForObjectDetection", "Segmentation", "ForDepthEstimation", "ForImageMatting")

_SOUND_KEYS = {
    "audio_config", "audio_token_id", "audio_token_index", "feature_projection_input_dim",
    "input_feat_per_channel", "num_feat_extract_layers", "num_mel_bins",
}  # fmt: skip
"""In the configurations of models that read sounds."""

# Those whose configuration shows it by none of `_SOUND_KEYS`.
_SOUND_TYPES = {
    "canary", "cohere_asr", "kyutai_speech_to_text", "moonshine", "moonshine_streaming",
    "speech-encoder-decoder",
}  # fmt: skip

_WRITES_SPEECH_DOWN = (*_WRITES_TEXT, "ForSpeechToText", "SpeechEncoderDecoderModel")

_EMBEDS_SOUNDS = (
    "Model", "ForPreTraining", "ForSequenceClassification", "ForAudioClassification",
    "ForAudioFrameClassification", "ForXVector", "WithProjection", "ForCTC",
)  # fmt: skip

# They speak as a part of a conversation, or with a voice that is shown to them.
_SPEAKS_OTHERWISE = {
    "csm", "dia", "gradium_phonon_tts", "higgs_audio_v2", "pocket_tts", "qwen2_5_omni",
    "qwen3_omni_moe", "vibevoice",
}  # fmt: skip

# Modules of sentence-transformers that are read. Others bring code or weights of their own, or read
# other things than texts.
_SENTENCE_MODULES = ("Transformer", "Pooling", "Normalize")


Detected = tuple[str, tuple[RoleName, ...], str]
"""What it is, the roles it can play, and why, as the first fields of a `DetectedModel`."""


def detect_model(kind: CheckpointKind, config: Mapping[str, Any]) -> DetectedModel:
    """What a checkpoint is and can do, from its parsed configuration."""
    roles: tuple[RoleName, ...] = ("encoder",)
    reads, makes_sounds = READS, False
    if kind == "diffusers":
        what, roles, because = _detect_pipeline(config)
    elif kind == "open_clip":
        what, because = "open_clip model", "embeds images and texts"
    elif kind == "timm":
        what, because = f"timm {config['architecture']}", "embeds images"
    elif kind == "sentence_transformers":
        names = [module["type"].rpartition(".")[2] for module in config["modules"]]
        fault = modules_fault(config)
        what, because = f"sentence-transformers {'+'.join(names)}", fault or "embeds texts"
        roles = () if fault else roles
    else:
        what, roles, because = _detect_transformers(config)
        makes_sounds = _makes_sounds(config)
        if makes_sounds or _reads_sounds(config):
            sees: set[Modality] = {"image"} if _shows_vision(config) else set()
            reads = frozenset({"text", "sound", *sees})
    makes: Modality = "sound" if makes_sounds else "image"
    return DetectedModel(what, roles, because, is_unified(roles), reads, makes)


def _shows_vision(config: Mapping[str, Any]) -> bool:
    return any(key in config for key in _VISION_KEYS)


def architecture_of(config: Mapping[str, Any]) -> str:
    """The first class that a configuration names; empty where it names none."""
    return str((config.get("architectures") or [""])[0])


def _reads_sounds(config: Mapping[str, Any]) -> bool:
    named = config.get("model_type") in _SOUND_TYPES or architecture_of(config).endswith("ForCTC")
    return named or not _SOUND_KEYS.isdisjoint(config)


def _makes_sounds(config: Mapping[str, Any]) -> bool:
    architecture = architecture_of(config)
    if architecture.endswith(("ForTextToWaveform", "WithHifiGan", "BarkModel")):
        return True
    # VITS and its like end in the layers of a vocoder, MusicGen in the decoder of a codec.
    waves = {"vocab_size", "sampling_rate", "upsample_rates"} <= config.keys()
    waves = waves and not architecture.endswith(_WRITES_SPEECH_DOWN)
    return waves or {"text_encoder", "audio_encoder", "decoder"} <= config.keys()


def _detect_sounds(what: str, config: Mapping[str, Any]) -> Detected | None:
    """Of a model that reads or makes sounds and sees no images; None for any other."""
    architecture = architecture_of(config)
    if architecture.endswith("ForTextToSpeech") or config.get("model_type") in _SPEAKS_OTHERWISE:
        return what, (), "speaks with a voice that it is shown, for which there is no adapter"
    if _makes_sounds(config):
        return what, ("generator",), "makes sounds of texts"
    if not _reads_sounds(config) or _shows_vision(config):
        return None
    writes = architecture.endswith(_WRITES_SPEECH_DOWN)
    embeds = architecture.endswith(_EMBEDS_SOUNDS) and "decoder_layers" not in config
    if writes:
        roles: tuple[RoleName, ...] = ("describer", "encoder") if embeds else ("describer",)
        return what, roles, "writes down what it hears"
    if embeds:
        return what, ("encoder",), "embeds sounds"
    return what, (), "reads sounds, but no rule recognises what it gives"


def _detect_pipeline(config: Mapping[str, Any]) -> Detected:
    named = config.get("_class_name")
    # Custom pipelines store [module, class].
    name = str(named[-1] if isinstance(named, list) and named else named)
    for because, words in _OTHER_PIPELINES.items():
        if any(word in name for word in words):
            return name, (), because
    if not any(
        part.startswith("text_encoder") or part in ("tokenizer", "prior_tokenizer")
        for part, value in config.items()
        if isinstance(value, list) and value[:1] != [None]
    ):
        return name, (), "has no text encoder, so it cannot draw a text"
    if any(word in name for word in _EDITING):
        return name, ("editor",), "changes an image as a text says"
    if name in _REDRAWING:
        return name, ("generator", "editor"), "draws texts, also over an image"
    return name, ("generator",), "draws texts"


def _detect_transformers(config: Mapping[str, Any]) -> Detected:
    model_type = str(config.get("model_type") or "")
    architecture = architecture_of(config)
    what = architecture or f"model type {model_type!r}"
    if (sounds := _detect_sounds(what, config)) is not None:
        return sounds
    # A configuration that names no architecture is that of what its type is made for.
    named = any(head in architecture for head in _DENSE_HEADS)
    if named or (not architecture and model_type in _DETECTORS | _GROUNDED):
        if model_type in _GROUNDED:
            return what, (), "finds boxes for phrases of one text, which no adapter asks for"
        if model_type in ("owlv2", "owlvit"):
            return what, ("detector",), "finds boxes for texts"
        if model_type == "mask2former" or "ForObjectDetection" in architecture or not architecture:
            return what, ("detector",), "finds objects of its classes"
        return what, (), "finds masks or depths, not one vector for an image"
    if model_type in _IMAGE_TO_TEXT_TYPES or _shows_vision(config):
        return _detect_multimodal(what, architecture, model_type, config)
    pixels = "num_channels" in config and ("image_size" in config or "patch_size" in config)
    pixels = pixels and not {"vocab_size", "num_frames", "text_config"} & set(config)
    if model_type in _VISION_TYPES or pixels:
        return what, ("encoder",), "embeds images"
    because = "is of a kind that no rule recognises"
    if architecture.endswith(_WRITES_TEXT):
        because = "reads no images (its configuration has no vision part)"
    elif "vocab_size" in config:
        because = (
            "reads no images (its configuration has no vision part), and as an encoder of texts it "
            "would need the modules.json of sentence-transformers, which says how tokens are pooled"
        )
    return what, (), because


def _detect_multimodal(
    what: str, architecture: str, model_type: str, config: Mapping[str, Any]
) -> Detected:
    if model_type == "glm_image":
        because = "makes image tokens that a second model decodes: give the pipeline of both"
        return what, (), because
    by_type = model_type in _IMAGE_TO_TEXT_TYPES or not _TEXT_KEYS.isdisjoint(config)
    if architecture.endswith(_WRITES_TEXT) or (not architecture and by_type):
        if model_type in _UNIFIED_TYPES and "vq_config" in config:
            roles: tuple[RoleName, ...] = (*UNIFIED_ROLES, "writer", "interleaver")
            return what, roles, "reads images, writes text and draws"
        roles = ("describer",) if model_type in _CAPTIONERS else ("describer", "writer")
        return what, roles, "reads images and writes text"
    if architecture.endswith("Model") and not _TEXT_KEYS.isdisjoint(config):
        return what, (), "is a model that writes without what writes: an image has several vectors"
    both = "vision_config" in config and "text_config" in config
    embeds = architecture.endswith(("Model", "ForImageTextRetrieval", "WithProjection"))
    if model_type in _DUAL_ENCODERS or model_type in _VISION_TYPES or (both and embeds):
        return what, ("encoder",), "embeds images"
    return what, (), "reads images, but no rule recognises what it gives"


def modules_fault(config: Mapping[str, Any]) -> str | None:
    """Why a sentence-transformers model of these modules is not read, completing "it ..."; None
    where it is.
    """
    types = [module["type"] for module in config["modules"]]
    for name in types:
        package, _, last = name.rpartition(".")
        if not f"{package}.".startswith("sentence_transformers.") or last not in _SENTENCE_MODULES:
            return f"has the module {name}, and only {', '.join(_SENTENCE_MODULES)} are read"
    if not types[0].endswith(".Transformer"):
        return f"begins with the module {types[0]} and not with a Transformer"
    if not any(name.endswith(".Pooling") for name in types):
        return "has no module Pooling, so its vectors are those of tokens and not of texts"
    return None


_MOST_CONFIG = 256 * 2**20  # bytes of a configuration or an index; the largest are of some MB


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError naming the file when it holds none."""
    value = _parse(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


class _Module(msgspec.Struct):
    path: str
    type: str


_MODULES = Annotated[list[_Module], msgspec.Meta(min_length=1)]
"""The modules in a sentence-transformers modules.json, in order."""


class _Towers(msgspec.Struct):
    vision_cfg: dict[str, Any] | None = None
    text_cfg: dict[str, Any] | None = None


class _OpenClip(msgspec.Struct):
    model_cfg: _Towers | None = None


class _Transformers(msgspec.Struct):
    model_type: str | None = None
    architectures: list[str] | None = None


class _Timm(msgspec.Struct):
    pretrained_cfg: dict[str, Any]
    model_args: dict[str, Any] | None = None


_READ: Mapping[CheckpointKind, type[msgspec.Struct]] = {
    "open_clip": _OpenClip, "transformers": _Transformers, "timm": _Timm,
}  # fmt: skip
"""What is read of a configuration here and by its adapter."""


def _parse(path: Path) -> Any:
    try:
        return parse_json(read_text(path, _MOST_CONFIG))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not readable as JSON ({error}). Was it written completely?"
        ) from error


_CONFIGURATIONS = ("model_index.json", "open_clip_config.json", "config.json")
"""The files that say what a checkpoint is, in order of precedence."""

INDEXES = (*_CONFIGURATIONS, "modules.json")
"""The files by which a folder is known as a checkpoint."""


def identify(folder: Path) -> tuple[CheckpointKind, Mapping[str, Any]]:
    """The kind of the checkpoint that a folder is, and its configuration.

    Raises CheckpointError where it is none.
    """
    index = next((name for name in _CONFIGURATIONS if (folder / name).is_file()), None)
    listed = (folder / "modules.json").is_file()
    if index is None and not listed:
        names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
        inner = [name for name in names if holds_model(folder / name)]
        # The hub's cache of a repository.
        inner = inner or [str(path.relative_to(folder)) for path in folder.glob("snapshots/*/")]
        hint = f" Did you mean {folder / inner[-1]}?" if inner else ""
        raise CheckpointError(
            f"{folder}: no checkpoint. Expected one of {', '.join(INDEXES)}; the folder holds "
            f"{few_of(names, 12) or 'nothing'}.{hint}"
        )
    if index is not None:
        config = read_json(folder / index)
        kind: CheckpointKind = "transformers"
        if index == "model_index.json":
            kind = "diffusers"
        elif index == "open_clip_config.json":
            kind = "open_clip"
        elif "model_type" not in config and {"architecture", "pretrained_cfg"} <= config.keys():
            kind = "timm"
        elif "model_type" not in config and "architectures" not in config:
            raise CheckpointError(
                f"{folder / index}: neither model_type nor architecture is given (found "
                f"{few_of(config, 8) or 'nothing'}). If this is one component of a pipeline, give "
                "the pipeline's folder"
            )
        try:
            msgspec.convert(config, _READ.get(kind, msgspec.Struct))
        except msgspec.ValidationError as error:
            raise CheckpointError(f"{folder / index}: not as {kind} writes it ({error})") from error
        # Dual encoders that also carry modules.json read images only the other way.
        if not listed or detect_model(kind, config).roles:
            return kind, config
    path = folder / "modules.json"
    try:
        modules = msgspec.convert(_parse(path), _MODULES)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"{path}: expected a JSON list of modules, each with a path and a type ({error})"
        ) from error
    for module in modules:
        place = PurePosixPath(module.path)
        if place.is_absolute() or ".." in place.parts or "\\" in module.path:
            raise CheckpointError(
                f"{path}: the module path {module.path!r} leads out of the checkpoint"
            )
    return "sentence_transformers", {"modules": [msgspec.structs.asdict(m) for m in modules]}


_PICKLED = re.compile(r"(pytorch_|open_clip_)?model(?!_fsdp|_world_size).*\.(bin|pt|pth)")


def holds_model(folder: Path) -> bool:
    """Whether a folder holds the index of a model, or configuration and weights of transformers."""
    others = (name for name in INDEXES if name != "config.json")
    if any((folder / name).is_file() for name in others):
        return True
    return (folder / "config.json").is_file() and any(
        path.suffix == ".safetensors" or _PICKLED.fullmatch(path.name) for path in folder.iterdir()
    )
