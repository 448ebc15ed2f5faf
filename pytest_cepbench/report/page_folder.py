"""The page as a folder: `index.html` with style, script and images as files beside it.

For servers whose policy allows nothing inline, such as Jenkins, and for pages of many images.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from pytest_cepbench.errors import WriteError
from pytest_cepbench.files import open_regular
from pytest_cepbench.report.html_page import SCRIPT, STYLESHEET, html_page, page_files
from pytest_cepbench.report.page_images import IMAGES, FileSource, ImageSource
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import RunFacts

PAGE = "index.html"

_GENERATOR = b'<meta name="generator" content="pytest-cepbench'

_HEAD = 4096  # bytes of a page in which it names its generator

_IMAGE = re.compile(r"image-[0-9a-f]{16}(?:-original)?\.(?:webp|png)")


def write_page_folder(
    folder: Path,
    facts: RunFacts,
    results: Sequence[CaseResult],
    image: ImageSource,
    file: FileSource = lambda _: None,
) -> Path:
    """Write the page and its files; returns the path of the page, which is written last.

    A page of an earlier run is replaced, and its images are removed.
    image: gives a stored image by digest, or None when it is gone.
    file: gives the stored file of an image, for the original beside the page.
    Raises WriteError where a file cannot be written, and where the folder has a page of others.
    """
    page = folder / PAGE
    if not _is_ours(page):
        raise WriteError(
            f"{page} is not a report of cepbench, and is not replaced: give --cep-report-dir "
            "another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.unlink(missing_ok=True)  # it would be taken for the report of this run
        before = _images(folder)
        text = html_page(facts, results, image, folder=folder, file=file)
        for name, content in page_files().items():
            (folder / name).write_text(content, encoding="utf-8")
        fresh = folder / f".{PAGE}.new"
        fresh.write_text(text, encoding="utf-8", errors="replace")
        fresh.replace(page)
    except OSError as error:
        at = error.filename or folder
        raise WriteError(f"{at} could not be written: {error.strerror or error}") from error
    for path in before:
        if f"{IMAGES}/{path.name}" not in text:
            with suppress(OSError):
                path.unlink()
    return page


def page_file(folder: Path, name: str) -> BufferedReader | None:
    """A file of a page in a folder, opened, by its path from there; None where it is none.

    Names are those that `write_page_folder` writes. Links are not followed: a folder may have been
    copied from anywhere.
    """
    parent, _, file = name.rpartition("/")
    if parent == IMAGES:
        if not _IMAGE.fullmatch(file) or (folder / IMAGES).is_symlink():
            return None
    elif name not in (PAGE, STYLESHEET, SCRIPT):
        return None
    try:
        return open_regular(folder / name, links=False)
    except OSError:
        return None


def page_file_names(folder: Path) -> list[str]:
    """The paths of a page and its files, from their folder, as far as `page_file` has them."""
    images = [f"{IMAGES}/{path.name}" for path in _images(folder)]
    return [name for name in (PAGE, STYLESHEET, SCRIPT) if (folder / name).is_file()] + images


def page_of_runs(folder: Path) -> list[Path]:
    """The page that a run wrote into a folder, or will; nothing where others wrote one."""
    return [page] if _is_ours(page := folder / PAGE) else []


def _is_ours(page: Path) -> bool:
    """Whether a page may be replaced: it is not there, or a run wrote it."""
    try:
        with page.open("rb") as stream:
            return _GENERATOR in stream.read(_HEAD)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _images(folder: Path) -> list[Path]:
    """The images that runs wrote into a folder."""
    try:
        return [path for path in (folder / IMAGES).iterdir() if _IMAGE.fullmatch(path.name)]
    except OSError:
        return []
