"""Studies of the embedded world: their numbers are the gate's, and nothing is computed twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.studies.grids import run_study
from pytest_cepbench.studies.prepared_study import prepare_study
from pytest_cepbench.studies.study_data import Named, StudySpec
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
BANDED = Named("banded", "python:tests.studies.toy:BandedDescriber")


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


def test_lengths_count_the_words_that_were_said(tmp_path: Path) -> None:
    """Each band is asked for in the prompt; the counts and the share inside are of what came."""
    result = study(tmp_path, "lengths", [BANDED], metrics=("gc",))
    counted = {row.variant: row.statistics for row in result.words}
    assert list(counted) == ["<20", "20-60", ">60"]
    assert {s.n for s in counted.values()} == {16}
    odd = (counted["<20"].mean or 0) - 19  # share of the texts with one word more
    assert 0 < odd < 1
    for band, words, inside in (("<20", 19, 1 - odd), ("20-60", 60, 1 - odd), (">60", 61, 1.0)):
        assert counted[band].mean == pytest.approx(words + odd)
        assert counted[band].std == pytest.approx(np.sqrt(odd * (1 - odd) * 16 / 15))
        assert counted[band].within == pytest.approx(inside)
    prompts = [cell.identity["describe prompt"] for cell in result.grids[0].cells]
    assert len(set(prompts)) == 3


def test_lengths_say_what_the_suite_says_of_length(tmp_path: Path) -> None:
    """A length in the suite's own prompt and a cut of descriptions are told to the reader."""
    text = TOY.replace('"describe"', '"describe in less than 500 words"\nmax_words = 70')
    result = study(tmp_path, "lengths", [A], text=text)
    assert any("'describe in less than 500 words'" in note for note in result.notes)
    assert any("cut at 70 words" in note for note in result.notes)
    assert not study(tmp_path, "lengths", [A]).notes


@pytest.mark.slow
def test_weighting_compares_the_same_chains(tmp_path: Path) -> None:
    """GC@2 and s(2) are on one set of similarities: (s1 + 2 s2) / 3 and s2."""
    result = study(tmp_path, "weighting", [A, B, C])
    (weighting,) = result.weightings
    assert (weighting.weighted, weighting.last) == ("GC@2", "s(2)")
    text = TOY.replace("[metrics.gc]", '[metrics.gc]\nkind = "s"')
    for row, model in zip(weighting.rows, (A, B, C), strict=True):
        assert row.weighted == gated(tmp_path, TOY, RoleChoices(model.spec))
        assert row.last == gated(tmp_path, text, RoleChoices(model.spec))
        assert row.chains == 16
    assert {c.method for c in weighting.models} == {"pearson", "spearman", "kendall"}
    assert {c.n for c in weighting.models} == {3}


def test_weighting_takes_each_set_of_similarities_once(tmp_path: Path) -> None:
    """gc, s, sim over the same iterations are one comparison; another last iteration is another."""
    text = TOY.replace("iterations = 2", "iterations = 3")
    text += '[metrics.s]\n[metrics.sim]\n[metrics.gc2]\nkind = "gc"\nat = 2\n'
    result = study(tmp_path, "weighting", [A], text=text)
    assert [(w.metric, w.weighted) for w in result.weightings] == [("gc", "GC@3"), ("gc2", "GC@2")]


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


def test_a_model_that_lacks_a_variant_is_left_out_of_correlations(tmp_path: Path) -> None:
    """Its own spread is over what it has; means and correlations over the models that have all."""
    terse = Named("terse", "python:tests.studies.toy:TerseDescriber")
    result = study(tmp_path, "lengths", [A, terse, B, C], metrics=("gc",))
    (grid,) = result.grids
    assert grid.complete == ("a", "b", "c")
    assert [spread.spread.runs for spread in grid.spreads if spread.spread] == [3, 2, 3, 3]
    assert [cell.n for row in grid.agreements[0].matrix for cell in row if cell] == [3] * 9
    assert [(m, v) for m, v, _ in result.errors] == [("terse", ">60")]
    assert [row.variant for row in result.words if row.model == "terse"] == ["<20", "20-60"]


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
