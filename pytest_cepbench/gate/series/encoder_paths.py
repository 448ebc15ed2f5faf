"""Where the score under the reward's encoder and under another part ways over a training.

Beside the record of a series lie the scores of every sample, under every encoder, at every
checkpoint: `series/NAME.scores/`, one small file of each. They are written where a suite says which
encoder is the reward's.

The rule: the change of a sample over the series is the slope of its scores over the numbers of the
checkpoints, times their span. Two encoders part ways where the mean change under the reward's has
its lower bound above 0, that under the other its upper bound below 0, and the two lie farther apart
than the larger tolerance. Each test is at most at its level, so both at once are (intersection and
union, Berger 1982): for the checkpoints that were trained, seen on other samples, the warning is
wrong with at most that probability. Checkpoint k has the share of alpha that a series gives it, in
equal parts for the other encoders: over the whole series a case warns wrongly with probability
alpha at most, at whatever checkpoint one looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np

from pytest_cepbench.errors import SeriesError, WriteError
from pytest_cepbench.files import MOST_TEXT, read_regular
from pytest_cepbench.gate.statistics import (
    EXPECTED_CHECKPOINTS,
    Bounds,
    Differences,
    checkpoint_share,
    mean_bounds,
)

FORMAT = 1

SCORES = ".scores"
"""Suffix of the folder beside a series' record."""

FEWEST_CHECKPOINTS = 3
"""Of which a slope is made: two are a difference, which the gate judges."""

_FEWEST_SAMPLES = 2


