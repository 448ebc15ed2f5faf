"""Pages from templates: everything escaped, nothing hidden, one style; a page as file or folder.

A page needs nothing beside itself, or has its style, script and images beside it in a folder: for
servers whose policy allows nothing inline, such as Jenkins, and for pages of many images.
"""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.util import cache_from_source
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import Artifact, Sound
from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import visible
from pytest_cepbench.files import open_regular
from pytest_cepbench.report.case_table import failures_of, figures_of, looks_of, settings_of
from pytest_cepbench.report.number_format import bounds_of, number, p_value, word_of
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.view import run_view
from pytest_cepbench.report.writers import RunFacts

THUMBNAIL = 256
"""Pixels of the longer side of a thumbnail; a smaller image is shown as it is, enlarged."""

IMAGES = "images"
"""Folder of image files beside a page."""

_WINDOW, _SPECTROGRAM = 256, 96  # samples of a window; pixels of a spectrogram's height

_MOST_AUDIO = 600_000  # bytes of sounds inside a page, a third more as text: its limit is 1.5 MB

_QUALITY = 70  # of WebP, for what is made smaller and for noise

# A failing run of suites/shapes shows 585 small images of some noise: without loss they alone are
# more than the 1.5 MB of a page, at this quality 220 kB.
_LOSSLESS = 1024

ArtifactSource = Callable[[str], Artifact | None]
"""Gives a stored image or sound by digest, or None when it is gone."""

FileSource = Callable[[str], Path | None]
"""Gives the file that a store has of an artifact, by digest, or None where there is none."""


class PageImage(NamedTuple):
    """An image as the page shows it, or a sound by its spectrogram.

    name: unique in the page.
    width, height: of the thumbnail in pixels.
    address: of the thumbnail: a data URI, or a path relative to the page.
    original: path of the whole image relative to the page; empty where there is none.
    enlarged: whether it is smaller than a thumbnail, and shown pixel by pixel.
    seconds: of a sound.
    audio: address of a sound, as of the thumbnail; empty where the page has no room for it.
    """

    name: str
    width: int
    height: int
    address: str
    original: str
    enlarged: bool
    seconds: float = 0.0
    audio: str = ""


@dataclass
class PageImages:
    """The images of a page, each made once, when it is first asked for.

    source: where they come from.
    folder: of the page, where thumbnails and originals become files; None: the page holds the
    thumbnails itself, and shows all of `shown` at its end.
    file: where originals are copied from; others are written as PNG.
    """

    source: ArtifactSource
    folder: Path | None = None
    file: FileSource = lambda _: None
    _images: dict[str, PageImage | None] = field(default_factory=dict)
    _played: set[str] = field(default_factory=set)
    _audio: int = 0  # bytes of sounds in the page

    @property
    def inside(self) -> bool:
        """Whether the page holds the images itself."""
        return self.folder is None

    @property
    def shown(self) -> list[PageImage]:
        """All images that were asked for and are there."""
        return [image for image in self._images.values() if image is not None]

    def get(self, digest: str) -> PageImage | None:
        """The image of a digest; None when it is gone. Raises OSError where a file cannot be
        written.
        """
        if digest not in self._images:
            artifact = self.source(digest)
            self._images[digest] = None if artifact is None else self._page_image(digest, artifact)
        return self._images[digest]

    def _page_image(self, digest: str, artifact: Artifact) -> PageImage:
        if isinstance(artifact, Sound):
            return self._page_sound(digest, artifact)
        thumbnail = artifact.to_pil()
        whole = max(thumbnail.size) <= THUMBNAIL
        thumbnail.thumbnail((THUMBNAIL, THUMBNAIL))
        data = _webp(thumbnail, lossless=whole, quality=100 if whole else _QUALITY)
        name, enlarged = f"image-{artifact.digest[:16]}", max(artifact.size) < THUMBNAIL
        if whole and self.inside and len(data) > _LOSSLESS:
            small = _webp(thumbnail, lossless=False, quality=_QUALITY)
            data = min(data, small, key=len)
        address = original = self._address(f"{name}.webp", data, "image/webp")
        if not whole and self.folder is not None:
            stored = self.file(digest)
            original = f"{IMAGES}/{name}-original{'.png' if stored is None else stored.suffix}"
            if stored is None:
                artifact.to_pil().save(self.folder / original, "PNG", compress_level=1)
            else:
                shutil.copyfile(stored, self.folder / original)
        return PageImage(name, *thumbnail.size, address, "" if self.inside else original, enlarged)

    def _page_sound(self, digest: str, sound: Sound) -> PageImage:
        name, picture = f"image-{digest[:16]}", spectrogram(sound)
        data = _webp(picture, lossless=False, quality=_QUALITY)
        address = self._address(f"{name}.webp", data, "image/webp")
        flac, audio = sound.to_flac(), ""
        if not self.inside or self._audio + len(flac) <= _MOST_AUDIO:
            self._audio += len(flac)
            audio = self._address(f"{name}.flac", flac, "audio/flac")
        original, seconds = "" if self.inside else audio, sound.seconds
        return PageImage(
            name, *picture.size, address, original, enlarged=False, seconds=seconds, audio=audio
        )

    def _address(self, name: str, data: bytes, media_type: str) -> str:
        """A data URI, or the path of a new file relative to the page."""
        if self.folder is None:
            return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        (self.folder / IMAGES).mkdir(parents=True, exist_ok=True)
        (self.folder / IMAGES / name).write_bytes(data)
        return f"{IMAGES}/{name}"

    def first(self, name: str) -> bool:
        """Whether the page names a sound for the first time: that is where its player is."""
        first = name not in self._played
        self._played.add(name)
        return first


