"""Images of several generations as MGG's code reads them: `gen-{1,3,5,...}/{line}.png`.

The name is the number of the prompt's line in the metadata, from 0; chains start from texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.datasets.replay.files import generations, numbered_images
from pytest_cepbench.datasets.replay.geneval import prompt_and_image
from pytest_cepbench.datasets.replay.record import Artifact, Layout, Replay, Start
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError


def _fits(path: Path) -> bool:
    # Folders beside tables are one of SDP's chains, whose names are not lines of GenEval.
    return any(path.glob("gen-*/")) and not any(path.glob("gen-*.csv"))


def _read(path: Path, _: Mapping[str, str]) -> Replay:
    held: dict[tuple[Start, int], Mapping[str, Artifact]] = {}
    for generation, folder in generations(path):
        if generation == 0 or not folder.is_dir():
            continue
        if generation % 2 == 0:
            msg = (
                f"{str(folder)!r}: generations of images are odd in a chain that starts from texts"
            )
            raise DatasetError(msg)
        images = numbered_images(path, folder)
        held["text", generation] = {str(number): image for number, image in images.items()}
    if not held:
        msg = f"{str(path)!r} holds no generation of images (gen-1/, gen-3/, ...)"
        raise DatasetError(msg)
    return Replay(LAYOUT.name, path, held, _names)


def _names(sample: Sample) -> tuple[str, ...]:
    """One image per prompt and generation: further images of a prompt have none."""
    place = prompt_and_image(sample)
    return (str(place[0]),) if place is not None and place[1] == 0 else ()


LAYOUT = Layout(
    name="mgg",
    says="gen-1/, gen-3/, ... with 0.png, 1.png, ... by the line of the prompt (MGG)",
    params=(),
    fits=_fits,
    read=_read,
)
