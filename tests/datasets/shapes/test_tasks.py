"""GenEval's tasks in the shapes world: the scene has what is asked, an honest drawing is right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from math import comb

import pytest

from pytest_cepbench.artifacts import Detection, ImageArtifact, digest_json
from pytest_cepbench.datasets.sample import Dataset, Sample, load_seed_image
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    object_boxes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.samples import _TASK_FAMILIES, LOOKS, load_shapes_tasks
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, SHAPES
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval import judge
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    MGG_CODE,
    RELATIONS,
    TASKS,
    parse_prompt,
)

DEFAULT_DIGEST = "c8050e29b42ec65a7fd4bf2d6a8b6980a377cfd712fa1a984398aa3d3b4359a9"


def content(dataset: Dataset) -> list[list[object]]:
    """Everything of every sample, the image by its digest."""
    return [
        [s.id, s.categories, s.text, dict(s.metadata), load_seed_image(s).digest]
        for s in dataset.samples
    ]


def found_in(image: ImageArtifact) -> dict[str, list[Detection]]:
    """What the world's own eyes see, sure of everything."""
    objects: dict[str, list[Detection]] = {}
    for item in object_boxes(image):
        detection = Detection(item.what.shape, 1.0, item.box, color=item.what.color)
        objects.setdefault(item.what.shape, []).append(detection)
    return objects


def is_right(sample: Sample, scene: Scene, seed: int = 0) -> bool:
    """Whether a drawing of the scene is what the sample asks for."""
    objects = found_in(render(scene, seed))
    return judge(parse_prompt(sample.metadata), objects, {}).correct


def test_an_honest_generator_gets_everything_right() -> None:
    """What is drawn from the text is right by GenEval's rules, and by those of the MGG code."""
    for number, sample in enumerate(load_shapes_tasks(30, seed=3).samples):
        image = render(parse_caption(sample.text or ""), seed=number)
        prompt = parse_prompt(sample.metadata)
        outcomes = [judge(prompt, found_in(image), {}, rules) for rules in (GENEVAL, MGG_CODE)]
        assert all(item.correct for item in outcomes), (sample.text, outcomes)


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


def test_the_seed_image_shows_the_text() -> None:
    """Image-first chains can start from it too; its scene is in the metadata."""
    for sample in load_shapes_tasks(5).samples:
        scene = parse_image(load_seed_image(sample))
        assert caption(scene) == sample.text
        assert scene == Scene(tuple(SceneObject(**item) for item in sample.metadata["scene"]))


def test_a_lost_object_is_wrong() -> None:
    """In every task: each object of the scene is asked for."""
    for sample in load_shapes_tasks(20).samples:
        objects = parse_caption(sample.text or "").objects
        for item in objects:
            rest = tuple(other for other in objects if other != item)
            assert not is_right(sample, Scene(rest)), sample.text


def test_one_too_many_is_wrong_where_numbers_are_asked() -> None:
    """In counting alone."""
    for sample in load_shapes_tasks(10).samples:
        objects = parse_caption(sample.text or "").objects
        free = next(cell for cell in range(CELLS) if cell not in {item.cell for item in objects})
        more = Scene((*objects, replace(objects[0], cell=free)))
        if sample.categories == ("counting",):
            assert not is_right(sample, more), sample.text
        elif sample.categories == ("two_object",):
            assert is_right(sample, more), sample.text


def test_another_color_is_wrong_where_colors_are_asked() -> None:
    """In colors and color_attr; elsewhere it is not looked at."""
    for sample in load_shapes_tasks(20).samples:
        first, *others = parse_caption(sample.text or "").objects
        color = COLORS[(COLORS.index(first.color) + 1) % len(COLORS)]
        recolored = Scene((replace(first, color=color), *others))
        asked = sample.categories[0] in ("colors", "color_attr")
        assert is_right(sample, recolored) is not asked, sample.text


def test_swapped_places_are_wrong_where_places_are_asked() -> None:
    """In position alone, of the tasks with two objects."""
    for task in ("position", "two_object", "color_attr"):
        for sample in load_shapes_tasks(20).in_category(task):
            first, second = parse_caption(sample.text or "").objects
            swapped = Scene((replace(first, cell=second.cell), replace(second, cell=first.cell)))
            assert is_right(sample, swapped) is (task != "position"), sample.text


def test_prompts_ask_for_what_their_task_is_about() -> None:
    """The clauses are those of GenEval's tasks, over the words of the world."""
    for sample in load_shapes_tasks(50).samples:
        prompt = parse_prompt(sample.metadata)
        assert (prompt.task,) == sample.categories
        assert {item.name for item in prompt.include} <= set(SHAPES)
        assert len({item.name for item in prompt.include}) == len(prompt.include)
        colors = [item.color for item in prompt.include if item.color]
        colored = prompt.task in ("colors", "color_attr")
        assert len(set(colors)) == (len(prompt.include) if colored else 0)
        assert bool(prompt.exclude) is (prompt.task == "counting")
        assert (prompt.include[-1].position is not None) is (prompt.task == "position")
        pairs = ("two_object", "position", "color_attr")
        assert len(prompt.include) == (2 if prompt.task in pairs else 1)


def test_numbers_and_relations_are_mixed() -> None:
    """Two to four objects and all four relations are about equally frequent."""
    dataset = load_shapes_tasks(300)
    prompts = [parse_prompt(sample.metadata) for sample in dataset.samples]
    numbers = Counter(item.include[0].count for item in prompts if item.task == "counting")
    places = Counter(
        item.include[1].position.relation
        for item in prompts
        if item.task == "position" and item.include[1].position
    )
    assert set(numbers) == {2, 3, 4}
    assert set(places) == set(RELATIONS)
    assert min(numbers.values()) > 70
    assert min(places.values()) > 50


def test_a_smaller_data_set_is_a_prefix_of_a_larger_one() -> None:
    """Raising the number of samples only adds samples."""
    small, large = load_shapes_tasks(5), load_shapes_tasks(9)
    few = [sample.id for sample in small.samples]
    assert content(small) == [item for item in content(large) if item[0] in few]


def test_scenes_of_a_task_are_unique_until_they_are_used_up() -> None:
    """There are 432 single objects."""
    dataset = load_shapes_tasks(433)
    for task in TASKS:
        texts = [sample.text for sample in dataset.in_category(task)]
        assert len(set(texts)) == (432 if task in ("single_object", "colors") else 433)


def test_the_default_data_set_never_changes() -> None:
    """Texts, clauses and pixels: where this fails, `WORLD_VERSION` has to be raised."""
    assert digest_json(content(load_shapes_tasks())) == DEFAULT_DIGEST


def test_it_is_another_data_set_than_the_shapes() -> None:
    """By its identity, and by its seed."""
    identities = [load_shapes_tasks().identity, load_shapes_tasks(seed=1).identity]
    assert load_shapes().identity not in identities
    assert identities[0] != identities[1]


def test_impossible_requests_are_refused() -> None:
    """As for the other scenes."""
    with pytest.raises(DatasetError, match=r"1\.\.10,000, got 0"):
        load_shapes_tasks(0)
    with pytest.raises(DatasetError, match="must not be negative, got -3"):
        load_shapes_tasks(seed=-3)
