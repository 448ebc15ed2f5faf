"""Numbers from before SciPy made them (t quantiles, drift rates): no library moves a baseline."""

from __future__ import annotations

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.semantic_drift import fit_drift_rate
from pytest_cepbench.metrics.uncertainty import t_quantile, t_upper_quantile
from tests.metrics import t_by_fractions

EXPONENTS = st.floats(-12.0, -0.31)

# (curve at generations 2, 4, ..., 20), confidence, (a, b, c, their errors, low, high, residual)
FITS: list[tuple[list[float], float, tuple[float, ...]]] = [
    (
        [
            0.669385,
            0.578411,
            0.526882,
            0.481808,
            0.448777,
            0.439903,
            0.437364,
            0.425776,
            0.403892,
            0.394672,
        ],
        0.95,
        (
            0.394303774801452,
            0.1867551812650814,
            0.3956892761336783,
            0.016507845827529812,
            0.01730952094197129,
            0.007572489700772888,
            0.14642481427425247,
            0.23169616860496411,
            0.0071298809777380874,
        ),
    ),
    (
        [
            0.671584,
            0.587948,
            0.523782,
            0.467727,
            0.463188,
            0.440751,
            0.418954,
            0.422116,
            0.414575,
            0.410268,
        ],
        0.8,
        (
            0.40942477576059677,
            0.20815842347785157,
            0.40403329408115657,
            0.015952803165076877,
            0.015689005440604902,
            0.005674154786429331,
            0.18679398984707984,
            0.23080418913848186,
            0.006123541796282122,
        ),
    ),
    (
        [
            0.762502,
            0.725924,
            0.695088,
            0.660804,
            0.648011,
            0.622957,
            0.597658,
            0.582053,
            0.563471,
            0.54549,
        ],
        0.95,
        (
            0.40213730576636675,
            0.048659719074648014,
            0.3956309331098313,
            0.032468860726750745,
            0.007289490565154402,
            0.03635931463735964,
            0.03127522702256526,
            0.06633969890933405,
            0.0032343661925634576,
        ),
    ),
    (
        [
            0.5266,
            0.42862,
            0.412184,
            0.401589,
            0.399634,
            0.399652,
            0.39403,
            0.399331,
            0.397413,
            0.409971,
        ],
        0.99,
        (
            0.5238497704102422,
            0.7121952124599688,
            0.40030032001106847,
            0.09026796286748306,
            0.08267347296551555,
            0.0018966841826496546,
            0.48493430466526144,
            1.1935130484283338,
            0.004117452925927726,
        ),
    ),
    (
        [
            0.606489,
            0.516983,
            0.499394,
            0.44947,
            0.387087,
            0.410825,
            0.393529,
            0.406265,
            0.369643,
            0.405827,
        ],
        0.95,
        (
            0.3498091988632391,
            0.22203172267217952,
            0.382714471754974,
            0.047145974503702184,
            0.05373593890328228,
            0.014481178678928832,
            0.11640198310661964,
            0.37137570845451207,
            0.016836339855275505,
        ),
    ),
    (
        [
            0.725888,
            0.665479,
            0.619028,
            0.580572,
            0.549424,
            0.520697,
            0.497533,
            0.479189,
            0.467617,
            0.457404,
        ],
        0.5,
        (
            0.3951487698573185,
            0.10014386310960975,
            0.40213729895437816,
            0.0030288449907083068,
            0.002815818366034109,
            0.004217459262993897,
            0.09815392247389947,
            0.10214096892322398,
            0.001470315959957064,
        ),
    ),
]


@given(EXPONENTS, st.integers(1, 20000))
def test_one_sided_quantiles_have_not_moved(exponent: float, degrees: int) -> None:
    """Of errors from 1e-12 to almost a half."""
    alpha = 10.0**exponent
    expected = t_by_fractions.t_upper_quantile(alpha, degrees)
    assert isclose(t_upper_quantile(alpha, degrees), expected, rel_tol=1e-9)


@given(st.floats(0.01, 0.9999), st.integers(1, 20000))
def test_two_sided_quantiles_have_not_moved(confidence: float, degrees: int) -> None:
    """As drift rates and studies use them."""
    expected = t_by_fractions.t_quantile(confidence, degrees)
    assert isclose(t_quantile(confidence, degrees), expected, rel_tol=1e-9)


@pytest.mark.parametrize(("curve", "confidence", "numbers"), FITS)
def test_drift_rates_have_not_moved(
    curve: list[float], confidence: float, numbers: tuple[float, ...]
) -> None:
    """All numbers of a fit. The least of a sum of squares has half of the digits of its value."""
    fit = fit_drift_rate(range(2, 21, 2), curve, confidence)
    values = (fit.a, fit.b, fit.c, fit.a_error, fit.b_error, fit.c_error)
    assert values == pytest.approx(numbers[:6], rel=1e-7)
    assert (fit.low, fit.high, fit.residual) == pytest.approx(numbers[6:], rel=1e-9)
