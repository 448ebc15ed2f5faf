"""Tiny encoder checkpoints with random weights, saved as their libraries save them.

Every image side is 32 pixels and every text fits 32 tokens; dual encoders end in 24 dimensions.
Vocabularies are written by hand: trained ones differ from process to process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tiny.common import CENTER, LAYERS, SQUARE, VISION, built_once, token_ids, tokenizer_of

# fmt: off
WORDS = [
    "a", "an", "and", "one", "two", "three", "four", "on", "of", "the", "at", "no",
    "red", "green", "blue", "yellow", "purple", "cyan", "small", "large",
    "circle", "square", "triangle", "cross", "shape", "shapes",
    "left", "right", "top", "bottom", "middle", "center",
]
# fmt: on

TEXT_LENGTH = 32
IMAGE_SIDE = 32
JOINT_DIMENSION = 24

SENTENCE_LENGTH = 16
"""Tokens of the text encoder: one per word between a start and an end."""

_TEXT = {**LAYERS, "max_position_embeddings": TEXT_LENGTH}


def clip_tokenizer(max_length: int = TEXT_LENGTH) -> Any:
    """A CLIPTokenizer in which every word of WORDS is one token and any other text is bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    entries = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        if len(word) == 1:
            continue
        pieces = [*word[:-1], f"{word[-1]}</w>"]
        built = pieces[0]
        for piece in pieces[1:]:
            merges.append((built, piece))
            built += piece
            entries.append(built)
    vocabulary = {entry: index for index, entry in enumerate(dict.fromkeys(entries))}
    unique = list(dict.fromkeys(merges))
    return tokenizer_of("CLIPTokenizer", vocabulary, unique, model_max_length=max_length)


def word_tokenizer(max_length: int = TEXT_LENGTH) -> Any:
    """A word-level tokenizer over WORDS that ends a text with </s>, as SigLIP's does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {
        word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", ",", ":", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="right",
        model_max_length=max_length,
        model_input_names=["input_ids"],
    )


@built_once(seed=11)
def build_clip(folder: Path) -> None:
    """A CLIPModel with its processor: images and texts in one space."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    tokenizer = clip_tokenizer()
    text = _TEXT | token_ids(tokenizer)
    config = CLIPConfig(text_config=text, vision_config=VISION, projection_dim=JOINT_DIMENSION)
    CLIPModel(config).save_pretrained(folder)
    images = CLIPImageProcessor(**CENTER)
    CLIPProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)


@built_once(seed=12)
def build_siglip(folder: Path) -> None:
    """A SiglipModel with its processor: attention pooling, no CLS token, fixed-length texts."""
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

    tokenizer = word_tokenizer()
    text = _TEXT | {
        "vocab_size": len(tokenizer),
        "bos_token_id": 1,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "projection_size": 32,
    }
    config = SiglipConfig(text_config=text, vision_config=VISION)
    SiglipModel(config).save_pretrained(folder)
    images = SiglipImageProcessor(size=SQUARE)
    SiglipProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)


@built_once(seed=13)
def build_dinov2(folder: Path) -> None:
    """A Dinov2Model with its image processor: an image tower without texts."""
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    vision = {name: value for name, value in VISION.items() if name != "intermediate_size"}
    Dinov2Model(Dinov2Config(**vision, mlp_ratio=2)).save_pretrained(folder)
    BitImageProcessor(**CENTER).save_pretrained(folder)


