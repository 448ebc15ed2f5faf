"""Binding as the plugin does, for tests that have no run around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_cepbench.files import open_regular
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.protocols import Reply, RoleName
from pytest_cepbench.models.serving.run_servers import RunServers
from pytest_cepbench.models.spec import parse_spec


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


def bind_text(text: str, role: RoleName) -> BoundRole:
    """Bind what a user would type."""
    return bind(parse_spec(text), role, CONTEXT)
