"""OWLv2 and OWL-ViT: boxes in the image's pixels, each with its best query, alone or in a batch.

Then detectors of fixed classes: the library's boxes, and Mask2Former's masks by GenEval's rules.
At the end which candidates are kept, and which class a query names.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.detectors.transformers_detectors import (
    CandidateBoxes,
    asked_classes,
    keep,
    propose_masks,
)
from pytest_cepbench.models.protocols import Detector, Movable
from tests.models.binding import bind_text, load_once
from tests.models.files import write_checkpoint
from tests.tiny import detectors as tiny
from tests.tiny.common import Built, edit_tensors, noise_images, skip_before
from tests.tiny.encoders import clip_tokenizer

pytestmark = pytest.mark.models

BUILDERS: dict[str, Callable[[Path], Path]] = {
    "owlv2": partial(tiny.build_owl, version=2),
    "owlvit": partial(tiny.build_owl, version=1),
    "mask2former": tiny.build_mask2former,
    "yolos": tiny.build_yolos,
}

FOLDERS = Built(BUILDERS)

bind_detector = partial(bind_text, role="detector")
"""Binds as the plugin does, every file hashed."""


def load(text: str) -> Detector:
    """Bind and load, once; not to be changed."""
    model = load_once(text, "detector")
    assert isinstance(model, Detector)
    return model


def detect(
    model: Detector, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
) -> list[Detections]:
    """What is found where no image fails."""
    answers = model.detect(images, queries)
    assert len(answers) == len(images)
    kept = [answer for answer in answers if isinstance(answer, Detections)]
    assert len(kept) == len(answers)
    return kept


def assert_same(first: Detections, second: Detections) -> None:
    """The same objects in the same order, within float noise; masks up to 1 pixel in 500."""
    assert [d.query for d in first.found] == [d.query for d in second.found]
    for detection, twin in zip(first.found, second.found, strict=True):
        assert detection.score == pytest.approx(twin.score, abs=1e-4)
        if detection.mask is None or twin.mask is None:
            assert detection.box == pytest.approx(twin.box, abs=1e-2)
            assert detection.mask is twin.mask
        else:
            assert (detection.mask.to_array() != twin.mask.to_array()).mean() <= 0.002


IMAGES = noise_images(7, [(64, 64), (48, 80), (96, 40), (48, 80)])
"""Square, tall, wide, and another of the tall one's size."""

ALL = list(tiny.CLASSES)
EVERYTHING = "?threshold=0&max_per_class=none"

QUERIES = [
    ["a red circle"],
    ["a red circle", "two blue square", "a green triangle"],
    ["blue", "the cross"],
    ["a yellow shape", "a red circle"],
]


def boxes_by_hand(
    network: Any, processor: Any, image: Image.Image, threshold: float, **texts: Any
) -> tuple[Any, Any, Any]:
    """The model and post-processing of the library on one image: scores, labels, boxes."""
    import torch

    inputs = processor(images=[image], return_tensors="pt", **texts)
    with torch.inference_mode():
        output = network.eval()(**inputs)
    (boxes,) = getattr(processor, "image_processor", processor).post_process_object_detection(
        output, threshold=threshold, target_sizes=torch.tensor([[image.height, image.width]])
    )
    order = boxes["scores"].argsort(descending=True, stable=True)
    return boxes["scores"][order], boxes["labels"][order], boxes["boxes"][order]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["owlv2", "owlvit"])
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_boxes_are_those_of_the_model_run_by_hand(kind: str, threshold: float) -> None:
    """Scores, best queries and boxes on square and other images; the library maps right."""
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    network = AutoModelForZeroShotObjectDetection.from_pretrained(FOLDERS[kind])
    processor = AutoProcessor.from_pretrained(FOLDERS[kind], backend="pil")
    together = detect(load(f"{FOLDERS[kind]}?threshold={threshold}"), IMAGES, QUERIES)
    for image, queries, detections in zip(IMAGES, QUERIES, together, strict=True):
        scores, labels, boxes = boxes_by_hand(network, processor, image, threshold, text=[queries])
        assert threshold > 0 or len(scores) == 16
        found = detections.found
        assert [detection.query for detection in found] == [queries[label] for label in labels]
        assert [d.score for d in found] == pytest.approx(scores.tolist(), abs=1e-5)
        assert np.abs(np.array([d.box for d in found]) - boxes.numpy()).max() < 1e-3


