"""Web servers that point elsewhere: what is published does not go to wherever one says."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.errors import RedirectError
from pytest_cepbench.locations import place_of

WEB = ("http", "https")
"""Protocols of fsspec whose library follows redirects, also with what is being uploaded."""


def refusing(client: dict[str, Any]) -> dict[str, Any]:
    """Settings of aiohttp's session with which a redirect is an error. client: what the user said."""
    from aiohttp import TraceConfig

    tracing = TraceConfig()
    tracing.on_request_redirect.append(_refuse)
    return client | {"trace_configs": [*client.get("trace_configs", ()), tracing]}


async def _refuse(_: object, __: object, asked: Any) -> None:
    headers = asked.response.headers
    raise RedirectError(place_of(headers.get("Location") or headers.get("URI", ""), str(asked.url)))
