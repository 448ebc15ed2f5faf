"""Studies of the embedded world: their numbers are the gate's, and nothing is computed twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import CepError
from pytest_cepbench.store import Store
from pytest_cepbench.studies.study import (
    ModelSpread,
    Named,
    StudyCell,
    StudySpec,
    prepare_study,
    run_study,
    spread_over,
)
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from tests.optional import known
from tests.studies.toy import COLORS, TOY, A, B, C, seeds, study, values, write_suite

WORLD = Named("world", "shapes:")
MOVING = Named("moving", "shapes:?move=0.3")
DEAD = Named("dead", "shapes:?blank=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For studies and for gates that may find what earlier ones left, in a store of each kind."""
    return tmp_path_factory.mktemp("studies")


def gated(folder: Path, text: str, choices: RoleChoices, part: str = "overall") -> float:
    """GC of a suite's part as the gate measures it, on another store than studies have."""
    suite = load_suite(write_suite(folder, text))
    assignments, measures = assign_models(suite, choices)
    dataset = load_data(suite, {}).repeated(suite.table.chain.seeds)
    cases = list_cases(measures, suite.name, dataset, suite.table.groups)
    (case,) = [c for c in cases if (c.key.part, c.key.metric) == (part, "gc")]
    with Store(folder / "gate") as store:
        return ChainRun(suite, dataset, assignments, measures, ModelPool(store)).measure(case).value


@pytest.mark.slow
def test_a_seed_is_the_suite_with_that_seed(folder: Path) -> None:
    """Each column is what the gate would measure of a suite whose TOML names the seed."""
    result = study(folder, "seeds", [A, B], seeds(0, 7), parts=("crowded",))
    for part in ("overall", "crowded"):
        for i, seed in enumerate((0, 7)):
            text = TOY.replace("iterations = 2", f"iterations = 2\nseed = {seed}")
            for model in (A, B):
                expected = gated(folder, text, RoleChoices(model.spec), part)
                assert values(result, part=part)[model.name][i] == expected
    assert values(result)["a"][0] != values(result)["a"][1]


def test_a_generator_is_the_gates_option(folder: Path) -> None:
    """Each column is what the gate would measure with --generator."""
    result = study(folder, "generators", [A], [WORLD, MOVING])
    expected = [
        gated(folder, TOY, RoleChoices(A.spec, roles={"generator": generator.spec}))
        for generator in (WORLD, MOVING)
    ]
    assert values(result)["a"] == expected
    assert expected[0] != expected[1]


@pytest.mark.parametrize("encoder", ["encoder", "colors"])
def test_an_encoder_is_exchanged_by_its_name(encoder: str, folder: Path) -> None:
    """Only metrics that read the encoder are shown, and they change with it."""
    text = TOY + '[metrics.gc-colors]\nkind = "gc"\nencoder = "colors"\n'
    text += '[encoders]\ncolors = "shapes:"\n'
    result = study(
        folder, "encoders", [A], [WORLD, Named("c", COLORS)], text=text, encoder_name=encoder
    )
    metric = "gc" if encoder == "encoder" else "gc-colors"
    assert {g.metric for g in result.grids if g.metric != "failures"} == {metric}
    expected = [
        gated(folder, TOY, RoleChoices(A.spec, roles={"encoder": spec}))
        for spec in ("shapes:", COLORS)
    ]
    assert values(result, metric)["a"] == expected
    assert expected[0] != expected[1]


