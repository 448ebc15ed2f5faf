"""The data set: families, uniqueness, prefixes, and content that stays the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.sample import Dataset, load_seed_image
from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, load_shapes, parse_caption
from pytest_cepbench.errors import DatasetError

DEFAULT_DIGEST = "67204febf5783f6fe9173dcb9b9fddfc9111f13c9552adceb75d6180b3b40083"


def content(dataset: Dataset) -> list[tuple[str, str | None, str]]:
    """Id, text and image digest of every sample."""
    return [(s.id, s.text, load_seed_image(s).digest) for s in dataset.samples]


def scene_of(text: str | None) -> Scene:
    """The scene of a sample's text."""
    return parse_caption(text or "")


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


@pytest.mark.parametrize("category", sorted(FAMILIES))
def test_scenes_are_of_their_family(category: str) -> None:
    """Each category holds what its documentation says, and nothing else."""
    samples = load_shapes(200).in_category(category)
    assert len(samples) == 200
    assert all(FAMILIES[category](scene_of(sample.text)) for sample in samples)


@pytest.mark.parametrize("category", ["count", "color", "shape", "size"])
def test_numbers_of_objects_are_mixed(category: str) -> None:
    """Two, three and four objects are about equally frequent."""
    samples = load_shapes(300).in_category(category)
    numbers = Counter(len(scene_of(sample.text).objects) for sample in samples)
    assert set(numbers) == {2, 3, 4}
    assert min(numbers.values()) > 70


def test_texts_are_exact_and_metadata_tells_the_scene() -> None:
    """A sample's text is its scene's caption, and its metadata lists the same objects."""
    for sample in load_shapes(4).samples:
        objects = [SceneObject(**thing) for thing in sample.metadata["scene"]]
        assert sample.text == caption(Scene(tuple(objects)))
        digest_json(dict(sample.metadata))  # built-in types only, or this raises


def test_scenes_of_a_category_are_unique_until_the_family_is_used_up() -> None:
    """There are 432 single objects: all come once before any comes again."""
    samples = load_shapes(433).samples
    texts = [sample.text for sample in samples if sample.categories == ("existence",)]
    assert len(set(texts[:432])) == 432
    assert texts[432] in texts[:432]
    for category in set(FAMILIES) - {"existence"}:
        others = [sample.text for sample in samples if sample.categories == (category,)]
        assert len(set(others)) == 433


def test_ids_sort_and_categories_are_all_there() -> None:
    """Ids are category/number with four digits."""
    dataset = load_shapes(2)
    assert [sample.id for sample in dataset.in_category("color")] == ["color/0000", "color/0001"]
    assert set(dataset.categories) == set(FAMILIES)


def test_a_smaller_data_set_is_a_prefix_of_a_larger_one() -> None:
    """Raising the number of samples only adds samples."""
    small, large = content(load_shapes(5)), content(load_shapes(9))
    assert small == [item for item in large if int(item[0].split("/")[1]) < 5]


def test_seeds_give_other_scenes() -> None:
    """The seed decides the scenes, and is part of the identity."""
    first, second = load_shapes(8, seed=0), load_shapes(8, seed=1)
    same = sum(a == b for a, b in zip(content(first), content(second), strict=True))
    assert same == 0
    assert first.identity != second.identity


def test_the_default_data_set_never_changes() -> None:
    """Texts and pixels of all samples: where this fails, `WORLD_VERSION` has to be raised."""
    assert digest_json(content(load_shapes())) == DEFAULT_DIGEST


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_other_processes_make_the_same_data_set(hash_seed: str) -> None:
    """Nothing depends on the process, its hash seed included."""
    script = (
        "from pytest_cepbench.artifacts import digest_json\n"
        "from tests.datasets.shapes.test_samples import content\n"
        "from pytest_cepbench.datasets.shapes import load_shapes\n"
        "print(digest_json(content(load_shapes())))\n"
    )
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == DEFAULT_DIGEST


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_impossible_numbers_are_refused(number: int) -> None:
    """The message says what is possible."""
    with pytest.raises(DatasetError, match=rf"1\.\.10,000, got {number}"):
        load_shapes(number)


def test_a_negative_seed_is_refused() -> None:
    """The message says what was given."""
    with pytest.raises(DatasetError, match="must not be negative, got -3"):
        load_shapes(seed=-3)
