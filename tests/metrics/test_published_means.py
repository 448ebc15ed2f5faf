"""The means of GenCeption's leaderboard, recomputed from the categories it prints.

Source: leaderboard.json of the GenCeption authors: GC@3 of four models in the 14 categories of MME,
and their means over the ten visual-intensive, the four textual-intensive and all categories. All
numbers are printed with three digits.
"""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.metrics import mean_of_categories

VISUAL = ("Exist", "Count", "Posi", "Col", "Post", "Cel", "Sce", "Lan", "Art", "Comm")
TEXTUAL = ("Code", "Num", "Tran", "OCR")

# model: (GC@3 by category in the order above, VisMean, TextMean, Mean)
LEADERBOARD = {
    "ChatGPT-4V": (
        (0.422, 0.404, 0.408, 0.403, 0.324, 0.332, 0.393, 0.353, 0.421, 0.471),
        (0.193, 0.240, 0.157, 0.393),
        (0.393, 0.246, 0.351),
    ),
    "mPLUG-Owl2": (
        (0.323, 0.299, 0.306, 0.290, 0.243, 0.232, 0.299, 0.275, 0.252, 0.353),
        (0.176, 0.192, 0.081, 0.276),
        (0.287, 0.181, 0.257),
    ),
    "LLaVA-13B": (
        (0.305, 0.294, 0.255, 0.300, 0.215, 0.206, 0.277, 0.242, 0.212, 0.334),
        (0.144, 0.195, 0.116, 0.239),
        (0.264, 0.174, 0.238),
    ),
    "LLaVA-7B": (
        (0.308, 0.253, 0.285, 0.284, 0.214, 0.188, 0.266, 0.252, 0.210, 0.294),
        (0.107, 0.155, 0.111, 0.222),
        (0.255, 0.149, 0.225),
    ),
}

PRINTED = 0.0005 + 1e-9  # half of the last digit of a printed mean
CATEGORY = 0.0005  # and as much for the mean of categories that were rounded before


@pytest.mark.parametrize("model", LEADERBOARD)
def test_the_leaderboards_means_come_out(model: str) -> None:
    """VisMean, TextMean and Mean are the unweighted means of 10, 4 and 14 categories.

    The mean over all is that of the 14 categories: the mean of the two group means would miss the
    printed number by more than 0.01 for every model.
    """
    visual, textual, printed = LEADERBOARD[model]
    by_category = dict(zip((*VISUAL, *TEXTUAL), (*visual, *textual), strict=True))
    groups = (VISUAL, TEXTUAL, (*VISUAL, *TEXTUAL))
    means = [mean_of_categories({c: np.array([by_category[c]]) for c in group}) for group in groups]
    np.testing.assert_allclose(means, printed, rtol=0, atol=PRINTED + CATEGORY)
    assert abs((means[0] + means[1]) / 2 - printed[2]) > 0.01


def test_the_leaderboards_ranking_comes_out() -> None:
    """Models stand in the order of the printed means, which is that of the recomputed ones."""
    recomputed = {
        model: mean_of_categories(
            {str(i): np.array([x]) for i, x in enumerate((*visual, *textual))}
        )
        for model, (visual, textual, _) in LEADERBOARD.items()
    }
    assert sorted(recomputed, key=lambda model: -recomputed[model]) == list(LEADERBOARD)