def test_what_fails_everything_is_left_out(folder: Path) -> None:
    """A generator's cells say why; the correlation of the others stands. Where a model fails
    everything the rest are too few, which is said instead of a number.

    Failures are counted as the gate does: chains that stopped are in the cell, and in the suite's
    failure rate.
    """
    few: dict[str, Any] = {"metrics": ("gc",), "samples": 1}
    result = study(folder, "generators", [A, B, C], [WORLD, MOVING, DEAD], **few)
    (grid,) = result.grids
    assert [model for model, variant, _ in result.errors if variant == "dead"] == ["a", "b", "c"]
    assert all("blank-image" in why for _, _, why in result.errors)
    assert grid.complete == ("a", "b", "c")
    assert {agreement.variants for agreement in grid.agreements} == {("world", "moving")}
    alone = study(folder, "generators", [A, B, C], [WORLD, MOVING], **few)
    assert grid.agreements == alone.grids[0].agreements
    mute = Named("mute", "python:tests.studies.toy:MuteDescriber")
    result = study(folder, "seeds", [A, B, mute], seeds(0, 1), metrics=("gc",), samples=1)
    (grid,) = result.grids
    assert grid.complete == ("a", "b")
    assert not grid.agreements
    assert "needs 3 models" in (grid.undefined or "")
    assert [spread.spread is None for spread in grid.spreads] == [False, False, True]
    assert "no voice" in result.errors[0][2]
    blank = Named("blank", "shapes:?blank=0.3")
    result = study(folder, "seeds", [blank], seeds(0, 1))
    rate, gc = values(result, "failures"), result.grids[0]
    for cell, share in zip(gc.cells, rate["blank"], strict=True):
        assert sum(cell.failures.values()) / 16 == pytest.approx(share)
        assert share > 0


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    """A second study asks no model; one with a further seed asks for that seed only."""
    first = study(tmp_path, "seeds", [A, B], seeds(0, 1), samples=1)
    again = study(tmp_path, "seeds", [A, B], seeds(0, 1), samples=1)
    more = study(tmp_path, "seeds", [A, B], seeds(0, 1, 2), samples=1)
    assert first.effort.inputs > 0
    assert (again.effort.loads, again.effort.inputs) == (0, 0)
    assert again.grids == first.grids
    assert 0 < more.effort.inputs < first.effort.inputs


def test_models_make_room_for_each_other(tmp_path: Path) -> None:
    """Of the generators that are compared no more than one is loaded at a time."""
    variants = (WORLD, MOVING, Named("resizing", "shapes:?resize=0.4"))
    spec = StudySpec("generators", write_suite(tmp_path), (A, B), variants, samples=1)
    loaded: list[list[str]] = []
    with Store(tmp_path / "store") as store:
        pool = ModelPool(store)

        def look(_: str) -> None:
            runners = pool.runners.items()
            loaded.append([role for (role, _), runner in runners if runner.tally.loads])

        result = run_study(prepare_study(spec, pool), pool, look)
        look("")
    assert max(roles.count("generator") for roles in loaded) == 1
    assert max(roles.count("describer") for roles in loaded) == 1
    assert result.effort.loads >= len(variants)


def test_samples_have_as_many_seeds_as_in_the_gate(folder: Path) -> None:
    """`[chain] seeds` holds for a study too: its numbers are over all chains of each sample."""
    text = TOY.replace("iterations = 2", "iterations = 2\nseeds = 2")
    result = study(folder, "seeds", [A], seeds(0, 7), text=text, metrics=("gc",))
    assert [cell.n for cell in result.grids[0].cells] == [32, 32]
    assert values(result)["a"][0] == gated(folder, text, RoleChoices(A.spec))


