#!/usr/bin/env python3
"""The part of GitHub's command `gh api` that the action uses, on a file instead of GitHub.

The file that COMMENTS names holds `user`, who the token belongs to (null for a job's own token, for
which GitHub answers 403), and `comments`. Filters are run by jq, as in `gh`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Answer one call; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("api", choices=["api"])
    parser.add_argument("path")
    parser.add_argument("--method", default="GET")
    parser.add_argument("--paginate", action="store_true")
    parser.add_argument("--jq")
    parser.add_argument("--field")
    call = parser.parse_args()
    file = Path(os.environ["COMMENTS"])
    state = json.loads(file.read_text())
    if call.path == "user":
        answer = state["user"]
    elif state["forbidden"]:
        answer = None
    elif call.method == "GET":
        answer = state["comments"]
    else:
        answer = write(call.method, call.path, call.field, state["comments"])
        file.write_text(json.dumps(state))
    if answer is None:
        sys.stderr.write("gh: Resource not accessible by integration (HTTP 403)\n")
        return 1
    text = json.dumps(answer)
    if call.jq:
        command = ["jq", "--raw-output", call.jq]
        text = subprocess.run(
            command, input=text, check=True, capture_output=True, text=True
        ).stdout
    sys.stdout.write(text)
    return 0


def write(method: str, path: str, field: str, comments: list[dict[str, object]]) -> object:
    """Make or change a comment; its body is the text of a file, `body=@FILE`."""
    body = Path(field.removeprefix("body=@")).read_text()
    if method == "POST":
        assert path == "repos/team/model/issues/12/comments"
        user = {"login": "github-actions[bot]", "type": "Bot"}
        comments.append({"id": 100 + len(comments), "user": user, "body": body})
        return comments[-1]
    (comment,) = [each for each in comments if path.endswith(f"/issues/comments/{each['id']}")]
    comment["body"] = body
    return comment


if __name__ == "__main__":
    sys.exit(main())
