"""repetition and length over chains: their scores, failures and settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.metrics.diversity import kept_length, repeated_share
from pytest_cepbench.store import Store
from tests.suites.world import Staged, stage

SUITE = """\
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
describer = "python:tests.measures.test_text_quality:{describer}"
generator = "shapes:"
encoder = "shapes:"
{metrics}
"""

METRICS = """\
[metrics.repetition]
[metrics.length]
"""


class Speaker:
    """Describes scenes, then adds or says something else."""

    def __init__(self, name: str, say: Any) -> None:
        self.fingerprint, self.what = name, f"a describer that {name}"
        self._say = say

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,
        seeds: Sequence[int],
    ) -> list[str]:
        """What it says of each caption."""
        scenes = (parse_image(ImageArtifact.from_pil(image)) for image in images)
        return [self._say(caption(scene)) for scene in scenes]


def faithful() -> Speaker:
    """Says the caption."""
    return Speaker("faithful", lambda text: text)


def looping() -> Speaker:
    """Says the caption, then one thing over and over."""
    return Speaker("loops", lambda text: text + " and so on" * 30)


def chinese() -> Speaker:
    """Has fallen into a script without spaces."""
    return Speaker("speaks Chinese", lambda text: "图中有" * len(text.split(",")))


def silent() -> Speaker:
    """Says nothing."""
    return Speaker("silent", lambda _: "")


def staged(folder: Path, store: Store, describer: str, metrics: str = METRICS) -> Staged:
    """Chains by a describer of this module."""
    text = SUITE.format(describer=describer, metrics=metrics)
    return stage(folder / describer, text, store)


def test_faithful_texts_have_the_best_of_everything(tmp_path: Path, store: Store) -> None:
    """Captions in English that stay as they are."""
    suite = staged(tmp_path, store, "faithful")
    assert suite.measure("overall-length").value == 1.0
    measured = suite.measure("overall-repetition")
    assert (measured.label, measured.higher_is_better, len(measured.curve)) == (
        "repetition(2)", False, 2,
    )  # fmt: skip


def test_a_loop_is_repetition(tmp_path: Path, store: Store) -> None:
    """The score of a sample is that of its last description."""
    suite = staged(tmp_path, store, "looping")
    measured = suite.measure("overall-repetition")
    chains = suite.run.chain_data.chains("image", suite.run.dataset.samples)
    for scores in measured.scores.values():
        for name, score in scores.items():
            assert score == pytest.approx(
                repeated_share(chains[name].links[3].text or ""), abs=1e-6
            )
    assert measured.value > 0.8
    assert measured.shares


def test_the_length_of_texts_without_spaces_is_counted(tmp_path: Path, store: Store) -> None:
    """The score of a sample is its last description's against its first one's."""
    suite = staged(tmp_path, store, "chinese")
    chains = suite.run.chain_data.chains("image", suite.run.dataset.samples)
    expected = [
        kept_length(chain.links[1].text or "", chain.links[3].text or "")
        for chain in chains.values()
    ]
    assert suite.measure("overall-length").value == pytest.approx(
        sum(expected) / len(expected), abs=1e-6
    )


def test_a_text_that_is_not_there_has_the_worst_score(tmp_path: Path, store: Store) -> None:
    """Empty texts stop chains, which are counted and never dropped."""
    suite = staged(tmp_path, store, "silent")
    values = {name: suite.measure(f"overall-{name}").value for name in ("repetition", "length")}
    assert values == {"repetition": 1.0, "length": 0.0}
    assert suite.measure("overall-length").failures == {"empty-text": 8}


def test_the_example_shows_each_description_s_number(tmp_path: Path, store: Store) -> None:
    """For `--cep-show`: the chain with its marks."""
    suite = staged(tmp_path, store, "looping")
    sample = suite.run.dataset.samples[0].id
    excerpt = suite.run.show(suite.cases["overall-repetition"], sample)
    assert excerpt is not None
    assert sorted(excerpt.marks) == [1, 3]


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
        staged(tmp_path, store, "faithful", metric + "\n")
