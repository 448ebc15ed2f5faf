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


class _Asked(msgspec.Struct, frozen=True):
    judge: JudgeIdentity


class KeptCard(msgspec.Struct, frozen=True):
    """The part of a card's file that is read; fields as of `MeasuredJudge`."""

    people: str
    date: str
    accuracy: float
    sees_nothing: bool
    sentence: str
    asked: _Asked


class _CardDocument(msgspec.Struct, frozen=True):
    card: KeptCard


def remark_on_judge(baselines: Path | None, bound: BoundRole) -> tuple[str, str]:
    """What is known of a judge by its card, and why its verdicts say nothing, where its card does.

    baselines: folder of accepted baselines; None where there is none.
    """
    if bound.named_in_baselines:  # people, of whom the folder of their votes tells more
        return f"{bound.named_in_baselines}: {'; '.join(bound.remarks)}", ""
    own = identify_judge(bound)
    folder, unknown = None if baselines is None else baselines / JUDGE_CARDS, _UNKNOWN
    for path in [] if folder is None else sorted(folder.glob("*.json")):
        card = read_card(path)
        if card is None:  # it may be this judge's
            unknown = f"{_UNKNOWN}; the card {path.name} cannot be read"
        if card is None or card.asked.judge.step != own.step:
            continue
        line = (
            f"agreement {card.accuracy:.2f} with {one_line(card.people, 80)}, "
            f"measured {one_line(card.date, 20)}"
        )
        said = f"the judge cannot see a drop: its card says: {one_line(card.sentence, 300)}"
        return line, said if card.sees_nothing else ""  # no better than a coin
    return unknown, ""


def read_card(path: Path) -> KeptCard | None:
    """The card in a file; None where the file is none of a judge that was asked."""
    try:
        return msgspec.json.decode(read_text(path), type=_CardDocument).card
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
