"""Label files, `labels/SUITE/DIGEST.jsonl`: a draw of battles, and people's labels of them.

The first line is the draw, written before a label is given and a verdict is stored. A line follows
for each drawn battle, then one for each label. All is keyed by digests of questions and answers.

Which battles are drawn follows from the digests of all questions and answers, and from how many are
wanted. There is no seed to choose: who knows the verdicts cannot draw battles that suit them, and
whoever has the same answers can draw again and see that nothing was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.errors import LabelError, SpecError
from pytest_cepbench.escapes import escape_json, one_line
from pytest_cepbench.files import MOST_TEXT, read_text
from pytest_cepbench.gate.statistics.prediction_powered import LEAST_IN_CATEGORY

FORMAT = 1
"""Version of the lines; raised when a field changes its meaning."""

LABELS = "labels"
"""Folder beside that of the baselines."""

_SUFFIX = ".jsonl"
_DIGITS = 16  # of the digest of the population, in a file's name
_REMEDY = "restore it from version control, or draw anew for other answers"


class Draw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="draw"):
    """What was drawn, when, from what.

    population: digest of all battles, as `population_digest`. battles: how many these are.
    count: units that were wanted.
    drawn: time in ISO 8601, UTC.
    model, opponent: identities of the models, for people.
    """

    v: int = FORMAT
    suite: str
    population: str
    battles: int
    count: int
    drawn: str
    model: str = ""
    opponent: str = ""

    @property
    def seconds(self) -> float:
        """Unix time of the draw. Raises ValueError for a text that is no time with a zone."""
        moment = datetime.fromisoformat(self.drawn)
        if moment.tzinfo is None:
            raise ValueError("a time without a zone")
        return moment.timestamp()


class DrawnBattle(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="battle"
):
    """A battle that is to be labelled. probability: with which it was drawn, in (0, 1]."""

    sample: str
    question: str
    candidate: str
    opponent: str
    probability: float

    @property
    def battle(self) -> BattleDigests:
        """Its digests."""
        return BattleDigests(self.question, self.candidate, self.opponent)


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="label"):
    """What people say of a battle.

    score: of the candidate's answer, in [0, 1]: 1 better, one half a tie.
    votes: of how many people.
    """

    question: str
    candidate: str
    opponent: str
    score: float
    votes: int = 1

    @property
    def battle(self) -> BattleDigests:
        """Its digests."""
        return BattleDigests(self.question, self.candidate, self.opponent)


_Line = Draw | DrawnBattle | Label


@dataclass(frozen=True)
class LabelFile:
    """A label file.

    drawn: the drawn battles, by the sample of each.
    labels: battle -> what people say; those of battles that were not drawn are among them.
    """

    path: Path
    draw: Draw
    drawn: Mapping[str, DrawnBattle]
    labels: Mapping[BattleDigests, Label] = field(default_factory=dict)

    def dump(self) -> str:
        """The file's text; the same content always gives the same text."""
        lines: Iterable[_Line] = chain(
            [self.draw],
            (self.drawn[sample] for sample in sorted(self.drawn)),
            (self.labels[battle] for battle in sorted(self.labels)),
        )
        return "".join(f"{escape_json(msgspec.json.encode(line).decode())}\n" for line in lines)


def label_folder(baselines: Path, suite: str) -> Path:
    """The folder of a suite's label files, beside its baselines."""
    return baselines.absolute().parent / LABELS / suite


def label_path(baselines: Path, suite: str, population: str) -> Path:
    """The file of a draw: the same battles always have the same."""
    return label_folder(baselines, suite) / f"{population[:_DIGITS]}{_SUFFIX}"


