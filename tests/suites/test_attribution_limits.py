"""What attribution cannot say: then it says why, in one sentence, and gives no numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.chains.steps import remember
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.attribution import Attribution
from tests.datasets.replay.files import put_table
from tests.suites.spoiling import ASKED
from tests.suites.world import SUITE, Staged, stage

GC = SUITE + "[metrics.gc]\n"

BASELINE = "python:tests.suites.spoiling:describer"

CANDIDATE = "python:tests.suites.spoiling:describer?at=1"


@pytest.fixture
def candidate(tmp_path: Path, store: Store) -> Staged:
    """A describer that spoils its first hop, measured."""
    staged = stage(tmp_path / "suite", GC, store, RoleChoices(model=CANDIDATE))
    staged.measure("overall-gc")
    return staged


def _measured(folder: Path, store: Store, model: str, role: RoleName, most: int | None) -> str:
    """Measure a baseline's model; what the baseline remembers of it."""
    choices = RoleChoices(model=model, role=role)
    staged = stage(folder / "suite", GC, store, choices, most=most)
    staged.measure("overall-gc")
    return remember(staged.run.chain_data.runner(role).bound)


def _silent(attribution: Attribution) -> str:
    assert (
        attribution.samples,
        attribution.drop,
        attribution.hops,
        attribution.first_difference,
    ) == (0, None, (), None)
    return attribution.said


def test_chains_of_another_store(tmp_path: Path, store: Store, candidate: Staged) -> None:
    """No model is asked, and the sentence says which store would do."""
    with Store(tmp_path / "elsewhere") as elsewhere:
        step = _measured(tmp_path, elsewhere, BASELINE, "describer", None)
    calls = ASKED.copy()
    sentence = _silent(candidate.run.attribute(candidate.cases["overall-gc"], step, ()))
    assert sentence.startswith("The baseline's chains are not in this run's store, so")
    assert "--cep-store" in sentence
    assert calls == ASKED


def test_samples_that_the_store_lacks_are_left_out(
    tmp_path: Path, store: Store, candidate: Staged
) -> None:
    """The others are looked at, and how many are missing is said."""
    step = _measured(tmp_path, store, BASELINE, "describer", 2)
    attribution = candidate.run.attribute(candidate.cases["overall-gc"], step, ())
    assert 0 < attribution.samples < 5
    assert attribution.said.endswith(
        f"Left out: {12 - attribution.samples} whose chains by the baseline are not in the store."
    )
    assert attribution.drop is not None
    assert attribution.drop > 0


def test_an_image_that_the_store_lost(tmp_path: Path, store: Store) -> None:
    """The baseline's generator cannot draw it again: the step is named, and no number is given."""
    factory = "python:tests.suites.spoiling:generator"
    baseline, staged = (
        stage(tmp_path / "suite", GC, store, RoleChoices(model=model, role="generator"))
        for model in (factory, f"{factory}?at=4")
    )
    chains = baseline.run.chain_data.chains("image", baseline.run.dataset.samples)
    store.artifact_path(next(iter(chains.values())).links[4].digest).unlink()
    step = remember(baseline.run.chain_data.runner("generator").bound)
    sentence = _silent(staged.run.attribute(staged.cases["overall-gc"], step, ()))
    assert "a step of the baseline's generator is not in the store" in sentence


def test_a_reader_under_test(tmp_path: Path, store: Store) -> None:
    """An encoder plays no hop: the loss is in the reading."""
    step = _measured(tmp_path, store, "python:tests.suites.world:namer", "encoder", None)
    staged = stage(tmp_path / "suite", GC, store, RoleChoices(model="shapes:", role="encoder"))
    staged.measure("overall-gc")
    sentence = _silent(staged.run.attribute(staged.cases["overall-gc"], step, ()))
    assert sentence.startswith("The encoder under test only reads")


def test_the_baseline_s_own_model(tmp_path: Path, store: Store, candidate: Staged) -> None:
    """What differs is not the model: no model can be put back."""
    step = _measured(tmp_path, store, CANDIDATE, "describer", None)
    sentence = _silent(candidate.run.attribute(candidate.cases["overall-gc"], step, ()))
    assert sentence == "The describer is the baseline's own: there is no model to exchange."


def test_chains_made_elsewhere(tmp_path: Path, store: Store, candidate: Staged) -> None:
    """Replayed chains have no model that could play on."""
    samples = candidate.run.dataset.samples
    folder = tmp_path / "made" / "image-first"
    rows = [["filename", "caption"], *([f"{sample.id}.png", "a red circle"] for sample in samples)]
    put_table(folder / "gen-1.csv", rows)
    choices = RoleChoices(model=f"replay:{tmp_path / 'made'}?layout=sdp")
    staged = stage(tmp_path / "suite", GC, store, choices)
    step = _measured(tmp_path, store, BASELINE, "describer", None)
    sentence = _silent(staged.run.attribute(staged.cases["overall-gc"], step, ()))
    assert sentence.startswith("The chains were made elsewhere")


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("", "The baseline does not say whose steps it was measured with"),
        ("{}", "Where the score was lost cannot be said: the baseline's model.step cannot be read"),
        ("[]", "Where the score was lost cannot be said: the baseline's model.step names no role"),
    ],
)
def test_a_baseline_that_does_not_tell(candidate: Staged, step: str, says: str) -> None:
    """An older or an edited baseline is named as the reason."""
    attribution = candidate.run.attribute(candidate.cases["overall-gc"], step, ())
    assert _silent(attribution).startswith(says)


def test_a_sample_of_another_case(candidate: Staged) -> None:
    """The caller's mistake is an error that names the sample."""
    only_a = next(s.id for s in candidate.run.dataset.samples if s.categories == ("a",))
    with pytest.raises(ValueError, match=f"world/b/gc has no sample '{only_a}'"):
        candidate.run.attribute(candidate.cases["b-gc"], "{}", [only_a])


def test_sets_of_other_sizes_are_not_compared(tmp_path: Path, store: Store) -> None:
    """A candidate whose chains stop has smaller sets than its hybrids, as in the gate."""
    text = SUITE + "[metrics.gc_fid]\n"
    baseline = stage(tmp_path / "suite", text, store, RoleChoices(model=BASELINE))
    baseline.measure("overall-gc_fid")
    step = remember(baseline.run.chain_data.runner("describer").bound)
    blank = RoleChoices(model="shapes:?blank=0.2", role="describer")
    staged = stage(tmp_path / "suite", text, store, blank)
    assert staged.measure("overall-gc_fid").failures["empty-text"] > 0
    sentence = _silent(staged.run.attribute(staged.cases["overall-gc_fid"], step, ()))
    assert "sets of other sizes are not compared" in sentence


def test_a_hybrid_that_cannot_be_measured(tmp_path: Path, store: Store) -> None:
    """Sets too small for a distance are the reason that is given."""
    text = SUITE + "[metrics.gc_fid]\n"
    baseline = stage(tmp_path / "suite", text, store, RoleChoices(model=BASELINE))
    baseline.measure("overall-gc_fid")
    step = remember(baseline.run.chain_data.runner("describer").bound)
    staged = stage(tmp_path / "suite", text, store, RoleChoices(model=CANDIDATE))
    ids = [staged.run.dataset.samples[0].id]
    sentence = _silent(staged.run.attribute(staged.cases["overall-gc_fid"], step, ids))
    assert sentence.startswith("Where the score was lost cannot be said: GC_FID@2 [")
    assert "needs at least 2 images" in sentence
