"""The hub as far as data sets need it: its cache as it lies on disk, and a server of its API."""

from __future__ import annotations

import json
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
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        api = f"/api/datasets/{REPO}"
        files = f"/datasets/{REPO}/resolve/"
        if path.startswith(files):
            revision, _, name = path.removeprefix(files).partition("/")
            self._file(revision, name)
        elif path in (api, f"{api}/revision/main") or path.startswith(f"{api}/revision/"):
            revision = path.rpartition("/revision/")[2] if "/revision/" in path else "main"
            commit = self._commit(revision)
            if commit is None:
                self._json({"error": "no revision"}, 404, {"X-Error-Code": "RevisionNotFound"})
            else:
                self._json({"id": REPO, "sha": commit, "siblings": []})
        elif path.startswith(f"{api}/tree/"):
            self._json(self._entries(path.removeprefix(f"{api}/tree/").partition("/")[0], None))
        elif path.startswith(f"{api}/paths-info/"):
            names = json.loads(body)["paths"]
            self._json(self._entries(path.rpartition("/")[2], names))
        else:
            self._json({"error": "no repository"}, 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that the server calls

    def _commit(self, revision: str) -> str | None:
        revision = self.hub.head if revision == "main" else revision
        return revision if revision in self.hub.commits else None

    def _entries(self, revision: str, names: list[str] | None) -> list[dict[str, object]]:
        files = self.hub.commits[self._commit(revision) or ""]
        return [
            {"type": "file", "path": path, "size": len(data), "oid": sha256(data).hexdigest()[:40]}
            for path, data in files.items()
            if names is None or path in names
        ]

    def _file(self, revision: str, name: str) -> None:
        commit = self._commit(revision)
        data = self.hub.commits.get(commit or "", {}).get(name)
        if commit is None or data is None:
            self._json({"error": "no entry"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        etag = sha256(data).hexdigest()
        self._send(data, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": commit})

    def _json(
        self, value: object, status: int = 200, extra: Mapping[str, str] | None = None
    ) -> None:
        headers = {"Content-Type": "application/json", **(extra or {})}
        self._send(json.dumps(value).encode(), status, headers)

    def _send(self, data: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