def now() -> str:
    """The time, as draws have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_label_files(folder: Path) -> list[LabelFile]:
    """All label files of a folder, by name; none where it is not there. Raises LabelError."""
    files = [read_label_file(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
    by_population: dict[str, Path] = {}
    for own in files:
        other = by_population.setdefault(own.draw.population, own.path)
        if other != own.path:
            raise LabelError(
                f"{other} and {own.path} are two draws of the same battles: keep the first"
            )
    return files


def read_label_file(path: Path) -> LabelFile:
    """A label file, checked line by line.

    Raises LabelError for a file that cannot be read, a damaged line, a draw that is missing, twice,
    of another version or of no battle, a probability outside of (0, 1], a score outside of [0, 1],
    and labels of a battle that contradict each other.
    """
    try:
        text = read_text(path, MOST_TEXT)
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(f"labels {path} cannot be read: {error}; {_REMEDY}") from error
    draw: Draw | None = None
    drawn: dict[str, DrawnBattle] = {}
    labels: dict[BattleDigests, Label] = {}
    for place, line in _lines(path, text):
        if isinstance(line, Draw):
            if draw is not None:
                _refuse(place, "a second draw")
            if line.v != FORMAT:
                _refuse(place, f"format {line.v} is not known here, {FORMAT} is")
            if line.count < 1:
                _refuse(place, f"at least one battle is drawn, got {line.count}")
            try:
                _ = line.seconds
            except (ValueError, OverflowError):
                _refuse(
                    place,
                    f"the time of the draw is {one_line(line.drawn, 60)!r}, no time of ISO 8601",
                )
            draw = line
        elif draw is None:
            _refuse(place, "the draw is expected first")
        elif isinstance(line, DrawnBattle):
            if not 0 < line.probability <= 1:
                _refuse(place, f"a probability lies in (0, 1], got {line.probability:g}")
            if drawn.setdefault(line.sample, line) != line:
                _refuse(place, f"the sample {one_line(line.sample, 60)} was drawn twice")
        else:
            before = labels.setdefault(line.battle, line)
            if not (0 <= line.score <= 1 and line.votes >= 1):
                _refuse(place, f"a score in [0, 1] of people is expected, got {line.score:g}")
            if before.score != line.score:
                _refuse(
                    place, f"its battle has the label {before.score:g}, and {line.score:g} here"
                )
    if draw is None:
        raise LabelError(f"labels {path}: the file is empty: a draw is expected first; {_REMEDY}")
    return LabelFile(path, draw, drawn, labels)


def _lines(path: Path, text: str) -> Iterator[tuple[str, _Line]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"labels {path}, line {number}"
            try:
                yield place, msgspec.json.decode(line, type=_Line)
            except (msgspec.MsgspecError, UnicodeError) as error:
                _refuse(place, f"damaged: {one_line(str(error))}")


def _refuse(place: str, why: str) -> NoReturn:
    raise LabelError(f"{place}: {why}; {_REMEDY}")


# -- the draw --------------------------------------------------------------------------------------

_ORDER = "labels/1"
"""Version of the order; another one draws other battles."""


class BattleDigests(NamedTuple):
    """Digests of a question, of the candidate's answer, and of the one that it battles.

    Those of the pieces in their order, as judges and people see them; empty for a missing answer.
    """

    question: str
    candidate: str
    opponent: str

    @property
    def decided(self) -> bool:
        """True where its score is known without a judge: answers are equal, or one is missing."""
        return self.candidate == self.opponent or not (self.candidate and self.opponent)


@dataclass(frozen=True)
class Contestant:
    """A battle with what it is drawn by.

    category: the first of its sample.
    unit: what its sample shares with others, which are drawn with it.
    """

    battle: BattleDigests
    sample: str
    category: str
    unit: str


def population_digest(battles: Iterable[Contestant]) -> str:
    """Digest of all battles, in any order."""
    return digest_json(sorted([own.sample, own.category, own.unit, *own.battle] for own in battles))


def draw_battles(battles: Sequence[Contestant], count: int) -> dict[str, float]:
    """The drawn samples, with the probability with which each was drawn.

    count: units to draw. They are dealt to the categories by their sizes, at least two to each, and
    within one all are as likely: those whose digests come first.
    Raises SpecError where there are fewer, or too few for two of every category.
    """
    population = population_digest(battles)
    units: dict[str, dict[str, list[str]]] = {}
    for own in battles:
        units.setdefault(own.category, {}).setdefault(own.unit, []).append(own.sample)
    quotas = _quotas({name: len(part) for name, part in units.items()}, count)
    drawn: dict[str, float] = {}
    for name, part in units.items():
        ranked = sorted(part, key=lambda unit: digest_text(f"{_ORDER} {population} {unit}"))
        probability = round(quotas[name] / len(part), 9)
        for unit in ranked[: quotas[name]]:
            drawn |= dict.fromkeys(part[unit], probability)
    return dict(sorted(drawn.items()))


def _quotas(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each category, by largest remainders."""
    whole = sum(sizes.values())
    least = {name: min(LEAST_IN_CATEGORY, size) for name, size in sizes.items()}
    if count > whole:
        raise SpecError(
            f"{count} battles are to be drawn, and there are {whole}: give at most as many"
        )
    if count < sum(least.values()):
        raise SpecError(
            f"{count} battles are to be drawn, and each of {len(sizes)} categories needs "
            f"{LEAST_IN_CATEGORY} to show its spread: give at least {sum(least.values())}"
        )
    quotas = {name: max(least[name], count * size // whole) for name, size in sizes.items()}
    spare = {name: count * size / whole - quotas[name] for name, size in sizes.items()}
    while (rest := count - sum(quotas.values())) != 0:
        step = 1 if rest > 0 else -1
        open_to = [
            name for name in sorted(sizes) if least[name] <= quotas[name] + step <= sizes[name]
        ]
        chosen = max(open_to, key=lambda name: step * spare[name])
        quotas[chosen] += step
        spare[chosen] -= step
    return quotas
