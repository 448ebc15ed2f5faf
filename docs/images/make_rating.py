"""Draws the pictures of the pages for people, as `make.py` draws the others.

    python docs/images/make_rating.py

A picture is of a page of a small study, which a server of its own serves to Chromium.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from pytest_cepbench.artifacts import ImageArtifact  # noqa: E402
from pytest_cepbench.cli import main as cepbench  # noqa: E402
from pytest_cepbench.datasets.shapes import load_shapes, sample_scene  # noqa: E402
from pytest_cepbench.datasets.shapes.arena.samples import (  # noqa: E402
    load_shapes_arena,
    sample_scenes,
)
from pytest_cepbench.datasets.shapes.scene import Scene, caption  # noqa: E402
from pytest_cepbench.datasets.shapes.scene import render as draw_scene  # noqa: E402
from pytest_cepbench.ratings.folder import Ratings, read_ratings  # noqa: E402
from pytest_cepbench.ratings.items import begin_study, make_item  # noqa: E402
from pytest_cepbench.ratings.records import Item, Part, Study, Task  # noqa: E402

NAMES = ("Color", "Count", "Position", "Size", "Symmetry")

PEOPLE = ("ann", "ben", "cho", "dia", "eva")

_WIDTH, _HEIGHT = 1180, 720

_TIMES = 6  # pixels of a picture for each of a scene

DATASET = "dataset"
"""Name of the study that `cepbench dataset verify` writes; others are named by their task."""

STUDY_OF: Mapping[str, str] = {
    "rate-pair.png": "pair",
    "rate-grades.png": "grades",
    "rate-caption.png": "caption",
    "rate-describe.png": "describe",
    "rate-verify.png": "verify",
    "dataset-verify.png": DATASET,
    "rate-done.png": DATASET,
}
"""File -> the study that it shows."""

_TASKS: tuple[Task, ...] = get_args(Task)

Texts = Mapping[str, str]


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Addresses of the people of a server process."""
    command = [sys.executable, "-m", "pytest_cepbench.cli", "rate", "ask", str(folder), "--port=0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        addresses = {}
        for line in process.stderr:
            if line.startswith("serving "):
                break
            if match := re.match(r"(\S+): (http://\S+)$", line):
                addresses[match[1]] = match[2]
        try:
            yield addresses
        finally:
            process.terminate()
            process.communicate()


def main() -> None:
    """Draw all pictures."""
    argparse.ArgumentParser(description="Draws the pictures of the pages for people.").parse_args()
    with tempfile.TemporaryDirectory() as name:
        studies = {task: make_study(Path(name) / task, task) for task in _TASKS}
        studies |= {DATASET: make_dataset_study(Path(name) / DATASET)}
        draw(studies)


# -- studies -------------------------------------------------------------------------------------


def make_study(folder: Path, task: Task) -> Ratings:
    """A study of the embedded world for five people."""
    images: dict[str, ImageArtifact] = {}
    items = [
        _item(task, sample.question, sample_scenes(sample), images)
        for sample in load_shapes_arena(samples_per_category=12).samples
        if sample.categories == ("build",)
    ]
    study = Study(
        kind=task, suite="arena", annotators=PEOPLE, overlap=2,
        names=NAMES if task == "verify" else (),
    )  # fmt: skip
    begin_study(folder, study, items, images)
    return read_ratings(folder)


def make_dataset_study(folder: Path) -> Ratings:
    """The study of a data set of scenes, with the names and sentences that their rules have."""
    photos, out = folder / "photos", folder / "bench"
    photos.mkdir(parents=True)
    for sample in load_shapes(8, 3).samples:
        scene = enlarged(sample_scene(sample)).to_pil()
        scene.save(photos / f"{sample.id.replace('/', '-')}.png")
    models = ["--describer=shapes:", "--writer=shapes:", f"--store={folder / 'store'}"]
    people = f"--annotators={','.join(PEOPLE)}"
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        words = ["dataset", "patterns", str(photos), f"--out={out}", "--per-pattern=2", *models]
        if cepbench(words) or cepbench(["dataset", "verify", str(out), people, "--only-write"]):
            sys.exit(printed.getvalue())
    return read_ratings(out / "ratings")


def _item(
    task: Task,
    question: tuple[Any, ...],
    scenes: tuple[Scene, ...],
    images: dict[str, ImageArtifact],
) -> Item:
    def part(scene: Scene) -> Part:
        image = enlarged(scene)
        images[image.digest] = image
        return Part(image=image.digest)

    def steps(drawn: tuple[Scene, ...]) -> list[Part]:
        pairs = zip(scenes, drawn, strict=True)
        return [piece for said, shown in pairs for piece in (Part(text=words(said)), part(shown))]

    asked = [Part(text=piece) for piece in question if isinstance(piece, str)]
    last = scenes[-1]
    wrong = recolored(last)
    if task == "pair":
        drawn = (*scenes[:-1], wrong)
        return make_item(task, asked, [steps(scenes)[-4:], steps(drawn)[-4:]])
    if task == "caption":
        return make_item(task, [part(last)], [[Part(text=words(last))], [Part(text=words(wrong))]])
    if task == "grades":
        poor = Scene(last.objects[:1])
        return make_item(task, asked, [[part(scene)] for scene in (last, wrong, poor)])
    names = [[Part(text=name)] for name in NAMES[:3]] if task == "verify" else []
    return make_item(task, [part(last)], names)


def enlarged(scene: Scene) -> ImageArtifact:
    """The picture of a scene, in pixels that a page does not have to blur."""
    pixels = draw_scene(scene, 1).pixels
    return ImageArtifact(pixels.repeat(_TIMES, axis=0).repeat(_TIMES, axis=1))


def words(scene: Scene) -> str:
    """A scene as people write it."""
    return caption(scene).replace(" :", ":").replace(" ,", ",")


def recolored(scene: Scene) -> Scene:
    """A scene whose first object has another color."""
    first, *others = scene.objects
    color = "cyan" if first.color != "cyan" else "red"
    return Scene((replace(first, color=color), *others))


# -- pictures ------------------------------------------------------------------------------------


def draw(studies: Mapping[str, Ratings]) -> None:
    """Photograph all pages in Chromium: PNGs of few colors."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for study, ratings in studies.items():
            with served(ratings.path) as addresses:
                names = [name for name, other in STUDY_OF.items() if other == study]
                for name in sorted(names, key=list(PICTURES).index):
                    tab = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
                    PICTURES[name](tab, addresses)
                    tab.screenshot(path=HERE / name)
                    tab.close()
                    image = Image.open(HERE / name).convert("RGB")
                    image.quantize(256, dither=Image.Dither.NONE).save(HERE / name, optimize=True)
        browser.close()


def _work(tab: Any, addresses: Texts) -> None:
    """The first item, as the last of the people sees it."""
    tab.goto(addresses[PEOPLE[-1]])
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.press("Escape")
    tab.wait_for_load_state("networkidle")


def _skip(tab: Any) -> None:
    """The next item, or the end."""
    before = tab.locator("main").get_attribute("data-slot")
    tab.get_by_role("button", name="Skip").click()
    tab.wait_for_timeout(300)  # sooner than that nobody has seen the item
    tab.keyboard.press("3")
    tab.wait_for_selector(f"main[data-slot]:not([data-slot='{before}']), .end")


def _done(tab: Any, addresses: Texts) -> None:
    """What a person sees who has answered everything."""
    tab.set_viewport_size({"width": _WIDTH, "height": 220})
    _work(tab, addresses)
    while not tab.locator(".end").count():
        _skip(tab)
    tab.get_by_text("All done").wait_for()
    tab.wait_for_load_state("networkidle")


def _pair(tab: Any, addresses: Texts) -> None:
    tab.set_viewport_size({"width": _WIDTH, "height": 1000})
    _work(tab, addresses)


def _dataset(tab: Any, addresses: Texts) -> None:
    tab.set_viewport_size({"width": _WIDTH, "height": 940})
    _work(tab, addresses)


PICTURES: Mapping[str, Callable[[Any, Texts], None]] = {
    "rate-pair.png": _pair,
    "rate-grades.png": _work,
    "rate-caption.png": _work,
    "rate-describe.png": _work,
    "rate-verify.png": _work,
    "dataset-verify.png": _dataset,
    "rate-done.png": _done,
}
"""File -> how its page is brought to what is shown."""


if __name__ == "__main__":
    main()
