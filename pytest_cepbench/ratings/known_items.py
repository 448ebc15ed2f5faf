"""Attention items: a study's own, an answer against itself with words and tiles shuffled.

They cannot be told from other items before they are read. Answers in which the damage can hardly be
seen are left out, and so are tasks without options, which have nothing to damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.image import ImageArtifact
from pytest_cepbench.datasets.shapes.samples import below, derived_seed, random_generator, some
from pytest_cepbench.files import digest_text
from pytest_cepbench.ratings.items import make_item, write_study
from pytest_cepbench.ratings.records import Fields, Item, Part, Source, Study

MOST_ATTENTION = 100

_TILES = 4  # along each side of a damaged image

_LEAST_WORDS = 8  # fewer words are often a sentence in another order too

_LEAST_MOVED = 0.5  # of the words

_EDGE = 32  # levels of 255 by which pixels differ at a visible edge

_LEAST_EDGES = 0.05  # of the pixels along the tiles' sides are new edges

_Images = dict[str, ImageArtifact]


def begin_study(
    folder: Path,
    study: Study,
    items: Sequence[Item],
    images: Mapping[str, ImageArtifact],
    sources: Iterable[Source] = (),
) -> str:
    """Write a new study with its attention items.

    Parameters and errors as of `write_study`. For each item there are `study.attention` attention
    items, at most `MOST_ATTENTION` in all.
    Returns a line where too few of the study's items can be damaged so that everybody sees it;
    empty else.
    """
    made: _Images = {}
    wanted = min(ceil(study.attention * len(items)), MOST_ATTENTION)
    if study.kind in ("describe", "verify"):
        wanted = 0
    attention = list(islice(_damaged(study, items, images, made), wanted))
    write_study(folder, study, [*items, *attention], {**images, **made}, sources)
    if len(attention) == wanted:
        return ""
    return (
        f"{len(attention)} of {wanted} attention items: the answers to other items are too short, "
        "or too plain, to be damaged so that everybody sees it"
    )


def _damaged(
    study: Study, items: Sequence[Item], images: Mapping[str, ImageArtifact], made: _Images
) -> Iterator[Item]:
    """An item each of the study's, an option against its damaged self; in an order of their own."""
    for item in sorted(items, key=lambda item: digest_text(f"{study.seed} damaged {item.item}")):
        rng = random_generator(derived_seed(study.seed, item.item))
        at = below(rng, len(item.options))
        kept = item.options[at]
        own: _Images = {}
        spoiled = [_spoil(part, rng, images, own) for part in kept.parts]
        parts = zip(kept.parts, spoiled, strict=True)
        if not any(_is_visible(part, worse, {**images, **own}) for part, worse in parts):
            continue
        made |= own
        if study.kind == "grades":
            others = [option.parts for place, option in enumerate(item.options) if place != at]
            options = [kept.parts, spoiled, *others[:-1]]
            known: Fields = {"better": [[0, 1]]}
        else:
            second = below(rng, 2)
            options = [spoiled, kept.parts] if second else [kept.parts, spoiled]
            known = {"winner": ("first", "second")[second]}
        yield make_item(study.kind, item.question, options, "attention", known)


def _spoil(
    part: Part, rng: np.random.Generator, images: Mapping[str, ImageArtifact], made: _Images
) -> Part:
    if part.text is not None:
        words = part.text.split()
        return Part(text=" ".join(some(rng, words, len(words))))
    image = images[str(part.image)]
    columns, rows = map(_starts, image.size)
    wide, high = (
        int(starts[1] - starts[0]) if len(starts) > 1 else 1 for starts in (columns, rows)
    )
    tiles = [(slice(y, y + high), slice(x, x + wide)) for y in rows for x in columns]
    pixels = np.full_like(image.pixels, 128)
    for target, source in zip(tiles, some(rng, tiles, len(tiles)), strict=True):
        taken = image.pixels[source]
        room = pixels[target]
        down, across = min(len(taken), len(room)), min(taken.shape[1], room.shape[1])
        room[:down, :across] = taken[:down, :across]
    spoiled = ImageArtifact(pixels)
    made[spoiled.digest] = spoiled
    return Part(image=spoiled.digest)


def _is_visible(part: Part, spoiled: Part, images: Mapping[str, ImageArtifact]) -> bool:
    """Whether everybody sees that a part is damaged, who has the other one beside it.

    Of a text enough words stand elsewhere; in an image the tiles' sides have become edges, which
    they have not where a tile holds all that there is, or nothing.
    """
    if part.text is not None:
        before, after = part.text.split(), (spoiled.text or "").split()
        moved = sum(a != b for a, b in zip(before, after, strict=True))
        return len(before) >= _LEAST_WORDS and moved >= _LEAST_MOVED * len(before)
    edges = []  # shares of the pixels along the tiles' sides at which the image changes abruptly
    for image in (images[str(each.image)] for each in (part, spoiled)):
        pixels = image.pixels.astype(np.int16)
        columns, rows = (_starts(side)[1:] for side in image.size)
        across = np.abs(pixels[:, columns] - pixels[:, columns - 1]).max(axis=-1)
        down = np.abs(pixels[rows] - pixels[rows - 1]).max(axis=-1)
        steps = np.concatenate([across.ravel(), down.ravel()])
        edges.append(float(np.mean(steps >= _EDGE)) if steps.size else 0.0)
    return edges[1] - edges[0] >= _LEAST_EDGES


def _starts(side: int) -> npt.NDArray[np.int64]:
    """Where tiles start along a side."""
    return np.arange(0, side, max(1, -(-side // _TILES)))