@pytest.mark.parametrize(
    ("name", "models", "variants", "message"),
    [
        ("seeds", [A], seeds(3), "at least two: got 3; write --seeds="),
        ("generators", [A], [WORLD], "at least two: got world; give several"),
        ("encoders", [A], [], "at least two: got none; give several"),
        ("seeds", [A, Named("b", A.spec)], [], "the model 'shapes:?miss=0.1' is given twice"),
        ("seeds", [A, Named("a", B.spec)], [], "two are called 'a', each model needs a name"),
        ("seeds", [A], seeds(1, 1), "the seed '1' is given twice"),
    ],
)
def test_rows_and_columns_must_be_apart(
    name: Any, models: list[Named], variants: list[Named], message: str
) -> None:
    """Nothing to compare, and twins under one name or two, are refused with what to do."""
    with pytest.raises(CepError) as caught:
        StudySpec(name, Path("suite.toml"), tuple(models), tuple(variants))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("seeds", {"metrics": ("gcc",)}, "unknown metric 'gcc'. Did you mean 'gc'?"),
        ("seeds", {"parts": ("crowd",)}, "unknown part 'crowd'. Did you mean 'crowded'?"),
        ("encoders", {"encoder_name": "clip"}, "unknown encoder 'clip'"),
        ("seeds", {"encoders": {"clip": "shapes:"}}, "--encoder clip=...: unknown encoder 'clip'"),
        ("encoders", {"role": "encoder"}, "is the encoder, which the study of encoders exchanges"),
        ("seeds", {"role": "detector"}, "the detector under test has no role"),
        ("generators", {"role": "generator"}, "is the generator, which the study"),
    ],
)
def test_what_does_not_fit_the_suite_is_refused(
    name: Any, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Names that the suite does not have and roles that leave nothing to study are told before any
    model is asked.
    """
    variants = {
        "seeds": seeds(0, 1),
        "generators": [WORLD, B],
        "encoders": [WORLD, Named("colors", COLORS)],
    }
    with pytest.raises(CepError) as caught:
        study(tmp_path, name, [A], variants.get(name, []), **settings)
    assert message in str(caught.value)


def test_what_would_compare_nothing_is_refused(tmp_path: Path) -> None:
    """Chains of one seed, models of two roles, and an encoder that no metric reads."""
    replay, encoders = [Named("old", f"replay:{tmp_path}")], [WORLD, Named("c", COLORS)]
    with pytest.raises(CepError, match="cannot take part in a study of seeds"):
        study(tmp_path, "seeds", replay, seeds(0, 1))
    text = TOY.replace("iterations = 2", "iterations = 2\nseeds = 2")
    with pytest.raises(CepError, match="brings one chain of each sample, and suite 'toy' needs 2"):
        study(tmp_path, "encoders", replay, encoders, text=text)
    with pytest.raises(CepError, match=r"have different roles \(a the describer, b the encoder\)"):
        study(tmp_path, "seeds", [A, Named("b", COLORS)], seeds(0, 1))
    text = TOY + '[encoders]\nspare = "shapes:"\n'
    with pytest.raises(CepError, match="reads the encoder 'spare'"):
        study(tmp_path, "encoders", [A], encoders, text=text, encoder_name="spare")


SCORES = st.lists(
    st.integers(min_value=-1000, max_value=1000).map(lambda n: n / 1000), min_size=2, max_size=8
)


def cells(scores: list[float]) -> list[StudyCell]:
    """One model's row."""
    return [StudyCell("m", str(i), value=score, n=1) for i, score in enumerate(scores)]


@given(SCORES)
def test_mean_of_seeds_has_students_interval(scores: list[float]) -> None:
    """The interval of the mean is that of Student's t; equal scores have none."""
    actual = spread_over(cells(scores), sampled=True)
    spread = known(actual.spread)
    assert spread.std == pytest.approx(np.std(scores, ddof=1), abs=1e-12)
    if spread.std == 0:
        assert (actual.low, actual.high) == (None, None)
        return
    stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy's")
    error = stats.sem(scores)
    expected = stats.t.interval(0.95, len(scores) - 1, loc=np.mean(scores), scale=error)
    assert (actual.low, actual.high) == pytest.approx(expected, abs=1e-8)


def test_spreads_without_an_interval() -> None:
    """Generators and encoders are no sample of a population.

    A cell that was not measured is left out of its row; a single number has no spread.
    """
    actual = spread_over(cells([0.1, 0.3, 0.2]), sampled=False)
    assert (actual.low, actual.high) == (None, None)
    assert known(actual.spread).range == pytest.approx(0.2)
    row = [*cells([0.1, 0.3]), StudyCell("m", "x", error="broken")]
    spread = known(spread_over(row, sampled=True).spread)
    assert spread.runs == 2
    assert spread.mean == pytest.approx(0.2)
    assert spread_over(row[1:], sampled=True) == ModelSpread("m", None)
