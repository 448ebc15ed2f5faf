"""The hub as far as data sets need it: its cache as it lies on disk, and a server of its API."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

REPO = "owner/photos"
COMMIT = "a" * 40
MOVED = "b" * 40

_ROUTE = re.compile(
    rf"(?:/api)?/datasets/{REPO}(?:/(resolve|revision|tree|paths-info)/([^/]+)/?(.*))?"
)


def write_cache(
    cache: Path, files: Mapping[str, bytes], commit: str = COMMIT, *, tree: Mapping[str, int] | None
) -> Path:
    """A data set in huggingface_hub's cache, with `main` at a commit.

    files: path -> content of those that were fetched.
    tree: path -> size of all that are in the repository, as newer versions keep it; None for none.
    Returns the folder of the snapshot.
    """
    home = cache / f"datasets--{REPO.replace('/', '--')}"
    for path, content in files.items():
        blob = home / "blobs" / sha256(content).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link = home / "snapshots" / commit / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / "main").write_text(commit)
    if tree is not None:
        (home / "trees").mkdir(exist_ok=True)
        entries = {path: {"size": size, "blob_id": "0" * 40} for path, size in tree.items()}
        listing = {"format_version": 1, "files": entries}
        (home / "trees" / f"{commit}.json").write_text(json.dumps(listing))
    return home / "snapshots" / commit


class HubServer:
    """A data set that is served.

    commits: commit -> path -> content.
    head: the commit of `main`; it may move.
    requests: method and path of every request.
    """

    def __init__(self, commits: Mapping[str, Mapping[str, bytes]], head: str = COMMIT) -> None:
        self.commits = commits
        self.head = head
        self.requests: list[tuple[str, str]] = []
        self.url = ""

    def fetched(self) -> set[str]:
        """The files that were read whole."""
        return {
            path.rpartition("/resolve/")[2].partition("/")[2]
            for method, path in self.requests
            if method == "GET" and "/resolve/" in path
        }

    @contextmanager
    def run(self) -> Iterator[HubServer]:
        """Serve until the end of the block."""
        owner = self

        class Handler(_Handler):
            hub = owner

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        """A file or its metadata, a revision, or a listing of all files or of named ones."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        match = _ROUTE.fullmatch(path)
        kind, revision, name = match.groups("") if match else ("", "", "")
        commit = self.hub.head if revision in ("", "main") else revision
        files = self.hub.commits.get(commit)
        if match is None:
            self._send({"error": "no repository"}, "RepoNotFound")
        elif files is None or (kind == "resolve" and name not in files):
            self._send({"error": "absent"}, f"{'Entry' if files else 'Revision'}NotFound")
        elif kind == "resolve":
            data = files[name]
            self._send(data, ETag=f'"{sha256(data).hexdigest()}"', X_Repo_Commit=commit)
        elif kind in ("tree", "paths-info"):
            names = files if kind == "tree" else json.loads(body)["paths"]
            entries = [
                {
                    "type": "file",
                    "path": own,
                    "size": len(data),
                    "oid": sha256(data).hexdigest()[:40],
                }
                for own, data in files.items()
                if own in names
            ]
            self._send(entries)
        else:
            self._send({"id": REPO, "sha": commit, "siblings": []})

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that the server calls

    def _send(self, value: object, error: str = "", **headers: str) -> None:
        """Bytes as they are, anything else as JSON. error: the code of a page that is not there."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(404 if error else 200)
        if error:
            self.send_header("X-Error-Code", error)
        for name, own in headers.items():
            self.send_header(name.replace("_", "-"), own)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
