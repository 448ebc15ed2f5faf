"""geneval and mgg: whether pictures show what their prompts ask for, over tasks and generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, ImageArtifact, Mask
from pytest_cepbench.chains import load_link
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.shapes import object_boxes
from pytest_cepbench.errors import MeasurementError, ModelError, SuiteError
from pytest_cepbench.gate import Policy, Verdict, record_of
from pytest_cepbench.gate import judge as compare
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.metrics.geneval import COLORS, judge
from pytest_cepbench.metrics.geneval_prompts import TASKS, objects_by_class, parse_prompt, queries
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from tests.suites.world import TASKS as SUITE
from tests.suites.world import Namer, Staged, stage

METRICS = """\
[metrics.geneval]
colors = "detector"
[metrics.mgg]
colors = "detector"
[metrics.micro]
kind = "mgg"
colors = "detector"
pool = "samples"
[metrics.failures]
"""

PERFECT = SUITE.replace("?miss=0.3&recolor=0.2", "").replace("?move=0.2", "")
"""Models that lose nothing: every picture shows what its prompt says."""

GENERATIONS = (1, 3, 5)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Staged:
    """Lossy chains, judged by the embedded detector, which tells colors."""
    return stage(tmp_path_factory.mktemp("suite"), SUITE + METRICS, store)


@pytest.fixture(scope="module")
def right(staged: Staged) -> dict[str, list[bool]]:
    """Whether each picture of each sample is right, by the rules on what is really in it."""
    chain_data = staged.run.data
    scores: dict[str, list[bool]] = {}
    for name, chain in chain_data.chains("text", chain_data.dataset.samples).items():
        prompt = parse_prompt(chain.sample.metadata)
        asked = queries(prompt, "class")
        scores[name] = []
        for generation in GENERATIONS:
            seen: tuple[Any, ...] = ()
            if chain.has(generation):
                seen = object_boxes(
                    ImageArtifact.from_pil(load_link(chain, generation, chain_data.store))
                )
            boxes = [
                Detection(detection.what.shape, 1.0, detection.box, color=detection.what.color)
                for detection in seen
                if detection.what.shape in asked
            ]
            objects = objects_by_class(Detections(tuple(boxes)), asked)
            scores[name].append(chain.has(generation) and not judge(prompt, objects, {}))
    return scores


def _by_task(staged: Staged, values: Mapping[str, float]) -> dict[str, float]:
    dataset = staged.run.dataset
    return {
        task: float(np.mean([values[s.id] for s in dataset.in_category(task)]))
        for task in dataset.categories
    }


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_the_share_of_its_right_pictures(
    staged: Staged, right: dict[str, list[bool]], task: str
) -> None:
    """GenEval judges the first picture, MGG all of them; the score of a prompt is its own share."""
    own = [sample.id for sample in staged.run.dataset.in_category(task)]
    first = staged.measure(f"{task}-geneval")
    assert first.scores == {task: {name: float(right[name][0]) for name in own}}
    every = staged.measure(f"{task}-mgg")
    assert every.scores == {
        task: pytest.approx({name: float(np.mean(right[name])) for name in own}, abs=1e-6)
    }
    assert (first.label, every.label) == ("GenEval", "MGG")
    assert (first.n, every.n) == (len(own), len(own))


def test_the_whole_is_the_mean_of_the_tasks(staged: Staged, right: dict[str, list[bool]]) -> None:
    """Whatever number of prompts they have; the micro-average of pictures is asked for by name. The
    course is the whole at each generation; GenEval has one generation only.
    """
    shares = {name: float(np.mean(row)) for name, row in right.items()}
    tasks = _by_task(staged, shares)
    assert staged.measure("overall-mgg").value == pytest.approx(
        np.mean(list(tasks.values())), abs=1e-6
    )
    micro = staged.measure("overall-micro")
    assert micro.value == pytest.approx(np.mean(list(shares.values())), abs=1e-6)
    assert abs(micro.value - np.mean(list(tasks.values()))) > 1e-3
    assert set(micro.scores) == {"overall"}
    for metric in ("mgg", "micro"):
        expected = []
        for column in range(3):
            values = {name: float(row[column]) for name, row in right.items()}
            means = _by_task(staged, values) if metric == "mgg" else values
            expected.append(np.mean(list(means.values())))
        assert staged.measure(f"overall-{metric}").curve == pytest.approx(tuple(expected))
    assert staged.measure("overall-geneval").curve == ()


@pytest.mark.parametrize("rate", ["0.3", "1.0"])
def test_a_missing_picture_is_wrong_and_counted(tmp_path: Path, store: Store, rate: str) -> None:
    """From the generation on at which the chain stopped; the prompt stays in its task."""
    choices = RoleChoices(f"shapes:?blank={rate}", role="generator")
    staged = stage(tmp_path / "suite", PERFECT + METRICS, store, choices)
    measured = staged.measure("overall-mgg")
    chains = staged.run.data.chains("text", staged.run.dataset.samples)
    for scores in measured.scores.values():
        for name, score in scores.items():
            drawn = sum(chains[name].has(generation) for generation in GENERATIONS)
            assert score == pytest.approx(drawn / 3, abs=1e-6)
    stopped = [chain for chain in chains.values() if chain.failure is not None]
    assert len(stopped) == len(chains) if rate == "1.0" else 0 < len(stopped) < len(chains)
    assert measured.failures == {"blank-image": len(stopped)}
    assert measured.n == len(chains) == 2 + 3 + 4 + 5 + 6 + 7


# -- detectors of the world's shapes that tell no colors, as a user writes them


class Spotter:
    """Finds shapes. queries: what it may be asked. score: its confidence in everything."""

    what = "a spotter"

    def __init__(self, queries: str = "classes", score: str = "1.0") -> None:
        self.fingerprint = f"{type(self).__name__}/1/{queries}/{score}"
        self.queries = queries
        self.score = float(score)

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections]:
        """The shapes that answer a query: by name, or in words, with a color or without."""
        return [self._one(*pair) for pair in zip(images, queries, strict=True)]

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections:
        seen = object_boxes(ImageArtifact.from_pil(image))
        detections = [
            Detection(query, self.score, each.box)
            for each in seen
            for query in asked
            if query.removeprefix("a photo of a ")
            in (each.what.shape, f"{each.what.color} {each.what.shape}")
        ]
        return Detections(tuple(detections))


class Masked(Spotter):
    """Draws masks of another size than the picture's."""

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections:
        detections = super()._one(image, asked)
        mask = Mask(2, 2, (4,))
        return Detections(tuple(replace(detection, mask=mask) for detection in detections.found))


