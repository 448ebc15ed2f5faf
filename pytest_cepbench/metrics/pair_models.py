"""Ratings of models from battles: the ordered logit of all four verdicts, fitted by likelihood.

It gives the probability of a verdict from x = r_A - r_B + delta: the difference of two ratings and
the judge's preference for what it sees first. Source: McCullagh, Regression models for ordinal
data, 1980.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

import numpy as np

from pytest_cepbench.metrics.battles import BattleTable, FloatArray, IntArray

_DRAWS = 20_000  # of the largest error among all differences: its 95 % point is good to a percent

_AT_ONCE = 10**7  # differences: all those of a hundred models would take gigabytes

_TINY = 1e-150  # variance of a difference that is the same for all samples


@dataclass(frozen=True)
class RankInterval:
    """The ranks that a model may have; 1 is best."""

    low: int
    high: int


def ranks_of(values: FloatArray, half: FloatArray) -> tuple[RankInterval, ...]:
    """The ranks that each of M models may have.

    values: (M,) estimates, higher is better.
    half: (M, M) half of the simultaneous interval of each difference, at least 0.
    A model ranks behind those that are surely better and before those that are surely worse: whose
    interval leaves out 0. Source: Mogstad et al., Inference for ranks, 2024.
    """
    difference = values[:, None] - values[None, :]
    surely = np.abs(difference) > half
    above = (surely & (difference < 0)).sum(axis=1).tolist()
    below = (surely & (difference > 0)).sum(axis=1).tolist()
    return tuple(RankInterval(1 + a, len(values) - b) for a, b in zip(above, below, strict=True))


def max_t_intervals(covariance: FloatArray) -> FloatArray:
    """Half of the simultaneous 95 % intervals of all differences of M normal estimates, (M, M).

    covariance: (M, M) of their errors.
    Single-step max-t, the largest of the errors being simulated. Source: Hothorn, Bretz and
    Westfall, Simultaneous inference in general parametric models, 2008.
    """
    size = len(covariance)
    variance = np.diag(covariance)
    errors = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, _TINY))
    draws = np.random.default_rng(0).multivariate_normal(
        np.zeros(size), covariance, _DRAWS, method="svd", check_valid="ignore"
    )
    left, right = np.triu_indices(size, 1)
    largest = [
        np.abs((some[:, left] - some[:, right]) / errors[left, right]).max(axis=1, initial=0.0)
        for some in np.array_split(draws, 1 + draws.size * size // _AT_ONCE)
    ]
    half: FloatArray = float(np.quantile(np.concatenate(largest), 0.95)) * errors
    return half


ELO = 400 / log(10)
"""Elo points of a rating of 1, which is a logit."""

_RIDGE = 0.5
"""Weight of one battle of each model against an average one, spread over all four verdicts. It is
added where the battles alone leave a parameter without bound."""

_FLAT = 100.0
"""Variance of the order effect from which the likelihood has no maximum. Four battles that tell it
give some 5; where it is without limit, the fit ends in the thousands or beyond."""

_OPEN = (
    "the order of the answers cannot be told from the level of the models: show the same models in "
    "the other order too"
)


@dataclass(frozen=True)
class FittedRatings:
    """Fitted ratings.

    models: names, as in the table.
    ratings: (M,) logits that sum to 0.
    covariance: (M, M) of the ratings, by the sandwich clustered by question.
    order_effect: delta, the logit by which the judge favours the first answer.
    order_error: its standard error.
    tie: log of the tie parameter t.
    loss: negative log-likelihood of the verdicts at the fit.
    regularized: whether the battles alone leave a rating or the tie parameter without bound (a
    model that won everything, no ties), so that half a battle against an average model was added
    for each.
    """

    models: tuple[str, ...]
    ratings: FloatArray
    covariance: FloatArray
    order_effect: float
    order_error: float
    tie: float
    loss: float
    regularized: bool

    @property
    def errors(self) -> FloatArray:
        """(M,) standard errors of the ratings."""
        errors: FloatArray = np.sqrt(np.diag(self.covariance))
        return errors

    def rank_intervals(self) -> tuple[RankInterval, ...]:
        """Ranks of all models, all of them right at once with 95 % confidence."""
        return ranks_of(self.ratings, max_t_intervals(self.covariance))


def fit_ratings(table: BattleTable) -> FittedRatings:
    """Fit the ratings by maximum likelihood.

    Raises ValueError where some models never met the others, directly or through further ones,
    where the judge leaned to the same side in every battle, which says nothing of the models, and
    where the battles leave open whether the order of the answers or the models made a difference.
    """
    to_first = table.grades < 2
    if to_first.all() or not to_first.any():
        side = "first" if to_first.all() else "second"
        raise ValueError(
            f"the judge leaned to the {side} answer in all {len(table)} battles: that says nothing "
            "of the models"
        )
    from scipy.optimize import minimize

    ties = np.isin(table.grades, (1, 2))
    regularized = _is_separated(table) or bool(ties.all() or not ties.any())
    size, count = len(table.models), len(table)
    # (M, M - 1) with orthonormal columns that sum to 0.
    contrasts: FloatArray = np.linalg.svd(np.eye(size) - 1 / size)[0][:, : size - 1]
    signs = np.zeros((count, size))
    rows = np.arange(count)
    signs[rows, table.first], signs[rows, table.second] = 1.0, -1.0
    design = np.hstack([signs @ contrasts, np.ones((count, 1))])
    if np.linalg.matrix_rank(design) < size:
        raise ValueError(_OPEN)
    grades, weights = table.grades, table.weights
    if regularized:  # each verdict of each model against an average one, in no order
        average = np.tile(np.hstack([contrasts, np.zeros((size, 1))]), (4, 1))
        design = np.concatenate([design, average])
        grades = np.concatenate([grades, np.repeat([0, 1, 2, 3], size)])
        weights = np.concatenate([weights, np.full(len(average), _RIDGE / 4)])
    # Parameters: M - 1 contrasts of ratings, delta, log of the tie parameter.
    data = (design, grades, weights)
    result = minimize(
        lambda p: -_likelihood(p, *data)[0],
        np.zeros(size + 1),
        jac=lambda p: -_likelihood(p, *data)[1].sum(axis=0),
        hess=lambda p: -_likelihood(p, *data)[2],
        method="trust-exact",
    )
    _, scores, second = _likelihood(result.x, *data)
    # An order effect without limit would explain the verdicts best where the likelihood is all but
    # flat, in one direction or in both.
    try:
        inverse = np.linalg.inv(-second)
    except np.linalg.LinAlgError:
        raise ValueError(_OPEN) from None
    if not 0 <= inverse[-2, -2] <= _FLAT:
        raise ValueError(_OPEN)
    # The sandwich means nothing with fewer questions than parameters. Below twice as many the
    # battles of a question count as copies of one another, which errs on the careful side.
    sizes = np.bincount(table.questions, weights=table.weights)
    if len(sizes) < 2 * len(inverse):
        covariance = inverse * max(float(sizes.max()), 1.0)
    else:
        by_question = np.zeros((len(sizes), len(inverse)))
        np.add.at(by_question, table.questions, scores[:count])
        covariance = inverse @ (by_question.T @ by_question) @ inverse
    return FittedRatings(
        models=table.models,
        ratings=contrasts @ result.x[: size - 1],
        covariance=contrasts @ covariance[: size - 1, : size - 1] @ contrasts.T,
        order_effect=float(result.x[-2]),
        order_error=float(np.sqrt(covariance[-2, -2])),
        tie=float(result.x[-1]),
        loss=-_likelihood(result.x, design[:count], grades[:count], weights[:count])[0],
        regularized=regularized,
    )


_INTERVALS = np.array([(-inf, -1), (-1, 0), (0, 1), (1, inf)])
"""Ends of each verdict, in t: A below x - t, Tie(A) to x, Tie(B) to x + t, B beyond."""


def _likelihood(
    parameters: FloatArray, design: FloatArray, grades: IntArray, weights: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """The log-likelihood of verdicts, its gradient by verdict (n, P), its Hessian (P, P).

    A verdict is an interval of a logistic variable; t = e^s sets its ends.
    """
    from scipy.special import expit

    x, t = design @ parameters[:-1], exp(parameters[-1])

    def end(place: int) -> tuple[Any, ...]:
        """The logistic function at an end, with its derivatives by x, t, xx, xt and tt."""
        factor = _INTERVALS[grades, place]
        finite = np.isfinite(factor)
        value = expit(np.where(finite, x + np.where(finite, factor, 0) * t, factor))
        factor = np.where(finite, factor, 0)  # the derivatives are 0 at an end without bound
        slope = value * (1 - value)
        bend = slope * (1 - 2 * value)
        return value, slope, slope * factor, bend, bend * factor, bend * factor**2

    p, *parts = (high - low for low, high in zip(end(0), end(1), strict=True))
    p = np.maximum(p, 1e-300)
    by_x, by_t, by_xx, by_xt, by_tt = (part / p for part in parts)
    by_xx, by_xt, by_tt = by_xx - by_x**2, by_xt - by_x * by_t, by_tt - by_t**2
    scores = np.hstack([design * by_x[:, None], (by_t * t)[:, None]]) * weights[:, None]
    hessian = np.empty((scores.shape[1], scores.shape[1]))
    hessian[:-1, :-1] = (design * (weights * by_xx)[:, None]).T @ design
    hessian[:-1, -1] = hessian[-1, :-1] = design.T @ (weights * by_xt * t)
    hessian[-1, -1] = weights @ (by_tt * t**2 + by_t * t)
    return float(weights @ np.log(p)), scores, hessian


def _is_separated(table: BattleTable) -> bool:
    """Whether some models won every battle against the others: their ratings have no bound.

    Raises ValueError where the models fall into groups that never met.
    """
    from scipy.sparse.csgraph import connected_components

    won, lost = table.grades < 3, table.grades > 0
    beat = np.zeros((len(table.models), len(table.models)))  # or did not lose for sure
    beat[table.first[won], table.second[won]] = 1
    beat[table.second[lost], table.first[lost]] = 1
    count, labels = connected_components(beat, connection="weak")
    if count > 1:
        apart = [name for name, label in zip(table.models, labels, strict=True) if label]
        raise ValueError(
            f"{', '.join(apart)} never met {table.models[0]} or a model that did: they cannot be "
            "ranked together"
        )
    return int(connected_components(beat, connection="strong")[0]) > 1
