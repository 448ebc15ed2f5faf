"""What `cepbench store` shows: pages and JSON of what was found in a store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pytest_cepbench.cli.number_format import show_day, show_size
from pytest_cepbench.cli.rendering import Section, Table
from pytest_cepbench.report.formatting import counted
from pytest_cepbench.store.gc import Collection, GcCriteria, GcSummary
from pytest_cepbench.store.merge import MergeSummary
from pytest_cepbench.store.remote.sync import PushSummary, RemoteReport
from pytest_cepbench.store.side_tables import DAY_SECONDS
from pytest_cepbench.store.stats import StoreShare, StoreStats, count
from pytest_cepbench.store.verify import VerifyReport

SCHEMA = 1
"""Raised when a field of the JSON changes its meaning."""

_LISTED = 10


def survey_page(folder: Path, found: StoreStats) -> Section:
    """What a store holds."""
    images = f"images: {found.images:,}, {show_size(found.image_bytes)}"
    blocks: list[str | Table] = [f"index: {show_size(found.index_bytes)}", images]
    if found.kinds:
        blocks += [_shares("kind", found.kinds), _shares("model", found.models)]
    else:
        blocks.append("no results")
    return Section(f"store {folder}", tuple(blocks))


def survey_json(folder: Path, found: StoreStats) -> str:
    """The same as JSON text."""
    document = {"schema": SCHEMA, "store": str(folder)} | msgspec.to_builtins(found)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def findings_page(folder: Path, found: VerifyReport) -> Section:
    """What is wrong with a store."""
    looked = f"looked at {counted(found.results, 'result')} and {counted(found.images, 'image')}"
    lines = [looked]
    for what, names in (
        ("index", found.index),
        ("result that does not match its seal", [key[:12] for key in found.rows]),
        ("remembered file that does not match its seal", found.files),
        ("damaged image", [f"{digest[:12]}: {why}" for digest, why in found.damaged_images]),
        ("result whose image is not there", [key[:12] for key in found.lost]),
    ):
        lines += _some(what, names)
    lines.append("sound" if found.sound else "damaged")
    if found.remote:
        images = counted(len(found.remote), "image")
        lines.append(
            f"{images} in a shared store, fetched when looked at: cepbench store pull takes all"
        )
    if found.unused:
        images = counted(len(found.unused), "image")
        lines.append(f"{images} that no result refers to: cepbench store gc removes old ones")
    lines += _some("no image of a store, left alone", [str(path) for path in found.foreign])
    return Section(f"store {folder}", tuple(lines))


def collection_page(folder: Path, going: Collection, ask: GcCriteria) -> Section:
    """What goes of a store, by the model that made it, and what stays."""
    blocks: list[str | Table] = []
    if going.entries:
        blocks.append(_shares("model", count(going.entries, {})[1], "in the index"))
    goes = f"goes: {counted(len(going.entries), 'result')}"
    if going.unused:
        goes += f", {counted(len(going.unused), 'image')} that no result refers to"
    anything = going.entries or going.unused
    freed = f"{goes}; about {show_size(going.bytes)} with images"
    blocks.append(freed if anything else "nothing goes")
    stays = (
        f"stays: {counted(going.kept, 'result')}, about {show_size(going.kept_bytes)} with images"
    )
    blocks.append(stays)
    if going.unnamed:
        blocks.append(
            f"{counted(going.unnamed, 'result')} made by an earlier version name no model: the "
            "baselines cannot keep them, and only age and size let them go"
        )
    if ask.max_size is not None and going.kept_bytes > ask.max_size:
        blocks.append(
            f"more than --max-size stays: the baselines need it ({show_size(ask.max_size)} were asked)"
        )
    return Section(f"what may go of the store {folder}", tuple(blocks))


def collected_lines(done: GcSummary) -> Iterator[str]:
    """What was deleted, and what could not be yet."""
    yield f"deleted: about {show_size(done.bytes)}"
    if done.waiting:
        yield (
            f"left: {counted(done.waiting, 'image')} younger than an hour, which a running process may "
            "be about to use: a later gc takes them"
        )
    if not done.compacted:
        yield (
            "the index keeps its size while another process has the store open; a later gc gives it back"
        )


def merged_lines(merged: MergeSummary, refused: Sequence[str], folder: Path) -> Iterator[str]:
    """What became of another store's results."""
    yield (
        f"{counted(merged.results, 'result')} and {counted(merged.images, 'image')} imported into "
        f"{folder}; {merged.present:,} were there already"
    )
    for why, number in sorted(merged.refused.items()):
        yield f"refused: {counted(number, 'result')}: {why}"
    yield from _some("refused, cannot be of a store", refused)


def pushed_lines(pushed: PushSummary, url: str) -> Iterator[str]:
    """What became of results that were to be uploaded."""
    yield (
        f"{counted(pushed.results, 'result')} uploaded to {url}; {pushed.present:,} were there already"
    )
    for why, number in sorted(Counter(pushed.failed.values()).items()):
        yield f"not uploaded: {counted(number, 'result')}: {why}"


def inspected_page(url: str, found: RemoteReport) -> Section:
    """What is in a shared store, and what is wrong with it."""
    looked = f"looked at {counted(found.results, 'result')} and {counted(found.images, 'image')}"
    lines = [
        f"{looked}, {show_size(found.bytes)}",
        *_some("damaged", found.damaged),
        *_some("result whose image is not there", [key[:12] for key in found.lost]),
        "sound" if found.sound else "damaged",
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
