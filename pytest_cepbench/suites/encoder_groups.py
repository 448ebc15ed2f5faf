"""Metrics that name several encoders: one metric of each, and the case that they decide together.

`[metrics.gc]` with `encoders = ["encoder", "dino"]` is the metrics `gc-encoder` and `gc-dino`, each
with scores and baselines of its own, which cannot fail a run, and the case `gc`, which can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from pytest_cepbench.errors import unknown_name
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.suites.cases import AgreedCase, Case
from pytest_cepbench.suites.measures import MetricTable
from pytest_cepbench.suites.measures.base import ENCODER

AGREE = 2
"""Encoders that must say so, where the suite does not say how many."""

_FEWEST = 2


class Agreement(msgspec.Struct, frozen=True):
    """A metric that names several encoders.

    table: its settings, which those of its encoders are copies of.
    members: encoder -> the name of its metric.
    """

    table: MetricTable
    members: dict[str, str]


def named_encoders(table: MetricTable) -> list[str]:
    """The encoders that a metric names together; none where it has one of its own."""
    return list(getattr(table, "encoders", ()))


def member_name(metric: str, encoder: str) -> str:
    """The name of one encoder's metric."""
    return f"{metric}-{encoder}"


def split_by_encoder(
    tables: Mapping[str, MetricTable],
) -> tuple[dict[str, MetricTable], dict[str, Agreement]]:
    """Every metric with one encoder, and those that several decide together."""
    metrics: dict[str, MetricTable] = {}
    agreements: dict[str, Agreement] = {}
    for name, table in tables.items():
        encoders = named_encoders(table)
        if not encoders:
            metrics[name] = table
            continue
        members = {encoder: member_name(name, encoder) for encoder in encoders}
        agreements[name] = Agreement(table, members)
        for encoder, member in members.items():
            metrics[member] = msgspec.structs.replace(
                table, kind=table.kind or name, encoder=encoder, encoders=()
            )
    return metrics, agreements


def encoder_problems(
    tables: Mapping[str, MetricTable],
    *,
    specs: Mapping[str, str],
    agree: int | None,
    held_out: Sequence[str],
    reward: str | None,
) -> Iterator[str]:
    """What is wrong with the encoders that metrics name together, a sentence each.

    tables: metrics by name. specs: encoder -> model spec, empty where the command line names it.
    agree, held_out, reward: as in `GateTable`.
    """
    several = {name: named_encoders(t) for name, t in tables.items() if named_encoders(t)}
    for name, encoders in several.items():
        needed = AGREE if agree is None else agree
        yield from _group_problems(name, encoders, tables, specs, needed)
    if agree is not None and not several:
        yield (
            f"gate.agree = {agree}: no metric names several encoders; add "
            'encoders = ["encoder", ...] to one under [metrics]'
        )
    yield from _reward_problems(several, tables, specs, held_out, reward)


def _group_problems(
    name: str,
    encoders: Sequence[str],
    tables: Mapping[str, MetricTable],
    specs: Mapping[str, str],
    agree: int,
) -> Iterator[str]:
    if getattr(tables[name], "encoder", ENCODER) != ENCODER:
        yield f"metric {name!r}: encoder and encoders are two ways to name them; give one"
    if len(set(encoders)) < max(_FEWEST, len(encoders)):
        yield (
            f"metric {name!r}: encoders = {list(encoders)}: at least {_FEWEST} different ones "
            "are expected; one alone is named by encoder"
        )
    for encoder in encoders:
        if encoder not in specs:
            yield f"metric {name!r}: {unknown_name('encoder', encoder, specs)}"
        if member_name(name, encoder) in tables:
            yield (
                f"metric {member_name(name, encoder)!r}: the name belongs to the encoder "
                f"{encoder!r} of metric {name!r}"
            )
    if not 1 <= agree <= len(encoders):
        yield (
            f"gate.agree = {agree}: metric {name!r} has {len(encoders)} encoders, so 1 to "
            f"{len(encoders)} of them can agree"
        )


def _reward_problems(
    several: Mapping[str, Sequence[str]],
    tables: Mapping[str, MetricTable],
    specs: Mapping[str, str],
    held_out: Sequence[str],
    reward: str | None,
) -> Iterator[str]:
    judging = {encoder for encoders in several.values() for encoder in encoders}
    for encoder in held_out:
        if encoder not in specs:
            yield f"gate.held_out: {unknown_name('encoder', encoder, specs)}"
        elif encoder not in judging | _alone(tables):
            yield f"gate.held_out: encoder {encoder!r} judges nothing; name it in a metric"
    if reward is None:
        return
    if reward not in specs:
        yield f"gate.reward: {unknown_name('encoder', reward, specs)}"
    elif reward not in judging:
        yield (
            f"gate.reward: no metric names the encoder {reward!r} beside another one, so nothing "
            "shows where the two part ways; name both in the encoders of a metric"
        )
    for encoder in held_out:
        if encoder == reward or (specs.get(reward) and specs.get(reward) == specs.get(encoder)):
            yield (
                f"gate.held_out: encoder {encoder!r} is the reward's, and what is held out may "
                "be no reward"
            )


def _alone(tables: Mapping[str, MetricTable]) -> set[str]:
    """Encoders that a metric has for itself."""
    named: set[str] = set()
    for table in tables.values():
        encoder = getattr(table, "encoder", None)
        if not named_encoders(table) and encoder is not None:
            named |= {encoder} if isinstance(encoder, str) else set(encoder)
        if hasattr(table, "mappings"):
            named |= {ENCODER} if table.mappings is None else set(table.mappings.values())
    return named


def with_joint(cases: Iterable[Case], agreements: Mapping[str, Agreement]) -> tuple[Case, ...]:
    """The cases, each with the metric of several encoders that its own is one of."""
    joint = {
        member: name
        for name, agreement in agreements.items()
        for member in agreement.members.values()
    }
    return tuple(replace(case, joint=joint.get(case.key.metric, "")) for case in cases)


def agreed_cases(
    cases: Sequence[Case], agreements: Mapping[str, Agreement], agree: int | None
) -> tuple[AgreedCase, ...]:
    """The cases that several encoders decide, part by part. cases: of the single encoders."""
    needed = AGREE if agree is None else agree
    by_key = {case.key: case for case in cases}
    made = []
    for case in cases:
        agreement = agreements.get(case.joint)
        if agreement is None or case.key.metric != next(iter(agreement.members.values())):
            continue
        key = case.key
        label = f"{case.label.partition(' [')[0]} [{needed} of {len(agreement.members)} encoders]"
        made.append(
            AgreedCase(
                CaseKey(key.suite, key.part, case.joint),
                label,
                {
                    encoder: by_key[CaseKey(key.suite, key.part, member)]
                    for encoder, member in agreement.members.items()
                },
                needed,
            )
        )
    return tuple(made)
