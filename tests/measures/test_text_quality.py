"""Repetition and length of texts, and the share of chains that stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.chains import Modality
from pytest_cepbench.datasets.shapes import caption, parse_image
from pytest_cepbench.errors import MeasurementError, SuiteError
from pytest_cepbench.metrics.diversity import kept_length, repeated_share
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from tests.suites.world import LOSSY, SUITE, TASKS, Staged, stage

TEXTS = """\
name = "texts"
version = 1
[data]
loader = "shapes"
options = {{ samples_per_category = 1, seed = 0 }}
[chain]
start = "image"
iterations = 2
[prompts]
describe = "describe the image"
[roles]
describer = "python:tests.measures.test_text_quality:Speaker?says={describer}"
generator = "shapes:"
encoder = "shapes:"
{metrics}
"""

METRICS = """\
[metrics.repetition]
[metrics.length]
"""


SAYS: dict[str, Callable[[str], str]] = {
    "looping": lambda text: text + " and so on" * 30,
    "chinese": lambda text: "图中有" * len(text.split(",")),
    "silent": lambda _: "",
}
"""What is made of a caption: one thing over and over, a script without spaces, nothing."""


class Speaker:
    """Describes scenes, then adds or says something else."""

    def __init__(self, says: str) -> None:
        self.fingerprint, self.what = says, f"a {says} describer"
        self._say = SAYS[says]

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """What it says of each caption."""
        scenes = (parse_image(ImageArtifact.from_pil(image)) for image in images)
        return [self._say(caption(scene)) for scene in scenes]


def staged(folder: Path, store: Store, describer: str, metrics: str = METRICS) -> Staged:
    """Chains by a describer of this module."""
    text = TEXTS.format(describer=describer, metrics=metrics)
    return stage(folder / describer, text, store)


@pytest.mark.parametrize(
    ("describer", "metric", "score", "least"),
    [
        ("looping", "repetition", lambda _, last: repeated_share(last), 0.8),
        ("chinese", "length", kept_length, 0.0),
    ],
)
def test_the_score_of_a_sample_is_that_of_its_last_description(
    tmp_path: Path, store: Store, describer: str, metric: str, score: Any, least: float
) -> None:
    """A loop is repetition; a length, also of texts without spaces, is compared with the first."""
    suite = staged(tmp_path, store, describer)
    measured = suite.measure(f"overall-{metric}")
    chains = suite.run.data.chains("image", suite.run.dataset.samples)
    expected = {n: score(c.links[1].text, c.links[3].text) for n, c in chains.items()}
    for scores in measured.scores.values():
        own = {name: expected[name] for name in scores}
        assert scores == pytest.approx(own, abs=1e-6)
    assert measured.value > least
    assert measured.shares


def test_a_text_that_is_not_there_has_the_worst_score(tmp_path: Path, store: Store) -> None:
    """Empty texts stop chains, which are counted and never dropped."""
    suite = staged(tmp_path, store, "silent")
    values = {name: suite.measure(f"overall-{name}").value for name in ("repetition", "length")}
    assert values == {"repetition": 1.0, "length": 0.0}
    assert suite.measure("overall-length").failures == {"empty-text": 8}


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        ("[metrics.length]\nat = 1", "there is none before at = 1"),
        ("[metrics.repetition]\nat = 3", "at = 3, and the chains have 2 descriptions"),
        ("[metrics.repetition]\nn = 0", "n is at least 1, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, store: Store, metric: str, problem: str
) -> None:
    """With the suite and the metric."""
    with pytest.raises(SuiteError, match=problem):
        staged(tmp_path, store, "looping", metric + "\n")


BLANK = SUITE.replace(LOSSY, "shapes:?blank=0.2")

BOTH = BLANK.replace('"image"\niterations = 2', '"both"\ngenerations = 5')

NAN = 'encoder = "python:tests.plugin.user_models:encoder?behaviour=nan"'


def _stopped(staged: Staged, start: Modality) -> set[str]:
    chains = staged.run.data.chains(start, staged.run.dataset.samples)
    return {name for name, chain in chains.items() if chain.failure is not None}


def test_a_chain_that_stopped_counts_one(tmp_path: Path, store: Store) -> None:
    """1 for it and 0 for the others, whatever similarities it has; lower is better."""
    staged = stage(tmp_path / "suite", BLANK + "[metrics.gc]\n[metrics.failures]\n", store)
    measured = staged.measure("overall-failures")
    stopped = _stopped(staged, "image")
    assert 0 < len(stopped) < 12
    for scores in measured.scores.values():
        assert scores == {name: float(name in stopped) for name in scores}
    assert (measured.label, measured.higher_is_better) == ("failure rate", False)
    assert measured.failures == {"empty-text": len(stopped)}
    assert measured.curve == ()


def test_of_a_sample_with_two_chains_each_counts_half(tmp_path: Path, store: Store) -> None:
    """One half where one of them stopped; the failures are counted by chain. The chain that failed
    is shown, whichever start it has.
    """
    staged = stage(tmp_path / "suite", BOTH + "[metrics.mcd]\n[metrics.failures]\n", store)
    measured = staged.measure("overall-failures")
    image, text = _stopped(staged, "image"), _stopped(staged, "text")
    assert image ^ text
    for scores in measured.scores.values():
        assert scores == {n: ((n in image) + (n in text)) / 2 for n in scores}
    assert measured.failures == {"empty-text": len(image) + len(text)}
    assert measured.identity["chain"].count("-first") == 2
    case = staged.cases["overall-failures"]
    for name in image ^ text:
        shown = staged.run.show(case, name)
        assert shown is not None
        assert shown.chain.failure is not None
        assert shown.chain.links[0].kind == ("image" if name in image else "text")
    assert staged.run.show(case, "no such sample") is None


def test_what_cannot_be_compared_is_a_failure_too(tmp_path: Path, store: Store) -> None:
    """A NaN vector of the encoder under test stops a chain as an empty text does."""
    text = SUITE.replace(LOSSY, "shapes:") + "[metrics.gc]\n[metrics.failures]\n"
    choices = RoleChoices("python:tests.plugin.user_models:encoder?behaviour=nan", role="encoder")
    staged = stage(tmp_path / "suite", text, store, choices)
    measured = staged.measure("overall-failures")
    assert measured.value == 1.0
    assert measured.failures == {"nan-vector": 12}
    assert measured.identity["metric"].startswith("failures/")


def test_without_an_encoder_the_chains_alone_count(tmp_path: Path, store: Store) -> None:
    """Where pictures are judged by a detector, no encoder is asked for vectors."""
    text = TASKS.replace("?move=0.2", "?blank=0.3") + '[metrics.mgg]\ncolors = "detector"\n'
    staged = stage(tmp_path / "suite", text + "[metrics.failures]\n", store)
    measured = staged.measure("overall-failures")
    stopped = _stopped(staged, "text")
    assert measured.failures == {"blank-image": len(stopped)}
    assert "encoder" not in staged.run.assignments.roles
    for scores in measured.scores.values():
        assert scores == {name: float(name in stopped) for name in scores}


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        ((LOSSY, "shapes:?blank=1.0"), r"describer \(shapes:\?blank=1\.0\): empty-text"),
        (('generator = "shapes:"', 'generator = "shapes:?blank=1.0"'),
         r"generator \(shapes:\?blank=1\.0\): blank-image"),
        (('encoder = "shapes:"', NAN), r"encoder \(python:.*nan\): nan-vector"),
    ],
)  # fmt: skip
def test_where_nothing_worked_and_another_is_under_test_there_is_no_number(
    tmp_path: Path, store: Store, change: tuple[str, str], blamed: str
) -> None:
    """A broken fixed role says nothing of the model under test; the one to blame is named."""
    under_test: RoleName = "generator" if "describer" in blamed else "describer"
    choices = RoleChoices("shapes:", role=under_test)
    text = SUITE.replace(*change)
    assert text != SUITE
    staged = stage(tmp_path / "suite", text + "[metrics.gc]\n[metrics.failures]\n", store, choices)
    for case in ("overall-gc", "a-gc", "overall-failures"):
        with pytest.raises(MeasurementError, match=rf"all \d+ chains failed at the {blamed}: "):
            staged.measure(case)
