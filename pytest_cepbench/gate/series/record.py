"""What the record of a series says: its looks, in order, each with alpha and verdict of its cases;
and the delays of the series: checkpoints until a drop is found with 80 % power.

The record is a text of JSON lines. The first says what the series is; then there is a line before a
case of a checkpoint is judged, and another when it was. So a verdict is never seen whose error is
not in the record, also if the process is killed between the two.

A look is the gate of one checkpoint by one run; its number says what share of alpha it has. All
cases of a look belong to the same run, which divides its alpha among them. A case that is judged
again with the same checkpoint keeps its look and its alpha, in whatever run.

Each line has a digest of itself and of that of the line before, so that a line that was edited,
added or left out is found. Lines that are cut off at the end are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import msgspec

from pytest_cepbench.gate.policy import Policy, SeriesShares
from pytest_cepbench.gate.statistics import (
    Design,
    checkpoint_share,
    detection_delay,
    reference_share,
)
from pytest_cepbench.gate.statistics.constants import EXPECTED_CHECKPOINTS
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.option_values import LONGEST_SERIES

FORMAT = 3

SAYS_NOTHING = (Verdict.ERROR, Verdict.INCOMPARABLE)
"""Verdicts that say nothing of a checkpoint, and spend nothing."""


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line: format, name, and checkpoints over which half of the error is spent.

    digest: as in `Entry`.
    """

    format: int
    series: str
    expected: int
    digest: str = ""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One case of one look, as it was entered or as it was judged.

    look: its number, from 1.
    run: that has this look.
    case: `suite/part/metric`.
    model: identity of the checkpoint, as baselines keep it.
    spec: what the user typed for it.
    alpha: of the case, before the series divides it.
    reference: identity of the baseline's model; empty where there is none yet.
    verdict: empty in the line before the case is judged.
    spent: part of alpha that the look has; None before the case is judged.
    baseline: look of the baseline, as in `Place`.
    difference: to the baseline; None where nothing was compared.
    tolerance, anchor_tolerance: of the case; None before it is judged.
    design: how the differences of what was compared scatter; None without bounds.
    digest: of the line, and of that of the line before; empty in memory.
    """

    look: int
    run: str
    case: str
    model: str
    spec: str
    alpha: float
    reference: str = ""
    verdict: str = ""
    spent: float | None = None
    baseline: int | None = None
    difference: float | None = None
    tolerance: float | None = None
    anchor_tolerance: float | None = None
    design: Design | None = None
    digest: str = ""

    @property
    def suite(self) -> str:
        """The suite of the case."""
        return self.case.partition("/")[0]


Line = TypeVar("Line", bound=Opening | Entry)


def sealed(line: Line, before: str) -> Line:
    """A line with its digest. before: that of the line before; empty for the first."""
    text = msgspec.json.encode(msgspec.structs.replace(line, digest=""))
    digest = blake2b(before.encode() + text, digest_size=16).hexdigest()
    return msgspec.structs.replace(line, digest=digest)


@dataclass(frozen=True)
class Place:
    """The place of a case in a series.

    series: its name.
    look: number of the checkpoint's look.
    expected: checkpoints over which half of the error is spent.
    alpha: of the case, before the series divides it.
    baseline, anchor: numbers of the looks that these come from; 0 for another model from before the
    series, None for the baseline that it began with.
    """

    series: str
    look: int
    expected: int
    alpha: float
    baseline: int | None = None
    anchor: int | None = None

    @property
    def share(self) -> float:
        """Share of alpha that the look has."""
        return checkpoint_share(self.look, self.expected)

    @property
    def shares(self) -> SeriesShares:
        """Shares of alpha of the upper bounds."""
        return SeriesShares(
            self.share * reference_share(self.look, self.baseline),
            self.share * reference_share(self.look, self.anchor),
        )


@dataclass
class SeriesRecord:
    """A record, line by line.

    expected: checkpoints over which half of the error is spent.
    lines: all entries, in order, without those of looks that said nothing and went to another run.
    digest: of the last line of the file.
    """

    expected: int = EXPECTED_CHECKPOINTS
    lines: list[Entry] = field(default_factory=list)
    digest: str = ""
    _runs: dict[int, str] = field(default_factory=dict)
    _latest: dict[tuple[str, str], Entry] = field(default_factory=dict)
    _verdicts: dict[int, dict[tuple[str, str], str]] = field(default_factory=dict)

    @property
    def last_look(self) -> int:
        """The number of the last look; 0 before the first."""
        return len(self._runs)

    @property
    def next_look(self) -> int:
        """The number that a checkpoint gets that was not looked at yet."""
        last = self.last_look
        return last if last and self.is_free(last) else last + 1

    def is_free(self, look: int) -> bool:
        """Whether a look said nothing of its checkpoint; a case that did not end may have."""
        return all(verdict in SAYS_NOTHING for verdict in self._verdicts[look].values())

    def entry(self, case: str, model: str) -> Entry | None:
        """The latest entry of a case with a checkpoint."""
        return self._latest.get((case, model))

    def look_of_run(self, run: str) -> int | None:
        """The last look that a run has."""
        return next((look for look, owner in reversed(self._runs.items()) if owner == run), None)

    def first_reference(self, case: str) -> str | None:
        """Identity of the first baseline that a case was compared with; None before that."""
        return next((e.reference for e in self.lines if e.case == case and e.reference), None)

    def look_of_model(self, suite: str, model: str) -> int:
        """The first look of a model in a suite; 0 for one that the series has not looked at."""
        looks = {e.look for e in self.lines if e.model == model and e.suite == suite}
        return min((look for look in looks if not self.is_free(look)), default=0)

    def looks(self) -> Iterator[tuple[int, list[Entry]]]:
        """The looks in order, each with the latest entry of its cases."""
        for look, verdicts in self._verdicts.items():
            yield look, [self._latest[key] for key in verdicts if self._latest[key].look == look]

    def add(self, entry: Entry) -> None:
        """Take in the next line. Raises ValueError where it contradicts those before it."""
        self._check(entry)
        key = entry.case, entry.model
        if self._runs.get(entry.look) != entry.run:
            # A look that said nothing goes to the next run.
            for dropped in self._verdicts.pop(entry.look, {}):
                del self._latest[dropped]
            self.lines = [line for line in self.lines if line.look != entry.look]
            self._runs[entry.look] = entry.run
        verdicts = self._verdicts.setdefault(entry.look, {})
        if verdicts.get(key, "") in ("", *SAYS_NOTHING):  # what was seen once stays seen
            verdicts[key] = entry.verdict
        self._latest[key] = entry
        self.lines.append(entry)

    def _check(self, entry: Entry) -> None:
        last = self.last_look
        if not 1 <= entry.look <= last + 1:
            raise ValueError(f"look {entry.look} comes after look {last}")
        if not 0 < entry.alpha <= 0.5:
            raise ValueError(f"alpha is {entry.alpha}")
        if entry.verdict:
            Verdict(entry.verdict)  # raises ValueError for another word
        if self._runs.get(entry.look) == entry.run:
            return
        if entry.look <= last and not (entry.look == last and self.is_free(last)):
            raise ValueError(f"look {entry.look} belongs to another run")


def parse_record(data: bytes, name: str) -> SeriesRecord:
    """The record of a series. Raises ValueError that names the line."""
    *lines, rest = data.split(b"\n")
    if rest or not lines:
        raise ValueError(f"line {len(lines) + 1} is cut off")
    number = 1
    try:
        opening = msgspec.json.decode(lines[0], type=Opening)
        _check_opening(opening, name)
        record = SeriesRecord(opening.expected, digest=_unbroken(opening, ""))
        decoder = msgspec.json.Decoder(Entry)
        for number, line in enumerate(lines[1:], 2):  # noqa: B007 # the error names it
            entry = decoder.decode(line)
            record.digest = _unbroken(entry, record.digest)
            record.add(msgspec.structs.replace(entry, digest=""))
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
    return record


def _unbroken(line: Opening | Entry, before: str) -> str:
    """The digest of a line. Raises ValueError where it is not that of the line after those."""
    if line.digest != sealed(line, before).digest:
        raise ValueError("its digest is another one, so it was edited, or lines before it were")
    return line.digest


def _check_opening(opening: Opening, name: str) -> None:
    """Raise ValueError for the first line of something else."""
    if opening.format != FORMAT:
        raise ValueError(f"its format is {opening.format}, and this version reads {FORMAT}")
    if opening.series != name:
        raise ValueError(f"it is the record of series {opening.series!r}")
    if not 1 <= opening.expected <= LONGEST_SERIES:
        raise ValueError(f"{opening.expected} checkpoints are expected")


# -- detection delays ------------------------------------------------------------------------------

DROPS = (1, 2, 4)
"""Drops of which delays are told, in tolerances."""

DECLINE = 0.5
"""Tolerances that a slow decline loses at each checkpoint."""

LONGEST = 20
"""Checkpoints that are looked ahead."""


@dataclass(frozen=True)
class Delays:
    """Checkpoints until a drop is found, the next one being 1; None: more than `LONGEST`.

    drops: of a drop of each of `DROPS` tolerances since the baseline, which stays as it is.
    decline: of a slow decline since the anchor, of `DECLINE` tolerances at each checkpoint, however
    the baseline moves on the way.
    """

    drops: tuple[int | None, ...]
    decline: int | None


def delays_of(place: Place, design: Design, policy: Policy) -> Delays | None:
    """Delays from the next checkpoint on.

    place: of the last one.
    design: of what is compared.
    Returns None without spread or tolerance, where there is nothing to tell.
    """
    tolerance = policy.tolerance
    if not design.sd or tolerance <= 0:
        return None
    numbers = range(place.look + 1, place.look + 1 + LONGEST)
    levels = [
        policy.alpha * checkpoint_share(at, place.expected) * reference_share(at, place.baseline)
        for at in numbers
    ]
    drops = [
        detection_delay(design, levels, [drop * tolerance] * LONGEST, tolerance) for drop in DROPS
    ]
    fixed = [
        policy.alpha * checkpoint_share(number, place.expected) * reference_share(number, None)
        for number in numbers
    ]
    losses = [DECLINE * tolerance * number for number in range(1, LONGEST + 1)]
    return Delays(tuple(drops), detection_delay(design, fixed, losses, policy.since_anchor))
