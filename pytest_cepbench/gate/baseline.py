"""Baseline files: small TOML texts, reviewed as a diff.

Written line by line so that the same measurement always gives the same bytes, one score a line;
read back strictly, since a baseline that was edited into nonsense must not let a checkpoint pass.
Accepting measurements changes them, and the anchors beside them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.errors import BaselineError, WriteError
from pytest_cepbench.escapes import quote_toml
from pytest_cepbench.files import MOST_TEXT, parse_toml, read_regular, read_text
from pytest_cepbench.gate.measurement import (
    DECIMALS,
    FORMAT,
    CaseKey,
    Measurement,
    differing_fields,
    rounded,
)
from pytest_cepbench.replacement import replace_files

REMEDY = "restore it from version control, or accept a new one with --snapshot-update"
"""Remedy for a baseline that cannot be used."""

SUFFIX = ".toml"
"""Of baseline files."""

ANCHORS = "anchors"
"""Folder of anchors beside the baselines of a suite."""

_SLACK = 2 * 10.0**-DECIMALS  # the value was rounded once, the mean of rounded scores once more


def baseline_path(root: Path, key: CaseKey) -> Path:
    """The file of a case's baseline below the baseline folder."""
    return root / key.suite / f"{key.file_stem}{SUFFIX}"


def anchor_path(root: Path, key: CaseKey) -> Path:
    """The file of a case's anchor, the first baseline of a row of accepted ones."""
    return root / key.suite / ANCHORS / f"{key.file_stem}{SUFFIX}"


def record_of(measurement: Measurement) -> Measurement:
    """The measurement as its baseline keeps it.

    Of battles not their scores are kept, which the accepted model's answers had no part in, but the
    answers: each is there to be battled, whatever the judge failed to say of it.
    """
    record = measurement.record
    if not record.answers:
        return msgspec.structs.replace(record, unscored={})
    unjudged = record.unscored
    return msgspec.structs.replace(
        record,
        value=EVEN,
        n=record.n + sum(map(len, unjudged.values())),
        scores={
            name: dict.fromkeys((*part, *unjudged.get(name, ())), EVEN)
            for name, part in record.scores.items()
        },
        unscored={},
    )


def answers_digest(baseline: Measurement) -> str:
    """Digest of the answers of a baseline, by sample; empty where it has none."""
    return digest_json(sorted(baseline.answers.items())) if baseline.answers else ""


def dump_baseline(baseline: Measurement) -> str:
    """The text of a baseline file; the same baseline always gives the same text."""
    lines = [
        "# Accepted baseline of one case, written by pytest-cepbench. Review it as a diff.",
        f"format = {FORMAT}",
        f"case = {quote_toml(baseline.case)}",
        f"metric = {quote_toml(baseline.metric)}",
        f"value = {_toml(baseline.value)}",
        f"n = {baseline.n}",
        f"higher_is_better = {json.dumps(baseline.higher_is_better)}",
    ]
    if baseline.shares:
        lines.append("shares = true")
    if baseline.floor is not None:
        lines.append(f"floor = {_toml(baseline.floor)}")
    for name, table in _tables(baseline):
        lines += ["", f"[{name}]"]
        lines += [f"{quote_toml(field)} = {_toml(value)}" for field, value in table.items()]
    return "\n".join(lines) + "\n"


def _tables(baseline: Measurement) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "model", baseline.model
    yield "identity", baseline.identity
    if baseline.accepted:
        yield "accepted", dict(sorted(baseline.accepted.items()))
    if baseline.noise is not None:
        noise = msgspec.structs.asdict(baseline.noise)
        yield "noise", {name: number for name, number in noise.items() if number is not None}
    yield "failures", dict(sorted(baseline.failures.items()))
    for name in ("sizes", "clusters", "answers"):
        if table := getattr(baseline, name):
            yield name, dict(sorted(table.items()))
    for kind, parts in (("scores", baseline.scores), ("blocks", baseline.blocks)):
        for category in sorted(parts):
            yield f"{kind}.{quote_toml(category)}", dict(sorted(parts[category].items()))


def read_baseline(path: Path, key: CaseKey) -> Measurement | None:
    """The baseline or anchor of a case in a file; None where there is no file.

    Raises BaselineError where it cannot be read, or as `load_baseline`.
    """
    name = f"{ANCHORS}/{path.name}" if path.parent.name == ANCHORS else path.name
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"baseline {name} cannot be read: {error}; {REMEDY}") from error
    return load_baseline(text, key, name)


def accepted_value(path: Path, _: CaseKey) -> Measurement | None:
    """As `read_baseline`, without tables: value, direction, kind and floor, read in no time.

    None where there is no file, and where its head cannot be read, which is an error of its case.
    """
    try:
        head = parse_toml(read_text(path).partition("\n[")[0])
        return msgspec.convert(head | {"model": {}, "identity": {}, "scores": {}}, Measurement)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def usable_baseline(path: Path, key: CaseKey) -> Measurement | None:
    """As `read_baseline`, and None for a file that cannot be used as well."""
    try:
        return read_baseline(path, key)
    except BaselineError:
        return None


def load_baseline(text: str, key: CaseKey, where: str) -> Measurement:
    """The baseline in a file's text.

    where: names the file in errors.
    Raises BaselineError when it is not TOML, lacks or has fields it should not, belongs to another
    case, is of a newer format, or contradicts itself.
    """
    try:
        table = parse_toml(text)
        version = table.get("format") if isinstance(table, dict) else None
        if isinstance(version, int) and version < 1:
            raise BaselineError(f"baseline {where} has format {version}, which never was; {REMEDY}")
        if isinstance(version, int) and version > FORMAT:
            raise BaselineError(
                f"baseline {where} has format {version}, this version reads up to {FORMAT}: it was "
                "written by a newer pytest-cepbench; install that one, or restore an earlier file "
                "from version control"
            )
        baseline = msgspec.convert(table, Measurement)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BaselineError(f"baseline {where} cannot be read: {error}; {REMEDY}") from error
    problem = contradiction(baseline, key)
    if problem:
        raise BaselineError(f"baseline {where} {problem}; {REMEDY}")
    return baseline


