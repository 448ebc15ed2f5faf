"""Practice and attention items, made for a study whose items have no known answers.

Practice items are of the embedded world of shapes, whose truth is certain. Attention items are the
study's own: an answer against the same one with its words and the tiles of its images shuffled, so
that they cannot be told from others before they are read. Answers in which that can hardly be seen
are left out. Tasks without options have nothing to damage, and take the world's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.image import ImageArtifact
from pytest_cepbench.datasets.shapes.samples import (
    LOOKS,
    below,
    derived_seed,
    random_generator,
    scene_of,
    some,
)
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, Scene, caption, render
from pytest_cepbench.files import digest_text
from pytest_cepbench.ratings.consent import write_texts
from pytest_cepbench.ratings.folder import open_session
from pytest_cepbench.ratings.items import make_item, write_study
from pytest_cepbench.ratings.records import Fields, Item, ItemKind, Part, Source, Study, Task

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
) -> None:
    """Write a new study with its known items, the texts that people read, and their addresses.

    Parameters and errors as of `write_study`.
    """
    known, known_images = known_items(study, items, images)
    write_study(folder, study, [*items, *known], {**images, **known_images}, sources)
    write_texts(folder, study.kind)
    open_session(folder, study.annotators)


def known_items(
    study: Study, items: Sequence[Item], images: Mapping[str, ImageArtifact]
) -> tuple[list[Item], _Images]:
    """Items with known answers for a study, and their images.

    items, images: of the study itself.
    Returns `study.practice` practice items, and for each item `study.attention` attention items,
    at most `MOST_ATTENTION` in all; fewer where too few of the study's items can be damaged so that
    everybody sees it, which `attention_remark` tells.
    """
    made: _Images = {}
    practice = list(islice(_worlds(study, "practice", made), study.practice))
    wanted = _attention_wanted(study, len(items))
    attention: Iterator[Item] = _worlds(study, "attention", made)
    if study.kind not in ("describe", "verify"):
        attention = _damaged(study, items, images, made)
    return [*practice, *islice(attention, wanted)], made


def attention_remark(study: Study, items: Iterable[Item]) -> str:
    """What the organizer is told where a study has fewer attention items than it asked for.

    items: all of the study. Empty where there are enough.
    """
    kinds = [item.kind for item in items]
    have, wanted = kinds.count("attention"), _attention_wanted(study, kinds.count("item"))
    if have >= wanted:
        return ""
    return (
        f"{have} of {wanted} attention items: the answers to other items are too short, or too "
        "plain, to be damaged so that everybody sees it"
    )


def _attention_wanted(study: Study, items: int) -> int:
    """How many attention items a study of so many items asks for."""
    return min(ceil(study.attention * items), MOST_ATTENTION)


# -- the world of shapes -------------------------------------------------------------------------


def _worlds(study: Study, kind: ItemKind, made: _Images) -> Iterator[Item]:
    """Items of scenes, without end; their images are added."""
    for number in count(1):
        rng = random_generator(derived_seed(study.seed, f"{kind} {number}"))
        first, *others = some(rng, LOOKS, 4)
        other = next((look for look in others if look[1] != first[1]), None)
        if other is None:  # all of one color
            continue
        cells = some(rng, range(CELLS), 2)
        scene, wrong = (
            scene_of(cells, [look, others[-1]]) for look in (first, (first[0], other[1], first[2]))
        )
        unrelated = scene_of(cells[:1], [others[-1]])
        place = below(rng, 2)
        seed = derived_seed(study.seed, str(number))
        yield _scene_item(study.kind, kind, (scene, wrong, unrelated), place, (seed, made))


def _scene_item(
    task: Task,
    kind: ItemKind,
    scenes: tuple[Scene, Scene, Scene],
    place: int,
    drawing: tuple[int, _Images],
) -> Item:
    """An item whose answer is known.

    scenes: what is asked about, the same with one wrong color, and one that misses an object.
    place: of the right one of two options.
    drawing: seed of the images, and where they are added.
    """
    right, wrong, _ = scenes
    seed, made = drawing

    def drawn(scene: Scene) -> Part:
        """A scene as a part, drawn large enough for people."""
        image = ImageArtifact(render(scene, seed).pixels.repeat(6, axis=0).repeat(6, axis=1))
        made[image.digest] = image
        return Part(image=image.digest)

    words, wrong_words = (
        caption(scene).replace(" :", ":").replace(" ,", ",") for scene in (right, wrong)
    )
    pairs = zip(right.objects, wrong.objects, strict=True)
    good, bad = next((a, b) for a, b in pairs if a.color != b.color)
    difference = f"a {good.shape} is {good.color}, and not {bad.color}"
    colors = sorted({scene_object.color for scene_object in right.objects})
    winner = ("first", "second")[place]
    known: Fields
    question, options = [Part(text=f"Draw {words}.")], []
    if task == "pair":
        text = Part(text="I have drawn it as you asked:")
        options = [[text, drawn(right)], [text, drawn(wrong)]]
        known = {"winner": winner, "why": f"In what was asked for, {difference}."}
    elif task == "grades":
        pictures = [[drawn(scene)] for scene in scenes]
        order = [0, 1, 2] if place == 0 else [2, 0, 1]
        at = {number: here for here, number in enumerate(order)}
        known = {
            "better": [[at[0], at[1]], [at[0], at[2]]],
            "why": f"In what was asked for, {difference}; the third misses an object.",
        }
        return make_item(task, question, [pictures[number] for number in order], kind, known)
    else:
        question = [drawn(right)]
    if task == "caption":
        options = [[Part(text=words)], [Part(text=wrong_words)]]
        known = {"winner": winner, "why": f"In the image, {difference}."}
    elif task == "describe":
        known = {
            "words": [[color] for color in colors],
            "why": f"One description of it is: {words}.",
        }
    elif task == "verify":
        options = [[Part(text=color)] for color in COLORS]
        known = {"ticked": colors, "why": f"The image shows {words}."}
    if "winner" in known and place:
        options = options[::-1]
    return make_item(task, question, options, kind, known)


# -- the study's own items, damaged --------------------------------------------------------------


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