class Unseeing(Spotter):
    """Finds each object that it is asked for in the middle, whatever is shown."""

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections:
        return Detections(tuple(Detection(q, 1.0, (8, 8, 16, 16), color="red") for q in asked[:1]))


def test_a_detector_of_one_box_holds_nothing(tmp_path: Path, store: Store) -> None:
    """Whatever is drawn gets the same scores; no checkpoint is held by them."""
    text = SUITE.replace('detector = "shapes:"', f'detector = "python:{__name__}:Unseeing"')
    measured = stage(tmp_path / "suite", text + METRICS, store).measure("overall-geneval")
    assert measured.value > 0
    judgement = compare(measured, record_of(measured), Policy())
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.reasons[0].startswith("the detector found the same boxes in all ")


def _tasks(detector: str, colors: str, more: str = "") -> str:
    text = PERFECT.replace('detector = "shapes:"', f'detector = "{detector}"')
    return text + f'[metrics.geneval]\ncolors = "{colors}"\n{more}'


@pytest.mark.parametrize("queries", ["classes", "free-text"])
def test_colors_by_a_dual_encoder(tmp_path: Path, store: Store, queries: str) -> None:
    """The nearest of GenEval's ten; cyan, which is none of them, is never found."""
    spotter = f"python:{__name__}:Spotter?queries={queries}"
    staged = stage(tmp_path / "suite", _tasks(spotter, "clip"), store)
    scores = {
        k: v for part in staged.measure("overall-geneval").scores.values() for k, v in part.items()
    }
    known = {None, *COLORS}
    assert scores == {
        s.id: float(all(clause.color in known for clause in parse_prompt(s.metadata).include))
        for s in staged.run.dataset.samples
    }
    assert 0.0 in scores.values()
    assert readers_of(staged.run.measures["geneval"].required_features(None)) == (
        "detector",
        "encoder",
    )


class OneColor(Namer):
    """It tells colors of texts apart, and none of images."""

    fingerprint = "one color/1"

    def encode_images(self, images: Any) -> Any:
        """(n, 3), all equal."""
        return np.ones((len(images), 3))


def no_clauses() -> Dataset:
    """A prompt that cannot be judged."""
    return Dataset("bare", {}, (Sample("one", ("a",), text="a circle"),))


