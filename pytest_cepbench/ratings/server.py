"""The server of a study: one process, one folder, until it is interrupted."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_cepbench.errors import MissingDependencyError

if TYPE_CHECKING:
    from pytest_cepbench.ratings.app import Decide
    from pytest_cepbench.ratings.live_study import LiveStudy


def require_server() -> None:
    """Raise MissingDependencyError where a study cannot be served."""
    try:
        import uvicorn  # noqa: F401 - to see whether it is there

        import pytest_cepbench.ratings.app  # noqa: F401 - which imports the other packages
    except ImportError as error:
        raise MissingDependencyError(
            'cepbench rate ask needs packages: pip install "pytest-cepbench[pages]"'
        ) from error


def serve(
    live: LiveStudy,
    listener: socket.socket,
    hosts: Sequence[str],
    decide: Decide | None = None,
    *,
    peek: bool = False,
) -> None:
    """Serve until the process is interrupted. Parameters as of `make_app`.

    Raises MissingDependencyError.
    """
    require_server()
    import uvicorn

    from pytest_cepbench.ratings.app import make_app

    app = make_app(live, hosts, decide, peek=peek)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5
    )
    # People who vote do not wait for the thread that sums up for the operator: it gives way after
    # half a millisecond, and not after five at each of the steps of a reply.
    sys.setswitchinterval(0.0005)
    # Nor do they wait for the garbage collector, which looks through all votes and all items while
    # nothing else runs: 0.2 s at 40,000 votes. What is there now stays until the end.
    gc.collect()
    gc.freeze()
    uvicorn.Server(config).run(sockets=[listener])
