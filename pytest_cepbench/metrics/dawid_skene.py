"""What each annotator makes of each true answer, estimated without knowing the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.int64]

_MOST_ROUNDS = 500

_CLOSE = 1e-7

_PRIOR = 0.01
"""Votes added to every cell: an annotator with few votes is not taken for one that never errs."""


@dataclass(frozen=True)
class DawidSkene:
    """A fit of the model, in which an item has one true value and annotators err independently.

    shares: (V,) of the true values.
    confusions: (raters, V, V) probability of each vote (column) for each true value (row).
    truth: (items, V) probability of each true value, given the votes on the item.
    """

    shares: FloatArray
    confusions: FloatArray
    truth: FloatArray

    @property
    def accuracies(self) -> FloatArray:
        """(raters,) probability that each annotator's vote is the true value."""
        diagonals = np.diagonal(self.confusions, axis1=1, axis2=2)
        accuracies: FloatArray = diagonals @ self.shares
        return accuracies


def fit_dawid_skene(votes: IntArray, values: int) -> DawidSkene:
    """Fit by expectation and maximization, beginning with the shares of votes on each item.

    votes: (raters, items) numbers below `values`; -1 where a rater did not judge an item.
    Every cell of a confusion has a hundredth of a vote beforehand. For reports: with two annotators
    or few shared items the fit says little, and it may settle on a local maximum. Source: Dawid and
    Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm (1979).
    Raises ValueError for votes out of range, and where no item has a vote.
    """
    if votes.ndim != 2 or values < 1 or ((votes < -1) | (votes >= values)).any():
        msg = f"expected (raters, items) numbers from -1 to {values - 1}, got shape {votes.shape}"
        raise ValueError(msg)
    given = np.stack([votes == value for value in range(values)], axis=2).astype(float)
    counts = given.sum(axis=0)  # of each value for each item
    voted = counts.sum(axis=1) > 0
    if not voted.any():
        msg = "expected at least one vote"
        raise ValueError(msg)
    truth = np.where(voted[:, None], counts, 1.0)
    truth /= truth.sum(axis=1, keepdims=True)
    for _ in range(_MOST_ROUNDS):
        shares = truth[voted].mean(axis=0)
        confusions = np.einsum("it,riv->rtv", truth, given) + _PRIOR
        confusions /= confusions.sum(axis=2, keepdims=True)
        with np.errstate(divide="ignore"):  # a value that is never true has no logarithm
            logs = np.log(shares) + np.einsum("riv,rtv->it", given, np.log(confusions))
        logs -= logs.max(axis=1, keepdims=True)
        updated = np.exp(logs)
        updated /= updated.sum(axis=1, keepdims=True)
        change = float(np.abs(updated - truth).max())
        truth = updated
        if change < _CLOSE:
            break
    return DawidSkene(shares, confusions, truth)
