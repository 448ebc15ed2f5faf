"""Binding detectors: identities that tell settings apart, and checkpoints that are none.

And OWLv2 and OWL-ViT: boxes in the image's pixels, each with its best query, alone or in a batch.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.errors import CheckpointError
from tests.models.detectors.conftest import (
    Folders,
    Images,
    assert_same,
    bind_detector,
    detect,
    load,
)
from tests.models.files import write_checkpoint
from tests.tiny import detectors as tiny
from tests.tiny.common import skip_before
from tests.tiny.encoders import clip_tokenizer

pytestmark = pytest.mark.models

QUERIES = [
    ["a red circle"],
    ["a red circle", "two blue square", "a green triangle"],
    ["blue", "the cross"],
    ["a yellow shape", "a red circle"],
]


def by_hand(folder: Path, image: Image.Image, queries: list[str], threshold: float) -> Any:
    """The model and post-processing of the library on one image: scores, labels, boxes."""
    import torch
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    processor = AutoProcessor.from_pretrained(folder, backend="pil")
    inputs = processor(text=[queries], images=[image], return_tensors="pt")
    with torch.inference_mode():
        output = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()(**inputs)
    (boxes,) = processor.image_processor.post_process_object_detection(
        output, threshold=threshold, target_sizes=torch.tensor([[image.height, image.width]])
    )
    order = boxes["scores"].argsort(descending=True, stable=True)
    return tuple(boxes[name][order] for name in ("scores", "labels", "boxes"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["owlv2", "owlvit"])
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_boxes_are_those_of_the_model_run_by_hand(
    folders: Folders, images: Images, kind: str, threshold: float
) -> None:
    """Scores, best queries and boxes on square and other images; the library maps right."""
    model = load(f"{folders[kind]}?threshold={threshold}")
    for image, queries, detections in zip(
        images, QUERIES, detect(model, images, QUERIES), strict=True
    ):
        scores, labels, boxes = by_hand(folders[kind], image, queries, threshold)
        assert threshold > 0 or len(scores) == 16
        assert [detection.query for detection in detections.found] == [
            queries[label] for label in labels
        ]
        assert [detection.score for detection in detections.found] == pytest.approx(
            scores.tolist(), abs=1e-5
        )
        assert (
            np.abs(
                np.array([detection.box for detection in detections.found]) - boxes.numpy()
            ).max()
            < 1e-3
        )


def test_an_image_that_is_not_square_is_padded_not_squeezed(
    folders: Folders, images: Images
) -> None:
    """The same image padded by hand to a square has its boxes in the same places: the mapping that
    stretches the padded square to the image's shape (transformers#27205) moves them.
    """
    skip_before("padding in black", "transformers", "5.0")
    model = load(f"{folders['owlv2']}?threshold=0")
    for image, queries in zip(images[1:3], QUERIES[1:3], strict=True):
        side = max(image.size)
        square = Image.new("RGB", (side, side))
        square.paste(image)
        (plain,) = detect(model, [image], [queries])
        (padded,) = detect(model, [square], [queries])
        assert plain.found
        assert_same(plain, padded)


@pytest.mark.parametrize("kind", ["owlv2", "owlvit"])
def test_an_image_is_found_the_same_alone_and_in_a_batch(
    folders: Folders, images: Images, kind: str
) -> None:
    """Neither the neighbours' sizes nor their numbers of queries matter; no blank wins a box."""
    model = load(f"{folders[kind]}?threshold=0")
    together = detect(model, images, QUERIES)
    for image, queries, detections in zip(images, QUERIES, together, strict=True):
        (alone,) = detect(model, [image], [queries])
        assert len(detections.found) == 16  # every patch's box has its best query among those asked
        assert_same(detections, alone)


def test_settings_leave_out_what_they_say(folders: Folders, images: Images) -> None:
    """As one of the project's rules reads it."""
    (everything,) = detect(load(f"{folders['owlv2']}?threshold=0"), images[:1], QUERIES[1:2])
    scores = [detection.score for detection in everything.found]
    assert scores == sorted(scores, reverse=True)
    cut = scores[5]
    (above,) = detect(load(f"{folders['owlv2']}?threshold={cut!r}"), images[:1], QUERIES[1:2])
    assert above.found == everything.found[:5]


def test_long_queries_are_cut_and_it_is_said(folders: Folders, images: Images) -> None:
    """OWL reads 16 tokens: what is behind them changes nothing, and a warning says so."""
    model = load(f"{folders['owlv2']}?threshold=0")
    start = " ".join(["red circle and blue square"] * 3)
    with pytest.warns(UserWarning, match=r"reads 16 tokens: 1 longer text\(s\)"):
        (cut,) = detect(model, images[:1], [[f"{start} a green cross"]])
    (other,) = detect(model, images[:1], [[f"{start} no yellow triangle"]])
    assert [detection.box for detection in cut.found] == [
        detection.box for detection in other.found
    ]
    assert [detection.score for detection in cut.found] == [
        detection.score for detection in other.found
    ]


def test_a_tokenizer_whose_texts_begin_with_id_0_is_refused(tmp_path: Path) -> None:
    """OWL takes such a query for padding and never finds it, without a word."""
    tokenizer = clip_tokenizer(tiny.TEXT_LENGTH)
    folder = tiny.build_owl(tmp_path / "owl", 2, tokenizer)
    with pytest.raises(CheckpointError, match="begins a text with id 0"):
        bind_detector(str(folder)).load()


def test_every_setting_that_changes_the_boxes_is_part_of_the_identity(tmp_path: Path) -> None:
    """Stored boxes of one setting must never be served for another; where it runs is no setting."""
    kind = "Mask2FormerForUniversalSegmentation"
    config = {"architectures": [kind], "model_type": "mask2former"}
    folder = write_checkpoint(tmp_path / "m", config)
    plain = bind_detector(str(folder)).identity
    for query in ("threshold=0.2", "max_per_class=3", "max_per_class=none",
                  "dtype=float16", "backend=torchvision", "attn_implementation=eager"):  # fmt: skip
        assert bind_detector(f"{folder}?{query}").identity != plain, query
    assert bind_detector(f"{folder}?batch_size=2&device=cpu").identity == plain


@pytest.mark.parametrize("kind", ["owlv2", "mask2former", "yolos"])
def test_a_missing_tensor_is_never_made_up(folders: Folders, tmp_path: Path, kind: str) -> None:
    """The library would go on with random numbers in its place."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(folders[kind], tmp_path / "m"))
    tensors = load_file(folder / "model.safetensors")
    gone = min(name for name in tensors if "class" in name and name.endswith("weight"))
    del tensors[gone]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"random numbers: .*{gone}"):
        bind_detector(str(folder)).load()