def test_boxes_of_fixed_classes_are_those_of_the_library() -> None:
    """In the image's own pixels, most confident first; asked for one class, only that one's."""
    from transformers import AutoImageProcessor, YolosForObjectDetection

    network = YolosForObjectDetection.from_pretrained(FOLDERS["yolos"])
    processor = AutoImageProcessor.from_pretrained(FOLDERS["yolos"], backend="pil")
    model = load(f"{FOLDERS['yolos']}{EVERYTHING}")
    for image in IMAGES:
        scores, labels, boxes = boxes_by_hand(network, processor, image, 0.0)
        (detections,) = detect(model, [image], [ALL])
        found = detections.found
        assert [detection.query for detection in found] == [ALL[label] for label in labels]
        assert [d.score for d in found] == pytest.approx(scores.tolist(), abs=1e-5)
        assert np.abs(np.array([d.box for d in found]) - boxes.numpy()).max() < 1e-4
        (only,) = detect(model, [image], [[found[0].query]])
        assert only.found == tuple(each for each in found if each.query == found[0].query)
        assert all(detection.mask is None for detection in found)


def test_an_image_that_is_not_square_is_padded_not_squeezed() -> None:
    """The same image padded by hand to a square has its boxes in the same places: the mapping that
    stretches the padded square to the image's shape (transformers#27205) moves them.
    """
    skip_before("padding in black", "transformers", "5.0")
    model = load(f"{FOLDERS['owlv2']}?threshold=0")
    for image, queries in zip(IMAGES[1:3], QUERIES[1:3], strict=True):
        side = max(image.size)
        square = Image.new("RGB", (side, side))
        square.paste(image)
        (plain,) = detect(model, [image], [queries])
        (padded,) = detect(model, [square], [queries])
        assert plain.found
        assert_same(plain, padded)


@pytest.mark.parametrize(("kind", "boxes"), [("owlv2", 16), ("owlvit", 16), ("yolos", 10)])
def test_an_image_is_found_the_same_alone_and_in_a_batch(kind: str, boxes: int) -> None:
    """Neither the neighbours' sizes nor their numbers of queries matter: every patch of OWL has its
    best query among those asked, no blank wins a box, and YOLOS sees padding as part of the image.
    """
    asked = [ALL] * 4 if kind == "yolos" else QUERIES
    model = load(f"{FOLDERS[kind]}{EVERYTHING if kind == 'yolos' else '?threshold=0'}")
    together = detect(model, IMAGES, asked)
    for image, queries, detections in zip(IMAGES, asked, together, strict=True):
        (alone,) = detect(model, [image], [queries])
        assert len(detections.found) == boxes
        assert_same(detections, alone)


