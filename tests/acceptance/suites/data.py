"""Small data sets of real files in the formats in which the benchmarks are published."""

from __future__ import annotations

import csv
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.datasets.folder import CATEGORIES
from tests.artifacts.files import encoded
from tests.datasets.test_published_sets import QUESTION

APART = ("posters", "celebrity", "scene", "landmark", "artwork")
"""The categories of MME that keep their images in a folder of their own."""

PATTERNS = {"Surreal": [0, 7, 31], "Anime": [7, 12], "Host": [0, 12, 31, 40]}
"""Which of the images of `write_mmgenbench` are in which pattern; 40 is in one, 0 in two."""

LISTED = (("docci", "test_00001"), ("docci", "test_00002"), ("nocaps", "4"), ("nocaps", "7"))


def picture(seed: int, size: tuple[int, int] = (48, 40)) -> Image.Image:
    """A picture (width, height) of soft patches that no other seed gives."""
    patches = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize(size, Image.Resampling.BICUBIC)


def save(image: Image.Image, path: Path) -> Path:
    """The image as a file of its suffix, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def write_mme(root: Path) -> Path:
    """MME as it is released: three images of each category beside or apart from their questions."""
    for place, category in enumerate(CATEGORIES):
        folder = root / category
        for number in range(3):
            images = folder / "images" if category in APART else folder
            save(picture(10 * place + number), images / f"000{number}.jpg")
            questions = folder / "questions_answers_YN" if category in APART else folder
            questions.mkdir(exist_ok=True)
            (questions / f"000{number}.txt").write_text("Is this a picture?\tYes\n")
    return root


def mmgenbench_images() -> Mapping[int, Image.Image]:
    """The images of `write_mmgenbench`, upright and in RGB, by index."""
    return {index: picture(100 + index) for index in (0, 7, 12, 31, 40)}


def coded(image: Image.Image, kind: str = "PNG", **options: Any) -> str:
    """A cell of MMGenBench's tables: the image's file in base64."""
    return b64encode(encoded(image, kind, **options)).decode()


def _write_table(path: Path, images: Mapping[int, str]) -> None:
    """The published columns, with the line ends of the published tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(["index", "question", "image"])
        writer.writerows([index, QUESTION, image] for index, image in images.items())


def write_mmgenbench(root: Path) -> Path:
    """MMGenBench's two tables and label index in one folder; images as base64 of several kinds.

    A lossless WebP, a JPEG that EXIF turns, a CMYK JPEG, a 16-bit PNG, a palette PNG.
    """
    images = mmgenbench_images()
    turned = Image.Exif()
    turned[0x0112] = 8  # shown a quarter turn anticlockwise of how it is stored
    deep = np.asarray(images[31].convert("L")).astype(np.uint16) * 257
    cells = {
        31: coded(Image.fromarray(deep)),
        0: coded(images[0], "WEBP", lossless=True),
        7: coded(images[7].rotate(-90, expand=True), "JPEG", exif=turned, quality=95),
        12: coded(images[12].convert("CMYK"), "JPEG", quality=95),
        40: coded(images[40].quantize(256)),
    }
    _write_table(root / "MMGenBench-Test.tsv", cells)
    (root / "MMGenBench-Test-label-index.json").write_text(json.dumps(PATTERNS))
    _write_table(root / "MMGenBench-Domain.tsv", {i: coded(picture(200 + i)) for i in range(4)})
    return root


def write_captions(path: Path, captions: Mapping[str, str]) -> Path:
    """A generation of captions as the Semantic Drift Protocol's code keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("filename", "caption"), *captions.items()])
    return path


SDP_CAPTIONS = {
    "0001.png": "two red circles on a small square",
    "0002.png": 'a "large" blue triangle,\nand a green cross at the top, ' * 4,
    "0003.png": "one yellow shape in the middle",
}


def write_sdp(root: Path) -> Path:
    """Pairs where the authors' code looks for them; one caption is longer than CLIP reads."""
    write_captions(root / "text-first" / "gen-0.csv", SDP_CAPTIONS)
    for place, name in enumerate(SDP_CAPTIONS):
        save(picture(300 + place), root / "image-first" / "gen-0" / name)
    return root


def write_listed(root: Path) -> Path:
    """The list of ids with copies of DOCCI and NoCaps beside it."""
    docci, nocaps = root / "docci", root / "nocaps"
    described, images, annotations = [], [], []
    for place, (source, name) in enumerate(LISTED):
        if source == "docci":
            entry = {"example_id": name, "split": "test", "image_file": f"{name}.jpg"}
            described.append(entry | {"description": f" a small red circle, {place}.\n"})
            save(picture(400 + place), docci / "images" / f"{name}.jpg")
        else:
            images.append({"id": int(name), "file_name": f"beef0{name}.jpg"})
            written = (f"two green shapes, {place}.", "another")
            annotations += [{"image_id": int(name), "caption": caption} for caption in written]
            save(picture(400 + place), nocaps / "images" / f"beef0{name}.jpg")
    write_lines(root / "nd400.jsonl", [{"source": s, "image_id": i} for s, i in LISTED])
    write_lines(docci / "docci_descriptions.jsonlines", described)
    coco = {"images": images, "annotations": annotations}
    (nocaps / "nocaps_val_4500_captions.json").write_text(json.dumps(coco))
    return root


_DOG: dict[str, Any] = {"class": "dog", "count": 1}
_CAT: dict[str, Any] = {"class": "cat", "count": 1}

REWRITTEN: Sequence[Mapping[str, Any]] = (
    {"tag": "single_object", "include": [_DOG], "prompt": "a photo of a dog"},
    {"tag": "single_object", "include": [_CAT], "prompt": "a photo of a cat"},
    {"tag": "two_object", "include": [_DOG, _CAT], "prompt": "a photo of a dog and a cat"},
    {
        "tag": "counting",
        "include": [_DOG | {"count": 2}],
        "exclude": [_DOG | {"count": 3}],
        "prompt": "a photo of two dogs",
    },
    {"tag": "colors", "include": [_DOG | {"color": "red"}], "prompt": "a photo of a red dog"},
)


def write_rewritten(path: Path) -> Path:
    """GenEval-Rewritten: clauses, the short prompt, and a long caption for each."""
    long = ", small, on the left of a large green square."
    return write_lines(
        path, [{**prompt, "detailed_caption": f"{prompt['prompt']}{long}"} for prompt in REWRITTEN]
    )


def write_lines(path: Path, entries: Sequence[object]) -> Path:
    """A JSON Lines file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path
