"""An interpreter of another environment, as far as a run uses it: the servers of vLLM and SGLang.

Copied into a test's folder with a first line that makes it a program. It takes the command lines of
both, refuses flags that they do not have, answers chats with the mean color of the image, and
behaves as `behavior.json` beside it says. Each start is a line of `starts.jsonl` there.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

COUNTING = threading.Lock()
"""Held while answers are counted: requests come on threads of their own."""

COMMON = ("--host", "--port", "--served-model-name", "--dtype", "--quantization")

FLAGS = {
    "vllm.entrypoints.cli.main": (
        "--tensor-parallel-size", "--gpu-memory-utilization", "--max-num-seqs",
        "--generation-config",
    ),
    "sglang.launch_server": (
        "--model-path", "--tp-size", "--mem-fraction-static", "--max-running-requests", "--api-key",
    ),
}  # fmt: skip


def say(line: str) -> None:
    """Write a line of the log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def behavior() -> dict[str, Any]:
    """What the test wants now."""
    try:
        read: dict[str, Any] = json.loads((HERE / "behavior.json").read_text())
    except FileNotFoundError:
        return {}
    return read


def arguments(module: str, given: list[str]) -> argparse.Namespace:
    """The command line, as the engine's own parser would take it."""
    parser = argparse.ArgumentParser(module)
    if module.startswith("vllm"):
        parser.add_argument("command", choices=["serve"])
        parser.add_argument("model_path")
    for flag in (*COMMON, *FLAGS[module]):
        parser.add_argument(flag, required=flag in ("--host", "--port", "--model-path"))
    parser.add_argument("--trust-remote-code", action="store_true")
    return parser.parse_args(given)


def color_of(messages: list[dict[str, Any]]) -> str:
    """The mean color of the last image, as the tests' own describer says it."""
    from PIL import Image

    urls = [
        part["image_url"]["url"]
        for message in messages
        for part in message["content"]
        if isinstance(part, dict) and part["type"] == "image_url"
    ]
    if not urls:
        return "A"
    image = Image.open(io.BytesIO(b64decode(urls[-1].partition(",")[2])))
    pixel = image.convert("RGB").resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return " ".join(map(str, pixel))


class Handler(BaseHTTPRequestHandler):
    """Answers as the API does. key, models: of this start."""

    protocol_version = "HTTP/1.1"
    key: str | None = None
    models: list[str] = []  # noqa: RUF012 - set once
    answered = 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Health, and the list of models."""
        if self.path == "/health":
            self._send(200 if time.time() > READY_AT else 503, {})
        elif self._allowed():
            self._send(200, {"object": "list", "data": [{"id": name} for name in self.models]})

    def do_POST(self) -> None:
        """A chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self._allowed():
            return
        if body["model"] not in self.models:
            self._send(404, {"error": {"message": f"no model {body['model']}"}})
            return
        with COUNTING:
            if Handler.answered >= behavior().get("die_after", float("inf")):
                say("CUDA error: an illegal memory access was encountered")
                os._exit(9)
            Handler.answered += 1
        time.sleep(behavior().get("seconds", 0))
        message = {"role": "assistant", "content": color_of(body["messages"])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._send(200, {"model": body["model"], "choices": [choice]})

    def _allowed(self) -> bool:
        allowed = self.key is None or self.headers.get("authorization") == f"Bearer {self.key}"
        if not allowed:
            self._send(401, {"error": {"message": "wrong key"}})
        return allowed

    def _send(self, status: int, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """Be what the command line says."""
    module, given = sys.argv[2], sys.argv[3:]
    parsed = arguments(module, given)
    wanted = behavior()
    start = {"pid": os.getpid(), "argv": given, "module": module, "env": dict(os.environ)}
    if wanted.get("child"):  # out of the server's group, as some engines have workers
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        start["child"] = child.pid
    with (HERE / "starts.jsonl").open("a") as log:
        log.write(json.dumps(start) + "\n")
    if wanted.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if wanted.get("fail"):
        say(f"loading\n{wanted['fail']} key={os.environ.get('VLLM_API_KEY')}")
        say(" ".join(os.environ.get(name, "unset") for name in wanted.get("show", ())))
        sys.exit(3)
    Handler.key = os.environ.get("VLLM_API_KEY") or getattr(parsed, "api_key", None)
    Handler.models = [parsed.served_model_name]
    assert Path(parsed.model_path, "config.json").is_file()
    say("serving")
    ThreadingHTTPServer((parsed.host, int(parsed.port)), Handler).serve_forever()


READY_AT = time.time() + behavior().get("slow", 0)

if __name__ == "__main__":
    main()
