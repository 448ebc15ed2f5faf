"""MMGenBench's printed figures, recomputed from what it prints: appendix C.3 to C.9."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.metrics.correlation import Method, correlation, mean_of_pairs, shared_ranks
from pytest_cepbench.metrics.human_ratings import Choice, alignment
from pytest_cepbench.metrics.uncertainty import spread_of
from tests.metrics.published.tables import load
from tests.optional import known

Array = npt.NDArray[np.float64]
Matrix = tuple[tuple[float, ...], ...]

TABLE_1, TABLE_6, TABLE_7, TABLE_14 = (load(f"mmgenbench_{n}") for n in (1, 6, 7, 14))

HALF = 0.00005  # of the last digit of numbers with four decimals
SLACK = 6 * HALF  # of a deviation computed from the rounded mean, minimum and maximum


def value_of(first: Array, second: Array, method: Method) -> float:
    """A coefficient that must be defined."""
    return known(correlation(first, second, method)).value


# Human alignment: C.4, Table 2 and C.7

AGREES: Choice = "C1"
DIFFERS: Choice = "B"


@pytest.mark.parametrize(
    ("right", "wrong", "percent"),
    [
        pytest.param(216, 23, 90.4, id="Natural"),
        pytest.param(159, 17, 90.3, id="Symbol"),
        pytest.param(125, 15, 89.3, id="Technology"),
        pytest.param(111, 16, 87.4, id="Artistic"),
        pytest.param(99, 10, 90.8, id="Count"),
        pytest.param(109, 9, 92.4, id="Motion"),
    ],
)
def test_agreement_of_table_2(right: int, wrong: int, percent: float) -> None:
    """All six agreements are right votes among all votes of the pattern."""
    votes = [[AGREES] for _ in range(right)] + [[DIFFERS] for _ in range(wrong)]
    result = alignment([AGREES] * len(votes), votes)
    assert round(100 * (result.votes.share or 0), 1) == percent


@pytest.mark.parametrize(
    ("items", "voters", "right", "percent"), [(1000, 9, 7944, 88.27), (1000, 3, 2763, 92.1)]
)
def test_agreement_with_single_votes(items: int, voters: int, right: int, percent: float) -> None:
    """88.27 % of nine votes on each of 1,000 pairs, and 92.1 % of three on photographs."""
    stream = [AGREES if i < right else DIFFERS for i in range(items * voters)]
    votes = [stream[i : i + voters] for i in range(0, len(stream), voters)]
    result = alignment([AGREES] * items, votes)
    assert (result.items, result.votes.total) == (items, items * voters)
    assert round(100 * (result.votes.share or 0), 2) == percent


def test_agreement_with_majorities() -> None:
    """90.0 % is 900 of 1,000 majorities, which 7,944 of 9,000 single votes allow.

    The votes themselves are not printed. With three choices nine votes need not have a majority;
    the paper divides by all 1,000 items, so here every item has one.
    """
    right = [9] * 344 + [8] * 556 + [4] * 100  # of nine votes on each item
    votes = [[AGREES] * count + [DIFFERS] * (9 - count) for count in right]
    result = alignment([AGREES] * 1000, votes)
    assert (result.votes.right, result.votes.total) == (7944, 9000)
    assert (result.majorities.right, result.majorities.total) == (900, 1000)
    assert round(100 * (result.majorities.share or 0), 1) == 90.0
    assert result.without_majority == 0


# Rankings of Tables 1 and 7


def test_table_1_is_a_part_of_table_7() -> None:
    """The 23 main models have the same four scores among the 55, under other names."""
    every = {tuple(np.nan_to_num(row)) for row in TABLE_7.rows.values()}
    assert (len(TABLE_1.rows), len(TABLE_7.rows)) == (23, 55)
    assert {tuple(np.nan_to_num(row)) for row in TABLE_1.rows.values()} <= every


def test_similarity_and_distance_rank_55_models_nearly_the_same() -> None:
    """Spearman of SIM with -FID on Test is .971."""
    rho = value_of(TABLE_7.column("test_sim"), -TABLE_7.column("test_fid"), "spearman")
    assert rho == pytest.approx(0.971, abs=0.0005)


def test_both_data_sets_rank_the_models_nearly_the_same() -> None:
    """Spearman of SIM on Test with SIM on Domain is .985, over the 52 models with both."""
    domain = TABLE_7.column("domain_sim")
    both = np.isfinite(domain)
    assert both.sum() == 52
    rho = value_of(TABLE_7.column("test_sim")[both], domain[both], "spearman")
    assert rho == pytest.approx(0.985, abs=0.0005)


@pytest.mark.parametrize(
    ("dataset", "samples", "above", "models"), [("test", 1284, 55, 55), ("domain", 10_000, 2, 52)]
)
def test_distances_were_made_of_features_of_any_length(
    dataset: str, samples: int, above: int, models: int
) -> None:
    """Vectors of length 1 would bound FID by 2 (1 - SIM) n / (n - 1): no model keeps it on Test.

    So FID was computed on features as the encoder gives them, not normalised.
    """
    sim, fid = TABLE_7.column(f"{dataset}_sim"), TABLE_7.column(f"{dataset}_fid")
    known = np.isfinite(sim)
    bound = 2 * (1 - sim[known]) * samples / (samples - 1)
    assert (len(bound), (fid[known] > bound).sum()) == (models, above)


# Sensitivity to the generator and the encoder: C.5, C.6

TABLES_9_TO_12: dict[str, tuple[Matrix, float]] = {
    "SIM, Spearman": (
        (
            (1.0000, 0.9912, 0.9769, 0.9851),
            (0.9912, 1.0000, 0.9679, 0.9779),
            (0.9769, 0.9679, 1.0000, 0.9844),
            (0.9851, 0.9779, 0.9844, 1.0000),
        ),
        0.9806,
    ),
    "SIM, Kendall": (
        (
            (1.0000, 0.9394, 0.8828, 0.9111),
            (0.9394, 1.0000, 0.8626, 0.8909),
            (0.8828, 0.8626, 1.0000, 0.9152),
            (0.9111, 0.8909, 0.9152, 1.0000),
        ),
        0.9003,
    ),
    "FID, Spearman": (
        (
            (1.0000, 0.9679, 0.8631, 0.9799),
            (0.9679, 1.0000, 0.7956, 0.9455),
            (0.8631, 0.7956, 1.0000, 0.9013),
            (0.9799, 0.9455, 0.9013, 1.0000),
        ),
        0.9089,
    ),
    "FID, Kendall": (
        (
            (1.0000, 0.8734, 0.7131, 0.8882),
            (0.8734, 1.0000, 0.6458, 0.8182),
            (0.7131, 0.6458, 1.0000, 0.7495),
            (0.8882, 0.8182, 0.7495, 1.0000),
        ),
        0.7814,
    ),
}
"""The matrices over four generators, and their averages in Table 13."""

TABLES_16_TO_19: dict[str, tuple[Matrix, float]] = {
    "SIM, Spearman": (((1, 0.9788, 0.9835), (0.9788, 1, 0.9851), (0.9835, 0.9851, 1)), 0.98),
    "SIM, Kendall": (((1, 0.8869, 0.8990), (0.8869, 1, 0.9098), (0.8990, 0.9098, 1)), 0.90),
    "FID, Spearman": (((1, 0.9891, 0.9898), (0.9891, 1, 0.9876), (0.9898, 0.9876, 1)), 0.99),
    "FID, Kendall": (((1, 0.9246, 0.9273), (0.9246, 1, 0.9138), (0.9273, 0.9138, 1)), 0.92),
}
"""The matrices over three encoders, and their averages as C.6 words them."""


@pytest.mark.parametrize("name", TABLES_9_TO_12)
def test_averages_of_table_13(name: str) -> None:
    """All four are the mean over the six pairs of generators."""
    matrix, average = TABLES_9_TO_12[name]
    assert mean_of_pairs(matrix) == pytest.approx(average, abs=HALF + 1e-9)


@pytest.mark.parametrize("name", TABLES_16_TO_19)
def test_averages_over_encoders(name: str) -> None:
    """The text's four averages are the means over the three pairs of encoders."""
    matrix, average = TABLES_16_TO_19[name]
    assert round(mean_of_pairs(matrix) or 0, 2) == average


