"""Chains that other tools have generated, read in the layouts that their code writes.

Everything is matched by name (file stem, table index), never by position; nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.datasets.folder import list_folder, some_of
from pytest_cepbench.datasets.replay.folders import GENCEPTION, GENEVAL, MGG, SDP
from pytest_cepbench.datasets.replay.mmgenbench_tables import MMGENBENCH
from pytest_cepbench.datasets.replay.record import Artifact, Layout, Replay, Start
from pytest_cepbench.errors import DatasetError, SpecError, unknown_name

__all__ = ["LAYOUTS", "Artifact", "Layout", "Replay", "Start", "open_replay"]

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout for layout in (SDP, MGG, GENEVAL, MMGENBENCH, GENCEPTION)
}
"""The layouts that can be read, by name."""


def open_replay(target: str, layout: str | None, params: Mapping[str, str]) -> Replay:
    """Open the chains that another tool has generated, at this path.

    target: a folder, or MMGenBench's table.
    layout: one of `LAYOUTS`; None looks for it.
    params: the layout's own (`encoding` of SDP and MMGenBench; `predictions` and `images`, tables
    of MMGenBench; `results`, folder of GenCeption).
    All files are listed and tables looked through here, so that what is wrong shows at once; images
    are read when they are needed.
    Raises SpecError for a layout or parameter that does not exist, DatasetError when there is
    nothing, when the layout is not known or not clear, or when the files are not as it has them.
    """
    path = Path(target)
    if not path.exists():
        msg = f"replay:{target}: there is no such file or folder"
        raise DatasetError(msg)
    if layout is not None and layout not in LAYOUTS:
        msg = f"replay:{target}: {unknown_name('layout', layout, LAYOUTS)}"
        raise SpecError(msg)
    chosen = _detect(path) if layout is None else LAYOUTS[layout]
    for name in params:
        if name not in chosen.params:
            known = unknown_name(f"parameter of layout {chosen.name!r}", name, chosen.params)
            msg = f"replay:{target}: {known}"
            raise SpecError(msg)
    return chosen.read(path, params)


def _detect(path: Path) -> Layout:
    fitting = [layout for layout in LAYOUTS.values() if layout.fits(path)]
    # GenCeption marks its files by a number at the end only, which files of other layouts can have.
    if len(fitting) > 1 and GENCEPTION in fitting:
        fitting.remove(GENCEPTION)
    if len(fitting) > 1:
        names = " and ".join(layout.name for layout in fitting)
        msg = f"replay:{path}: this looks like {names}: say which with the parameter layout"
        raise DatasetError(msg)
    if not fitting:
        known = "\n".join(f"  {layout.name}: {layout.says}" for layout in LAYOUTS.values())
        msg = f"replay:{path}: {_content(path)}, which is no known layout. Known:\n{known}"
        raise DatasetError(msg)
    return fitting[0]


def _content(path: Path) -> str:
    if not path.is_dir():
        return "this is a single file"
    names = [entry.name + "/" * entry.is_dir() for entry in list_folder(path)]
    return f"found {some_of(names)}" if names else "the folder is empty"
