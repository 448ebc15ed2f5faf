"""The layout of OpenING's answers: a folder of one model, with a file for each question."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.datasets.opening.answer_files import LAYOUT, answer_paths, read_answers
from pytest_cepbench.datasets.recorded_answers import RecordedAnswers
from pytest_cepbench.datasets.replay.record import Layout
from pytest_cepbench.errors import SpecError


def _fits(path: Path) -> bool:
    return path.is_dir() and any(answer_paths(path))


def _read(path: Path, params: Mapping[str, str]) -> RecordedAnswers:
    partial = params.get("partial", "false")
    if partial not in ("true", "false"):
        raise SpecError(f"replay:{path}: the parameter partial is true or false, got {partial!r}")
    return read_answers(path, partial=partial == "true")


OPENING = Layout(
    name=LAYOUT,
    says="0101001.json (or .jsonl), 0101001-o-0.jpg, ... by question (OpenING, answers)",
    params=("partial",),
    fits=_fits,
    read=_read,
)
