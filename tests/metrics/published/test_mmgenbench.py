"""MMGenBench's printed figures, recomputed from what it prints: appendix C.3 to C.9."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.metrics.correlation import correlation, mean_of_pairs, shared_ranks
from pytest_cepbench.metrics.human_ratings import Choice, alignment
from pytest_cepbench.metrics.uncertainty import spread_of
from tests.metrics.published.tables import load
from tests.optional import known

Array = npt.NDArray[np.float64]

TABLE_1, TABLE_6, TABLE_7, TABLE_14 = (load(f"mmgenbench_{n}") for n in (1, 6, 7, 14))

HALF = 0.00005  # of the last digit of numbers with four decimals
SLACK = 6 * HALF  # of a deviation computed from the rounded mean, minimum and maximum


def rho(first: Array, second: Array) -> float:
    """Spearman's coefficient, which must be defined."""
    return known(correlation(first, second, "spearman")).value


# Human alignment: C.4, Table 2 and C.7

AGREES: Choice = "C1"
DIFFERS: Choice = "B"


@pytest.mark.parametrize(
    ("items", "voters", "right", "percent"),
    [
        pytest.param(239, 1, 216, "90.4", id="Natural"),
        pytest.param(176, 1, 159, "90.3", id="Symbol"),
        pytest.param(140, 1, 125, "89.3", id="Technology"),
        pytest.param(127, 1, 111, "87.4", id="Artistic"),
        pytest.param(109, 1, 99, "90.8", id="Count"),
        pytest.param(118, 1, 109, "92.4", id="Motion"),
        (1000, 9, 7944, "88.27"),
        (1000, 3, 2763, "92.10"),
    ],
)
def test_agreement_with_single_votes(items: int, voters: int, right: int, percent: str) -> None:
    """All six agreements of Table 2 are right votes among all votes of the pattern; 88.27 % of nine
    votes on each of 1,000 pairs, and 92.1 % of three on photographs.
    """
    stream = [AGREES if i < right else DIFFERS for i in range(items * voters)]
    votes = [stream[i : i + voters] for i in range(0, len(stream), voters)]
    result = alignment([AGREES] * items, votes)
    assert (result.items, result.votes.total) == (items, items * voters)
    assert f"{100 * (result.votes.share or 0):.{len(percent) - 3}f}" == percent


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


def test_scores_and_data_sets_rank_the_models_nearly_the_same() -> None:
    """Spearman of SIM with -FID on Test is .971, over 55 models; that of SIM on Test with SIM on
    Domain is .985, over the 52 models with both.
    """
    sim, domain = TABLE_7.column("test_sim"), TABLE_7.column("domain_sim")
    both = np.isfinite(domain)
    assert both.sum() == 52
    assert rho(sim, -TABLE_7.column("test_fid")) == pytest.approx(0.971, abs=0.0005)
    assert rho(sim[both], domain[both]) == pytest.approx(0.985, abs=0.0005)


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

TABLES_9_TO_12 = {
    "SIM, Spearman": (0.9912, 0.9769, 0.9851, 0.9679, 0.9779, 0.9844),
    "SIM, Kendall": (0.9394, 0.8828, 0.9111, 0.8626, 0.8909, 0.9152),
    "FID, Spearman": (0.9679, 0.8631, 0.9799, 0.7956, 0.9455, 0.9013),
    "FID, Kendall": (0.8734, 0.7131, 0.8882, 0.6458, 0.8182, 0.7495),
}
"""The matrices over four generators: each pair of them, row by row above the diagonal of ones."""

TABLE_13 = {
    "SIM, Spearman": 0.9806,
    "SIM, Kendall": 0.9003,
    "FID, Spearman": 0.9089,
    "FID, Kendall": 0.7814,
}

TABLES_16_TO_19 = {
    "SIM, Spearman": (0.9788, 0.9835, 0.9851),
    "SIM, Kendall": (0.8869, 0.8990, 0.9098),
    "FID, Spearman": (0.9891, 0.9898, 0.9876),
    "FID, Kendall": (0.9246, 0.9273, 0.9138),
}
"""The matrices over three encoders."""

IN_C_6 = {"SIM, Spearman": 0.98, "SIM, Kendall": 0.90, "FID, Spearman": 0.99, "FID, Kendall": 0.92}


def matrix(pairs: Sequence[float]) -> list[list[float]]:
    """A matrix of coefficients as it is printed."""
    size = {6: 4, 3: 3}[len(pairs)]
    upper = np.zeros((size, size))
    upper[np.triu_indices(size, 1)] = pairs
    whole: list[list[float]] = (upper + upper.T + np.eye(size)).tolist()
    return whole


@pytest.mark.parametrize("name", TABLE_13)
def test_averages_over_generators_and_encoders(name: str) -> None:
    """All four of Table 13 are the mean over the six pairs of generators, and those of C.6 the mean
    over the three pairs of encoders.
    """
    average = mean_of_pairs(matrix(TABLES_9_TO_12[name]))
    assert average == pytest.approx(TABLE_13[name], abs=HALF + 1e-9)
    assert round(mean_of_pairs(matrix(TABLES_16_TO_19[name])) or 0, 2) == IN_C_6[name]


@pytest.mark.parametrize("score", ["SIM", "FID"])
def test_kendall_was_computed_over_55_models(score: str) -> None:
    """Every tau is a difference of pairs over 1,485 = 55 * 54 / 2, odd as 1,485 is: no ties.

    Intervals of these coefficients are those of n = 55.
    """
    for tables in (TABLES_9_TO_12, TABLES_16_TO_19):
        for tau in tables[f"{score}, Kendall"]:
            difference = round(tau * 1485)
            assert difference % 2 == 1
            assert round(difference / 1485, 4) == tau


def test_ranges_and_deviations_of_table_14() -> None:
    """Nine of ten ranges are largest minus smallest; Eagle's .0599 is off by rounding of the two.

    Four numbers with the mean, smallest and largest of a row can deviate as printed, by n - 1.
    Divided by n = 4, the deviations of three rows would be larger than any such numbers have.
    """
    result = TABLE_14.column("max") - TABLE_14.column("min") - TABLE_14.column("range")
    assert np.round(result, 4).tolist() == [0.0001] + [0.0] * 9
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


@pytest.mark.parametrize(
    ("score", "across", "most", "deviations"),
    [("sim", 0.9975, 0.0035, (0.0002, 0.0038)), ("fid", 0.9970, 0.0181, (0.0022, 0.0141))],
)
def test_seeds(score: str, across: float, most: float, deviations: tuple[float, float]) -> None:
    """What C.9 calls the correlation across seeds is that of Table 1 with the means of Table 6.

    The claim "at most 0.004" holds for SIM, with .0035; FID of InternVL2-8B differs by .0181. The
    smallest and largest deviations of Table 6 are stated as they are.
    """
    one, mean = TABLE_1.column(f"test_{score}"), TABLE_6.column(f"{score}_mean")
    assert list(TABLE_1.rows) == list(TABLE_6.rows)
    assert rho(one, mean) == pytest.approx(across, abs=HALF + 1e-9)
    assert abs(one - mean).max() == pytest.approx(most, abs=1e-9)
    if score == "fid":
        assert list(TABLE_6.rows)[int(abs(one - mean).argmax())] == ("InternVL2-8B",)
    deviation = TABLE_6.column(f"{score}_std")
    assert (deviation.min(), deviation.max()) == deviations