def test_long_queries_are_cut_and_it_is_said() -> None:
    """OWL reads 16 tokens: what is behind them changes nothing, and a warning says so."""
    model = load(f"{FOLDERS['owlv2']}?threshold=0")
    start = " ".join(["red circle and blue square"] * 3)
    with pytest.warns(UserWarning, match=r"reads 16 tokens: 1 longer text\(s\)"):
        (cut,) = detect(model, IMAGES[:1], [[f"{start} a green cross"]])
    (other,) = detect(model, IMAGES[:1], [[f"{start} no yellow triangle"]])
    assert [(d.box, d.score) for d in cut.found] == [(d.box, d.score) for d in other.found]


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
def test_a_detector_can_wait_in_host_memory(kind: str) -> None:
    """Where another model needs the device, all of its weights leave it."""
    model: Any = bind_detector(str(FOLDERS[kind])).load()
    network = model.model
    assert isinstance(model, Movable)
    model.move("meta")
    assert all(weight.is_meta for weight in network.parameters())


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("yolos", "class_labels_classifier.layers.2.weight"),
        ("mask2former", "class_predictor.weight"),
        ("mask2former", "mask_embedder.2.0.weight"),
    ],
)
def test_numbers_that_are_none_fail_the_image(tmp_path: Path, kind: str, part: str) -> None:
    """NaN is above no threshold, so it would pass for an image with nothing in it."""
    folder = Path(shutil.copytree(FOLDERS[kind], tmp_path / "m"))
    edit_tensors(folder, lambda own: [v.fill_(3e38) for n, v in own.items() if n.endswith(part)])
    answers = load(str(folder)).detect(IMAGES[:2], [ALL] * 2)
    assert [answer.kind for answer in answers if isinstance(answer, Failure)] == ["bad-boxes"] * 2


def by_hand(folder: Path, image: Image.Image) -> list[tuple[str, float, Any]]:
    """(class, score, mask) of each pair of query and class, by plain loops over the model's output.

    For an image of the size that the network sees, so that only its quarter-size masks are resized.
    """
    import torch
    from transformers import AutoImageProcessor, Mask2FormerForUniversalSegmentation

    model = Mask2FormerForUniversalSegmentation.from_pretrained(folder).eval()
    inputs = AutoImageProcessor.from_pretrained(folder, backend="pil")(image, return_tensors="pt")
    with torch.inference_mode():
        output = model(**inputs)
    logits = torch.nn.functional.interpolate(
        output.masks_queries_logits, size=(tiny.SIDE, tiny.SIDE), mode="bilinear"
    )[0].numpy()
    segments = []
    for query, row in enumerate(output.class_queries_logits[0].numpy().astype(np.float64)):
        exponentials = np.exp(row - row.max())
        mask = logits[query] > 0
        if not mask.any():
            continue
        inside = (1 / (1 + np.exp(-logits[query].astype(np.float64))))[mask].mean()
        for label, probability in enumerate(exponentials[:-1] / exponentials.sum()):
            segments.append((ALL[label], float(probability * inside), mask))
    return sorted(segments, key=lambda segment: -segment[1])


def tight(mask: Any) -> tuple[float, ...]:
    """Left, top, right, bottom of the pixels of a mask."""
    rows, columns = np.nonzero(mask)
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def mask_of(detection: Detection) -> Any:
    """Its mask, which a Mask2Former always draws."""
    assert detection.mask is not None
    return detection.mask.to_array()


def test_objects_are_those_of_the_rules() -> None:
    """Class probability times mean mask probability inside, the tight box, the mask of all."""
    (detections,) = detect(load(f"{FOLDERS['mask2former']}{EVERYTHING}"), IMAGES[:1], [ALL])
    expected = by_hand(FOLDERS["mask2former"], IMAGES[0])
    assert len(detections.found) == len(expected) > len(ALL)
    for detection, (name, score, mask) in zip(detections.found, expected, strict=True):
        assert detection.query == name
        assert detection.score == pytest.approx(score, abs=1e-5)
        assert (mask_of(detection) != mask).mean() < 0.002
        assert np.abs(np.array(detection.box) - tight(mask_of(detection))).max() == 0


