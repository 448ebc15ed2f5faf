"""Pages from templates: everything escaped, nothing hidden, one style; a page as file or folder.

A page needs nothing beside itself, or has its style, script and images beside it in a folder: for
servers whose policy allows nothing inline, such as Jenkins, and for pages of many images.
"""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import resources
from io import BufferedReader
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_cepbench._version import __version__
from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import visible
from pytest_cepbench.files import open_regular
from pytest_cepbench.report.case_table import failures_of, figures_of, looks_of, settings_of
from pytest_cepbench.report.number_format import bounds_of, number, p_value, word_of
from pytest_cepbench.report.page_images import IMAGES, FileSource, ImageSource, PageImages
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.view import run_view
from pytest_cepbench.report.writers import RunFacts

PAGE, STYLESHEET, SCRIPT = "index.html", "page.css", "page.js"
"""Files of a page in a folder; everything is readable without the script."""

_GENERATOR = b'<meta name="generator" content="pytest-cepbench'

_HEAD = 4096  # bytes of a page in which it names its generator

_IMAGE = re.compile(r"image-[0-9a-f]{16}(?:-original)?\.(?:webp|png)")


def render(
    template: str, *, images: PageImages | None = None, script: str = "", **values: Any
) -> str:
    """A page from a template. Texts are escaped, and `visible`.

    images: of the page; none where it shows none.
    script: of the page, whose policy allows no other.
    values: what the template reads; `policy` is what the page may load beside the usual.
    """
    images = PageImages(lambda _: None) if images is None else images
    if images.inside:
        digest = base64.b64encode(sha256(script.encode()).digest()).decode()
        policy = "img-src data:; style-src 'unsafe-inline'"
        policy += f"; script-src 'sha256-{digest}'" if script else ""
    else:
        policy = "img-src 'self'; style-src 'self'; script-src 'self'"
    policy = "; ".join(["default-src 'none'", policy, *values.pop("policies", ())])
    return (
        _environment()
        .get_template(template)
        .render(
            images=images,
            policy=policy,
            stylesheet=Markup(stylesheet()),  # noqa: S704 - ours
            script=Markup(script),  # noqa: S704 - ours
            version=__version__,
            **values,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    # Compiled templates lie beside the compiled modules, where Python may write these.
    folder = Path(__file__).with_name("__pycache__")
    kept = not sys.dont_write_bytecode and os.access(folder, os.W_OK)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_cepbench.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
        bytecode_cache=jinja2.FileSystemBytecodeCache(str(folder)) if kept else None,
    )
    environment.filters |= {
        "bounds": bounds_of,
        "failures": failures_of,
        "figures": figures_of,
        "looks": looks_of,
        "moment": lambda time: time.replace("T", " ").replace("+00:00", " UTC"),
        "number": number,
        "p_value": p_value,
        "settings": settings_of,
        "signed": lambda value: number(value, signed=True),
        "word": word_of,
    }
    return environment


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it; what macros made is of such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value


@cache
def stylesheet() -> str:
    """The style of all pages."""
    return resources.files("pytest_cepbench").joinpath(STYLESHEET).read_text(encoding="utf-8")


@cache
def script_of(name: str) -> str:
    """A script of pages; SCRIPT is that of pages of cases."""
    folder = resources.files(__package__).joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


def html_page(
    facts: RunFacts,
    results: Sequence[CaseResult],
    image: ImageSource,
    *,
    folder: Path | None = None,
    file: FileSource = lambda _: None,
) -> str:
    """The run as HTML. Everything that models, files or users named is escaped, and `visible`.

    image: gives a stored image by digest, or None when it is gone.
    folder: where the images of the page become files, which has its style and script; the page
    needs nothing beside itself where it is None. Raises OSError where one cannot be written.
    file: gives the stored file of an image, which is copied into the folder.
    """
    images = PageImages(image, folder, file)
    return render(
        "run.html.jinja", images=images, script=script_of(SCRIPT), **run_view(facts, results)
    )


# -- the page as a folder --------------------------------------------------------------------------


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
    if not is_ours(page):
        raise WriteError(
            f"{page} is not a report of cepbench, and is not replaced: give --cep-report-dir "
            "another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.unlink(missing_ok=True)  # it would be taken for the report of this run
        before = _images(folder)
        text = html_page(facts, results, image, folder=folder, file=file)
        for name, content in ((STYLESHEET, stylesheet()), (SCRIPT, script_of(SCRIPT))):
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


def is_ours(page: Path) -> bool:
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
