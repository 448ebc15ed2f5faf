"""Tiny detector checkpoints with random weights, saved as transformers saves them.

Random weights find something everywhere with middling scores, which is what the tests of thresholds
and boxes need.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tiny.common import LAYERS, built_once, edit_tensors, pil, token_ids, tokenizer_of
from tests.tiny.encoders import clip_tokenizer

TEXT_LENGTH = 16
SIDE = 64
CLASSES = ("circle", "mouse", "remote", "square", "tvmonitor")


def build_owl(folder: Path, version: int, tokenizer: Any = None) -> Path:
    """An OWLv2 (version 2) or OWL-ViT (version 1) with processor; both have the same weights."""
    import torch
    import transformers

    kind = "Owlv2" if version == 2 else "OwlViT"
    if tokenizer is None:
        # OWL takes a query that begins with id 0 for padding: another token has it.
        stored = json.loads(clip_tokenizer().backend_tokenizer.to_str())["model"]
        names = ["<pad>", *sorted(stored["vocab"], key=stored["vocab"].get)]
        tokenizer = tokenizer_of(
            "CLIPTokenizer",
            {name: index for index, name in enumerate(names)},
            [tuple(merge) for merge in stored["merges"]],
            pad_token="<pad>",
            model_max_length=TEXT_LENGTH,
        )
    text = {**LAYERS, **token_ids(tokenizer), "max_position_embeddings": TEXT_LENGTH}
    vision = LAYERS | {"image_size": SIDE, "patch_size": 16}
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config=vision, projection_dim=32
    )
    torch.manual_seed(21)
    model = getattr(transformers, f"{kind}ForObjectDetection")(config)
    with torch.no_grad():
        # As they are initialised, the heads of so small a model give boxes of all or nothing.
        for head in (model.class_head, model.box_head):
            for parameter in head.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(0.2)
    model.save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    images = pil(f"{kind}ImageProcessor")(size=size)
    processor = getattr(transformers, f"{kind}Processor")
    processor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


@built_once(seed=22)
def build_mask2former(
    folder: Path,
    /,
    *,
    classes: Sequence[str] = CLASSES,
    size: dict[str, int] | None = None,
    **options: Any,
) -> None:
    """A Mask2Former over a tiny Swin; `size` and `options` are its image processor's."""
    import torch
    import transformers

    backbone = transformers.SwinConfig(
        image_size=SIDE,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone,
        feature_size=32,  # the library normalises in 32 groups
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=32,
        dim_feedforward=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        num_queries=6,
        id2label=dict(enumerate(classes)),
    )
    model = transformers.Mask2FormerForUniversalSegmentation(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A new model attends nowhere in particular, by matrices of zeros; no trained one does.
            if name.endswith(("attention_weights.weight", "sampling_offsets.weight")):
                torch.nn.init.normal_(parameter, std=0.02)
        model.class_predictor.weight.mul_(60)
        for parameter in model.model.transformer_module.decoder.mask_predictor.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6)
    model.save_pretrained(folder)
    size = size or {"height": SIDE, "width": SIDE}
    pil("Mask2FormerImageProcessor")(size=size, **options).save_pretrained(folder)


def favour(folder: Path, *names: str) -> Path:
    """Make a saved Mask2Former find these classes in everything, each with equal probability."""
    labels = json.loads((folder / "config.json").read_text())["id2label"]
    rows = [int(number) for number, label in labels.items() if label in names]

    def change(tensors: dict[str, Any]) -> None:
        tensors["class_predictor.weight"][rows] = 0.0
        tensors["class_predictor.bias"][rows] = 1000.0

    edit_tensors(folder / "model.safetensors", change)
    return folder


@built_once(seed=23)
def build_yolos(folder: Path) -> None:
    """A YOLOS: boxes of fixed classes, and images of any shape, kept in proportion."""
    import torch
    from transformers import YolosConfig, YolosForObjectDetection

    config = YolosConfig(
        **LAYERS,
        image_size=[SIDE, SIDE],
        patch_size=16,
        num_detection_tokens=10,
        id2label=dict(enumerate(CLASSES)),
    )
    model = YolosForObjectDetection(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    model.save_pretrained(folder)
    size = {"shortest_edge": 48, "longest_edge": 96}
    pil("YolosImageProcessor")(size=size).save_pretrained(folder)
