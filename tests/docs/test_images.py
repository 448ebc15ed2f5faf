"""The pictures of the documentation: small, in use, and drawn by scripts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from tests.docs.markdown import PAGES, ROOT

IMAGES = ROOT / "docs" / "images"

_LINK = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)\s]+)\)")


SCRIPTS = ("make", "make_rating")
"""The scripts that draw them."""


def load_script(name: str) -> ModuleType:
    """A script as a module."""
    spec = util.spec_from_file_location(f"{name}_images", IMAGES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """Name -> script."""
    path = list(sys.path)
    yield {name: load_script(name) for name in SCRIPTS}
    sys.path[:] = path  # one of them imports the other


def _used() -> dict[Path, str]:
    """Picture -> the text that stands for it, of all pages."""
    return {
        (page.parent / link["path"]).resolve(): link["alt"]
        for page in PAGES
        for link in _LINK.finditer(page.read_text(encoding="utf-8"))
    }


def test_every_picture_is_drawn_and_used(scripts: dict[str, ModuleType]) -> None:
    """By one script, on a page, with a text for those who do not see it."""
    drawn = {IMAGES / name for script in scripts.values() for name in script.PICTURES}
    assert drawn == {path for path in IMAGES.iterdir() if path.suffix in (".png", ".svg")}
    used = _used()
    assert drawn <= used.keys()
    assert all(len(used[path].split()) > 5 for path in drawn)


def test_pictures_are_small() -> None:
    """At most 250 kB and 1,440 pixels wide each, 1.5 MB together: a clone has them all."""
    sizes = [path.stat().st_size for path in IMAGES.iterdir()]
    assert max(sizes) < 250_000
    assert sum(sizes) < 1_500_000
    for path in IMAGES.glob("*.png"):
        with Image.open(path) as image:
            assert image.width <= 1440, path.name
