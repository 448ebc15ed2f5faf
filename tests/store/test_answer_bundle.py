"""The file of accepted answers: what is read of it is bounded."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pytest_cepbench.store.answers import _read


def test_an_entry_may_be_as_large_as_the_limit_and_no_larger(tmp_path: Path) -> None:
    """However small it is in the file: what it unpacks to counts."""
    with zipfile.ZipFile(tmp_path / "answers.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("entry", bytes(1000))
    with zipfile.ZipFile(tmp_path / "answers.zip") as bundle:
        assert _read(bundle, "entry", 1000) == bytes(1000)
        with pytest.raises(ValueError, match="entry is larger than 999 bytes"):
            _read(bundle, "entry", 999)
