"""`cepbench dataset verify`: people check labels of images, or gold answers, on a page."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pytest_cepbench.cli.output import MISTAKE, NOT_DONE, complain, tell
from pytest_cepbench.cli.session import read_count, read_seed
from pytest_cepbench.construction import arena_set
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.folder import ConstructionFolder, open_construction
from pytest_cepbench.construction.verification import (
    VerificationSettings,
    read_labelled,
    write_verification,
)
from pytest_cepbench.errors import CepError, SpecError, WriteError
from pytest_cepbench.ratings.consent import write_texts
from pytest_cepbench.ratings.folder import STUDY, read_ratings
from pytest_cepbench.ratings.session import open_session


def run(arguments: Namespace) -> int:
    """Write the study where it is new, and serve it; exit codes as in `main`."""
    try:
        path = write_study(arguments, open_construction(arguments.folder), arguments.images)
        if not arguments.only_write:
            from pytest_cepbench.cli.rating_server import serve_ratings

            serve_ratings(path, arguments, None)
    except WriteError as error:
        return complain(str(error), NOT_DONE)
    except CepError as error:
        return complain(str(error), MISTAKE)
    return 0


def write_study(arguments: Namespace, folder: ConstructionFolder, images: Path | None) -> Path:
    """The folder of the study, written where there is none.

    arguments: annotators, overlap, seed. images: where the images lie, if they have moved.
    Raises SpecError, DatasetError and WriteError.
    """
    path = folder.path / files.RATINGS
    known = (path / STUDY).is_file()
    settings = _settings(arguments, new=not known)
    if folder.has(arena_set.QUESTIONS):
        arena_set.write_approval_study(folder, settings, images)
    else:
        write_verification(folder, read_labelled(folder, images), settings)
    if not known:
        study = read_ratings(path)
        write_texts(path, "verify")
        open_session(path, study.study.annotators)
        number = sum(item.kind == "item" for item in study.items.values())
        people = ", ".join(study.study.annotators)
        tell(f"{path}: {number} items for {people}")
        tell(f"edit {path / 'consent.md'} and {path / 'instructions.md'} before people begin")
    return path


def _settings(arguments: Namespace, *, new: bool) -> VerificationSettings:
    """Raises SpecError naming the option that is wrong."""
    text: str | None = arguments.annotators
    if text is None:
        if new:
            msg = "say who checks: --annotators NAME,NAME (they vote with the model on each label)"
            raise SpecError(msg)
        return VerificationSettings(())
    return VerificationSettings(
        annotators=tuple(name.strip() for name in text.split(",")),
        overlap=read_count("--overlap", arguments.overlap),
        seed=read_seed(arguments.seed),
    )
