"""`cepbench store export` and `import`: accepted answers of a suite in files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.cli.output import HOME, INTERRUPTED, MISTAKE, NOT_DONE, complain, tell
from pytest_cepbench.cli.project_files import battle_baselines
from pytest_cepbench.cli.session import open_store, read_data, suite_file
from pytest_cepbench.cli.store_pages import show_size
from pytest_cepbench.datasets.opening.answers import write_answers
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, SpecError
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.store.answers import BUNDLE, bundle_bytes, get_answers, import_bundle
from pytest_cepbench.store.store import Store
from pytest_cepbench.suites import Suite, load_data, load_suite


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
    suite = load_suite(suite_file(arguments.suite))
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