def spectrogram(sound: Sound) -> Image.Image:
    """A picture of a sound: time to the right, frequency upwards, louder is darker.

    `THUMBNAIL` windows of 256 samples, spread over the sound; 80 dB from white to black.
    """
    samples = np.pad(sound.samples, (0, max(0, _WINDOW - len(sound.samples))))
    starts = np.linspace(0, len(samples) - _WINDOW, THUMBNAIL).astype(int)
    windows = samples[starts[:, None] + np.arange(_WINDOW)] * np.hanning(_WINDOW)
    level = np.abs(np.fft.rfft(windows)) * (4 / _WINDOW)
    grey = -255 * np.log10(np.clip(level, 1e-4, 1.0)) / 4
    picture = Image.fromarray(np.rint(grey).astype(np.uint8).T[::-1])
    return picture.resize((THUMBNAIL, _SPECTROGRAM)).convert("RGB")


def _webp(image: Image.Image, *, lossless: bool, quality: int) -> bytes:
    stream = io.BytesIO()
    # As the store does: what a slower method saves is a sixth of what is small already.
    image.save(stream, "WEBP", lossless=lossless, quality=quality, method=0 if lossless else 4)
    return stream.getvalue()


TERMS = {
    "sample": "one item of a data set: an image, a sound, a text, or several",
    "chain": "what is grown from a sample: image, text, image, text, ..., or sounds for images",
    "generation": "one step of a chain; an iteration is two",
    "role": "what a model does: describer, generator, encoder, detector, judge, writer, "
    "editor, interleaver, VQA model",
    "model under test": "what --model names; the other roles are fixed",
    "spec": "the text that names a model",
    "score": "the number of one sample under one metric",
    "case": "one gated number: a metric of a category, a group or the whole suite; one pytest item",
    "baseline": "the accepted measurement of a case",
    "anchor": "the first accepted baseline of a case",
    "tolerance": "the largest drop that does not matter",
    "alpha": "the error of a run, divided among its cases",
    "verdict": "what the gate says of a case",
    "floor": "what a case would score by chance",
    "store": "the folder of computed results",
}
"""Word -> what it means, everywhere: in the documentation and in tooltips of pages."""

PAGE, STYLESHEET, SCRIPT = "index.html", "page.css", "page.js"
"""Files of a page in a folder; everything is readable without the script."""

_GENERATOR = b'<meta name="generator" content="pytest-cepbench'

_HEAD = 4096  # bytes of a page in which it names its generator

_IMAGE = re.compile(r"image-[0-9a-f]{16}(?:-original)?\.(?:webp|png|flac)")


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
        policy = "img-src data:; media-src data:; style-src 'unsafe-inline'"
        policy += f"; script-src 'sha256-{digest}'" if script else ""
    else:
        policy = "img-src 'self'; media-src 'self'; style-src 'self'; script-src 'self'"
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
    folder = Path(cache_from_source(__file__)).parent
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
        "breakable": _breakable,
        "failures": failures_of,
        "figures": figures_of,
        "looks": looks_of,
        "moment": lambda time: time.replace("T", " ").replace("+00:00", " UTC"),
        "number": number,
        "p_value": p_value,
        "settings": settings_of,
        "signed": lambda value: number(value, signed=True),
        "term": _with_meaning,
        "word": word_of,
    }
    return environment


def _breakable(name: str) -> Markup:
    """The name of a case, which goes on in the next line behind a slash instead of in a word."""
    return escape(visible(name)).replace("/", Markup("/<wbr>"))


def _with_meaning(text: str) -> Markup | str:
    """A word of the glossary, or its plural, with its meaning as a tooltip; others as they are."""
    meaning = TERMS.get(text) or TERMS.get(text.removesuffix("s"))
    if meaning is None:
        return text
    return Markup('<abbr title="{}">{}</abbr>').format(meaning, text)


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
    image: ArtifactSource,
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
    image: ArtifactSource,
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
