"""Ratings of models from battles: the ordered logit of all four verdicts, fitted by likelihood.

It gives the probability of a verdict from x = r_A - r_B + delta: the difference of two ratings and
the judge's preference for what it sees first. Source: McCullagh, Regression models for ordinal
data, 1980.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.battles import BattleTable, FloatArray, IntArray

_DRAWS = 20_000  # of the largest error among all differences: its 95 % point is good to a percent

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


def max_t_intervals(
    covariance: FloatArray, *, confidence: float = 0.95, seed: int = 0
) -> FloatArray:
    """Half of the simultaneous intervals of all differences of M normal estimates, (M, M).

    covariance: (M, M) of their errors.
    seed: of the simulation.
    Single-step max-t, the largest of the errors being simulated. Source: Hothorn, Bretz and
    Westfall, Simultaneous inference in general parametric models, 2008.
    """
    size = len(covariance)
    variance = np.diag(covariance)
    errors = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, _TINY))
    draws = np.random.default_rng(seed).multivariate_normal(
        np.zeros(size), covariance, _DRAWS, method="svd", check_valid="ignore"
    )
    left, right = np.triu_indices(size, 1)
    largest = np.abs((draws[:, left] - draws[:, right]) / errors[left, right]).max(
        axis=1, initial=0.0
    )
    half: FloatArray = float(np.quantile(largest, confidence)) * errors
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

    def rank_intervals(self, confidence: float = 0.95) -> tuple[RankInterval, ...]:
        """Ranks of all models, all of them right at once with the given confidence."""
        return ranks_of(self.ratings, max_t_intervals(self.covariance, confidence=confidence))


@dataclass(frozen=True)
class _Terms:
    """Log-probabilities of verdicts, their first and second derivatives: (n,) each.

    x: by the difference of the ratings.
    s: by the log of the tie parameter.
    """

    value: FloatArray
    x: FloatArray
    s: FloatArray
    xx: FloatArray
    xs: FloatArray
    ss: FloatArray


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

    problem = _Problem(table)
    start = np.zeros(problem.size)
    result = minimize(
        problem.loss, start, jac=problem.gradient, hess=problem.hessian, method="trust-exact"
    )
    fitted: FloatArray = result.x
    # An order effect without limit would explain the verdicts best where the likelihood is all but
    # flat, in one direction or in both; the tie parameter is the last.
    try:
        variance = np.linalg.inv(problem.hessian(fitted))[-2, -2]
    except np.linalg.LinAlgError:
        variance = inf
    if not 0 <= variance <= _FLAT:
        raise ValueError(_OPEN)
    covariance = _covariance(problem, table, fitted)
    contrasts = problem.contrasts
    count = contrasts.shape[1]
    ratings = contrasts @ fitted[:count]
    return FittedRatings(
        models=table.models,
        ratings=ratings,
        covariance=contrasts @ covariance[:count, :count] @ contrasts.T,
        order_effect=float(fitted[count]),
        order_error=float(np.sqrt(covariance[count, count])),
        tie=float(fitted[-1]),
        loss=problem.loss_of_verdicts(fitted),
        regularized=problem.regularized,
    )


def _covariance(problem: _Problem, table: BattleTable, fitted: FloatArray) -> FloatArray:
    """(P, P) of the parameters: the sandwich, clustered by question.

    It means nothing with fewer questions than parameters. Below twice as many the battles of a
    question count as copies of one another, which errs on the careful side.
    """
    inverse = np.asarray(np.linalg.inv(problem.hessian(fitted)), dtype=np.float64)
    sizes = np.bincount(table.questions, weights=table.weights)
    count = len(sizes)
    if count < 2 * problem.size:
        return inverse * max(float(sizes.max()), 1.0)
    scores = np.zeros((count, problem.size))
    np.add.at(scores, table.questions, problem.scores(fitted))
    sandwich: FloatArray = inverse @ (scores.T @ scores) @ inverse
    return sandwich


class _Problem:
    """The likelihood of a table.

    Parameters: M - 1 contrasts of ratings, delta, log of the tie.
    """

    def __init__(self, table: BattleTable) -> None:
        ties = np.isin(table.grades, (1, 2))
        self.regularized = _is_separated(table) or bool(ties.all() or not ties.any())
        size = len(table.models)
        # (M, M - 1) with orthonormal columns that sum to 0.
        self.contrasts: FloatArray = np.linalg.svd(np.eye(size) - 1 / size)[0][:, : size - 1]
        signs = np.zeros((len(table), size))
        rows = np.arange(len(table))
        signs[rows, table.first], signs[rows, table.second] = 1.0, -1.0
        self.design = np.hstack([signs @ self.contrasts, np.ones((len(table), 1))])
        if np.linalg.matrix_rank(self.design) < self.design.shape[1]:
            raise ValueError(_OPEN)
        self.size = self.design.shape[1] + 1
        self.weights = table.weights
        self.grades = table.grades

    def _terms(self, parameters: FloatArray) -> _Terms:
        return _terms(self.design @ parameters[:-1], float(parameters[-1]), self.grades)

    def loss_of_verdicts(self, parameters: FloatArray) -> float:
        """Negative log-likelihood without the ridge."""
        return float(-self.weights @ self._terms(parameters).value)

    def loss(self, parameters: FloatArray) -> float:
        """What is minimized."""
        value = self.loss_of_verdicts(parameters)
        if self.regularized:
            terms, _ = self._ridge(parameters)
            value -= float(_RIDGE / 4 * terms.value.sum())
        return value

    def scores(self, parameters: FloatArray) -> FloatArray:
        """(n, P) gradient of each verdict's log-likelihood."""
        terms = self._terms(parameters)
        rows = np.hstack([self.design * terms.x[:, None], terms.s[:, None]])
        scores: FloatArray = rows * self.weights[:, None]
        return scores

    def gradient(self, parameters: FloatArray) -> FloatArray:
        """(P,) of the loss."""
        gradient: FloatArray = -self.scores(parameters).sum(axis=0)
        if self.regularized:
            terms, design = self._ridge(parameters)
            gradient[:-1] -= _RIDGE / 4 * design.T @ terms.x
            gradient[-1] -= _RIDGE / 4 * terms.s.sum()
        return gradient

    def hessian(self, parameters: FloatArray) -> FloatArray:
        """(P, P) of the loss."""
        hessian = _second(self._terms(parameters), self.design, self.weights)
        if self.regularized:
            terms, design = self._ridge(parameters)
            hessian += _second(terms, design, np.full(len(design), _RIDGE / 4))
        return hessian

    def _ridge(self, parameters: FloatArray) -> tuple[_Terms, FloatArray]:
        """Each verdict of each model against an average one, in no order."""
        size = len(self.contrasts)
        design = np.zeros((4 * size, self.size - 1))
        design[:, : size - 1] = np.tile(self.contrasts, (4, 1))
        grades = np.repeat([0, 1, 2, 3], size)
        return _terms(design @ parameters[:-1], float(parameters[-1]), grades), design


