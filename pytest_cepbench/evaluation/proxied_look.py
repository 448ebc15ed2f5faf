"""The beginnings of further chains, which stand for whole ones at early looks of a case."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

from pytest_cepbench.errors import RoleError
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.gate import Baseline, Measurement, Policy
from pytest_cepbench.gate.statistics.control_variates import LEAST_WHOLE
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.chain_run import ChainRun

_EXPLAINED = 2 / 3
"""Of the variance of differences: what a proxy is taken to explain, where it is not known yet."""


def proxied(
    evaluator: Evaluator,
    suite_file: Path,
    case: Case,
    policy: Policy,
    baseline: Baseline | None,
    measurement: Measurement,
    *,
    partial: bool,
) -> Measurement:
    """The measurement of a look with the proxies of its samples and, at an early look, of more.

    partial: whether more samples can be looked at.
    The measurement as it is where the suite wants no proxies, the case has none, samples share
    clusters, or, at an early look, there are too few chains or the baseline has other proxies.
    Raises what measuring raises.
    """
    run = evaluator.suite_run(suite_file)
    proxy = run.proxy_of(case, policy.proxy)
    if proxy is None or measurement.clusters or not (policy.primary and policy.statistical):
        return measurement
    assert isinstance(run, ChainRun)  # others have no proxies
    short = run.run_for(proxy)
    identity = f"{policy.proxy}: {short.measures[proxy.key.metric].identity}"
    depth = None
    if partial:
        if measurement.n < LEAST_WHOLE or baseline is None or baseline.proxy != identity:
            return measurement
        depth = run.depth(case, round(proxies_per_chain(run, case, proxy) * measurement.n))
    try:
        evaluator.offer(suite_file, proxy, depth)
        evaluator.shards.compute(suite_file, proxy, depth)
        scores = short.measure(proxy, depth).scores
    except RoleError as error:  # an encoder of images alone
        msg = f'[gate] proxy = "{policy.proxy}" cannot be read: {error}; take "first" or "none"'
        raise RoleError(msg) from error
    return replace(measurement, proxy=identity, proxies=scores)


def proxies_per_chain(run: ChainRun, case: Case, proxy: Case) -> float:
    """How many samples have a proxy for each one with a whole chain.

    sqrt((C - c) r / (c (1 - r))), C and c the generations of a chain and of its beginning and r the
    share of the variance that a proxy explains, is least calls for a variance; r is taken to be two
    thirds.
    Source: Cochran, Sampling Techniques, 1977, section 12.5.
    """
    whole, begun = run.generations(case), run.run_for(proxy).generations(proxy)
    explained = _EXPLAINED / (1 - _EXPLAINED)
    return max(1.0, sqrt((whole - begun) / begun * explained))
