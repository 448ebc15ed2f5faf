"""`cepbench store`: what a store of results holds, what is damaged, what it gives and takes."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_cepbench.cli.arguments import UNITS
from pytest_cepbench.cli.output import (
    INTERRUPTED,
    NOT_DONE,
    Section,
    Table,
    show,
    tell,
)
from pytest_cepbench.cli.session import open_store
from pytest_cepbench.errors import EndedError, SpecError, StoreError
from pytest_cepbench.evaluation.project_baselines import project_baselines, suite_baselines
from pytest_cepbench.files import MOST_TEXT, parse_toml, read_regular
from pytest_cepbench.gate.baseline import SUFFIX
from pytest_cepbench.models.binding import SHORT_FINGERPRINT
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.store.answers import (
    BUNDLE,
    answers_under,
    bundle_bytes,
    get_answers,
    import_bundle,
    keys_of_answers,
)
from pytest_cepbench.store.database import INDEX, open_readonly
from pytest_cepbench.store.maintenance import (
    Collection,
    StoreShare,
    VerifyReport,
    choose,
    collect,
    count,
    entries,
    image_sizes,
    inspect,
    models_in,
    repair,
)
from pytest_cepbench.store.rows import DAY_SECONDS, Read
from pytest_cepbench.suites import load_suite

_LISTED = 10


def run_stats(arguments: Namespace) -> int:
    """Show what a store holds; exit codes as in `main`."""
    folder: Path = arguments.store
    with open_readonly(folder) as read:
        sizes = image_sizes(folder)
        kinds, models = count(entries(read), sizes)
        files = [path for end in ("", "-wal") if (path := folder / f"{INDEX}{end}").exists()]
        index = sum(path.stat().st_size for path in files)
    images = f"files: {len(sizes):,}, {_show_size(sum(sizes.values()))}"
    blocks: list[str | Table] = [f"index: {_show_size(index)}", images]
    if kinds:
        blocks += [_shares("kind", kinds), _shares("model", models)]
    else:
        blocks.append("no results")
    show([Section(f"store {folder}", blocks)])
    return 0


# -- verify ----------------------------------------------------------------------------------------


def run_verify(arguments: Namespace) -> int:
    """Say what is damaged of a store, and drop it where asked to."""
    folder: Path = arguments.store
    if arguments.repair:
        with open_store(folder) as store:
            report = inspect(store.root, store.index.read)
            lines = []
            if not report.sound:
                repair(store, report)
                lines = ["dropped what is damaged: it is computed again when it is needed"]
            show([_verify_page(store.root, report)], *store.damage, *lines)
        return 0
    try:
        with open_readonly(folder) as read:
            report = inspect(folder, read)
    except StoreError as error:
        raise EndedError(f"{error}; --repair saves what can be read") from error
    advice = () if report.sound else ("nothing changed: --repair drops what is damaged",)
    show([_verify_page(folder, report)], *advice)
    return 0 if report.sound else NOT_DONE


def _verify_page(folder: Path, report: VerifyReport) -> Section:
    lines = [f"checked {counted(report.results, 'result')} and {counted(report.images, 'file')}"]
    for what, names in (
        ("index", report.index),
        ("result that does not match its seal", [key[:12] for key in report.rows]),
        (
            "damaged or lost provenance",
            [f"of {counted(results, 'result')}" for _, results in report.provenances],
        ),
        ("remembered file that does not match its seal", report.files),
        ("damaged file", [f"{digest[:12]}: {why}" for digest, why in report.damaged_images]),
        ("result whose file is not there", [key[:12] for key in report.lost]),
    ):
        lines += _some(what, names)
    lines.append("sound" if report.sound else "damaged")
    if report.remote:
        images = counted(len(report.remote), "file")
        lines.append(f"{images} in a shared store, fetched when needed")
    if report.unused:
        images = counted(len(report.unused), "file")
        lines.append(f"{images} that no result refers to: cepbench store gc removes old ones")
    lines += _some("no file of a store, left alone", [str(path) for path in report.foreign])
    return Section(f"store {folder}", lines)


# -- gc --------------------------------------------------------------------------------------------

_Tables = list[dict[str, object]]
"""What the files of baselines and anchors hold; a file may be there twice."""


def run_gc(arguments: Namespace) -> int:
    """List what may go, and delete it where asked to; exit codes as in `main`."""
    folder: Path = arguments.store
    unused_for, max_size = arguments.unused_for, arguments.max_size
    if unused_for is None and max_size is None and not arguments.baselines:
        raise SpecError(
            "no rule for what may be deleted: give --unused-for, --max-size or --baselines"
        )
    if arguments.baselines and arguments.without_baselines:
        raise SpecError("--baselines and --without-baselines contradict each other: drop one")
    named, project = _baselines_of(arguments)
    with open_readonly(folder) as read:
        accepted = _accepted_keys([*named, *project], read)
        needed, staying = None, set[str]()
        if (named or project) and not arguments.without_baselines:
            models = models_in(read)
            # Fixed roles can answer again; a checkpoint that was accepted may be gone.
            needed = _needed_models(named, models) | _needed_models(project, models, ("model",))
            staying = staying.union(*accepted.values())
        collection = choose(
            folder,
            read,
            unused_for=unused_for,
            max_size=max_size,
            needed=needed,
            accepted=staying,
        )
        going = {entry.key for entry in collection.entries}
        lost = {case: len(keys & going) for case, keys in accepted.items() if keys & going}
        known = bool(named or project) or arguments.without_baselines
        answers = 0 if known else len(answers_under(read, going))
    page = _gc_page(folder, collection, max_size, len(staying), lost)
    if answers:
        unknown = (
            f"{counted(answers, 'answer')} would go, and no baselines were found that say which "
            "are accepted, and so never made again: give their folder with --baselines DIR, or say "
            "--without-baselines"
        )
        if arguments.delete:
            raise SpecError(unknown)
        show([page], unknown)
        return 0
    anything = collection.entries or collection.unused
    show([page], *(["nothing deleted: say --delete"] if anything and not arguments.delete else []))
    if not (anything and arguments.delete):
        return 0
    try:
        with open_store(folder) as store:
            freed, waiting, compacted = collect(store, collection)
    except KeyboardInterrupt:
        raise EndedError(
            "interrupted: the same command again deletes the rest", INTERRUPTED
        ) from None
    lines = [f"deleted: about {_show_size(freed)}"]
    if waiting:
        lines.append(
            f"left: {counted(waiting, 'file')} younger than an hour, which a running "
            "process may be about to use: a later gc takes them"
        )
    if not compacted:
        lines.append(
            "the index keeps its size while another process has the store open, or the disk has no "
            "room to write it anew; a later gc gives it back"
        )
    show([], *lines)
    return 0


def _gc_page(
    folder: Path,
    collection: Collection,
    max_size: int | None,
    accepted: int,
    lost: Mapping[str, int],
) -> Section:
    """Page of the results that go, by kind and by the model that made them, and of those that stay.

    accepted: results of accepted answers that stay. lost: those that go, by case.
    """
    blocks: list[str | Table] = []
    if collection.entries:
        kinds, models = count(collection.entries, {})
        blocks += [_shares("kind", kinds, "in the index"), _shares("model", models, "in the index")]
    for case, number in lost.items():
        blocks.append(f"accepted answers of {case} go, which no run makes again: {number} results")
    goes = f"goes: {counted(len(collection.entries), 'result')}"
    if collection.unused:
        goes += f", {counted(len(collection.unused), 'file')} that no result refers to"
    anything = collection.entries or collection.unused
    freed = f"{goes}; about {_show_size(collection.bytes)} with their files"
    blocks.append(freed if anything else "nothing goes")
    blocks.append(
        f"stays: {counted(collection.kept, 'result')}, about {_show_size(collection.kept_bytes)} "
        "with their files"
    )
    if accepted:
        blocks.append(f"the baselines keep {counted(accepted, 'result')} of answers")
    if collection.unnamed:
        blocks.append(
            f"{counted(collection.unnamed, 'result')} without a model's name (imported, or of an "
            "earlier version): the baselines cannot keep them, and only age and size let them go"
        )
    if max_size is not None and collection.kept_bytes > max_size:
        asked = _show_size(max_size)
        blocks.append(f"more than --max-size stays: the baselines need it ({asked} were asked)")
    return Section(f"what may go of the store {folder}", blocks)


def _baselines_of(arguments: Namespace) -> tuple[_Tables, _Tables]:
    """All baselines and anchors below the folders that were named, and those of the project.

    The latter are of the project that the store, or this folder, belongs to. Raises SpecError for a
    folder without baselines and for a baseline that cannot be read: what it needs would seem not to
    be needed. One of the project raises it unless nothing is to be kept for them.
    """
    named: _Tables = []
    for folder in arguments.baselines:
        own = _tables_in(folder)
        if not any("case" in table for table in own):  # a suite.toml is no baseline
            raise SpecError(
                f"--baselines {str(folder)!r}: no baselines there; give the folder that holds them"
            )
        named += own
    project: _Tables = []
    try:
        for folder in project_baselines(Path.cwd(), arguments.store.resolve()):
            project += _tables_in(folder)
    except (OSError, SpecError) as error:
        if not arguments.without_baselines:
            raise SpecError(
                f"the project's baselines: {error}; --without-baselines does without them"
            ) from error
    return named, project


def _tables_in(folder: Path) -> _Tables:
    def stop(error: OSError) -> None:
        raise error

    tables: _Tables = []
    place = folder
    try:
        for parent, _, names in os.walk(folder, onerror=stop) if folder.is_dir() else ():
            for name in sorted(names):
                place = Path(parent, name)
                if place.suffix == SUFFIX:
                    tables.append(parse_toml(read_regular(place, MOST_TEXT)))
    except (OSError, ValueError) as error:
        raise SpecError(f"{str(place)!r} cannot be read as a baseline: {error}") from error
    return tables


def _needed_models(
    tables: _Tables, known: Iterable[str], parts: Sequence[str] = ("model", "identity")
) -> frozenset[str]:
    """Known models that a baseline or an anchor names.

    parts: where it does: under `model` the accepted one, under `identity` the fixed roles.
    """
    words = set()
    for table in tables:
        for part in map(table.get, parts):
            for field, value in part.items() if isinstance(part, dict) else ():
                text = str(value)
                if field == "step":
                    try:
                        text = str(json.loads(text)["fingerprint"])[:SHORT_FINGERPRINT]
                    except (ValueError, LookupError, TypeError, RecursionError):
                        continue
                words.add(f" {text} ")
    return frozenset(model for model in known if any(f" {model} " in text for text in words))


def _accepted_keys(tables: _Tables, read: Read) -> dict[str, set[str]]:
    """By case, the keys of the accepted answers that a store has."""
    digests_of: dict[str, set[str]] = {}
    for table in tables:
        answers = table.get("answers")
        if isinstance(answers, dict):
            digests_of.setdefault(str(table.get("case")), set()).update(map(str, answers.values()))
    keys_of = keys_of_answers(read, set().union(*digests_of.values()))
    return {
        case: set().union(*(keys_of.get(digest, ()) for digest in digests))
        for case, digests in digests_of.items()
    }


# -- accepted answers ------------------------------------------------------------------------------


def run_export(arguments: Namespace) -> int:
    """Write accepted answers into a bundle. Raises SuiteError and WriteError."""
    suite = load_suite(arguments.answers)
    folder: Path = arguments.baselines / suite.name
    baselines = [baseline for _, baseline in suite_baselines(folder)]
    digests = {digest for baseline in baselines for digest in baseline.answers.values()} - {""}
    if not digests:
        raise SpecError(
            f"{str(folder)!r} holds no baseline of battles: accept one with --snapshot-update"
        )
    with open_store(arguments.store) as store:
        answers = get_answers(store, digests)
        missing = digests - answers.keys()
        if missing:
            raise EndedError(
                f"{len(missing)} of {len(digests)} accepted answers are not in the store "
                f"{str(arguments.store)!r}: use the store of the run that accepted them"
            )
        data = bundle_bytes(answers.values(), store)
    target: Path = arguments.out or folder / BUNDLE
    replace_files(target.parent, {target: data})
    size = _show_size(len(data))
    tell(f"{len(answers)} answers in {target}, {size}: commit it with the baselines")
    return 0


def run_import(arguments: Namespace) -> int:
    """Take over exported answers; exit codes as in `main`."""
    with open_store(arguments.store) as store:
        for bundle in arguments.bundles:
            tell(f"{import_bundle(bundle, store)} answers of {bundle}")
    return 0


# -- numbers ---------------------------------------------------------------------------------------


def _shares(name: str, shares: Mapping[str, StoreShare], size: str = "size") -> Table:
    def day(seconds: float) -> str:
        try:
            return time.strftime("%Y-%m-%d", time.gmtime(seconds))
        except (ValueError, OverflowError, OSError):  # a damaged number may be any
            return "?"

    rows = tuple(
        (
            title or "(not named)",
            f"{share.results:,}",
            _show_size(share.bytes),
            day(share.used * DAY_SECONDS),
        )
        for title, share in shares.items()
    )
    return Table((name, "results", size, "last used"), rows)


def _some(what: str, names: Sequence[str]) -> Iterator[str]:
    """A line for each of the first few."""
    yield from (f"{what}: {name}" for name in names[:_LISTED])
    if len(names) > _LISTED:
        yield f"{what}: {len(names) - _LISTED:,} more"


def _show_size(count: int) -> str:
    """Bytes with a unit, three digits or so."""
    unit = next((u for u in ("T", "G", "M", "K") if count >= UNITS[u]), "")
    if not unit:
        return f"{count} B"
    return f"{count / UNITS[unit]:.3g} {unit.replace('K', 'k')}B"
