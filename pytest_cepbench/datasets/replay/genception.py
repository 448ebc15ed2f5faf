"""GenCeption's results folders: `{stem}_{i}.jpg` is the image drawn in iteration i + 1.

The descriptions and similarities lie in `{stem}_result.pkl`, which is never opened: unpickling runs
whatever code a file holds. So the texts are not recorded, and the images are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pytest_cepbench.datasets.folder import SUFFIXES, refuse_unreadable
from pytest_cepbench.datasets.paths import some_of, stem
from pytest_cepbench.datasets.replay.files import images_in, refuse_outside
from pytest_cepbench.datasets.replay.record import Artifact, Layout, Replay, Start, stems
from pytest_cepbench.errors import DatasetError

_IMAGE = re.compile(r"(.+)_([0-9]{1,3})", re.DOTALL)

_PICKLE = "_result.pkl"

_RESULTS = "results_"


def _fits(path: Path) -> bool:
    for _, _, files in os.walk(path):
        for name in files:
            if name.endswith(_PICKLE) or (
                Path(name).suffix.lower() in SUFFIXES and stem(name).endswith("_0")
            ):
                return True
    return False


def _read(path: Path, params: Mapping[str, str]) -> Replay:
    """Flat, or a folder per category; `results_<model>` folders below a category are its results.

    results: the one of them that is meant, where there are several.
    """
    folders = dict(_folders(path))
    models = {name for name in folders.values() if name}
    wanted = params.get("results")
    if wanted is not None and wanted not in models:
        msg = f"{str(path)!r} has no folder {wanted!r}; it has {some_of(models) or 'no results_'}"
        raise DatasetError(msg)
    if wanted is None and len(models) > 1:
        msg = f"{str(path)!r} holds results of several models: {some_of(models)}; name one with the parameter results"
        raise DatasetError(msg)
    wanted = wanted or next(iter(models), "")
    held: dict[tuple[Start, int], dict[str, Artifact]] = {}
    for folder, model in folders.items():
        if model == wanted:
            _add(held, path, folder)
    if not held:
        raise _nothing(path)
    return Replay(LAYOUT.name, path, held, stems)


def _add(held: dict[tuple[Start, int], dict[str, Artifact]], root: Path, folder: Path) -> None:
    home = _home(folder.relative_to(root).parts)
    for name, image in images_in(root, folder).items():
        match = _IMAGE.fullmatch(name)
        if match is None:
            continue
        found = held.setdefault(("image", 2 * (int(match[2]) + 1)), {})
        key = (home / match[1]).as_posix()
        if key in found:
            msg = f"{str(root)!r} holds {name!r} of {str(home)!r} in more than one folder: keep one"
            raise DatasetError(msg)
        found[key] = image


def _home(parts: tuple[str, ...]) -> PurePosixPath:
    """The category that a folder's images belong to."""
    kept = [part for part in parts if not part.startswith(_RESULTS)]
    # Five of MME's categories keep their images in images/, and so their results below it.
    if len(kept) < len(parts) and kept[-1:] == ["images"]:
        kept.pop()
    return PurePosixPath(*kept)


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    """Every folder below, with the name of the results_ folder that it is in, if any."""
    for place, below, _ in os.walk(root, onerror=refuse_unreadable):
        folder = Path(place)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in below:
            refuse_outside(root, folder / name)
        parts = folder.relative_to(root).parts
        yield folder, next((part for part in parts if part.startswith(_RESULTS)), "")


def _nothing(path: Path) -> DatasetError:
    pickles = [file.name for file in path.rglob(f"*{_PICKLE}")]
    if pickles:
        msg = (
            f"{str(path)!r} holds only pickles of GenCeption ({some_of(pickles)}): they are never "
            f"opened, because unpickling runs whatever code a file holds. Give the folder with the "
            f"images that lay beside them (STEM_0.jpg, STEM_1.jpg, ...)"
        )
    else:
        msg = f"{str(path)!r} holds no images named STEM_0.jpg, STEM_1.jpg, ..."
    return DatasetError(msg)


LAYOUT = Layout(
    name="genception",
    says="STEM_0.jpg, STEM_1.jpg, ... flat or in folders of categories (GenCeption)",
    params=("results",),
    fits=_fits,
    read=_read,
)
