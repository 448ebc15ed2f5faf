"""Studies of the embedded world: their numbers are the gate's, and nothing is computed twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.studies.study import Named, StudySpec, prepare_study, run_study
from pytest_cepbench.suites import (
    ChainRun,
    ModelPool,
    RoleChoices,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from tests.studies.toy import COLORS, TOY, A, B, C, seeds, study, values, write_suite

WORLD = Named("world", "shapes:")
MOVING = Named("moving", "shapes:?move=0.3")
DEAD = Named("dead", "shapes:?blank=1")


def gated(folder: Path, text: str, choices: RoleChoices, part: str = "overall") -> float:
    """GC of a suite's part as the gate measures it, on a store of its own."""
    suite = load_suite(write_suite(folder, text))
    assignments, measures = assign_models(suite, choices)
    dataset = load_data(suite, {}).repeated(suite.table.chain.seeds)
    cases = list_cases(measures, suite.name, dataset, suite.table.groups)
    (case,) = [c for c in cases if (c.key.part, c.key.metric) == (part, "gc")]
    with Store(folder / "gate") as store:
        return ChainRun(suite, dataset, assignments, measures, ModelPool(store)).measure(case).value


@pytest.mark.slow
def test_a_seed_is_the_suite_with_that_seed(tmp_path: Path) -> None:
    """Each column is what the gate would measure of a suite whose TOML names the seed."""
    result = study(tmp_path, "seeds", [A, B], seeds(0, 7), parts=("crowded",))
    for part in ("overall", "crowded"):
        for i, seed in enumerate((0, 7)):
            text = TOY.replace("iterations = 2", f"iterations = 2\nseed = {seed}")
            for model in (A, B):
                expected = gated(tmp_path, text, RoleChoices(model.spec), part)
                assert values(result, part=part)[model.name][i] == expected
    assert values(result)["a"][0] != values(result)["a"][1]


def test_a_generator_is_the_gates_option(tmp_path: Path) -> None:
    """Each column is what the gate would measure with --generator."""
    result = study(tmp_path, "generators", [A], [WORLD, MOVING])
    expected = [
        gated(tmp_path, TOY, RoleChoices(A.spec, roles={"generator": generator.spec}))
        for generator in (WORLD, MOVING)
    ]
    assert values(result)["a"] == expected
    assert expected[0] != expected[1]


@pytest.mark.parametrize("seat", ["encoder", "colors"])
def test_an_encoder_is_exchanged_in_its_seat(seat: str, tmp_path: Path) -> None:
    """Only metrics that read the seat are shown, and they change with it."""
    text = TOY + '[metrics.gc-colors]\nkind = "gc"\nencoder = "colors"\n'
    text += '[encoders]\ncolors = "shapes:"\n'
    result = study(tmp_path, "encoders", [A], [WORLD, Named("c", COLORS)], text=text, seat=seat)
    metric = "gc" if seat == "encoder" else "gc-colors"
    assert {g.metric for g in result.grids if g.metric != "failures"} == {metric}
    expected = [
        gated(tmp_path, TOY, RoleChoices(A.spec, roles={"encoder": spec}))
        for spec in ("shapes:", COLORS)
    ]
    assert values(result, metric)["a"] == expected
    assert expected[0] != expected[1]


def test_a_generator_that_fails_everything_is_left_out(tmp_path: Path) -> None:
    """Its cells say why; the correlation of the others stands."""
    result = study(tmp_path, "generators", [A, B, C], [WORLD, MOVING, DEAD], metrics=("gc",))
    (grid,) = result.grids
    assert [model for model, variant, _ in result.errors if variant == "dead"] == ["a", "b", "c"]
    assert all("blank-image" in why for _, _, why in result.errors)
    assert grid.complete == ("a", "b", "c")
    assert {agreement.variants for agreement in grid.agreements} == {("world", "moving")}
    alone = study(tmp_path, "generators", [A, B, C], [WORLD, MOVING], metrics=("gc",))
    assert grid.agreements == alone.grids[0].agreements


def test_a_model_that_fails_everything_is_left_out_of_correlations(tmp_path: Path) -> None:
    """With it the rest are too few, which is said instead of a number."""
    mute = Named("mute", "python:tests.studies.toy:MuteDescriber")
    result = study(tmp_path, "seeds", [A, B, mute], seeds(0, 1), metrics=("gc",))
    (grid,) = result.grids
    assert grid.complete == ("a", "b")
    assert not grid.agreements
    assert "needs 3 models" in (grid.undefined or "")
    assert [spread.spread is None for spread in grid.spreads] == [False, False, True]
    assert "no voice" in result.errors[0][2]


def test_failures_are_counted_as_the_gate_does(tmp_path: Path) -> None:
    """Chains that stopped are in the cell, and in the suite's failure rate."""
    blank = Named("blank", "shapes:?blank=0.3")
    result = study(tmp_path, "seeds", [blank], seeds(0, 1))
    rate, gc = values(result, "failures"), result.grids[0]
    for cell, share in zip(gc.cells, rate["blank"], strict=True):
        assert sum(cell.failures.values()) / 16 == pytest.approx(share)
        assert share > 0


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    """A second study asks no model; one with a further seed asks for that seed only."""
    first = study(tmp_path, "seeds", [A, B], seeds(0, 1))
    again = study(tmp_path, "seeds", [A, B], seeds(0, 1))
    more = study(tmp_path, "seeds", [A, B], seeds(0, 1, 2))
    assert first.effort.inputs > 0
    assert (again.effort.loads, again.effort.inputs) == (0, 0)
    assert again.grids == first.grids
    assert 0 < more.effort.inputs < first.effort.inputs


def test_models_make_room_for_each_other(tmp_path: Path) -> None:
    """Of the generators that are compared no more than one is loaded at a time."""
    variants = (WORLD, MOVING, Named("resizing", "shapes:?resize=0.4"))
    spec = StudySpec("generators", write_suite(tmp_path), (A, B), variants)
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


def test_samples_have_as_many_seeds_as_in_the_gate(tmp_path: Path) -> None:
    """`[chain] seeds` holds for a study too: its numbers are over all chains of each sample."""
    text = TOY.replace("iterations = 2", "iterations = 2\nseeds = 2")
    result = study(tmp_path, "seeds", [A], seeds(0, 7), text=text, metrics=("gc",))
    assert [cell.n for cell in result.grids[0].cells] == [32, 32]
    assert values(result)["a"][0] == gated(tmp_path, text, RoleChoices(A.spec))
