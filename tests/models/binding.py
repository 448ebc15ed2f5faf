"""Binding as the plugin does, for tests that have no run around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_cepbench.files import open_regular
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.protocols import Describer, Reply, RoleName
from pytest_cepbench.models.serving.run_servers import RunServers
from pytest_cepbench.models.spec import parse_spec
from tests.tiny.common import pictures


def hash_file(path: Path) -> str:
    """As a run does it, but for remembering."""
    with open_regular(path) as stream:
        return sha256(stream.read()).hexdigest()


CONTEXT = BindContext(hash_file, threads=1)
"""Hashes every file anew and keeps torch to one thread."""


def context_with(servers: RunServers) -> BindContext:
    """The same context in a run that can start servers."""
    return replace(CONTEXT, servers=lambda: servers)


def plain(results: Iterable[Any]) -> list[Any]:
    """The results themselves, also of those that come in a reply."""
    return [result.value if isinstance(result, Reply) else result for result in results]


def bind_text(text: str, role: RoleName, *, force: bool = False) -> BoundRole:
    """Bind what a user would type."""
    return bind(parse_spec(text), role, CONTEXT, force=force)


@cache
def load_once(text: str, role: RoleName) -> Any:
    """The loaded model of a spec, loaded once for all tests; not to be changed."""
    return bind_text(text, role).load()


def describe(folder: Path, query: str = "") -> list[Any]:
    """The descriptions of three pictures by a folder, as a user would give it."""
    model = bind_text(f"{folder}?max_new_tokens=8{query and '&'}{query}", "describer").load()
    assert isinstance(model, Describer)
    return list(model.describe(pictures(), "describe the image", [0, 1, 2]))
