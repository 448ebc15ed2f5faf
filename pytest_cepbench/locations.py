"""Where web servers point, as far as people may see it; standard library only."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from pytest_cepbench.escapes import one_line


def place_of(location: str, base: str) -> str:
    """Scheme and host of what a redirect points to; user, path and query may hold anything.

    location: as the server wrote it. base: the address that was asked.
    """
    try:
        parts, asked = urlsplit(urljoin(base, location)), urlsplit(base)
        ports = parts.port, asked.port
    except ValueError:
        return "an address that cannot be read"
    if not parts.hostname:
        return "an address without a host"
    if (parts.scheme, parts.hostname, ports[0]) == (asked.scheme, asked.hostname, ports[1]):
        return "another path of the same server"
    port = f":{ports[0]}" if ports[0] else ""
    return one_line(f"{parts.scheme}://{parts.hostname}{port}")
