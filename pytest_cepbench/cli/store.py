"""`cepbench store`: what a store of results holds, what is damaged, what it gives and takes."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.cli.output import (
    HOME,
    INTERRUPTED,
    MISTAKE,
    NOT_DONE,
    complain,
    show,
    show_document,
    tell,
)
from pytest_cepbench.cli.session import open_store, read_data
from pytest_cepbench.cli.store_pages import (
    gc_lines,
    gc_page,
    pull_lines,
    read_days,
    read_size,
    remote_page,
    show_size,
    stats_json,
    stats_page,
    verify_page,
)
from pytest_cepbench.datasets.opening.answers import write_answers
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, MissingDependencyError, SpecError, StoreError
from pytest_cepbench.evaluation.project_baselines import battle_baselines, project_baselines
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
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.maintenance import (
    GcCriteria,
    choose,
    collect,
    inspect,
    models_in,
    repair,
    summarize,
)
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.object_store import ObjectStore
from pytest_cepbench.store.remote.sync import inspect_objects, pull
from pytest_cepbench.store.store import Store
from pytest_cepbench.suites import Suite, load_data, load_suite


def run(arguments: Namespace) -> int:
    """Run the action; returns the exit code, as `main` does."""
    actions: Mapping[str, Callable[[Namespace], int]] = {
        "stats": _stats,
        "verify": _verify,
        "gc": _gc,
        "pull": _pull,
    }
    try:
        return actions[arguments.action](arguments)
    except (SpecError, MissingDependencyError) as error:
        return complain(str(error), MISTAKE)
    except StoreError as error:
        return complain(str(error), NOT_DONE)


def _existing(folder: Path) -> Path:
    """A store's folder. Raises SpecError where there is none, so that reading creates none."""
    if not (folder / INDEX).is_file():
        raise SpecError(f"no store at {str(folder)!r}: give its folder with --store DIR")
    return folder


def _reader(folder: Path) -> ReadonlyStore:
    return ReadonlyStore(_existing(folder), f"the store {str(folder)!r}")


def _stats(arguments: Namespace) -> int:
    with _reader(arguments.store) as reader:
        stats = summarize(reader)
    if arguments.json:
        show_document(stats_json(arguments.store, stats))
    else:
        show([stats_page(arguments.store, stats)])
    return 0


def _verify(arguments: Namespace) -> int:
    if arguments.url is not None:
        if arguments.repair:
            raise SpecError(
                "--repair is for a local store: runs overwrite what is damaged in a shared one"
            )
        with _shared(arguments.url, "cepbench store verify") as objects:
            remote = inspect_objects(objects)
        show([remote_page(arguments.url, remote)])
        return 0 if remote.sound else NOT_DONE
    if arguments.repair:
        with open_store(_existing(arguments.store)) as store:
            return _repaired(store)
    try:
        with _reader(arguments.store) as reader:
            report = inspect(arguments.store, reader.read)
    except StoreError as error:
        return complain(f"{error}; --repair saves what can be read", NOT_DONE)
    page = verify_page(arguments.store, report)
    if report.sound:
        show([page])
        return 0
    show([page], "nothing changed: --repair drops what is damaged")
    return NOT_DONE


def _repaired(store: Store) -> int:
    report = inspect(store.root, store.index.read)
    page = verify_page(store.root, report)
    if report.sound:
        show([page], *store.damage)
        return 0
    repair(store, report)
    show([page], *store.damage, "dropped what is damaged: it is computed again when it is needed")
    return 0


