"""Studies of generated pictures, whose better answer is the red one, by two models with names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.ratings.folder import Ratings, read_ratings
from pytest_cepbench.ratings.items import begin_study, make_item
from pytest_cepbench.ratings.records import Item, Part, Source, Study, Task

RED, BLUE = "SECRET-ALPHA-7b", "SECRET-BETA-13b"
"""The models; no page may name them."""

SAMPLE = "SECRET-SAMPLE"

HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "\u202e",
)

NAMES = ("Color", "Count", '<b onclick="window.hacked = 3">Motion</b>', "Natural")


def picture(number: int, channel: int = 0) -> ImageArtifact:
    """A dark area in one color, different for each number. channel: 0 is red, 2 is blue."""
    pixels = np.full((48, 64, 3), 40, np.uint8)
    pixels[..., channel] = 230
    pixels[10:38, 10:54] = 60  # what is seen to be cut where the tiles are shuffled
    pixels[:8, : 1 + number % 60] = 255 - number // 60
    return ImageArtifact(pixels)


def make_study(
    folder: Path, task: Task, count: int = 12, annotators: int = 2, **settings: Any
) -> Ratings:
    """A written study."""
    names = tuple(f"a{number + 1}" for number in range(annotators))
    closed = NAMES if task == "verify" else ()
    study = Study(kind=task, suite="toy", annotators=names, names=closed)
    study = msgspec.structs.replace(study, **{"attention": 0, "repeats": 0} | settings)
    items: list[Item] = []
    images: dict[str, ImageArtifact] = {}
    sources: list[Source] = []
    for number in range(count):
        item, made = _item(task, number)
        items.append(item)
        images |= made
        sources += [
            Source(item=item.item, option=option.option, model=model, sample=f"{SAMPLE}-{number}")
            for option, model in zip(item.options, (RED, BLUE), strict=False)
        ]
    begin_study(folder, study, items, images, sources)
    return read_ratings(folder)


def _item(task: Task, number: int) -> tuple[Item, dict[str, ImageArtifact]]:
    red, blue = picture(number, 0), picture(number, 2)
    images = {image.digest: image for image in (red, blue)}
    shown = Part(image=red.digest)
    texts = [Part(text=f"Question {number} {HOSTILE[number % 3]}")]
    if task == "pair":
        options = [
            [Part(text=f"It is {name}. {HOSTILE[number % 3]}"), Part(image=image.digest)]
            for name, image in (("red", red), ("blue", blue))
        ]
        return make_item(task, texts, options), images
    if task == "grades":
        green = picture(number, 1)
        images[green.digest] = green
        digests = (red.digest, blue.digest, green.digest)
        return make_item(task, texts, [[Part(image=digest)] for digest in digests]), images
    if task == "caption":
        captions = [
            [Part(text=f"{name} number {number} around a large dark area, {HOSTILE[number % 3]}")]
            for name in ("red", "blue")
        ]
        return make_item(task, [shown], captions), {red.digest: red}
    names = [[Part(text=name)] for name in NAMES[:3]] if task == "verify" else []
    return make_item(task, [shown], names), {red.digest: red}
