"""Chains by a recorded model: read from the store, without asking any model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pytest_cepbench.chains import Chain
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import BaselineError
from pytest_cepbench.measures import ChainExcerpt
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.stored_chains import similarity_curve, stored_chains
from tests.suites.spoiling import ASKED
from tests.suites.world import SUITE, Staged, stage

METRICS = "[metrics.gc]\n[metrics.sim]\n[metrics.failures]\n"


Stage = Callable[..., Staged]


@pytest.fixture
def stage_describer(tmp_path: Path) -> Iterator[Stage]:
    """Stages the suite with a describer that spoils some generations; one store for all of them."""
    with Store(tmp_path / "store") as store:

        def staged(at: str, mute: str = "") -> Staged:
            query = f"at={at}&mute={mute}" if mute else f"at={at}"
            model = f"python:tests.suites.spoiling:describer?{query}"
            choices = RoleChoices(model=model, role="describer")
            return stage(tmp_path / "suite", SUITE + METRICS, store, choices)

        yield staged


def _step(staged: Staged) -> str:
    return remember(staged.run.chain_data.runner("describer").bound)


def _ids(staged: Staged) -> list[str]:
    return [sample.id for sample in staged.run.dataset.samples]


def _asked() -> Counter[str]:
    return Counter(ASKED)


def test_chains_are_those_that_were_measured(stage_describer: Stage) -> None:
    """Link by link and with their similarities, and no model is asked for them."""
    before, now = stage_describer("1"), stage_describer("3")
    before.measure("overall-gc")
    asked = _asked()
    case = now.cases["overall-gc"]
    stored = stored_chains(now.run, _step(before))
    assert stored.known(now.cases["overall-gc"], _ids(now)) == _ids(now)
    for name in _ids(now):
        known = before.run.show(case, name)
        excerpt = stored.excerpt(case, name, "image")
        assert known is not None
        assert excerpt is not None
        digests = [link.digest for link in excerpt.chain.links]
        assert digests == [link.digest for link in known.chain.links]
        assert excerpt.marks == known.marks
    assert _asked() == asked


def test_what_is_not_stored_is_not_made(stage_describer: Stage) -> None:
    """Of a model that never ran there are no chains, and it is not asked for any."""
    now = stage_describer("3")
    now.measure("overall-gc")
    asked = _asked()
    other = _step(stage_describer("1-3"))
    stored = stored_chains(now.run, other)
    case = now.cases["overall-gc"]
    assert stored.known(case, _ids(now)) == []
    assert stored.excerpt(case, _ids(now)[0], "image") is None
    assert _asked() == asked


def test_chains_without_vectors_have_no_similarities(stage_describer: Stage) -> None:
    """Chains that were grown and not compared are shown as they are; the encoder is not loaded."""
    before, now = stage_describer("1"), stage_describer("3")
    case = now.cases["overall-gc"]
    before.run.grow([(case, before.run.dataset.samples)])
    before.run.chain_data.chains("image", before.run.dataset.samples)  # waits until all are stored
    stored = stored_chains(now.run, _step(before))
    excerpt = stored.excerpt(case, _ids(now)[0], "image")
    assert excerpt is not None
    assert (len(excerpt.chain.links), excerpt.marks) == (5, {})
    assert stored.scored(case, _ids(now)) == {}


def test_chains_are_complete_as_far_as_the_case_reads(stage_describer: Stage) -> None:
    """SIM reads the first iteration; what is stored beyond it is shown as well."""
    before, now = stage_describer("1"), stage_describer("3")
    before.measure("overall-gc")
    stored = stored_chains(now.run, _step(before))
    excerpt = stored.excerpt(now.cases["overall-sim"], _ids(now)[0], "image")
    assert excerpt is not None
    assert (len(excerpt.chain.links), sorted(excerpt.marks)) == (5, [2])


def test_chains_that_stopped_are_complete(stage_describer: Stage) -> None:
    """A model that says nothing has chains too, with the failure that ended them."""
    before, now = stage_describer("3", mute="1"), stage_describer("1")
    before.measure("overall-gc")
    stored = stored_chains(now.run, _step(before))
    assert stored.known(now.cases["overall-gc"], _ids(now)) == _ids(now)
    excerpt = stored.excerpt(now.cases["overall-gc"], _ids(now)[0], "image")
    assert excerpt is not None
    assert excerpt.failure is not None
    assert (excerpt.failure.kind, excerpt.failed_at) == ("empty-text", 3)


def test_a_step_that_is_none_is_refused(stage_describer: Stage) -> None:
    """A baseline that was edited is a line that names the remedy."""
    now = stage_describer("1")
    with pytest.raises(BaselineError, match="cannot be read"):
        stored_chains(now.run, "{}")


# -- curves --------------------------------------------------------------------------------------


def _excerpts(rows: np.ndarray) -> dict[str, ChainExcerpt]:
    """An excerpt for each row of similarities at the generations 2 and 4."""
    return {
        str(number): ChainExcerpt(
            Chain(Sample(str(number), ("a",), text="x")), dict(zip((2, 4), row, strict=True))
        )
        for number, row in enumerate(rows.tolist())
    }


@pytest.mark.parametrize("samples", [2, 3, 12, 301])
def test_a_curve_has_students_interval(samples: int) -> None:
    """Of independent samples, the ends are those of SciPy's t interval of each mean."""
    rows = np.random.default_rng(0).uniform(0, 1, (samples, 2))
    excerpts = _excerpts(rows)
    curve = similarity_curve(excerpts.get, {name: name for name in excerpts})
    assert curve is not None
    assert (curve.generations, curve.samples) == ((2, 4), samples)
    low, high = stats.t.interval(0.95, samples - 1, rows.mean(axis=0), stats.sem(rows, axis=0))
    assert curve.mean == pytest.approx(rows.mean(axis=0))
    assert curve.low == pytest.approx(low, rel=1e-12)
    assert curve.high == pytest.approx(high, rel=1e-12)


def test_repeated_samples_do_not_narrow_the_interval() -> None:
    """Every sample twice is as much as every sample once, if both are one unit."""
    rows = np.random.default_rng(1).uniform(0, 1, (8, 2))
    single, double = _excerpts(rows), _excerpts(np.repeat(rows, 2, axis=0))
    once = similarity_curve(single.get, {name: name for name in single})
    twice = similarity_curve(double.get, {name: str(int(name) // 2) for name in double})
    assert once is not None
    assert twice is not None
    assert twice.low == pytest.approx(once.low)
    assert twice.high == pytest.approx(once.high)


def test_no_curve_without_every_sample() -> None:
    """A curve over some of the samples would be another one's."""
    excerpts = _excerpts(np.ones((3, 2)))
    assert similarity_curve(excerpts.get, {"0": "0", "1": "1", "gone": "2"}) is None
    assert similarity_curve(excerpts.get, {}) is None
