"""Nocaps+Docci400, the pairs of the Semantic Drift Protocol, in either form that people have it in."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.datasets.nd400 import load_nd400
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sdp import load_sdp


def load_pairs(
    path: Path,
    *,
    category: str = "nd400",
    encoding: str = "utf-8",
    docci: str = "docci",
    nocaps: str = "nocaps",
    ids: str | None = None,
) -> Dataset:
    """The pairs in the layout of the authors' code, or their list of ids joined to local copies.

    path: a folder with text-first/ and image-first/ (see `load_sdp`: category, encoding), else the
    list or its folder (see `load_nd400`: docci, nocaps, ids). Raises DatasetError as they do.
    """
    if (path / "text-first").is_dir() or (path / "image-first").is_dir():
        return load_sdp(path, category=category, encoding=encoding)
    return load_nd400(path, docci=docci, nocaps=nocaps, ids=ids)
