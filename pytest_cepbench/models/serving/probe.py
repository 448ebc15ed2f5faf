"""Questions to a server that starts: whether it is healthy, who it is, which models it lists."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing, suppress
from pathlib import Path

from pytest_cepbench.models.api.faults import read_json
from pytest_cepbench.models.api.responses import read_models
from pytest_cepbench.models.serving.engines import HOST
from pytest_cepbench.models.serving.supervisor import descendants

_SECONDS = 5.0  # for one answer

_MOST_BYTES = 1 << 20

_LISTENING = "0A"  # <include/net/tcp_states.h>


def free_port() -> int:
    """A port that no process listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on a port."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def get(port: int, path: str, key: str | None = None) -> bytes | None:
    """The body of a page, asked without any proxy; None where there is no good answer yet."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection = http.client.HTTPConnection(HOST, port, timeout=_SECONDS)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status == 200:
            return response.read(_MOST_BYTES)
    return None


def listed_models(port: int, key: str | None) -> tuple[str, ...]:
    """The models that the server lists; none where it gives no list."""
    body = get(port, "/v1/models", key)
    return () if body is None else read_models(read_json(body))


def listens(process: int, port: int) -> bool:
    """Whether a process, or one that it started, is who listens on a port.

    Another program may have taken the port just before the server did, and would answer for it.
    """
    sockets = _listening_sockets(port)
    return bool(sockets) and any(
        sockets & _sockets(each) for each in (process, *descendants(process))
    )


def _listening_sockets(port: int) -> set[str]:
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):  # no IPv6
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                local, state, inode = fields[1], fields[3], fields[9]
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{inode}]")
    return sockets


def _sockets(process: int) -> set[str]:
    links = set()
    with suppress(OSError):  # it has ended
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                links.add(str(entry.readlink()))
    return links
