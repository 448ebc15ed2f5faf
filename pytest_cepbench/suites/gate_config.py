"""The rules by which each case is judged: of the run, the test, the case, the metric, the suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pytest_cepbench.errors import SuiteError, unknown_name
from pytest_cepbench.gate import CaseKey, Policy
from pytest_cepbench.gate.policy import GateName
from pytest_cepbench.measures.cases import POOLED, Case, PooledCase
from pytest_cepbench.suites.definition import GateTable, Suite

_DEFAULTS = GateTable()

K = TypeVar("K")


@dataclass(frozen=True)
class Overrides:
    """Settings that override the suite's; None where one is not set.

    gate, tolerance, alpha: as in `Policy`.
    sources: setting -> where it was set.
    """

    gate: GateName | None = None
    tolerance: float | None = None
    alpha: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: Overrides) -> Overrides:
        """These, and the others where they set nothing."""
        names = ("gate", "tolerance", "alpha")
        layers = {name: other if getattr(self, name) is None else self for name in names}
        return Overrides(
            **{name: getattr(layer, name) for name, layer in layers.items()},
            sources={name: layer.sources.get(name, "") for name, layer in layers.items()},
        )


def claim_of(suite: Suite, key: CaseKey, overrides: Overrides) -> tuple[Policy, float]:
    """The rules of a case: of the run or the test, else of `[cases]`, its metric, `[gate]`.

    Returns them with the whole alpha, and the case's weight where the alpha of a run is divided: 0
    where its alpha is its own, or it cannot fail the run by statistics.
    """
    case, gate = suite.table.cases.get(key.within), suite.table.gate
    layers: list[tuple[str, Any]] = [
        (f"[cases.{key.within!r}]", case),
        (f"[metrics.{key.metric}]", suite.metrics.get(key.metric)),
        ("[gate]", gate),
    ]

    def value_and_source(setting: str) -> tuple[Any, str]:
        if getattr(overrides, setting, None) is not None:
            return getattr(overrides, setting), overrides.sources.get(setting, "")
        for source, layer in layers:
            value = getattr(layer, setting, None)
            if value is not None:
                set_here = layer is not gate or value != getattr(_DEFAULTS, setting)
                return value, source if set_here else ""
        return None, ""

    names = ("gate", "tolerance", "anchor_tolerance", "alpha", "weight")
    settings = {name: value_and_source(name) for name in names}
    weight, _ = settings.pop("weight")
    policy = Policy(
        **{name: value for name, (value, _) in settings.items()},
        primary=is_primary(suite, key),
        origins={name: source for name, (_, source) in settings.items() if source},
    )
    own = case is not None and case.alpha is not None and overrides.alpha is None
    shares = policy.primary and policy.statistical and not own
    return policy, (1.0 if weight is None else weight) if shares else 0.0


def is_primary(suite: Suite, key: CaseKey) -> bool:
    """True for a case that can fail a run."""
    patterns = suite.table.gate.primary
    return patterns is None or any(_matches(pattern, key) for pattern in patterns)


def _matches(pattern: str, key: CaseKey) -> bool:
    part, slash, metric = pattern.rpartition("/")
    return metric in ("*", key.metric) and (not slash or part == key.part)


def check_names(suite: Suite, cases: Sequence[Case]) -> None:
    """Raise SuiteError where `[gate] primary` or `[cases]` names what is no case of the suite."""
    names = [case.key.within for case in cases]
    for name in suite.table.cases:
        if name not in names:
            raise SuiteError(f"suite {suite.name!r}, [cases]: {unknown_name('case', name, names)}")
    for pattern in suite.table.gate.primary or ():
        if not any(_matches(pattern, case.key) for case in cases):
            known = sorted({case.key.metric for case in cases} | set(names))
            raise SuiteError(
                f"suite {suite.name!r}, gate.primary: {unknown_name('case', pattern, known)}"
            )


def pooled_case(suite: Suite, cases: Sequence[Case]) -> PooledCase | None:
    """The verdict of the suite as a whole, where it wants one."""
    members = tuple(case for case in cases if is_primary(suite, case.key))
    if not suite.table.gate.pooled or not members:
        return None
    return PooledCase(CaseKey(suite.name, *POOLED), "pooled verdict", members)


def settle(claims: Mapping[K, tuple[Policy, float]]) -> dict[K, Policy]:
    """The policy of every case of a run, with its share of alpha.

    claims: as of `claim_of`, of all cases that the run will judge, by any name. Those with a weight
    get their part of their suite's alpha by it, counted over the whole run, so that the errors add
    up to no more than the largest alpha; the others are judged at the whole of theirs.
    """
    total = sum(weight for _, weight in claims.values())
    return {
        name: replace(policy, alpha=policy.alpha * (weight / total)) if weight else policy
        for name, (policy, weight) in claims.items()
    }
