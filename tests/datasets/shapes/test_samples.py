"""The data sets of scenes: families, tasks of GenEval, patterns."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.construction.patterns import (
    pattern_schema,
    read_pattern_reply,
    summary_schema,
)
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    parse_image,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.arena import WriterDegradation
from pytest_cepbench.datasets.shapes.samples import (
    _TASK_FAMILIES,
    LOOKS,
    PATTERN_NAMES,
    load_shapes_tasks,
    scene_patterns,
)
from pytest_cepbench.datasets.shapes.scene import CELLS
from pytest_cepbench.metrics.geneval_prompts import (
    TASKS,
)
from pytest_cepbench.models.rule_based.arena_models import ShapesWriter
from pytest_cepbench.models.rule_based.scene_models import (
    DescriberKnobs,
    ShapesDescriber,
    labelled_patterns,
)


def differing(scene: Scene) -> dict[str, int]:
    """How many different words of each kind the objects of a scene have."""
    sizes, colors, shapes = zip(*(thing.look for thing in scene.objects), strict=True)
    return {"size": len(set(sizes)), "color": len(set(colors)), "shape": len(set(shapes))}


def only(field: str) -> Callable[[Scene], bool]:
    """Whether a scene's objects differ in that field and in no other."""

    def check(scene: Scene) -> bool:
        counts = differing(scene)
        full = 2 if field == "size" else len(scene.objects)
        return 2 <= len(scene.objects) <= 4 and counts == {
            name: full if name == field else 1 for name in counts
        }

    return check


def distinct(scene: Scene) -> bool:
    """Whether no two objects look the same."""
    return len({thing.look for thing in scene.objects}) == len(scene.objects)


FAMILIES: dict[str, Callable[[Scene], bool]] = {
    "existence": lambda scene: len(scene.objects) == 1,
    "count": lambda scene: 2 <= len(scene.objects) <= 4 and set(differing(scene).values()) == {1},
    "color": only("color"),
    "shape": only("shape"),
    "size": only("size"),
    "position": lambda scene: (
        distinct(scene)
        and {thing.row for thing in scene.objects} == {0, 1, 2}
        and {thing.column for thing in scene.objects} == {0, 1, 2}
        and len(scene.objects) == 3
    ),
    "relation": lambda scene: (
        distinct(scene)
        and len(scene.objects) == 2
        and (
            scene.objects[0].row == scene.objects[1].row
            or scene.objects[0].column == scene.objects[1].column
        )
    ),
    "crowded": lambda scene: distinct(scene) and len(scene.objects) == 4,
}


def test_scenes_of_a_category_are_unique_until_the_family_is_used_up() -> None:
    """There are 432 single objects: all come once before any comes again."""
    samples = load_shapes(433).samples
    texts = [sample.text for sample in samples if sample.categories == ("existence",)]
    assert len(set(texts[:432])) == 432
    assert texts[432] in texts[:432]
    for category in set(FAMILIES) - {"existence"}:
        others = [sample.text for sample in samples if sample.categories == (category,)]
        assert len(set(others)) == 433