def contradiction(baseline: Measurement, key: CaseKey) -> str | None:
    """Contradiction in a case's baseline, in words that follow its name; None for a sound one."""
    noise, floor = baseline.noise, baseline.floor
    if baseline.case != str(key):
        return f"is of case {baseline.case!r}, not of {str(key)!r}"
    try:
        measurement = baseline.fresh
        value = measurement.value
    except (ValueError, OverflowError):
        return "holds no scores, or scores that are not finite"
    if baseline.n != measurement.n:
        return f"says n = {baseline.n} and holds the scores of {measurement.n}"
    if not abs(baseline.value - value) <= _SLACK:
        return f"says value = {baseline.value} and its scores give {value}"
    if floor is not None and not -1 <= floor <= 1:  # of cosines: NaN is in no range
        return f"says floor = {floor}, and chance gives a similarity from -1 to 1"
    parts = baseline.scores.values()
    samples = {sample for part in parts for sample in part}
    even = all(score == EVEN for part in parts for score in part.values())
    if baseline.answers and not (even and baseline.answers.keys() == samples):
        return "does not hold one answer, and a score of one half, for every sample"
    numbers = {} if noise is None else msgspec.structs.asdict(noise)
    for name in ("sd", "value_sd", "effective", "degrees", "worst"):
        number = numbers.get(name)
        # A spread may be 0, since a model may repeat itself.
        if number is not None and not ((number or name.endswith("sd")) and 0 <= number < inf):
            return f"says of its noise {name} = {number}"
    return None


def _toml(value: str | float) -> str:
    if isinstance(value, str):
        return quote_toml(value)
    return str(value) if isinstance(value, int) else repr(rounded(value))


# -- acceptance: which baselines change and how, and what becomes of the anchors ------------------

AnchorStep = Literal["none", "kept", "frozen", "moved"]
"""Change of the anchor: there is none yet; it stays; what was accepted first becomes it; it
moves to what is accepted now."""


@dataclass(frozen=True)
class BaselineChange:
    """A baseline before and after.

    before: None for a new case, and for a file that could not be used.
    anchor: what becomes of it.
    """

    key: CaseKey
    before: Measurement | None
    after: Measurement
    anchor: AnchorStep

    @property
    def text(self) -> str:
        """The new file."""
        return dump_baseline(self.after)

    @property
    def replaced_answers(self) -> int | None:
        """Answers that others take the place of; None where there are none to be battled."""
        if not self.after.answers:
            return None
        before = {} if self.before is None else self.before.answers
        return sum(before.get(name) != digest for name, digest in self.after.answers.items())


def propose(
    key: CaseKey, after: Measurement, root: Path, *, move_anchor: bool = False
) -> BaselineChange | None:
    """Change below the baseline folder by accepting a measurement; None where nothing would change.

    The first baseline of a case is its anchor until a second one is accepted: then it is frozen. An
    anchor of something else (other samples, prompts, encoders), or one that cannot be read, can be
    compared with nothing any more, and moves. A calibration stays for as long as what is measured
    is the same.
    """
    before = usable_baseline(baseline_path(root, key), key)
    unchanged = before is not None and _same(before, after)
    comparable = before is not None and not differing_fields(before.identity, after.identity)
    # What only now is kept, floors and fields, is no step away from what was accepted.
    stays = before is not None and _same(
        msgspec.structs.replace(before, floor=after.floor, identity=after.identity), after
    )
    path = anchor_path(root, key)
    known = usable_baseline(path, key)
    anchor: AnchorStep
    same = known is not None and not differing_fields(known.identity, after.identity)
    if known is not None and before is not None and not comparable:  # by a field it may not have
        same = known.identity == after.identity
    if same and not move_anchor:
        anchor = "kept"
    elif comparable and not stays and not move_anchor:  # what was there before can be the anchor
        anchor = "frozen"
    else:
        anchor = "moved" if os.path.lexists(path) else "none"
    if unchanged and anchor in ("none", "kept"):
        return None
    if before is not None and comparable and after.noise is None:
        after = msgspec.structs.replace(after, noise=before.noise)
    return BaselineChange(key, before, after, anchor)


def _same(before: Measurement, after: Measurement) -> bool:
    """True where a file would hold the same, format, calibration and reason aside."""
    first, second = (
        msgspec.structs.replace(baseline, noise=None, accepted={}, format=0)
        for baseline in (before, after)
    )
    return first == second


def apply(changes: Iterable[BaselineChange], root: Path) -> list[Path]:
    """Write the changed files, all or none; returns where the baselines are.

    Raises WriteError, and then nothing is changed.
    """
    contents: dict[Path, bytes | None] = {}
    written = []
    for change in changes:
        target, anchor = baseline_path(root, change.key), anchor_path(root, change.key)
        if change.anchor == "frozen":
            try:
                contents[anchor] = read_regular(target, MOST_TEXT)
            except OSError as error:
                raise WriteError(
                    f"{target} cannot be read any more: {error.strerror}; nothing was changed"
                ) from error
        elif change.anchor == "moved":
            contents[anchor] = change.text.encode()
        contents[target] = change.text.encode()
        written.append(target)
    replace_files(root, contents)
    return written