def _second(terms: _Terms, design: FloatArray, weights: FloatArray) -> FloatArray:
    size = design.shape[1] + 1
    hessian = np.empty((size, size))
    hessian[:-1, :-1] = -(design * (weights * terms.xx)[:, None]).T @ design
    hessian[:-1, -1] = hessian[-1, :-1] = -design.T @ (weights * terms.xs)
    hessian[-1, -1] = -weights @ terms.ss
    return hessian


_INTERVALS = np.array([(-inf, -1), (-1, 0), (0, 1), (1, inf)])
"""Ends of each verdict, in t: A below x - t, Tie(A) to x, Tie(B) to x + t, B beyond."""


def _terms(x: FloatArray, s: float, grades: IntArray) -> _Terms:
    """A verdict is an interval of a logistic variable; t = e^s sets its ends."""
    t = exp(s)
    low, high = _INTERVALS[grades].T
    lower, upper = _logistic(x, t, low), _logistic(x, t, high)
    p = np.maximum(upper[0] - lower[0], 1e-300)
    by_x = (upper[1] - lower[1]) / p
    by_t = (_scaled(upper[1], high) - _scaled(lower[1], low)) / p
    by_xx = (upper[2] - lower[2]) / p - by_x**2
    by_xt = (_scaled(upper[2], high) - _scaled(lower[2], low)) / p - by_x * by_t
    by_tt = (_scaled(upper[2], high**2) - _scaled(lower[2], low**2)) / p - by_t**2
    return _Terms(np.log(p), by_x, by_t * t, by_xx, by_xt * t, by_tt * t**2 + by_t * t)


def _logistic(
    x: FloatArray, t: float, end: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The logistic function at x + end * t with two derivatives; 0 and 1 at ends without bound."""
    from scipy.special import expit

    finite = np.isfinite(end)
    value = expit(np.where(finite, x + np.where(finite, end, 0) * t, end))
    slope = value * (1 - value)
    return value, slope, slope * (1 - 2 * value)


def _scaled(derivative: FloatArray, factor: FloatArray) -> FloatArray:
    """Their product; 0 at an end without bound, where the derivative is 0."""
    product: FloatArray = derivative * np.where(np.isfinite(factor), factor, 0)
    return product


def _is_separated(table: BattleTable) -> bool:
    """Whether some models won every battle against the others: their ratings have no bound.

    Raises ValueError where the models fall into groups that never met.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(table.models)

    def groups(won: npt.NDArray[np.bool_], lost: npt.NDArray[np.bool_], connection: str) -> int:
        rows = np.concatenate([table.first[won], table.second[lost]])
        columns = np.concatenate([table.second[won], table.first[lost]])
        graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
        count, labels = connected_components(graph, connection=connection)
        if connection == "weak" and count > 1:
            apart = [name for name, label in zip(table.models, labels, strict=True) if label]
            raise ValueError(
                f"{', '.join(apart)} never met {table.models[0]} or a model that did: they cannot "
                "be ranked together"
            )
        return int(count)

    everything = np.ones(len(table), dtype=bool)
    groups(everything, everything, "weak")
    return groups(table.grades < 3, table.grades > 0, "strong") > 1
