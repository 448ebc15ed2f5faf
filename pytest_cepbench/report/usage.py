"""Usage of a run: that of its cases, and of workers outside of cases, in sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import fsum

from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.report.formatting import counted
from pytest_cepbench.report.result import UsageTotals


def together(efforts: Iterable[UsageTotals]) -> UsageTotals:
    """All of them in one; of no worker."""
    efforts = list(efforts)
    roles: Counter[str] = Counter()
    for effort in efforts:
        roles.update(effort.roles)
    return UsageTotals(
        loads=sum(effort.loads for effort in efforts),
        inputs=sum(effort.inputs for effort in efforts),
        hits=sum(effort.hits for effort in efforts),
        seconds=fsum(effort.seconds for effort in efforts),
        model_seconds=fsum(effort.model_seconds for effort in efforts),
        roles=dict(roles),
        usage=sum((effort.usage for effort in efforts), Usage()),
    )


def between(before: UsageTotals, now: UsageTotals, seconds: float, worker: str) -> UsageTotals:
    """Usage between two states of one process, within these seconds."""
    roles = {role: count - before.roles.get(role, 0) for role, count in now.roles.items()}
    return UsageTotals(
        loads=now.loads - before.loads,
        inputs=now.inputs - before.inputs,
        hits=now.hits - before.hits,
        seconds=seconds,
        model_seconds=max(0.0, now.model_seconds - before.model_seconds),
        roles={role: count for role, count in roles.items() if count},
        usage=now.usage - before.usage,
        worker=worker,
    )


def effort_line(efforts: Iterable[UsageTotals]) -> str:
    """Usage of the run, in one sentence."""
    efforts = list(efforts)
    whole = together(efforts)
    return (
        f"{_loads(efforts, whole)}{whole.inputs} model inputs ({whole.model_seconds:.1f} s in "
        f"models), {whole.hits} results from the store{_usage(whole.usage)}"
    )


def usage_line(usage: Usage) -> str:
    """Requests, tokens and cost that servers counted, in one sentence; empty without a request."""
    if not usage.requests:
        return ""
    retries = f" ({usage.retries} of them again)" if usage.retries else ""
    images = f", {counted(usage.images, 'image')}" if usage.images else ""
    cost = f", cost {usage.cost:.4g}" if usage.cost else ""
    return (
        f"{counted(usage.requests, 'request')}{retries}, {usage.input_tokens} tokens in, "
        f"{usage.output_tokens} out{images}{cost}"
    )


def _usage(usage: Usage) -> str:
    return f"; {usage_line(usage)}" if usage.requests else ""


def _loads(efforts: list[UsageTotals], whole: UsageTotals) -> str:
    if not whole.roles:
        return f"{whole.loads} model loads, "
    by_role = ", ".join(f"{count} {role}" for role, count in whole.roles.items())
    workers = {effort.worker for effort in efforts if effort.loads and effort.worker}
    by = f" by {counted(len(workers), 'worker')}" if workers else ""
    return f"model loads: {by_role}{by}; "