def _gc(arguments: Namespace) -> int:
    folder = _existing(arguments.store)
    criteria = GcCriteria(
        unused_for=_unless_none(read_days, arguments.unused_for, "--unused-for"),
        max_size=_unless_none(read_size, arguments.max_size, "--max-size"),
    )
    if criteria == GcCriteria() and not arguments.baselines:
        raise SpecError(
            "no rule for what may be deleted: give --unused-for, --max-size or --baselines"
        )
    named, project = _tables_below(arguments.baselines), _project_tables(arguments)
    with _reader(folder) as reader:
        accepted = _accepted_keys([*named.values(), *project.values()], reader)
        if (named or project) and not arguments.without_baselines:
            models = models_in(reader.read)
            criteria = replace(
                criteria,
                # Fixed roles can answer again; a checkpoint that was accepted may be gone.
                needed=_needed_models(named, models) | _needed_models(project, models, ("model",)),
                accepted=frozenset().union(*accepted.values()),
            )
        collection = choose(folder, reader.read, criteria)
        going = {entry.key for entry in collection.entries}
        lost = {case: len(keys & going) for case, keys in accepted.items() if keys & going}
        known = bool(named or project) or arguments.without_baselines
        answers = 0 if known else len(answers_under(reader.read, going))
    page = gc_page(folder, collection, criteria, lost)
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
    if not (collection.entries or collection.unused):
        show([page])
        return 0
    if not arguments.delete:
        show([page], "nothing deleted: say --delete")
        return 0
    show([page])
    try:
        with open_store(folder) as store:
            summary = collect(store, collection)
    except KeyboardInterrupt:
        return complain("interrupted: the same command again deletes the rest", INTERRUPTED)
    show([], *gc_lines(summary))
    return 0


def _unless_none(read: Callable[[str, str], int], text: str | None, source: str) -> int | None:
    return None if text is None else read(text, source)


@contextmanager
def _shared(url: str, source: str) -> Iterator[ObjectStore]:
    objects = open_objects(url, source, writing=False)
    assert objects is not None  # only an optional store may be absent
    with closing(objects):
        yield objects


def _pull(arguments: Namespace) -> int:
    try:
        with (
            _shared(arguments.url, "cepbench store pull") as objects,
            open_store(arguments.store) as store,
        ):
            summary = pull(store, objects)
    except KeyboardInterrupt:
        return complain("interrupted: the same command again downloads the rest", INTERRUPTED)
    show([], *pull_lines(summary, arguments.store))
    return NOT_DONE if summary.refused else 0


_Tables = dict[Path, dict[str, object]]
"""Baselines and anchors by their files."""


def _tables_below(folders: Sequence[Path]) -> _Tables:
    """All baselines and anchors below these folders.

    Raises SpecError for a folder without baselines and for a baseline that cannot be read: what it
    needs would seem not to be needed.
    """
    tables: _Tables = {}
    for folder in folders:
        own = _tables_in(folder)
        if not own:
            raise SpecError(
                f"--baselines {str(folder)!r}: no baselines there; give the folder that holds them"
            )
        tables |= own
    return tables


def _project_tables(arguments: Namespace) -> _Tables:
    """All baselines of the project that the store, or this folder, belongs to.

    Raises SpecError where one cannot be read, unless nothing is to be kept for them.
    """
    tables: _Tables = {}
    try:
        for folder in project_baselines(Path.cwd(), arguments.store.resolve()):
            tables |= _tables_in(folder)
    except (OSError, SpecError) as error:
        if not arguments.without_baselines:
            raise SpecError(
                f"the project's baselines: {error}; --without-baselines does without them"
            ) from error
    return tables


def _tables_in(folder: Path) -> _Tables:
    def stop(error: OSError) -> None:
        raise error

    tables: _Tables = {}
    place = folder
    try:
        for parent, _, names in os.walk(folder, onerror=stop) if folder.is_dir() else ():
            for name in sorted(names):
                place = Path(parent, name)
                if place.suffix == SUFFIX:
                    tables[place.resolve()] = parse_toml(read_regular(place, MOST_TEXT))
    except (OSError, ValueError) as error:
        raise SpecError(f"{str(place)!r} cannot be read as a baseline: {error}") from error
    return tables


def _needed_models(
    tables: _Tables, known: Iterable[str], parts: Sequence[str] = ("model", "identity")
) -> frozenset[str]:
    """Known models that a baseline or an anchor names.

    parts: where it does: under `model` the accepted one, under `identity` the fixed roles.
    """
    texts = (text for table in tables.values() for text in _texts_of(table, parts))
    words = [f" {text} " for text in dict.fromkeys(texts)]
    return frozenset(model for model in known if any(f" {model} " in text for text in words))


