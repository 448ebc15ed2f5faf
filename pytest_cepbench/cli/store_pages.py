"""Pages and JSON of `cepbench store`, with the sizes and days that it reads and shows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pytest_cepbench.cli.output import Section, Table
from pytest_cepbench.errors import SpecError
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.store.maintenance import (
    Collection,
    GcCriteria,
    GcSummary,
    StoreShare,
    StoreStats,
    VerifyReport,
    count,
)
from pytest_cepbench.store.remote.sync import PullSummary, RemoteReport
from pytest_cepbench.store.rows import DAY_SECONDS

SCHEMA = 1
"""Raised when a field of the JSON changes its meaning."""

_LISTED = 10

_DAYS = {"d": 1, "w": 7}

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def stats_page(folder: Path, stats: StoreStats) -> Section:
    """Page of a store's contents."""
    images = f"images: {stats.images:,}, {show_size(stats.image_bytes)}"
    blocks: list[str | Table] = [f"index: {show_size(stats.index_bytes)}", images]
    if stats.kinds:
        blocks += [_shares("kind", stats.kinds), _shares("model", stats.models)]
    else:
        blocks.append("no results")
    return Section(f"store {folder}", tuple(blocks))


def stats_json(folder: Path, stats: StoreStats) -> str:
    """The same as JSON text."""
    document = {"schema": SCHEMA, "store": str(folder)} | msgspec.to_builtins(stats)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def verify_page(folder: Path, report: VerifyReport) -> Section:
    """Page of what is wrong with a store."""
    checked = f"checked {counted(report.results, 'result')} and {counted(report.images, 'image')}"
    lines = [checked]
    for what, names in (
        ("index", report.index),
        ("result that does not match its seal", [key[:12] for key in report.rows]),
        ("remembered file that does not match its seal", report.files),
        ("damaged image", [f"{digest[:12]}: {why}" for digest, why in report.damaged_images]),
        ("result whose image is not there", [key[:12] for key in report.lost]),
    ):
        lines += _some(what, names)
    lines.append("sound" if report.sound else "damaged")
    if report.remote:
        images = counted(len(report.remote), "image")
        lines.append(
            f"{images} in a shared store, fetched when needed: cepbench store pull takes all"
        )
    if report.unused:
        images = counted(len(report.unused), "image")
        lines.append(f"{images} that no result refers to: cepbench store gc removes old ones")
    lines += _some("no image of a store, left alone", [str(path) for path in report.foreign])
    return Section(f"store {folder}", tuple(lines))


def gc_page(
    folder: Path, collection: Collection, criteria: GcCriteria, lost: Mapping[str, int]
) -> Section:
    """Page of the results that go, by kind and by the model that made them, and of those that stay.

    lost: results of accepted answers that go, by case.
    """
    blocks: list[str | Table] = []
    if collection.entries:
        kinds, models = count(collection.entries, {})
        blocks += [_shares("kind", kinds, "in the index"), _shares("model", models, "in the index")]
    for case, number in lost.items():
        blocks.append(f"accepted answers of {case} go, which no run makes again: {number} results")
    goes = f"goes: {counted(len(collection.entries), 'result')}"
    if collection.unused:
        goes += f", {counted(len(collection.unused), 'image')} that no result refers to"
    anything = collection.entries or collection.unused
    freed = f"{goes}; about {show_size(collection.bytes)} with images"
    blocks.append(freed if anything else "nothing goes")
    stays = (
        f"stays: {counted(collection.kept, 'result')}, about {show_size(collection.kept_bytes)} "
        "with images"
    )
    blocks.append(stays)
    if criteria.accepted:
        blocks.append(f"the baselines keep {counted(len(criteria.accepted), 'result')} of answers")
    if collection.unnamed:
        blocks.append(
            f"{counted(collection.unnamed, 'result')} made by an earlier version name no model: "
            "the baselines cannot keep them, and only age and size let them go"
        )
    if criteria.max_size is not None and collection.kept_bytes > criteria.max_size:
        blocks.append(
            f"more than --max-size stays: the baselines need it ({show_size(criteria.max_size)} "
            "were asked)"
        )
    return Section(f"what may go of the store {folder}", tuple(blocks))


def gc_lines(summary: GcSummary) -> Iterator[str]:
    """Lines on what was deleted, and on what could not be yet."""
    yield f"deleted: about {show_size(summary.bytes)}"
    if summary.waiting:
        yield (
            f"left: {counted(summary.waiting, 'image')} younger than an hour, which a running "
            "process may be about to use: a later gc takes them"
        )
    if not summary.compacted:
        yield (
            "the index keeps its size while another process has the store open; a later gc gives "
            "it back"
        )


def pull_lines(summary: PullSummary, folder: Path) -> Iterator[str]:
    """Lines on the results taken over from a shared store."""
    yield (
        f"{counted(summary.results, 'result')} and {counted(summary.images, 'image')} imported "
        f"into {folder}; {summary.present:,} were there already"
    )
    for why, number in sorted(summary.refused.items()):
        yield f"refused: {counted(number, 'result')}: {why}"


def remote_page(url: str, report: RemoteReport) -> Section:
    """Page of a shared store's contents, and of what is wrong with them."""
    checked = f"checked {counted(report.results, 'result')} and {counted(report.images, 'image')}"
    lines = [
        f"{checked}, {show_size(report.bytes)}",
        *_some("damaged", report.damaged),
        *_some("result whose image is not there", [key[:12] for key in report.lost]),
        "sound" if report.sound else "damaged",
    ]
    return Section(f"shared store {url}", tuple(lines))


def _shares(name: str, shares: Mapping[str, StoreShare], size: str = "size") -> Table:
    rows = tuple(
        (
            title or "(not named)",
            f"{share.results:,}",
            show_size(share.bytes),
            show_day(share.oldest),
            show_day(share.newest),
            show_day(share.used * DAY_SECONDS),
        )
        for title, share in shares.items()
    )
    return Table((name, "results", size, "oldest", "newest", "last used"), rows)


def _some(what: str, names: Sequence[str]) -> Iterator[str]:
    """A line for each of the first few."""
    yield from (f"{what}: {name}" for name in names[:_LISTED])
    if len(names) > _LISTED:
        yield f"{what}: {len(names) - _LISTED:,} more"


def read_days(text: str, source: str) -> int:
    """Days of `30d` or `2w`. source: the option, for errors. Raises SpecError."""
    match = re.fullmatch(r"([0-9]{1,6})([dw])", text.strip())
    if match is None or int(match[1]) == 0:
        raise SpecError(f"{source} {text!r}: days or weeks are expected, such as 30d or 2w")
    return int(match[1]) * _DAYS[match[2]]


def read_size(text: str, source: str) -> int:
    """Bytes of `20G` or `1.5T`, powers of 1000. source: option, for errors. Raises SpecError."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise SpecError(f"{source} {text!r}: a size is expected, such as 500M or 20G")
    return int(float(match[1]) * _UNITS[match[2]])


def show_size(count: int) -> str:
    """Bytes with a unit, three digits or so."""
    unit = next((u for u in ("T", "G", "M", "K") if count >= _UNITS[u]), "")
    if not unit:
        return f"{count} B"
    return f"{count / _UNITS[unit]:.3g} {unit.replace('K', 'k')}B"


def show_day(seconds: float) -> str:
    """The day of a moment given in seconds since the epoch, in UTC."""
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):  # a damaged number may be any
        return "?"