@built_once(seed=14)
def build_vit(folder: Path, *, pooler: bool) -> None:
    """A ViTModel, or the classifier that fine-tuning leaves, whose files hold no pooler."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor, ViTModel

    config = ViTConfig(**VISION)
    (ViTModel(config) if pooler else ViTForImageClassification(config)).save_pretrained(folder)
    ViTImageProcessor(size=SQUARE).save_pretrained(folder)


@built_once(seed=18)
def build_vit_mae(folder: Path) -> None:
    """A masked autoencoder: its encoder hides 3 of 4 patches at random unless told not to."""
    from transformers import ViTImageProcessor, ViTMAEConfig, ViTMAEForPreTraining

    decoder = {
        "decoder_hidden_size": 32,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 4,
        "decoder_intermediate_size": 32,
    }
    config = ViTMAEConfig(**VISION, **decoder)
    ViTMAEForPreTraining(config).save_pretrained(folder)
    ViTImageProcessor(size=SQUARE).save_pretrained(folder)


@built_once(seed=15)
def build_convnext(folder: Path) -> None:
    """A ConvNextModel with its image processor: feature maps instead of tokens."""
    from transformers import ConvNextConfig, ConvNextImageProcessor, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], image_size=32)
    ConvNextModel(config).save_pretrained(folder)
    ConvNextImageProcessor(size={"shortest_edge": IMAGE_SIDE}, crop_pct=1.0).save_pretrained(folder)


@built_once(seed=16)
def build_timm_vit(folder: Path, *, classes: int = 0) -> None:
    """A timm VisionTransformer folder; with `classes`, one that still has its classifier."""
    import timm
    from safetensors.torch import save_file

    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    model = timm.create_model(
        "vit_tiny_patch16_224", pretrained=False, num_classes=classes, **shape
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    pretrained = {
        "input_size": [3, IMAGE_SIDE, IMAGE_SIDE],
        "fixed_input_size": True,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "num_classes": classes,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
    }
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": classes,
        "num_features": 32,
        "model_args": shape,
        "pretrained_cfg": pretrained,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@built_once(seed=17)
def build_open_clip(folder: Path) -> None:
    """An open_clip CLIP folder; its byte-pair vocabulary is the one that the package ships."""
    import open_clip

    text = {
        "context_length": TEXT_LENGTH,
        "vocab_size": 49408,
        "width": 16,
        "heads": 2,
        "layers": 1,
    }
    vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 16}
    model_config = {"embed_dim": JOINT_DIMENSION, "vision_cfg": vision, "text_cfg": text}
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    config = {"model_cfg": model_config, "preprocess_cfg": preprocess}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    model = open_clip.CLIP(**model_config)
    _save_weights(folder, model)


def _save_weights(folder: Path, model: Any) -> None:
    from safetensors.torch import save_file

    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")


def build_open_clip_with_transformers(folder: Path, tower: Path) -> Path:
    """An open_clip folder whose text tower is a RoBERTa, configured in another folder."""
    import open_clip
    import torch
    from transformers import RobertaConfig

    torch.manual_seed(17)
    tokenizer = clip_tokenizer()
    RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=TEXT_LENGTH + 2,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(tower)
    build_open_clip(folder)
    file = folder / "open_clip_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["model_cfg"]["text_cfg"] = {
        "hf_model_name": str(tower),
        "hf_tokenizer_name": str(tower),
        "hf_proj_type": "linear",
        "context_length": TEXT_LENGTH,
    }
    file.write_text(json.dumps(config), encoding="utf-8")
    tokenizer.save_pretrained(folder)
    text = config["model_cfg"]["text_cfg"] | {"hf_model_pretrained": False}
    model = open_clip.CustomTextCLIP(**(config["model_cfg"] | {"text_cfg": text}))
    _save_weights(folder, model)
    return folder


@built_once(seed=21)
def build_mpnet(folder: Path) -> None:
    """An MPNetModel with its tokenizer, as transformers saves it: without modules.json."""
    from transformers import MPNetConfig, MPNetModel

    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = tokenizer_of("MPNetTokenizer", vocabulary)
    tokenizer.model_max_length = SENTENCE_LENGTH
    config = MPNetConfig(
        vocab_size=len(tokenizer),
        **LAYERS,
        max_position_embeddings=SENTENCE_LENGTH + 2,
    )
    MPNetModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@built_once()
def build_sentence_transformer(folder: Path, *, normalize: bool = True) -> None:
    """MPNet, mean pooling and, as all-mpnet-base-v2 has it, normalisation, in one folder."""
    from sentence_transformers import SentenceTransformer

    try:
        from sentence_transformers.base.modules import Normalize, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling
    except ModuleNotFoundError:  # before sentence-transformers 6
        from sentence_transformers.models import Normalize, Pooling, Transformer

    transformer = Transformer(str(build_mpnet(folder.with_name(f"{folder.name}-plain"))))
    modules: list[Any] = [transformer, Pooling(32, pooling_mode="mean")]
    modules += [Normalize()] * normalize
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
