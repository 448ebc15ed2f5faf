"""`cepbench dataset verify`: people check labels of images, or gold answers, on a page."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pytest_cepbench.cli.output import MISTAKE, NOT_DONE, complain, tell
from pytest_cepbench.cli.session import read_annotators, read_count, read_seed
from pytest_cepbench.construction import arena_set
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.folder import ConstructionFolder, open_construction
from pytest_cepbench.construction.verification import (
    VerificationSettings,
    read_labelled,
    write_verification,
)
from pytest_cepbench.errors import CepError, SpecError, WriteError, did_you_mean
from pytest_cepbench.files import names_beside
from pytest_cepbench.ratings.consent import write_texts
from pytest_cepbench.ratings.folder import STUDY, read_ratings
from pytest_cepbench.ratings.session import open_session


def run(arguments: Namespace) -> int:
    """Write the study where it is new, and serve it; exit codes as in `main`."""
    try:
        folder = open_construction(arguments.folder)
        images = read_images(arguments.images)
        seed = None if arguments.seed is None else read_seed(arguments.seed)
        path = write_study(folder, images, arguments.annotators, arguments.overlap, seed)
        if not arguments.only_write:
            from pytest_cepbench.cli.rating_server import serve_ratings

            serve_ratings(path, arguments, None)
    except WriteError as error:
        return complain(str(error), NOT_DONE)
    except CepError as error:
        return complain(str(error), MISTAKE)
    return 0


def read_images(path: Path | None) -> Path | None:
    """The value of `--images`. Raises SpecError."""
    if path is not None and not path.is_dir():
        near = did_you_mean(path.name, names_beside(path, folders=True))
        raise SpecError(f"--images {str(path)!r}: a folder of images is expected.{near}")
    return path


def has_study(folder: Path) -> bool:
    """Whether people are asked about the data set of a folder already."""
    return (folder / files.RATINGS / STUDY).is_file()


def write_study(
    folder: ConstructionFolder,
    images: Path | None,
    annotators: str | None,
    overlap: str | None,
    seed: int | None,
) -> Path:
    """The folder of the study, written where there is none.

    images: where the images lie, if they have moved. annotators, overlap: as options say.
    seed: of the order of items; None for 0, or for that of a study which is there already.
    Raises SpecError, DatasetError and WriteError, also where settings are not those of a study
    that is there.
    """
    path = folder.path / files.RATINGS
    known = has_study(folder.path)
    if annotators is None and not known:
        raise SpecError(
            "say who checks: --annotators NAME,NAME (they vote with the model on each label)"
        )
    people = () if annotators is None else read_annotators(annotators)
    settings = VerificationSettings(people, read_count("--overlap", overlap), seed=seed)
    if folder.has(arena_set.QUESTIONS):
        arena_set.write_approval_study(folder, settings, images)
    else:
        write_verification(folder, read_labelled(folder, images), settings)
    study = read_ratings(path)
    number = sum(item.kind == "item" for item in study.items.values())
    asked = f"{number} items for {', '.join(study.study.annotators)}"
    if known:
        tell(f"goes on: {path}, {asked}")
    else:
        write_texts(path, "verify")
        open_session(path, study.study.annotators)
        tell(f"{path}: {asked}")
        tell(f"edit {path / 'consent.md'} and {path / 'instructions.md'} before people begin")
    return path
