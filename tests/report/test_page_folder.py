"""The page as a folder: files beside it, nothing inline, and nothing of others touched."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import WriteError
from pytest_cepbench.report import ChainShown, LinkShown
from pytest_cepbench.report.pages import PageImages, html_page, write_page_folder
from pytest_cepbench.report.writers import RunFacts
from tests.report.pages import read_page
from tests.report.results import REGRESSED, replace

FACTS = RunFacts("failed", "1", [], [])

LARGE = ImageArtifact(np.full((300, 600, 3), 200, np.uint8))
SMALL = ImageArtifact(np.full((16, 16, 3), 100, np.uint8))
IMAGES = {"1" * 64: LARGE, "2" * 64: SMALL}

LINKS = [LinkShown(image="1" * 64), LinkShown(text="a cat"), LinkShown(image="2" * 64)]
CASE = replace(REGRESSED, chains=[ChainShown("a.png", 0.5, 0.75, LINKS)])


def test_style_script_and_images_are_files(tmp_path: Path) -> None:
    """Nothing is inline, every address is a file of the folder, and originals have no loss."""
    page_path = write_page_folder(tmp_path / "report", FACTS, [CASE], IMAGES.get)
    page = read_page(page_path.read_text())
    assert not page.scripts
    assert "style" not in page.tags
    assert "style" not in {name for _, name, _ in page.attributes}
    addresses = [
        value for _, name, value in page.attributes if name in ("src", "href") and value[0] != "#"
    ]
    files = {str(path.relative_to(page_path.parent)) for path in page_path.parent.rglob("*.*")}
    assert set(addresses) | {"index.html"} == files
    with Image.open(page_path.parent / f"images/image-{LARGE.digest[:16]}-original.png") as image:
        assert ImageArtifact(np.asarray(image)).digest == LARGE.digest
    with Image.open(page_path.parent / f"images/image-{SMALL.digest[:16]}.webp") as image:
        assert ImageArtifact(np.asarray(image.convert("RGB"))).digest == SMALL.digest


def test_originals_are_the_files_of_the_store(tmp_path: Path) -> None:
    """They are copied as they are, in the format of the store."""
    stored = tmp_path / "stored.webp"
    stored.write_bytes(b"the file of the store")
    write_page_folder(tmp_path / "out", FACTS, [CASE], IMAGES.get, {"1" * 64: stored}.get)
    original = tmp_path / "out" / "images" / f"image-{LARGE.digest[:16]}-original.webp"
    assert original.read_bytes() == stored.read_bytes()


def test_a_later_run_replaces_the_page_and_its_images(tmp_path: Path) -> None:
    """Images that are not shown any more are removed; files of others stay."""
    write_page_folder(tmp_path, FACTS, [CASE], IMAGES.get)
    (tmp_path / "images" / "mine.png").write_bytes(b"x")
    write_page_folder(tmp_path, FACTS, [CASE], {"2" * 64: SMALL}.get)
    names = {path.name for path in (tmp_path / "images").iterdir()}
    assert names == {"mine.png", f"image-{SMALL.digest[:16]}.webp"}


def test_a_page_of_others_is_not_replaced(tmp_path: Path) -> None:
    """A folder that holds a site is named by mistake."""
    (tmp_path / "index.html").write_text("my page")
    with pytest.raises(WriteError, match="is not a report of cepbench"):
        write_page_folder(tmp_path, FACTS, [CASE], IMAGES.get)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_page_that_cannot_be_written_leaves_no_older_one(tmp_path: Path) -> None:
    """It would be taken for the page of this run; the error names the path."""
    write_page_folder(tmp_path, FACTS, [CASE], IMAGES.get)
    (tmp_path / "page.css").unlink()
    (tmp_path / "page.css").mkdir()
    with pytest.raises(WriteError, match=r"page\.css could not be written"):
        write_page_folder(tmp_path, FACTS, [CASE], IMAGES.get)
    assert not (tmp_path / "index.html").exists()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """Is an error in one line."""
    (tmp_path / "report").write_text("x")
    with pytest.raises(WriteError, match="report could not be written"):
        write_page_folder(tmp_path / "report", FACTS, [CASE], IMAGES.get)


# -- sizes -----------------------------------------------------------------------------------------


def _scene(number: int) -> ImageArtifact:
    """A shape on a dark ground with some noise, as drawings of the shapes' world have it."""
    pixels = np.random.default_rng(number).normal(26, 3, (64, 64, 3))
    pixels[number % 40 : number % 40 + 14, number % 37 : number % 37 + 16] += (40, 120, 20)
    return ImageArtifact(pixels.clip(0, 255).astype(np.uint8))


SCENES = {f"{number:064x}": _scene(number) for number in range(640)}


def test_images_of_a_page_alone_are_small() -> None:
    """Noise is not kept to the last bit; what takes little room anyway is."""
    images = PageImages({**SCENES, "s": SMALL}.get)
    noisy, plain = images.get(f"{0:064x}"), images.get("s")
    assert noisy is not None
    assert plain is not None
    assert len(noisy.address) < 1500
    with Image.open(io.BytesIO(base64.b64decode(plain.address.partition(",")[2]))) as image:
        assert ImageArtifact(np.asarray(image.convert("RGB"))).digest == SMALL.digest


@pytest.mark.slow
def test_a_failing_run_of_the_suites_is_at_most_a_megabyte_and_a_half() -> None:
    """As many cases, chains and images as a failing run of suites/shapes beside its baseline's."""
    text = "two shapes : large purple triangle top right , large green triangle middle left"

    def chain(sample: int, digits: int) -> ChainShown:
        links = [
            [LinkShown(text=text) if g % 2 else LinkShown(image=f"{at + g:064x}", similarity=0.5)
             for g in range(7)]
            for at in (digits % 300, 300 + digits % 300)
        ]  # fmt: skip
        return ChainShown(
            f"color/{sample:04}", 0.25, 0.75, links[0], baseline_links=links[1], first_difference=1
        )

    cases = [
        replace(
            REGRESSED,
            part=f"part {number}",
            chains=[chain(sample, 7 * (number * 3 + sample)) for sample in range(3)],
            differences={f"color/{s:04}": -s / 200 for s in range(192 if number < 8 else 24)},
        )
        for number in range(43)
    ]
    page = html_page(FACTS, cases, SCENES.get)
    assert page.count("<image ") > 500
    assert len(page) < 1_500_000
    pictures = read_page(page).pictures
    assert len(set(pictures)) == len(pictures)
