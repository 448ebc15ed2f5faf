"""equivariance: exact models follow every edit, and priors show in the edits they are blind to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.datasets.edits import swap_sides
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.store import Store
from tests.suites.world import Staged, stage

TEXT = """\
name = "edits"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = {samples} }}
edits = ["mirror", "move", "recolor", "remove"]
[chain]
start = "{start}"
generations = 1
[prompts]
describe = "describe"
[roles]
describer = "shapes:{knobs}"
generator = "shapes:{knobs}"
encoder = "shapes:"
"""

METRIC = "[metrics.equivariance]\n"

PARTS = """\
[metrics.followed]
kind = "equivariance"
score = "followed"
[metrics.kept]
kind = "equivariance"
score = "kept"
"""


def of_shapes(
    folder: Path,
    store: Store,
    knobs: str = "",
    start: str = "image",
    samples: int = 2,
    metrics: str = METRIC,
) -> Staged:
    """A suite of edited scenes under the rule-based models."""
    text = TEXT.format(samples=samples, start="both", knobs=knobs)
    return stage(folder / "suite", f'{text}{metrics}start = "{start}"\n', store)


def by_edit(staged: Staged) -> dict[str, float]:
    """The value of each edit's case."""
    return {
        case.key.part: staged.measure(name).value
        for name, case in staged.cases.items()
        if case.key.metric == "equivariance" and case.key.part != "overall"
    }


@pytest.mark.parametrize("start", ["image", "text"])
def test_exact_models_follow_every_edit(tmp_path: Path, store: Store, start: str) -> None:
    """All cases are 1, over pairs of every edit, and chance gives next to nothing."""
    staged = of_shapes(tmp_path, store, start=start)
    assert by_edit(staged) == {"mirror": 1.0, "move": 1.0, "recolor": 1.0, "remove": 1.0}
    whole = staged.measure("overall-equivariance")
    role = "describer" if start == "image" else "generator"
    assert (whole.value, whole.label) == (1.0, f"equivariance [{role}]")
    assert whole.floor is not None
    assert whole.floor < 0.1
    assert set(whole.scores) == {"mirror", "move", "recolor", "remove"}
    assert whole.clusters["color/0000 move"] == "color/0000"
    assert "recolor: edit followed 1.000, rest kept 1.000, 16 pairs" in whole.notes
    assert staged.measure("mirror-equivariance").n == len(whole.scores["mirror"]) < 16


@pytest.mark.parametrize("start", ["image", "text"])
def test_a_prior_shows_in_recolored_scenes_alone(tmp_path: Path, store: Store, start: str) -> None:
    """A model that says red of everything is consistent, but for the edit that it does not see."""
    values = by_edit(of_shapes(tmp_path, store, "?prior=1", start))
    assert values == {"mirror": 1.0, "move": 1.0, "recolor": 0.0, "remove": 1.0}


@pytest.mark.parametrize("start", ["image", "text"])
def test_a_model_that_sees_no_sides_fails_mirrored_scenes(
    tmp_path: Path, store: Store, start: str
) -> None:
    """Mirror loses most; recoloring, which is told wherever the object is, next to nothing."""
    values = by_edit(of_shapes(tmp_path, store, "?left=1", start))
    assert values["mirror"] < 0.3 < values["move"] < 1.0
    assert values["recolor"] > 0.9
    assert values["mirror"] < min(values["move"], values["remove"], values["recolor"])


@pytest.mark.parametrize("knob", ["miss", "recolor", "reshape", "resize", "move"])
def test_mistakes_that_come_and_go_show_in_what_is_kept(
    tmp_path: Path, store: Store, knob: str
) -> None:
    """A model whose mistakes differ from image to image changes what was not edited."""
    staged = of_shapes(tmp_path, store, f"?{knob}=0.3", metrics=METRIC + PARTS)
    values = {
        metric: staged.measure(f"overall-{metric}").value
        for metric in ("equivariance", "followed", "kept")
    }
    assert values["kept"] < 0.85
    assert values["kept"] < values["followed"]
    assert values["equivariance"] < values["kept"]


def test_more_of_a_knob_is_less_equivariance(tmp_path: Path, store: Store) -> None:
    """In the order of the knob, for each edit-blind one."""
    for knob, edit in (("prior", "recolor"), ("left", "mirror")):
        values = [
            by_edit(of_shapes(tmp_path / f"{knob}{value}", store, f"?{knob}={value}"))[edit]
            for value in (0.2, 1.0)
        ]
        assert 1.0 > values[0] > values[1]


def test_constant_answers_have_no_equivariance(tmp_path: Path, store: Store) -> None:
    """A chain that stopped has 0, and its failure is counted."""
    staged = of_shapes(tmp_path, store, "?blank=0.4")
    whole = staged.measure("overall-equivariance")
    assert whole.failures["empty-text"] > 0
    scores = [score for part in whole.scores.values() for score in part.values()]
    assert set(scores) == {0.0, 1.0}


def test_an_answer_is_shown_with_what_was_expected(tmp_path: Path, store: Store) -> None:
    """The chain of the edited start, its score, and the edited answer that it did not give."""
    staged = of_shapes(tmp_path, store, "?prior=1")
    shown = staged.run.show(staged.cases["recolor-equivariance"], "existence/0000 recolor")
    assert shown is not None
    assert shown.marks == {1: 0.0}
    assert shown.chain.sample.id == "existence/0000 recolor"
    assert shown.remark.startswith(
        "followed 0.00, kept 1.00; compared with 'existence/0000', read there as 'one shape : "
    )
    assert "expected here: 'one shape : " in shown.remark


