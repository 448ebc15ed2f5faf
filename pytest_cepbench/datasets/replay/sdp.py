"""Chains in the layout of the Semantic Drift Protocol's code: both starts, folders and CSV in turn.

`text-first/{gen-1/, gen-2.csv, gen-3/, ...}` and `image-first/{gen-1.csv, gen-2/, ...}`. The
released code matches rows and files by position; here they are matched by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.datasets.replay.files import generations, images_in, refuse_outside
from pytest_cepbench.datasets.replay.record import Artifact, Layout, Replay, Start, stems
from pytest_cepbench.datasets.sdp import read_captions
from pytest_cepbench.errors import DatasetError

_FOLDERS: Mapping[Start, str] = {"text": "text-first", "image": "image-first"}


def _fits(path: Path) -> bool:
    return any((path / folder).is_dir() for folder in _FOLDERS.values())


def _read(path: Path, params: Mapping[str, str]) -> Replay:
    """Generation 0 is the data set's own and is passed over, as are pickles and plots."""
    encoding = params.get("encoding", "utf-8")
    held: dict[tuple[Start, int], Mapping[str, Artifact]] = {}
    for start, folder in _FOLDERS.items():
        if not (path / folder).is_dir():
            continue
        refuse_outside(path, path / folder)
        for generation, place in generations(path / folder):
            if generation > 0:
                _refuse_other_kind(start, generation, place)
                held[start, generation] = _artifacts(path, place, encoding)
    if not held:
        folders = " or ".join(f"{folder}/" for folder in _FOLDERS.values())
        msg = f"{str(path)!r} holds no generation after gen-0 in {folders}"
        raise DatasetError(msg)
    return Replay(LAYOUT.name, path, held, stems)


def _artifacts(root: Path, place: Path, encoding: str) -> Mapping[str, Artifact]:
    if place.is_dir():
        return images_in(root, place)
    refuse_outside(root, place)
    return {name: caption.text for name, caption in read_captions(place, encoding).items()}


def _refuse_other_kind(start: Start, generation: int, place: Path) -> None:
    drawn = (generation % 2 == 1) == (start == "text")
    if drawn != place.is_dir():
        expected = f"images in gen-{generation}/" if drawn else f"captions in gen-{generation}.csv"
        msg = f"{str(place)!r}: generation {generation} of a {start}-first chain is {expected}"
        raise DatasetError(msg)


LAYOUT = Layout(
    name="sdp",
    says="text-first/ and image-first/ with gen-1/, gen-2.csv, ... (Semantic Drift Protocol)",
    params=("encoding",),
    fits=_fits,
    read=_read,
)
