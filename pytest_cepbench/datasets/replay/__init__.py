"""Chains and answers that other tools have generated, read in the layouts that their code writes.

Everything is matched by name (file stem, table index), never by position; nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pytest_cepbench.datasets.opening.answers import RecordedAnswers
from pytest_cepbench.datasets.replay.layouts import (
    GENCEPTION,
    GENEVAL,
    MGG,
    OPENING,
    SDP,
    Artifact,
    Layout,
    Replay,
)
from pytest_cepbench.datasets.replay.mmgenbench_tables import MMGENBENCH
from pytest_cepbench.datasets.sources.files import list_folder, some_of
from pytest_cepbench.errors import DatasetError, SpecError, unknown_name

__all__ = [
    "ANSWER_LAYOUTS",
    "LAYOUTS",
    "Artifact",
    "Layout",
    "Replay",
    "choose_layout",
    "open_answers",
    "open_replay",
]

LAYOUTS: Mapping[str, Layout[Replay]] = {
    layout.name: layout for layout in (SDP, MGG, GENEVAL, MMGENBENCH, GENCEPTION)
}
"""The layouts of chains that can be read, by name."""

ANSWER_LAYOUTS: Mapping[str, Layout[RecordedAnswers]] = {OPENING.name: OPENING}
"""The layouts of interleaved answers that can be read, by name."""

R = TypeVar("R")


def open_replay(target: str, layout: str | None, params: Mapping[str, str]) -> Replay:
    """Open the chains that another tool has generated, at this path.

    target: a folder, or MMGenBench's table.
    layout: one of `LAYOUTS`; None looks for it.
    params: the layout's own (`encoding` of SDP and MMGenBench; `predictions` and `images`, tables
    of MMGenBench; `results`, folder of GenCeption).
    All files are listed and tables looked through here, so that what is wrong shows at once; images
    are read when they are needed.
    Raises SpecError for a layout or parameter that does not exist and for one of answers,
    DatasetError when there is nothing, when the layout is not known or not clear, or when the files
    are not as it has them.
    """
    name = choose_layout(target, layout)
    if name in ANSWER_LAYOUTS:
        raise SpecError(
            f"replay:{target}: layout {name} is of answers, and this suite has [chain]: answers "
            "are for suites that have [answer]"
        )
    return _read(target, LAYOUTS[name], params)


def open_answers(target: str, layout: str | None, params: Mapping[str, str]) -> RecordedAnswers:
    """Open the interleaved answers that another tool has generated, at this path.

    target: a folder.
    layout: one of `ANSWER_LAYOUTS`; None looks for it.
    params: the layout's own (`partial` of OpenING).
    Raises as `open_replay`, with answers and chains exchanged.
    """
    name = choose_layout(target, layout)
    if name in LAYOUTS:
        raise SpecError(
            f"replay:{target}: layout {name} is of chains, and this suite has [answer]: chains are "
            "for suites that have [chain]"
        )
    return _read(target, ANSWER_LAYOUTS[name], params)


def choose_layout(target: str, layout: str | None) -> str:
    """The layout's name: the given one, else that which the path looks like.

    Raises SpecError and DatasetError as `open_replay`.
    """
    path = Path(target)
    if not path.exists():
        raise DatasetError(f"replay:{target}: there is no such file or folder")
    layouts: dict[str, Layout[Any]] = {**LAYOUTS, **ANSWER_LAYOUTS}
    if layout is not None:
        if layout not in layouts:
            raise SpecError(f"replay:{target}: {unknown_name('layout', layout, layouts)}")
        return layout
    fitting = [name for name, known in layouts.items() if known.fits(path)]
    # GenCeption marks its files by a number at the end only, which files of other layouts can have.
    if len(fitting) > 1 and GENCEPTION.name in fitting:
        fitting.remove(GENCEPTION.name)
    if len(fitting) > 1:
        names = " and ".join(fitting)
        raise DatasetError(
            f"replay:{path}: this looks like {names}: say which with the parameter layout"
        )
    if not fitting:
        content = "this is a single file"
        if path.is_dir():
            entries = [entry.name + "/" * entry.is_dir() for entry in list_folder(path)]
            content = f"found {some_of(entries)}" if entries else "the folder is empty"
        lines = "\n".join(f"  {known.name}: {known.says}" for known in layouts.values())
        raise DatasetError(f"replay:{path}: {content}, which is no known layout. Known:\n{lines}")
    return fitting[0]


def _read(target: str, layout: Layout[R], params: Mapping[str, str]) -> R:
    for name in params:
        if name not in layout.params:
            known = unknown_name(f"parameter of layout {layout.name!r}", name, layout.params)
            raise SpecError(f"replay:{target}: {known}")
    return layout.read(Path(target), params)