@pytest.mark.parametrize(
    "matrix",
    [
        m
        for t in (TABLES_9_TO_12, TABLES_16_TO_19)
        for n, (m, _) in t.items()
        if n.endswith("Kendall")
    ],
)
def test_kendall_was_computed_over_55_models(matrix: Matrix) -> None:
    """Every tau is a difference of pairs over 1,485 = 55 * 54 / 2, odd as 1,485 is: no ties.

    Intervals of these coefficients are those of n = 55.
    """
    for tau in {tau for row in matrix for tau in row}:
        difference = round(tau * 1485)
        assert difference % 2 == 1
        assert round(difference / 1485, 4) == tau


def test_ranges_of_table_14() -> None:
    """Nine of ten are largest minus smallest; Eagle's .0599 is off by rounding of the two."""
    result = TABLE_14.column("max") - TABLE_14.column("min") - TABLE_14.column("range")
    assert np.round(result, 4).tolist() == [0.0001] + [0.0] * 9


def test_deviations_of_table_14_are_those_of_a_sample() -> None:
    """Four numbers with the mean, smallest and largest of a row can deviate as printed, by n - 1.

    Divided by n = 4, the deviations of three rows would be larger than any such numbers have.
    """
    too_large = []
    for (model,), (mean, std, low, high, _) in TABLE_14.rows.items():
        others = 4 * mean - low - high  # the sum of the two that are not printed
        end = low if others < low + high else high  # they lie furthest apart with one at an end
        nearest = np.array([low, high, others / 2, others / 2])
        furthest = np.array([low, high, end, others - end])
        assert spread_of(nearest).std - SLACK <= std <= spread_of(furthest).std + SLACK
        if std > furthest.std() + SLACK:
            too_large.append(model)

    assert too_large == ["Eagle-X5-13B", "VILA1.5-40B", "OmChat"]


