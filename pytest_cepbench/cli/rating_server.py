"""Serving a ratings folder to people, for the commands that write one."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pytest_cepbench.cli.output import tell
from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate.labels.bounds import decided
from pytest_cepbench.option_values import HOST, bind
from pytest_cepbench.ratings.consent import write_texts
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.ratings.known_items import attention_remark
from pytest_cepbench.ratings.live_study import LiveStudy
from pytest_cepbench.ratings.server import require_server, serve

_EVERY = ("0.0.0.0", "::")  # noqa: S104 - to refuse them alone

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


def serve_ratings(path: Path, arguments: Namespace, suite: str | None = None) -> None:
    """Serve a study until the process is interrupted.

    path: its folder.
    arguments: port, host, name (of `--name`), peek.
    suite: the name of the suite that it has to be of; None for any.
    Raises DatasetError, WriteError, SpecError and MissingDependencyError.
    """
    _check(arguments)
    require_server()
    ratings = read_ratings(path, suite)
    write_texts(path, ratings.study.kind)
    host: str = arguments.host
    with LiveStudy(ratings) as live, bind(int(arguments.port), host) as listener:
        short = attention_remark(ratings.study, ratings.items.values())
        for remark in filter(None, [*live.remarks.lines, short]):
            tell(remark)
        base = _base(arguments, listener.getsockname()[1])
        if host != HOST:
            tell(
                f"listening on {host}: whoever has an address below can answer in that name, and "
                "what is sent is not encrypted"
            )
        for annotator in ratings.study.annotators:
            tell(f"{annotator}: {base}/a/{live.session.token(annotator)}/")
        tell(f"operator: {base}/o/{live.session.operator}/")
        tell(f"serving {path} (Ctrl-C ends it; start it again to go on)")
        hosts = [_in_address(host), HOST, "localhost", *arguments.name]
        decide = decision if ratings.study.kind in ("pair", "caption") else None
        with suppress(KeyboardInterrupt):  # the way to end it
            serve(live, listener, hosts, decide, peek=arguments.peek)


def _check(arguments: Namespace) -> None:
    """Raises SpecError for addresses and names that no browser could call."""
    if not arguments.port.isdecimal():
        raise SpecError(f"--port {arguments.port!r}: a number is expected, 0 for any free port")
    for name in arguments.name:
        if not _NAME.fullmatch(name):
            raise SpecError(
                f"--name {name!r}: a host's name or address is expected, without port or wildcard"
            )
    if arguments.host in _EVERY and not arguments.name:
        raise SpecError(
            f"--host {arguments.host} listens on every address of this machine: say with --name by "
            "which one browsers call it, since requests for others are refused"
        )


def _base(arguments: Namespace, port: int) -> str:
    """The beginning of the addresses of people."""
    host = arguments.name[0] if arguments.name else _in_address(arguments.host)
    return f"http://{host}:{port}"


def _in_address(host: str) -> str:
    """A host as addresses of pages have it: in brackets where it is one of IPv6."""
    return f"[{host}]" if ":" in host else host


def decision(scores: Sequence[float]) -> str:
    """What the operator is told of the bets and of their numbers, never for whom they are decided.

    scores: of first options in the order of their arrival, 1 where they won.
    """
    votes = decided((str(number), score) for number, score in enumerate(scores))
    return f"{votes.progress} at tolerance {votes.tolerance:g} and error {votes.alpha:g}"
