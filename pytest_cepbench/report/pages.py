"""Pages from templates: everything escaped, nothing hidden, one style, whole by themselves."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape
from PIL import Image

from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import Artifact, Sound
from pytest_cepbench.escapes import visible
from pytest_cepbench.report.case_table import failures_of, figures_of, looks_of, settings_of
from pytest_cepbench.report.number_format import bounds_of, number, p_value, word_of
from pytest_cepbench.report.view import run_view
from pytest_cepbench.report.writers import RunOutcome

THUMBNAIL = 256
"""Pixels of the longer side of a thumbnail; a smaller image is shown as it is, enlarged."""

_MOST_AUDIO = 600_000  # bytes of sounds inside a page, a third more as text: its limit is 1.5 MB
_QUALITY = 70  # of WebP, for what is made smaller and for noise

# A failing run of suites/shapes shows 585 small images of some noise: without loss they alone are
# more than the 1.5 MB of a page, at this quality 220 kB.
_LOSSLESS = 1024

ArtifactSource = Callable[[str], Artifact | None]
"""Gives a stored image or sound by digest, or None when it is gone."""


class PageImage(NamedTuple):
    """An image as the page shows it, or a sound.

    name: unique in the page.
    address: of the thumbnail or the sound, a data URI; empty where the page has no room for it.
    width, height: of the thumbnail in pixels.
    enlarged: whether it is smaller than a thumbnail, and shown pixel by pixel.
    seconds: of a sound.
    """

    name: str
    address: str
    width: int = 0
    height: int = 0
    enlarged: bool = False
    seconds: float = 0.0


@dataclass
class PageImages:
    """The images of a page, each made once, when it is first asked for.

    source: where they come from.
    """

    source: ArtifactSource = lambda _: None
    _images: dict[str, PageImage | None] = field(default_factory=dict)
    _played: set[str] = field(default_factory=set)
    _audio: int = 0  # bytes of sounds in the page

    @property
    def shown(self) -> list[PageImage]:
        """All images that were asked for and are there."""
        return [image for image in self._images.values() if image is not None and image.width]

    def get(self, digest: str) -> PageImage | None:
        """The image of a digest; None when it is gone."""
        if digest not in self._images:
            artifact = self.source(digest)
            self._images[digest] = None if artifact is None else self._page_image(artifact)
        return self._images[digest]

    def _page_image(self, artifact: Artifact) -> PageImage:
        name = f"image-{artifact.digest[:16]}"
        if isinstance(artifact, Sound):
            flac, audio = artifact.to_flac(), ""
            if self._audio + len(flac) <= _MOST_AUDIO:
                self._audio += len(flac)
                audio = _address(flac, "audio/flac")
            return PageImage(name, audio, seconds=artifact.seconds)
        thumbnail = artifact.to_pil()
        whole = max(thumbnail.size) <= THUMBNAIL
        thumbnail.thumbnail((THUMBNAIL, THUMBNAIL))
        data = _webp(thumbnail, lossless=whole, quality=100 if whole else _QUALITY)
        if whole and len(data) > _LOSSLESS:
            small = _webp(thumbnail, lossless=False, quality=_QUALITY)
            data = min(data, small, key=len)
        enlarged = max(artifact.size) < THUMBNAIL
        return PageImage(name, _address(data, "image/webp"), *thumbnail.size, enlarged)

    def first(self, name: str) -> bool:
        """Whether the page names a sound for the first time: that is where its player is."""
        first = name not in self._played
        self._played.add(name)
        return first


def _address(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


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


def render(
    template: str, *, images: PageImages | None = None, script: str = "", **values: Any
) -> str:
    """A page from a template. Texts are escaped, and `visible`.

    images: of the page; none where it shows none.
    script: of the page, whose policy allows no other.
    values: what the template reads.
    """
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
    return (
        _environment()
        .get_template(template)
        .render(
            images=images or PageImages(),
            policy=policy + (f"; script-src 'sha256-{digest}'" if script else ""),
            script=Markup(script),  # noqa: S704 - ours
            version=__version__,
            **values,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_cepbench.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    style = resources.files("pytest_cepbench").joinpath("page.css").read_text(encoding="utf-8")
    environment.globals["stylesheet"] = Markup(style)  # noqa: S704 - ours
    environment.filters |= {
        "bounds": bounds_of,
        # A name goes on in the next line behind a slash instead of in a word.
        "breakable": lambda name: escape(visible(name)).replace("/", Markup("/<wbr>")),
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
def page_script() -> str:
    """The script of pages of cases; everything is readable without it."""
    folder = resources.files(__package__).joinpath("templates")
    return folder.joinpath("page.js").read_text(encoding="utf-8")


def html_page(run: RunOutcome, image: ArtifactSource) -> str:
    """The run as HTML. Everything that models, files or users named is escaped, and `visible`.

    image: gives a stored image by digest, or None when it is gone.
    """
    return render(
        "run.html.jinja",
        images=PageImages(image),
        script=page_script(),
        **run_view(run),
    )
