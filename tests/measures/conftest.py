"""One store for all tests of a file: what one of them has made is read by the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_cepbench.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that is empty when the file begins."""
    with Store(tmp_path_factory.mktemp("module") / "store") as opened:
        yield opened
