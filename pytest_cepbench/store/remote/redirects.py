"""Web servers that point elsewhere: what is published does not go to wherever one says."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.escapes import redirect_target

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
    headers = asked.response.headers
    raise RedirectError(
        redirect_target(headers.get("Location") or headers.get("URI", ""), str(asked.url))
    )