def test_padding_is_cut_off_before_masks_are_resized(tmp_path: Path) -> None:
    """Padded by its processor or by hand, the network sees the same; the masks of the image are the
    image's part of those of the larger one, not all of it squeezed in.
    """
    skip_before("padding to a size", "transformers", "5.0")
    plain: dict[str, Any] = {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
    padding = tiny.build_mask2former(
        tmp_path / "padding", pad_size={"height": 96, "width": 128}, **plain
    )
    large = tiny.build_mask2former(tmp_path / "large", size={"height": 96, "width": 128}, **plain)
    canvas = Image.new("RGB", (128, 96))
    canvas.paste(IMAGES[0])
    (padded,) = detect(load(f"{padding}{EVERYTHING}"), IMAGES[:1], [ALL])
    (by_hand,) = detect(load(f"{large}{EVERYTHING}"), [canvas], [ALL])
    cut = [mask_of(detection)[:64, :64] for detection in by_hand.found]
    assert padded.found
    for detection in padded.found:
        assert min((mask_of(detection) != mask).mean() for mask in cut) < 0.002
        assert mask_of(detection).shape == (64, 64)


def test_masks_are_the_same_alone_and_in_a_batch(tmp_path: Path) -> None:
    """Sizes differ within the batch, and the processor keeps proportions: no image may be padded to
    its neighbour's shape, since padding reaches the network's features. Masks have the size of
    their image, and boxes stay inside it.
    """
    folder = tiny.build_mask2former(tmp_path / "m", size={"shortest_edge": 64, "longest_edge": 128})
    model = load(f"{folder}{EVERYTHING}")
    queries = [["circle"], ["circle", "tv"], ALL, ["square"]]
    for image, asked, detections in zip(
        IMAGES, queries, detect(model, IMAGES, queries), strict=True
    ):
        assert detections.found
        for detection in detections.found:
            assert mask_of(detection).shape == (image.height, image.width)
            assert detection.box == tight(mask_of(detection))
        (alone,) = detect(model, [image], [asked])
        assert_same(detections, alone)


def test_threshold_and_number_of_a_class_leave_out_what_they_say() -> None:
    """Of OWL's boxes and of masks, which have the size of their image; most confident first."""
    for kind, queries, all_of_them, fewer in (
        ("owlv2", QUERIES[1], "", ""),
        ("mask2former", ALL, "&max_per_class=none", "&max_per_class=1"),
    ):
        text = f"{FOLDERS[kind]}?threshold="
        (everything,) = detect(load(f"{text}0{all_of_them}"), IMAGES[1:2], [queries])
        scores = [detection.score for detection in everything.found]
        assert scores == sorted(scores, reverse=True)
        most = len(queries) + 1  # so that one is asked for twice
        (above,) = detect(load(f"{text}{scores[most]!r}{fewer}"), IMAGES[1:2], [queries])
        expected = everything.found[:most]
        if fewer:
            asked = [detection.query for detection in expected]
            expected = tuple(d for i, d in enumerate(expected) if d.query not in asked[:i])
            assert len(expected) < most
        assert above.found == expected
        assert all(d.mask is None or mask_of(d).shape == (80, 48) for d in above.found)


def test_a_pixel_at_one_half_is_outside() -> None:
    """A mask is where its probability is above one half, as in GenEval's evaluator."""
    import torch

    masks = torch.zeros(1, 2, 4)
    masks[0, :, :2] = 3.0
    proposed = propose_masks(
        torch.tensor([[5.0, 0.0]]), masks, torch.ones(2, 4), (4, 2), {0: ("cup",)}, 0.1
    )
    assert isinstance(proposed, CandidateBoxes)
    assert proposed.boxes.tolist() == [[0, 0, 2, 2]]


NAMES = {0: ("cat",), 1: ("dog",)}

EDGES = st.integers(0, 20)
BOXES = st.builds(
    lambda x, y, width, height: (float(x), float(y), float(x + width), float(y + height)),
    EDGES, EDGES, EDGES, EDGES,
)  # fmt: skip

ROWS = st.lists(st.tuples(BOXES, st.sampled_from((0.1, 0.3, 0.5, 0.9)), st.integers(0, 2)))


def candidates(rows: list[tuple[tuple[float, ...], float, int]]) -> CandidateBoxes:
    """Candidates of (box, score, label) rows."""
    boxes = np.array([box for box, _, _ in rows], np.float64).reshape(-1, 4)
    scores = np.array([score for _, score, _ in rows], np.float64)
    return CandidateBoxes(boxes, scores, np.array([label for _, _, label in rows], np.int64))


def kept(rows: list[tuple[tuple[float, ...], float, int]], **rules: Any) -> Detections:
    """What is kept where nothing is wrong."""
    detections = keep(candidates(rows), NAMES, **rules)
    assert isinstance(detections, Detections)
    return detections


@given(ROWS, st.sampled_from((0.0, 0.1, 0.3, 0.6)))
def test_kept_is_what_scores_above_the_threshold_and_was_asked_for(
    rows: list[Any], threshold: float
) -> None:
    """Strictly above; most confident first, ties as found; labels not asked for are left out."""
    wanted = [row for row in rows if row[1] > threshold and row[2] in NAMES]
    wanted.sort(key=lambda row: -row[1])
    detections = kept(rows, threshold=threshold).found
    assert [(detection.box, detection.score, (detection.query,)) for detection in detections] == [
        (box, score, NAMES[label]) for box, score, label in wanted
    ]
    limited = kept(rows, threshold=threshold, most_per_class=2).found
    for query in ("cat", "dog"):
        of_class = [detection for detection in detections if detection.query == query]
        assert [detection for detection in limited if detection.query == query] == of_class[:2]


def test_candidates_that_are_no_numbers_fail_the_image() -> None:
    """One NaN among many boxes: the others cannot be trusted, "nothing found" would be a lie."""
    rows: list[Any] = [((0, 0, 4, 4), 0.9, 0)]
    for box, score in (((1, 1, 3, 3), np.nan), ((1, 1, np.inf, 3), 0.05), ((3, 1, 1, 3), 0.05)):
        failure = keep(candidates([*rows, (box, score, 1)]), NAMES, threshold=0.3)
        assert isinstance(failure, Failure)
        assert failure.kind == "bad-boxes"


CHECKPOINT = Checkpoint(
    "Mask2Former", ("detector",), path=Path("m"), kind="transformers", config={}
)


def asked(queries: list[str], *labels: str) -> dict[int, tuple[str, ...]]:
    """What queries ask of a checkpoint with classes in this order."""
    (own,) = asked_classes(CHECKPOINT, dict(enumerate(labels)), [queries])
    return dict(own)


def test_classes_are_asked_for_by_name() -> None:
    """GenEval's prompts say which mouse is meant; checkpoints' names are those of COCO or Pascal.

    Case and spaces do not decide what is meant, and stay in what is answered. A class under two
    names answers both, a checkpoint that tells a mouse from a computer mouse is taken at its word,
    and a sentence is no class name.
    """
    pairs = {
        "computer mouse": "mouse", "tv remote": "remote", "computer keyboard": "keyboard",
        "airplane": "aeroplane", "motorcycle": "motorbike", "couch": "sofa", "tv": "tvmonitor",
        "potted plant": "pottedplant", "dining table": "diningtable",
    }  # fmt: skip
    for query, label in pairs.items():
        assert asked([query], "cat", label) == {1: (query,)}
    both = {1: ("cat",), 0: ("Tvmonitor", "tv")}
    assert asked(["cat", "Tvmonitor", "tv"], "TV", "Cat") == both
    found = keep(candidates([((0, 0, 4, 4), 0.9, 0)]), {0: ("mouse", "pc mouse")}, threshold=0.3)
    assert isinstance(found, Detections)
    assert [detection.query for detection in found.found] == ["mouse", "pc mouse"]
    assert asked(["computer mouse"], "mouse", "computer mouse") == {1: ("computer mouse",)}
    for query in ("a photo of a cat", ""):
        with pytest.raises(RoleError, match=r"plain names: unknown class .* Known: cat, dog"):
            asked(["dog", query], "cat", "dog")