FOUR_EACH = 'loader = "shapes-tasks"\noptions = { samples_per_category = 4 }'


@pytest.mark.parametrize(
    ("detector", "colors", "data", "case", "message"),
    [
        (f"python:{__name__}:Spotter", "clip", FOUR_EACH, "color_attr",
         "gives one vector for 8 cut-outs that differ"),
        (f"python:{__name__}:Masked", "clip", "", "colors",
         r"in 'colors/000\d' cannot be cut out: a mask of 2 x 2 pixels does not fit"),
        (f"python:{__name__}:Spotter", "detector", "", "colors",
         r"the detector tells none .*: use colors = 'clip'"),
        ("shapes:", "detector", f'loader = "python:{__name__}:no_clauses"', "overall",
         "sample 'one' has no clauses to judge its images by"),
    ],
    ids=["an encoder that sees no colors", "masks that do not fit", "no colors", "no clauses"],
)  # fmt: skip
def test_what_cannot_be_judged_is_an_error(
    tmp_path: Path, store: Store, detector: str, colors: str, data: str, case: str, message: str
) -> None:
    """Of the model, the data set or the sample, in words. An encoder would find the same color
    everywhere, which is known of eight cut-outs.
    """
    text = _tasks(detector, colors).replace("tests.suites.world:Namer", f"{__name__}:OneColor")
    if data:
        text = text.replace('loader = "python:tests.suites.world:uneven_tasks"', data)
    staged = stage(tmp_path / "suite", text, store)
    with pytest.raises((MeasurementError, ModelError), match=message) as raised:
        staged.measure(f"{case}-geneval")
    assert isinstance(raised.value, ModelError) == detector.endswith("Masked")


def test_the_thresholds_are_those_of_the_rules_unless_given(tmp_path: Path, store: Store) -> None:
    """A confidence of one half is over 0.3 and not over the 0.9 of counting."""
    detector = f"python:{__name__}:Spotter?queries=free-text&score=0.5"
    staged = stage(tmp_path / "suite", _tasks(detector, "clip"), store)
    tasks = [task for task in TASKS if "color" not in task]
    values = {task: staged.measure(f"{task}-geneval").value for task in tasks}
    assert values == {task: float(task != "counting") for task in tasks}
    colored = _tasks(detector, "clip", "counting_threshold = 0.4\nthreshold = 0.6\n")
    other = stage(tmp_path / "other", colored, store)
    values = {task: other.measure(f"{task}-geneval").value for task in tasks}
    assert values == {task: float(task == "counting") for task in tasks}
    metric = [each.measure("overall-geneval").identity["metric"] for each in (staged, other)]
    assert "threshold=0.3 counting_threshold=0.9 max_objects=16" in metric[0]
    assert "threshold=0.6 counting_threshold=0.4 max_objects=16" in metric[1]


def test_a_setting_out_of_range_is_refused(tmp_path: Path, store: Store) -> None:
    """By suite, metric and setting; so are picture rules for chains that start from images."""
    with pytest.raises(SuiteError, match=r"'tasks', metric 'geneval': threshold lies in \[0, 1\]"):
        stage(tmp_path / "suite", _tasks("shapes:", "detector", "threshold = 1.5\n"), store)
    with pytest.raises(SuiteError, match="color_encoder = 'color': with colors = 'detector' none"):
        stage(tmp_path / "suite", _tasks("shapes:", "detector", 'color_encoder = "color"\n'), store)
    images = _tasks("shapes:", "detector").replace('"text"', '"image"')
    with pytest.raises(SuiteError, match="metric 'geneval': there are no text-first chains"):
        stage(tmp_path / "suite", images, store)


def test_a_sample_is_shown_with_what_was_wrong(
    staged: Staged, right: dict[str, list[bool]]
) -> None:
    """1 at the pictures that are right, 0 at the others, and why the first of those is not."""
    name = next(name for name, row in right.items() if row[0] and not row[-1])
    shown = staged.run.show(staged.cases["overall-mgg"], name)
    assert shown is not None
    assert list(shown.marks.items()) == [
        (generation, float(correct))
        for generation, correct in zip(GENERATIONS, right[name], strict=True)
    ]
    wrong = GENERATIONS[right[name].index(False)]
    assert shown.remark.startswith(f"generation {wrong}: ")
    assert "expected" in shown.remark
    first = staged.run.show(staged.cases["overall-geneval"], name)
    assert first is not None
    assert (first.marks, first.remark) == ({1: 1.0}, "")
