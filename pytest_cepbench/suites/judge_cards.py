"""Cards of judges that are kept beside the baselines, for runs to say how good their judge is.

`BASELINES/judges/` holds a file for each judge. A card is of one judge alone: the weights, the
prompt, the precision and every other setting that enters the keys of its verdicts. The card of
another judge is never used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.escapes import one_line
from pytest_cepbench.files import read_text
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.suites.model_pool import describe_role

JUDGE_CARDS = "judges"
"""Below the folder of baselines."""

_DIGITS = 10

_UNKNOWN = "how well it agrees with people is not known here: `cepbench agree judges` measures it"


@dataclass(frozen=True)
class JudgeIdentity:
    """A judge, as its card names it.

    spec: what the user typed.
    identity: what it is in a line: architecture, adapter, first digits of the fingerprint,
        parameters.
    fingerprint: digest of everything that decides its verdicts besides its parameters.
    step: all that enters the keys of its verdicts, as canonical JSON.
    """

    spec: str
    identity: str
    fingerprint: str
    step: str


def identify_judge(bound: BoundRole) -> JudgeIdentity:
    """The identity of a bound judge."""
    return JudgeIdentity(bound.spec, describe_role(bound), bound.fingerprint, remember(bound))


def card_path(baselines: Path, judge: JudgeIdentity) -> Path:
    """The file of a judge's card: readable, and of this judge alone by a digest."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", judge.spec).strip("-").lower()[-40:].strip("-")
    return baselines / JUDGE_CARDS / f"{slug}-{digest_text(judge.step)[:_DIGITS]}.json"


@dataclass(frozen=True)
class JudgeRemark:
    """What a report says of a judge.

    line: what is known of it.
    warning: why its verdicts mean less than they seem to; empty where nothing says so.
    """

    line: str
    warning: str = ""


class _Interval(msgspec.Struct, frozen=True):
    low: float
    high: float


class _Agreement(msgspec.Struct, frozen=True):
    overall: _Interval


class _OrderEffect(msgspec.Struct, frozen=True):
    logit: float
    error: float


class _Figures(msgspec.Struct, frozen=True):
    battles: int
    agreements: list[_Agreement]
    order: _OrderEffect | None


class _Asked(msgspec.Struct, frozen=True):
    judge: JudgeIdentity


class KeptCard(msgspec.Struct, frozen=True):
    """The part of a card's file that is shown; fields as of `MeasuredJudge`."""

    people: str
    date: str
    accuracy: float
    sees_nothing: bool
    sentence: str
    card: _Figures
    asked: _Asked


class _CardDocument(msgspec.Struct, frozen=True):
    card: KeptCard


def remark_on_judge(baselines: Path | None, bound: BoundRole) -> JudgeRemark:
    """What the card of a judge says, or that there is none.

    baselines: folder of accepted baselines; None where there is none.
    """
    if bound.named_in_baselines:  # people, of whom the folder of their votes tells more
        return JudgeRemark(f"{bound.named_in_baselines}: {'; '.join(bound.remarks)}")
    folder = None if baselines is None else baselines / JUDGE_CARDS
    paths = [] if folder is None or not folder.is_dir() else sorted(folder.glob("*.json"))
    own = identify_judge(bound)
    others: list[str] = []
    unreadable: list[str] = []
    for path in paths:
        card = read_card(path)
        if card is None:
            unreadable.append(path.name)
        elif card.asked.judge.step == own.step:
            return JudgeRemark(_line(card), _warning(card))
        elif card.asked.judge.fingerprint == own.fingerprint:
            others.append(f"{path.name} is of the same judge with other settings")
        else:
            others.append(f"{path.name} is of another judge")
    line = _UNKNOWN
    if others:
        more = f" ({len(others) - 1} more are)" if len(others) > 1 else ""
        line += f"; the card {others[0]}{more}, and is not used"
    if unreadable:
        line += f"; the card {unreadable[0]} cannot be read"
    return JudgeRemark(line)


def read_card(path: Path) -> KeptCard | None:
    """The card in a file; None where the file is none of a judge that was asked."""
    try:
        return msgspec.json.decode(read_text(path), type=_CardDocument).card
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def _line(card: KeptCard) -> str:
    agreed = f"agreement {card.accuracy:.2f}"
    if card.card.agreements:
        overall = card.card.agreements[0].overall
        agreed += f" [{overall.low:.2f}, {overall.high:.2f}]"
    order = card.card.order
    effect = (
        "order effect not known"
        if order is None
        else f"order effect {order.logit:+.2f} logits (standard error {order.error:.2f})"
    )
    return (
        f"{agreed} with {one_line(card.people, 80)} over {card.card.battles:,} battles, {effect}, "
        f"measured {one_line(card.date, 20)}"
    )


def _warning(card: KeptCard) -> str:
    """Of a judge that is no better than a coin: a win rate by it says nothing."""
    if not card.sees_nothing:
        return ""
    return f"the judge cannot see a drop: its card says: {one_line(card.sentence, 300)}"
