"""Web servers that point elsewhere: what is published does not go to wherever one says."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pytest_cepbench.escapes import one_line

WEB = ("http", "https")
"""Protocols of fsspec whose library follows redirects, also with what is being uploaded."""


class RedirectError(Exception):
    """A server points elsewhere; says where, as far as people may see it."""


def refusing(client: dict[str, Any]) -> dict[str, Any]:
    """Settings of aiohttp's session with which a redirect is an error. client: what the user said."""
    from aiohttp import TraceConfig

    tracing = TraceConfig()
    tracing.on_request_redirect.append(_refuse)
    return client | {"trace_configs": [*client.get("trace_configs", ()), tracing]}


async def _refuse(_: object, __: object, asked: Any) -> None:
    location = asked.response.headers.get("Location") or asked.response.headers.get("URI", "")
    raise RedirectError(_place(location))


def _place(location: str) -> str:
    """Scheme and host; a path or a query may hold secrets."""
    try:
        parts = urlsplit(location)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    if not parts.hostname:
        return "another path of the same server"
    return one_line(f"{parts.scheme or 'http'}://{parts.hostname}{port}")
