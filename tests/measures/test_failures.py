"""failures: the share of chains that stopped, and who is to blame when all of them did."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.chains import Modality
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from tests.suites.world import LOSSY, SUITE, TASKS, Staged, stage

BLANK = SUITE.replace(LOSSY, "shapes:?blank=0.2")

BOTH = BLANK.replace('"image"\niterations = 2', '"both"\ngenerations = 5')

NAN = 'encoder = "python:tests.plugin.user_models:encoder?behaviour=nan"'


def _stopped(staged: Staged, start: Modality) -> set[str]:
    chains = staged.run.chain_data.chains(start, staged.run.dataset.samples)
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
    """One half where one of them stopped; the failures are counted by chain."""
    staged = stage(tmp_path / "suite", BOTH + "[metrics.mcd]\n[metrics.failures]\n", store)
    measured = staged.measure("overall-failures")
    image, text = _stopped(staged, "image"), _stopped(staged, "text")
    assert image ^ text
    for scores in measured.scores.values():
        assert scores == {n: ((n in image) + (n in text)) / 2 for n in scores}
    assert measured.failures == {"empty-text": len(image) + len(text)}
    assert measured.identity["chain"].count("-first") == 2


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


def test_parts_can_be_asked_for(tmp_path: Path, store: Store) -> None:
    """`parts = "all"` gates the rate of each category as well."""
    text = BLANK + '[metrics.gc]\n[metrics.failures]\nparts = "all"\n'
    staged = stage(tmp_path / "suite", text, store)
    assert [case for case in staged.cases if case.endswith("failures")] == [
        "a-failures", "b-failures", "overall-failures",
    ]  # fmt: skip
    rates = [staged.measure(f"{part}-failures").value for part in ("a", "b", "overall")]
    assert rates[2] == pytest.approx((rates[0] + rates[1]) / 2, abs=2e-6)


def test_the_chain_that_stopped_is_shown(tmp_path: Path, store: Store) -> None:
    """Of two, the one that failed, whichever start it has; the first one where both are whole."""
    staged = stage(tmp_path / "suite", BOTH + "[metrics.mcd]\n[metrics.failures]\n", store)
    image, text = _stopped(staged, "image"), _stopped(staged, "text")
    case = staged.cases["overall-failures"]
    for name in image ^ text:
        shown = staged.run.show(case, name)
        assert shown is not None
        assert shown.chain.failure is not None
        assert shown.chain.links[0].kind == ("image" if name in image else "text")
    assert staged.run.show(case, "no such sample") is None


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