def test_families_have_as_many_scenes_as_their_rules_allow() -> None:
    """No scene comes twice before all have come, so the number of all must be right."""
    looks = list(product(LOOKS, repeat=2))
    shapes_differ = sum(a[2] != b[2] for a, b in looks)
    colors_differ = sum(a[2] != b[2] and a[1] != b[1] for a, b in looks)
    cells = list(combinations(range(CELLS), 2))
    in_line = sum(a // 3 == b // 3 or a % 3 == b % 3 for a, b in cells)
    equal = sum(comb(CELLS, number) for number in (2, 3, 4))
    assert {task: family.size for task, family in _TASK_FAMILIES.items()} == {
        "single_object": CELLS * len(LOOKS),
        "two_object": len(cells) * shapes_differ,
        "counting": equal * len(LOOKS),
        "colors": CELLS * len(LOOKS),
        "position": in_line * shapes_differ,
        "color_attr": len(cells) * colors_differ,
    }


def test_scenes_of_a_task_are_unique_until_they_are_used_up() -> None:
    """There are 432 single objects."""
    dataset = load_shapes_tasks(433)
    for task in TASKS:
        texts = [sample.text for sample in dataset.in_category(task)]
        assert len(set(texts)) == (432 if task in ("single_object", "colors") else 433)


DATA = load_shapes(12, 5)

IMAGES = [sample.image.load().to_pil() for sample in DATA.samples if sample.image]

TRUTH = [scene_patterns(sample_scene(sample)) for sample in DATA.samples]


def thing(cell: int, size: str = "small", color: str = "red", shape: str = "circle") -> SceneObject:
    """An object."""
    return SceneObject(cell, size, color, shape)  # type: ignore[arg-type] # words of the world


@pytest.mark.parametrize(
    ("objects", "patterns"),
    [
        ((), ()),
        ((thing(0),), ()),
        ((thing(1),), ("Symmetry",)),
        ((thing(0), thing(2)), ("Position", "Symmetry")),
        ((thing(0), thing(2, color="blue")), ("Position",)),
        ((thing(0), thing(6, "large")), ("Position", "Size")),
        ((thing(0), thing(4), thing(5)), ("Count",)),
        (
            (thing(0), thing(4, color="blue"), thing(5, color="green"), thing(8, "large")),
            ("Count", "Color", "Size", "Crowd"),
        ),
    ],
)
def test_rules(objects: tuple[SceneObject, ...], patterns: tuple[str, ...]) -> None:
    """Each pattern by hand."""
    assert scene_patterns(Scene(objects)) == patterns


def describe(names: tuple[str, ...] | None, **knobs: float) -> list[str]:
    """The replies of the describer on all images."""
    model = ShapesDescriber(DescriberKnobs(**knobs))
    schema = pattern_schema(names)
    seeds = list(range(len(IMAGES)))
    return model.describe_json(IMAGES, ["?"] * len(IMAGES), schema, seeds)


@pytest.mark.parametrize("names", [None, ("count", "Size", "Beauty")])
def test_the_describer_names_what_is_true(names: tuple[str, ...] | None) -> None:
    """In the form of the schema; of a closed list only its names, spelled as there."""
    replies = [read_pattern_reply(text) for text in describe(names)]

    for reply, image, patterns in zip(replies, IMAGES, TRUTH, strict=True):
        expected = set(patterns)
        if names is not None:
            expected = {n for n in names if n.title() in patterns}
        assert {pattern.name for pattern in reply.patterns} == expected
        assert reply.description == caption(parse_image(ImageArtifact.from_pil(image)))


def test_mislabel_is_the_share_of_wrong_labels() -> None:
    """Each pattern of each image is wrong with that probability, whether it is there or not."""
    scenes = [sample_scene(sample) for sample in DATA.samples]
    wrong = [
        (name in labelled_patterns(scene, 0.2, seed)) != (name in scene_patterns(scene))
        for draw in range(20)
        for number, scene in enumerate(scenes)
        for seed in [draw * 1000 + number]
        for name in PATTERN_NAMES
    ]

    assert np.mean(wrong) == pytest.approx(0.2, abs=0.01)


def test_the_writer_summarizes_by_frequency() -> None:
    """The most frequent names, at most so many; any other question is refused."""
    question = f"Summarize: {json.dumps({'frequencies': {'a': 1, 'Count': 3, 'b': 2}, 'most': 2})}"
    (reply,) = ShapesWriter(WriterDegradation()).write_json([[question]], "", summary_schema(), [0])
    (refused,) = ShapesWriter(WriterDegradation()).write_json(
        [["hello"]], "", summary_schema(), [0]
    )

    assert [p.name for p in read_pattern_reply(str(reply)).patterns] == ["Count", "b"]
    assert isinstance(refused, Failure)
    assert refused.kind == "refused"