def test_pairs_whose_starts_are_equal_are_left_out(tmp_path: Path, store: Store) -> None:
    """They are counted in a note, and are no success."""
    text = TEXT.format(samples=2, start="both", knobs="").replace(
        '"mirror", "move", "recolor", "remove"', '"redraw", "recolor"'
    )
    metrics = METRIC + '[metrics.drawn]\nkind = "equivariance"\nstart = "text"\n'
    staged = stage(tmp_path / "suite", text + metrics, store)
    assert list(by_edit(staged).items()) == [("redraw", 1.0), ("recolor", 1.0)]
    assert [case.key.part for case in staged.cases.values() if case.key.metric == "drawn"] == [
        "recolor",
        "overall",
    ]


PHOTOS = """\
name = "photos"
version = 1
[data]
loader = "folder"
edits = ["mirror", "brightness", "contrast", "hue"]
[chain]
start = "image"
generations = 1
[prompts]
describe = "describe"
[roles]
describer = "python:tests.measures.side_tellers:{describer}"
encoder = "python:tests.measures.side_tellers:words"
[metrics.equivariance]
compare = "vectors"
"""


def photos(folder: Path, store: Store, describer: str = "exact") -> Staged:
    """Photographs with a bright spot on one side, and one that is its own mirror image."""
    images = folder / "images"
    images.mkdir(parents=True)
    for number, (column, level) in enumerate([(0, 90), (7, 120), (1, 150), (6, 180), (0, 210)]):
        pixels = np.full((8, 8, 3), 30, np.uint8)
        pixels[number, column] = (level, level // 2, level // 3)
        Image.fromarray(pixels).save(images / f"spot{number}.png")
    Image.new("RGB", (8, 8), (90, 90, 90)).save(images / "plain.png")
    text = PHOTOS.format(describer=describer)
    return stage(folder / "suite", text, store, places={"folder": images})


def test_photographs_are_compared_by_an_encoder(tmp_path: Path, store: Store) -> None:
    """A describer that tells the side of the spot has 1; the symmetric image is left out."""
    staged = photos(tmp_path, store)
    mirror = staged.measure("mirror-equivariance")
    assert mirror.value == pytest.approx(1.0)
    assert mirror.n == 5
    assert "mirror: 1 pairs left out, whose starts it does not change" in mirror.notes
    assert mirror.floor is not None
    assert mirror.floor < 0.9
    assert staged.measure("overall-equivariance").value == pytest.approx(1.0)


def test_a_describer_that_takes_right_for_left_loses_mirrored_photographs(
    tmp_path: Path, store: Store
) -> None:
    """And only those: brightness, contrast and hue change no description of it."""
    values = by_edit(photos(tmp_path, store, "blind"))
    assert values["mirror"] < 0.9
    assert values["brightness"] == values["contrast"] == values["hue"] == pytest.approx(1.0)


def test_texts_without_sides_are_counted(tmp_path: Path, store: Store) -> None:
    """They are expected to stay the same, and the note says how many there are."""
    staged = photos(tmp_path, store, "vague")
    mirror = staged.measure("mirror-equivariance")
    assert "mirror: 5 of 5 answers name no side, and are expected to stay the same" in mirror.notes
    assert swap_sides("a spot in row 3") == "a spot in row 3"


def test_an_encoder_that_sees_nothing_is_refused(tmp_path: Path, store: Store) -> None:
    """One vector for all descriptions cannot show whether an edit was followed."""
    text = PHOTOS.format(describer="exact").replace(":words", ":numb")
    photos(tmp_path, store)
    staged = stage(tmp_path / "numb", text, store, places={"folder": tmp_path / "images"})
    with pytest.raises(MeasurementError, match="gives one vector for 5 texts that differ"):
        staged.measure("mirror-equivariance")


@pytest.mark.parametrize(
    ("edits", "metric", "message"),
    [
        ('["mirror"]', "at = 2", "at = 2, and the chains have 1 generations"),
        ("[]", "", "the data has no edited starts: name some under \\[data\\]"),
        ('["mirror"]', 'edits = ["move"]', "unknown edit of the data 'move'"),
        ('["redraw"]', 'start = "text"', "a text is the same after the edits redraw"),
        ('["move"]', 'compare = "vectors"', "the edit 'move' cannot be made in any text or image"),
        ('["mirror"]', 'compare = "vectors"\nscore = "kept"', "score = 'kept' is of facts"),
    ],
)
def test_settings_that_do_not_fit_are_named(
    tmp_path: Path, store: Store, edits: str, metric: str, message: str
) -> None:
    """With the suite, the metric, and what would fit."""
    text = TEXT.format(samples=1, start="both", knobs="").replace(
        '["mirror", "move", "recolor", "remove"]', edits
    )
    with pytest.raises(SuiteError, match=f"suite 'edits', metric 'equivariance': {message}"):
        stage(tmp_path / "suite", text + METRIC + metric + "\n", store)


def test_facts_of_photographs_are_refused(tmp_path: Path, store: Store) -> None:
    """They have none that are known."""
    photos(tmp_path, store)
    text = PHOTOS.format(describer="exact").replace('compare = "vectors"\n', "")
    staged = stage(tmp_path / "facts", text, store, places={"folder": tmp_path / "images"})
    with pytest.raises(MeasurementError, match="is no generated scene, and compare = 'facts'"):
        staged.measure("mirror-equivariance")


def test_too_few_samples_have_no_pairs(tmp_path: Path, store: Store) -> None:
    """A part that holds starts alone says so."""
    text = TEXT.format(samples=2, start="image", knobs="")
    staged = stage(tmp_path / "suite", text + METRIC, store, most=1)
    with pytest.raises(MeasurementError, match="8 samples hold no pair of a start and the same"):
        staged.measure("overall-equivariance")