class EncoderScores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores of one checkpoint under one encoder.

    case: that several encoders decide, `suite/part/metric`.
    encoder: its name in the suite.
    look: number of the checkpoint in the series, from 1.
    model: identity of the checkpoint.
    identity: digest of what makes scores comparable; others are of something else.
    higher_is_better: the metric's direction.
    sets: whether the scores are parts of a whole set's score.
    tolerance: of the encoder's case.
    alpha: of the case, in (0, 0.5].
    reward, held_out: whether training uses it, and whether no training may.
    scores: category -> sample -> score.
    clusters: sample -> the cluster that it shares with others, where it does.
    """

    format: int
    case: str
    encoder: str
    look: int
    model: str
    identity: str
    higher_is_better: bool
    sets: bool
    tolerance: float
    alpha: float
    reward: bool
    held_out: bool
    scores: dict[str, dict[str, float]]
    clusters: dict[str, str] = {}


@dataclass(frozen=True)
class Parting:
    """How the scores of one case moved under the reward's encoder and under another.

    reward, encoder: their names.
    held_out: whether the latter is held out.
    first, last: numbers of the checkpoints.
    checkpoints: how many there are.
    of_reward, of_encoder: the mean change of a sample from the first to the last, with its bounds;
    positive is better.
    parted: whether they part ways by the rule.
    """

    case: str
    reward: str
    encoder: str
    held_out: bool
    first: int
    last: int
    checkpoints: int
    of_reward: Bounds
    of_encoder: Bounds
    parted: bool

    @property
    def sentence(self) -> str:
        """What a reader is warned of."""
        mark = " (held out)" if self.held_out else ""
        return (
            f"from checkpoint {self.first} to {self.last} of the series the score under "
            f"{self.reward} (the reward's encoder) rises by {_shown(self.of_reward)}, and under "
            f"{self.encoder}{mark} falls by {_shown(self.of_encoder)}: training may be learning "
            "the encoder instead of the task"
        )


def _shown(bounds: Bounds) -> str:
    low, high = (0.0 if bound is None else bound for bound in (bounds.low, bounds.high))
    return f"{bounds.mean:+.4f} [{low:+.4f}, {high:+.4f}]"


def partings(
    records: Iterable[EncoderScores], expected: int = EXPECTED_CHECKPOINTS
) -> list[Parting]:
    """Every case and every other encoder of it against the reward's, as far as there are scores.

    expected: checkpoints over which half of the error of the series is spent.
    """
    pairs = []
    for _, encoders in sorted(_by_encoder(records).items()):
        rewards = [name for name, path in encoders.items() if path[-1].reward]
        others = sorted(set(encoders) - set(rewards))
        for reward in rewards:
            for other in others:
                parting = _parting(encoders[reward], encoders[other], expected, len(others))
                if parting is not None:
                    pairs.append(parting)
    return pairs


def _by_encoder(
    records: Iterable[EncoderScores],
) -> dict[str, dict[str, list[EncoderScores]]]:
    """Case -> encoder -> its scores by checkpoint, of the latest conditions alone."""
    cases: dict[str, dict[str, list[EncoderScores]]] = {}
    for record in sorted(records, key=lambda record: record.look):
        cases.setdefault(record.case, {}).setdefault(record.encoder, []).append(record)
    return {
        case: {
            encoder: [record for record in path if record.identity == path[-1].identity]
            for encoder, path in encoders.items()
        }
        for case, encoders in cases.items()
    }


def _parting(
    reward: Sequence[EncoderScores], other: Sequence[EncoderScores], expected: int, others: int
) -> Parting | None:
    looks = sorted({r.look for r in reward} & {r.look for r in other})
    if len(looks) < FEWEST_CHECKPOINTS:
        return None
    # A run that accepts divides alpha among other cases than one that gates.
    alpha = min(record.alpha for record in reward)
    level = alpha * checkpoint_share(looks[-1], expected) / others
    both = []
    for path in (reward, other):
        bounds = _change([record for record in path if record.look in looks], level)
        if bounds is None:
            return None
        both.append(bounds)
    of_reward, of_other = both
    apart = max(reward[-1].tolerance, other[-1].tolerance)
    parted = (
        of_reward.low is not None
        and of_other.high is not None
        and of_reward.low > 0 > of_other.high
        and of_reward.mean - of_other.mean > apart
    )
    return Parting(
        case=reward[-1].case,
        reward=reward[-1].encoder,
        encoder=other[-1].encoder,
        held_out=other[-1].held_out,
        first=looks[0],
        last=looks[-1],
        checkpoints=len(looks),
        of_reward=of_reward,
        of_encoder=of_other,
        parted=parted,
    )


def _change(path: Sequence[EncoderScores], level: float) -> Bounds | None:
    """Bounds of the mean change of a sample over the checkpoints; None where too few have all."""
    looks = np.array([record.look for record in path], dtype=np.float64)
    away = looks - looks.mean()
    weights = away / float(away @ away) * float(looks[-1] - looks[0])
    sign = 1.0 if path[-1].higher_is_better else -1.0
    changes: dict[str, dict[str, float]] = {}
    for category in path[-1].scores:
        parts = [record.scores.get(category, {}) for record in path]
        common = set.intersection(*(set(part) for part in parts))
        if common:
            changes[category] = {
                sample: sign * float(weights @ np.array([part[sample] for part in parts]))
                for sample in common
            }
    if sum(map(len, changes.values())) < _FEWEST_SAMPLES:
        return None
    values = Differences.of(changes, path[-1].clusters)
    return mean_bounds(values, level, blocks=path[-1].sets, exchangeable=False)


# -- the files -------------------------------------------------------------------------------------


def scores_folder(record: Path) -> Path:
    """The folder of scores beside the record of a series."""
    return record.with_suffix(SCORES)


def write_scores(record: Path, scores: EncoderScores) -> None:
    """Keep the scores of one checkpoint; those of the same one are replaced.

    record: path of the series' record. Raises WriteError.
    """
    folder = scores_folder(record)
    name = f"{scores.case}\0{scores.encoder}".encode("utf-8", "surrogatepass")
    path = folder / f"{scores.look:05}-{blake2b(name, digest_size=8).hexdigest()}.json"
    other = folder / f".{path.name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other.write_bytes(msgspec.json.encode(scores) + b"\n")
        other.replace(path)
    except OSError as error:
        msg = f"{path} could not be written: {error.strerror or error}"
        raise WriteError(msg) from error


def read_scores(record: Path) -> list[EncoderScores]:
    """All scores that are kept of a series; none where there are none.

    Raises SeriesError for a file that cannot be understood.
    """
    kept = []
    for path in sorted(scores_folder(record).glob("[0-9]*.json")):
        try:
            scores = msgspec.json.decode(
                read_regular(path, MOST_TEXT, links=False), type=EncoderScores
            )
            _check(scores)
        except (OSError, ValueError) as error:
            msg = (
                f"{path} cannot be understood ({error}): restore it from version control, or "
                "remove it to go on without that checkpoint"
            )
            raise SeriesError(msg) from error
        kept.append(scores)
    return kept


def _check(scores: EncoderScores) -> None:
    """Raise ValueError for numbers of which no bound can be made."""
    if scores.format != FORMAT:
        msg = f"its format is {scores.format}, and this version reads {FORMAT}"
        raise ValueError(msg)
    values = [value for part in scores.scores.values() for value in part.values()]
    if not (scores.look >= 1 and 0 < scores.alpha <= 0.5 and np.isfinite(values).all()):
        msg = f"look {scores.look}, alpha {scores.alpha}, or a score that is not finite"
        raise ValueError(msg)


def comparable_digest(identity: Mapping[str, str]) -> str:
    """Digest of an identity, by which scores of two checkpoints are known to be comparable."""
    text = "\0".join(f"{name}\0{value}" for name, value in sorted(identity.items()))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
