"""The page of a judge's card, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_cepbench.cli.agree import (
    agreement_table,
    confusion_table,
    number,
    share,
)
from pytest_cepbench.cli.output import Section, Table
from pytest_cepbench.metrics.judge_card import JudgeCard, OrderEffect
from pytest_cepbench.studies.judge_card import FEW_BATTLES, MeasuredJudge


def card_page(measured: MeasuredJudge, command: str) -> Iterator[Section]:
    """The sections of a card: the judge in sentences, then tables."""
    card = measured.card
    title = f"card of the judge {measured.judge}: {card.battles:,} battles that people judged too"
    yield Section(title, (f"command: {command}", *_findings(measured), *_notes(measured)))
    yield Section("agreement with people, in percent", (agreement_table(card.agreements),))
    yield Section("win rates with ties as 1/2, in percent", (*_biases(measured), _win_rates(card)))
    counts = confusion_table(measured.people, measured.judge, card.confusion)
    yield Section("verdicts", (counts,))


def _findings(measured: MeasuredJudge) -> Iterator[str]:
    card = measured.card
    yield measured.sentence
    if measured.shown_win_rate is not None:
        yield (
            f"of a true win rate of {measured.true_win_rate:.2f} it would show "
            f"{measured.shown_win_rate:.3f} (standard error {measured.shown_error:.3f})"
        )
    yield f"it names the winner where people prefer the first answer: {share(card.first_right)}"
    yield f"where they prefer the second: {share(card.second_right)}"
    yield f"order effect: {_order(card.order)}; of people: {_order(card.people_order)}"
    if measured.both_orders_advised:
        yield "ask it in both orders: its order effect is large, or cannot be told"
    else:
        yield "one call in balanced order sees nearly as much as both orders"
    if card.both_orders is not None:
        both = card.both_orders
        yield (
            f"both orders: the same model is preferred in {share(both.consistent)} of "
            f"{both.pairs} pairs; the first answer in {both.first}, the second in {both.second} "
            f"(fairness {both.fairness:+.2f}, from -1, always the first, to 1)"
        )
    if card.stability is not None:
        yield (
            f"asked again: the same of the four verdicts in {share(card.stability.labels)}, the "
            f"same side in {share(card.stability.forced)}"
        )
    yield (
        f"Krippendorff's alpha: {number(card.alpha)}; correlation of scores: "
        f"{number(card.score_correlation)}, within the battles of a model "
        f"{number(card.score_correlation_within)}"
    )


def _notes(measured: MeasuredJudge) -> Iterator[str]:
    if measured.card.battles < FEW_BATTLES:
        yield f"fewer than {FEW_BATTLES} battles: the intervals are wide, and this card is a sketch"
    asked = measured.asked
    if asked is not None:
        yield f"judge: {asked.judge.identity}; {asked.order} orders, seed {asked.seed}"
        for kind, count in asked.failures.items():
            yield f"no verdict {count} times: {kind}"
        for reason, count in asked.left_out.items():
            yield f"left out: {count} battles {reason}"
    if measured.unknown_models:
        yield f"models that people did not judge: {', '.join(measured.unknown_models)}"
    yield (
        f"battles of {measured.judge} alone: {measured.judge_alone}; of {measured.people} alone: "
        f"{measured.people_alone}"
    )
    seen = ", ".join(measured.seen) or "not said (--seen MODEL), so all count as seen"
    yield f"models known while the judge was made: {seen}"


def _biases(measured: MeasuredJudge) -> Iterator[str]:
    card = measured.card
    largest = card.largest_bias
    yield (
        f"bias: {100 * measured.bias_rms:.1f} points (root mean square), the largest "
        f"{100 * largest.bias:+.1f} for {largest.model}"
    )
    if card.slope is not None:
        meaning = "exaggerates" if card.slope > 1 else "flattens"
        yield (
            f"slope of its win rates on people's: {card.slope:.2f}, so it {meaning} differences "
            "between models"
        )


def _win_rates(card: JudgeCard) -> Table:
    rows = tuple(
        (m.model, f"{100 * m.people:.1f}", f"{100 * m.judge:.1f}", f"{100 * m.bias:+.1f}")
        for m in card.models
    )
    return Table(("model", "people", "judge", "bias"), rows)


def _order(effect: OrderEffect | None) -> str:
    if effect is None:
        return "cannot be told"
    return f"{effect.logit:+.3f} logits for the first answer (standard error {effect.error:.3f})"
