"""`cepbench answers`: accepted answers of a suite in one file, for stores that do not have them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pytest_cepbench.cli.baseline_files import battle_baselines
from pytest_cepbench.cli.output import INTERRUPTED, MISTAKE, NOT_DONE, complain, tell
from pytest_cepbench.cli.session import open_store, suite_file
from pytest_cepbench.cli.store_pages import show_size
from pytest_cepbench.errors import CepError, SpecError
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.store.answer_bundle import BUNDLE, bundle_bytes, import_bundle
from pytest_cepbench.store.answers import get_answers
from pytest_cepbench.suites import load_suite


def run(arguments: Namespace) -> int:
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
    digests = {
        digest for _, baseline in battle_baselines(folder) for digest in baseline.answers.values()
    } - {""}
    if not digests:
        msg = f"{str(folder)!r} holds no baseline of battles: accept one with --snapshot-update"
        raise SpecError(msg)
    target: Path = arguments.out or folder / BUNDLE
    with open_store(arguments.store) as store:
        answers = get_answers(store, digests)
        missing = digests - answers.keys()
        if missing:
            return complain(
                f"{len(missing)} of {len(digests)} accepted answers are not in the store "
                f"{str(arguments.store)!r}: use the store of the run that accepted them",
                NOT_DONE,
            )
        data = bundle_bytes(answers.values(), store)
    replace_files(target.parent, {target: data})
    tell(
        f"{len(answers)} answers in {target}, {show_size(len(data))}: commit it with the baselines"
    )
    return 0


def _import(arguments: Namespace) -> int:
    with open_store(arguments.store) as store:
        for bundle in arguments.bundles:
            tell(f"{import_bundle(bundle, store)} answers of {bundle}")
    return 0