def _accepted_keys(
    tables: Iterable[Mapping[str, object]], reader: ReadonlyStore
) -> dict[str, set[str]]:
    """By case, the keys of the accepted answers that a store has."""
    digests_of: dict[str, set[str]] = {}
    for table in tables:
        answers = table.get("answers")
        if isinstance(answers, dict):
            digests_of.setdefault(str(table.get("case")), set()).update(map(str, answers.values()))
    keys_of = keys_of_answers(reader.read, set().union(*digests_of.values()))
    return {
        case: set().union(*(keys_of.get(digest, ()) for digest in digests))
        for case, digests in digests_of.items()
    }


def _texts_of(table: dict[str, object], parts: Sequence[str]) -> Iterator[str]:
    for name in parts:
        part = table.get(name)
        for field, text in part.items() if isinstance(part, dict) else ():
            if field == "step":
                yield _fingerprint(str(text))
            else:
                yield str(text)


def _fingerprint(step: str) -> str:
    try:
        return str(json.loads(step)["fingerprint"])[:SHORT_FINGERPRINT]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def move_answers(arguments: Namespace) -> int:
    """Export or import; exit codes as in `main`."""
    try:
        return _export(arguments) if arguments.action == "export" else _import(arguments)
    except SpecError as error:
        return complain(str(error), MISTAKE)
    except CepError as error:
        return complain(str(error), NOT_DONE)
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)


def _export(arguments: Namespace) -> int:
    suite = load_suite(arguments.suite)
    folder: Path = arguments.baselines / suite.name
    baselines = dict(battle_baselines(folder))
    every = [digest for baseline in baselines.values() for digest in baseline.answers.values()]
    digests = set(every) - {""}
    if not digests:
        raise SpecError(
            f"{str(folder)!r} holds no baseline of battles: accept one with --snapshot-update"
        )
    with open_store(arguments.store) as store:
        answers = get_answers(store, digests)
        missing = digests - answers.keys()
        if missing:
            return complain(
                f"{len(missing)} of {len(digests)} accepted answers are not in the store "
                f"{str(arguments.store)!r}: use the store of the run that accepted them",
                NOT_DONE,
            )
        if arguments.layout == "opening":
            accepted = {
                sample: digest
                for path, baseline in baselines.items()
                if path.parent == folder  # those of anchors are older
                for sample, digest in baseline.answers.items()
            }
            return _export_folder(arguments, suite, accepted, answers, store)
        data = bundle_bytes(answers.values(), store)
    target: Path = arguments.out or folder / BUNDLE
    replace_files(target.parent, {target: data})
    size = show_size(len(data))
    tell(f"{len(answers)} answers in {target}, {size}: commit it with the baselines")
    return 0


def _export_folder(
    arguments: Namespace,
    suite: Suite,
    accepted: Mapping[str, str],
    answers: Mapping[str, Answer],
    store: Store,
) -> int:
    """Write the last accepted answers as OpenING's scripts read them. accepted: sample -> digest.

    Raises DatasetError for a suite of other questions, WriteError.
    """

    def steps_of(sample: Sample) -> list[tuple[str, ImageArtifact | None]] | Failure:
        digest = accepted[sample.id]
        if not digest:
            return Failure("missing", "no answer was accepted")
        steps = answers[digest].steps
        return [(s.text, None if s.image is None else store.get_image(s.image)) for s in steps]

    dataset = load_data(suite, read_data(arguments.data))
    samples = [sample for sample in dataset.samples if sample.id in accepted]
    contents = ((sample, steps_of(sample)) for sample in samples)
    written = write_answers(arguments.out or HOME / "answers", arguments.name, contents)
    tell(f"{len(samples)} answers in {written}")
    return 0


def _import(arguments: Namespace) -> int:
    with open_store(arguments.store) as store:
        for bundle in arguments.bundles:
            tell(f"{import_bundle(bundle, store)} answers of {bundle}")
    return 0
