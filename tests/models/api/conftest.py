"""Fixtures of served models' tests: a server, models behind it, an environment without keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.models.protocols import Reply, RoleName
from tests.models.api.fake_server import FakeServer, serving
from tests.models.binding import bind_text


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server that answers well until it is told otherwise."""
    with serving() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def load(server: FakeServer, role: RoleName, query: str = "", model: str = "tiny") -> Any:
    """Load a model that the server has."""
    return bind_text(server.spec(query, model), role).load()


def describe(model: Any, count: int = 1) -> list[Reply]:
    """Describe so many images, of one shade of grey each."""
    images = [Image.new("RGB", (4, 4), (shade,) * 3) for shade in range(count)]
    replies: list[Reply] = model.describe(images, "what is shown?", list(range(count)))
    return replies