# Length: C.7, C.8, Tables 3 and 5

BANDS = {
    # model: SIM at <20, 20-60, >60 words; FID at the same
    "InternVL2-8B": ((0.4968, 0.5478, 0.5701), (1.5337, 1.4037, 1.3171)),
    "Ovis1.6-Gemma2-9B": ((0.5262, 0.5825, 0.5932), (1.4545, 1.3167, 1.2645)),
    "Qwen2-VL-7B-Instruct": ((0.4911, 0.5323, 0.5602), (1.5562, 1.4370, 1.3651)),
    "LLaVA-OneVision-Qwen2-7B": ((0.4494, 0.4888, 0.5245), (1.7247, 1.5904, 1.4734)),
}


@pytest.mark.parametrize(("score", "higher_is_better"), [(0, True), (1, False)])
def test_the_order_of_models_is_that_of_every_band(score: int, *, higher_is_better: bool) -> None:
    """The paper's claim on the order holds for SIM and for FID."""
    ranks = {
        shared_ranks(column, higher_is_better=higher_is_better)
        for column in zip(*(scores[score] for scores in BANDS.values()), strict=True)
    }
    assert ranks == {(2, 1, 3, 4)}


# Seeds: C.9, Table 6


@pytest.mark.parametrize(("score", "rho"), [("sim", 0.9975), ("fid", 0.9970)])
def test_rank_correlation_of_seeds(score: str, rho: float) -> None:
    """What C.9 calls the correlation across seeds is that of Table 1 with the means of Table 6."""
    result = value_of(TABLE_1.column(f"test_{score}"), TABLE_6.column(f"{score}_mean"), "spearman")
    assert result == pytest.approx(rho, abs=HALF + 1e-9)


def test_largest_difference_between_table_1_and_the_means_over_seeds() -> None:
    """The claim "at most 0.004" holds for SIM, with .0035; FID of InternVL2-8B differs by .0181."""
    away = {
        score: abs(TABLE_1.column(f"test_{score}") - TABLE_6.column(f"{score}_mean"))
        for score in ("sim", "fid")
    }
    assert away["sim"].max() == pytest.approx(0.0035, abs=1e-9)
    assert away["fid"].max() == pytest.approx(0.0181, abs=1e-9)
    assert list(TABLE_6.rows)[int(away["fid"].argmax())] == ("InternVL2-8B",)
    assert list(TABLE_1.rows) == list(TABLE_6.rows)


def test_range_of_deviations_over_seeds() -> None:
    """C.9 states the smallest and largest deviations of Table 6 as they are."""
    sim, fid = TABLE_6.column("sim_std"), TABLE_6.column("fid_std")
    assert (sim.min(), sim.max(), fid.min(), fid.max()) == (0.0002, 0.0038, 0.0022, 0.0141)
