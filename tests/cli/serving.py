"""A server of `cepbench view` in a process of its own, and requests to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path


@contextmanager
def served(project: Path) -> Iterator[int]:
    """The port of a server of a project, which an interrupt ends with exit code 0."""
    command = [sys.executable, "-m", "pytest_cepbench.cli", "view", str(project), "--port=0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert match is not None, line
        try:
            yield int(match[1])
        except BaseException:
            server.kill()
            raise
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and body of a request. host: that the browser believes to talk to."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body
