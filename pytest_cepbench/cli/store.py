"""`cepbench store`: what a store holds, whether it is sound, making it smaller, and copies of it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pytest_cepbench.cli.baseline_models import needed_models
from pytest_cepbench.cli.home import open_store
from pytest_cepbench.cli.number_format import read_days, read_size, show_size
from pytest_cepbench.cli.store_pages import (
    collected_lines,
    collection_page,
    findings_page,
    inspected_page,
    merged_lines,
    pushed_lines,
    survey_json,
    survey_page,
)
from pytest_cepbench.cli.terminal import (
    INTERRUPTED,
    MISTAKE,
    NOT_DONE,
    complain,
    show,
    show_document,
)
from pytest_cepbench.errors import MissingDependencyError, SpecError, StoreError
from pytest_cepbench.report.formatting import counted
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.export import Wanted, export_store
from pytest_cepbench.store.gc import GcCriteria, choose, collect
from pytest_cepbench.store.merge import FolderSource, TarSource, merge
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.object_store import ObjectStore
from pytest_cepbench.store.remote.sync import inspect_objects, pull, push
from pytest_cepbench.store.side_tables import today
from pytest_cepbench.store.stats import models_in, summarize
from pytest_cepbench.store.store import Store
from pytest_cepbench.store.verify import inspect, repair


def run(given: Namespace) -> int:
    """Do what was asked; exit codes as in `main`."""
    actions: Mapping[str, Callable[[Namespace], int]] = {
        "stats": _stats,
        "verify": _verify,
        "gc": _gc,
        "export": _export,
        "import": _import,
        "push": _push,
        "pull": _pull,
    }
    try:
        return actions[given.action](given)
    except (SpecError, MissingDependencyError) as error:
        return complain(str(error), MISTAKE)
    except StoreError as error:
        return complain(str(error), NOT_DONE)


def _there(folder: Path) -> Path:
    """A store's folder. Raises SpecError where there is none: it must not be made by looking."""
    if not (folder / INDEX).is_file():
        msg = f"no store at {str(folder)!r}: give its folder with --store DIR"
        raise SpecError(msg)
    return folder


def _reader(folder: Path) -> ReadonlyStore:
    return ReadonlyStore(_there(folder), f"the store {str(folder)!r}")


def _stats(given: Namespace) -> int:
    with _reader(given.store) as reader:
        found = summarize(reader)
    if given.json:
        show_document(survey_json(given.store, found))
    else:
        show([survey_page(given.store, found)])
    return 0


def _verify(given: Namespace) -> int:
    if given.url is not None:
        if given.repair:
            msg = "--repair is for a local store: what is damaged in a shared one, runs write anew"
            raise SpecError(msg)
        with _shared(given.url, "cepbench store verify", writing=False) as objects:
            seen = inspect_objects(objects)
        show([inspected_page(given.url, seen)])
        return 0 if seen.sound else NOT_DONE
    if given.repair:
        with open_store(_there(given.store)) as store:
            return _repaired(store)
    try:
        with _reader(given.store) as reader:
            found = inspect(given.store, reader.read)
    except StoreError as error:
        return complain(f"{error}; --repair saves what can be read", NOT_DONE)
    page = findings_page(given.store, found)
    if found.sound:
        show([page])
        return 0
    show([page], "nothing changed: say --repair to drop what is damaged")
    return NOT_DONE


def _repaired(store: Store) -> int:
    found = inspect(store.root, store.index.read)
    page = findings_page(store.root, found)
    if found.sound:
        show([page], *store.damage)
        return 0
    repair(store, found)
    show([page], *store.damage, "dropped what is damaged: it is computed again when it is needed")
    return 0


def _gc(given: Namespace) -> int:
    folder = _there(given.store)
    ask = GcCriteria(
        unused_for=_unless_none(read_days, given.unused_for, "--unused-for"),
        max_size=_unless_none(read_size, given.max_size, "--max-size"),
    )
    if ask == GcCriteria() and not given.baselines:
        msg = "nothing says what may go: give --unused-for, --max-size or --baselines"
        raise SpecError(msg)
    with _reader(folder) as reader:
        if given.baselines:
            needed = needed_models(given.baselines, models_in(reader.read))
            ask = GcCriteria(ask.unused_for, ask.max_size, needed)
        going = choose(folder, reader.read, ask, days=reader.has("used"))
    page = collection_page(folder, going, ask)
    if not (going.entries or going.unused):
        show([page])
        return 0
    if not given.delete:
        show([page], "nothing deleted: say --delete")
        return 0
    show([page])
    try:
        with open_store(folder) as store:
            done = collect(store, going)
    except KeyboardInterrupt:
        return complain("interrupted: the same command again deletes the rest", INTERRUPTED)
    show([], *collected_lines(done))
    return 0


def _unless_none(read: Callable[[str, str], int], text: str | None, source: str) -> int | None:
    return None if text is None else read(text, source)


def _export(given: Namespace) -> int:
    with _reader(given.store) as reader:
        frozen = export_store(reader, given.target, _wanted(given, reader), force=given.force)
    left_out = (
        f"left out: {counted(frozen.left_out, 'result')} damaged or without an image; look with "
        "cepbench store verify"
    )
    show(
        [],
        f"{counted(frozen.results, 'result')} and {counted(frozen.images, 'image')}, "
        f"{show_size(frozen.bytes)}, exported to {given.target}",
        *([left_out] if frozen.left_out else []),
    )
    return 0


def _wanted(given: Namespace, reader: ReadonlyStore) -> Wanted:
    """Which results go along."""
    if given.baselines:
        needed = needed_models(given.baselines, models_in(reader.read))
        return lambda model, _: model in needed
    if given.used_within is not None:
        first = today() - read_days(given.used_within, "--used-within")
        return lambda _, day: day > first
    return lambda *_: True


def _import(given: Namespace) -> int:
    path: Path = given.source
    if not path.exists():
        msg = f"nothing at {str(path)!r}: the folder of a store or an archive of one is expected"
        raise SpecError(msg)
    if path.is_dir():
        folder = FolderSource(path)  # before a store is made for what is none
        with folder.reader, open_store(given.store) as store:
            merged = merge(store, folder)
        refused = folder.refused
    else:
        with open_store(given.store) as store, TarSource(path, store.root / "new") as archive:
            merged = merge(store, archive)
        refused = archive.refused
    show([], *merged_lines(merged, refused, given.store))
    return NOT_DONE if merged.refused or refused else 0


@contextmanager
def _shared(url: str, source: str, *, writing: bool) -> Iterator[ObjectStore]:
    objects = open_objects(url, source, writing=writing)
    assert objects is not None  # or it would have been an error
    with closing(objects):
        yield objects


def _push(given: Namespace) -> int:
    try:
        with (
            _reader(given.store) as reader,
            _shared(given.url, "cepbench store push", writing=True) as objects,
        ):
            pushed = push(reader, objects)
    except KeyboardInterrupt:
        return complain("interrupted: the same command again uploads the rest", INTERRUPTED)
    show([], *pushed_lines(pushed, given.url))
    return NOT_DONE if pushed.failed else 0


def _pull(given: Namespace) -> int:
    try:
        with (
            _shared(given.url, "cepbench store pull", writing=False) as objects,
            open_store(given.store) as store,
        ):
            merged = pull(store, objects)
    except KeyboardInterrupt:
        return complain("interrupted: the same command again takes the rest", INTERRUPTED)
    show([], *merged_lines(merged, (), given.store))
    return NOT_DONE if merged.refused else 0
