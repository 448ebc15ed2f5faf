"""An interpreter of another environment, as far as a run uses it: the servers of vLLM and SGLang.

A program in a test's folder calls `main`. It takes the command lines of both, refuses flags that
they do not have, answers chats with the mean color of the image, and behaves as `behavior.json` in
the folder says. Each start is a line of `starts.jsonl` there. `StandIn` is the tests' side of it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from tests.models.api.fake_server import Answer, FakeServer, Seen, document, fault

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


def color_of(seen: Seen) -> str:
    """The mean color of the last image, as the tests' own describer says it."""
    if not seen.images:
        return "A"
    pixel = seen.images[-1].convert("RGB").resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return " ".join(map(str, pixel))


def main(folder: Path) -> None:
    """Be what the command line says."""
    module, given = sys.argv[2], sys.argv[3:]
    parsed = arguments(module, given)

    def behavior() -> dict[str, Any]:
        file = folder / "behavior.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    wanted, ready = behavior(), time.time() + behavior().get("slow", 0)
    start = {"pid": os.getpid(), "argv": given, "module": module, "env": dict(os.environ)}
    if wanted.get("child"):  # out of the server's group, as some engines have workers
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        start["child"] = child.pid
    with (folder / "starts.jsonl").open("a") as log:
        log.write(json.dumps(start) + "\n")
    if wanted.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if wanted.get("fail"):
        say(f"loading\n{wanted['fail']} key={os.environ.get('VLLM_API_KEY')}")
        say(" ".join(os.environ.get(name, "unset") for name in wanted.get("show", ())))
        sys.exit(3)
    key = os.environ.get("VLLM_API_KEY") or getattr(parsed, "api_key", None)
    assert Path(parsed.model_path, "config.json").is_file()
    counting, answered = threading.Lock(), 0

    def answer(seen: Seen) -> Answer:
        nonlocal answered
        if seen.path == "/health":
            return document({}, 200 if time.time() > ready else 503)
        if key is not None and seen.headers.get("authorization") != f"Bearer {key}":
            return fault(401, "wrong key")
        if seen.path.endswith("/models"):
            return document({"object": "list", "data": [{"id": parsed.served_model_name}]})
        if seen.body["model"] != parsed.served_model_name:
            return fault(404, f"no model {seen.body['model']}")
        with counting:
            if answered >= behavior().get("die_after", float("inf")):
                say("CUDA error: an illegal memory access was encountered")
                os._exit(9)
            answered += 1
        choice = {"message": {"content": color_of(seen)}, "finish_reason": "stop"}
        completion = {"model": seen.body["model"], "choices": [choice]}
        return document(completion, after=behavior().get("seconds", 0))

    server = FakeServer(int(parsed.port))
    server.models, server.answer = None, answer
    say("serving")
    while True:
        signal.pause()


# -- for tests -------------------------------------------------------------------------------------


PROGRAM = f"""#!{sys.executable}
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.models.serving.stand_ins import main
main(Path(__file__).parent)
"""

_PATIENCE = 20.0


@dataclass(frozen=True)
class StandIn:
    """An interpreter that serves, and a checkpoint to be served.

    python: the interpreter. checkpoint: a folder.
    """

    python: Path
    checkpoint: Path

    def spec(self, query: str = "", engine: str = "vllm") -> str:
        """A spec that has it serve the checkpoint; waits for the next try are short."""
        more = f"&{query}" if query else ""
        short = "" if "max_retry_wait" in query else "&max_retry_wait=0.05"
        return f"serve:{self.checkpoint}?engine={engine}&python={self.python}{short}{more}"

    def behave(self, **behavior: Any) -> None:
        """From now on, also where it runs already."""
        self.python.with_name("behavior.json").write_text(json.dumps(behavior))

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Each start: pid, argv, module, env."""
        path = self.python.with_name("starts.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def flags(self) -> dict[str, str]:
        """The flags of the only start, each with what follows it."""
        (start,) = self.starts
        argv = start["argv"]
        return {
            flag: "" if i + 1 == len(argv) or argv[i + 1].startswith("--") else argv[i + 1]
            for i, flag in enumerate(argv)
            if flag.startswith("--")
        }

    def wait_for_end(self) -> None:
        """Wait until no process of any start is left; fails where one stays."""
        pids = [pid for start in self.starts for pid in (start["pid"], start.get("child")) if pid]
        until = time.monotonic() + _PATIENCE
        while left := [pid for pid in pids if is_alive(pid)]:
            assert time.monotonic() < until, f"{left} of {pids} are still there"
            time.sleep(0.05)


def make_stand_in(folder: Path) -> StandIn:
    """The stand-in in a folder."""
    from tests.models.files import LLAVA, write_checkpoint  # here: no server needs it, nor waits

    python = folder / "elsewhere" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PROGRAM)
    python.chmod(0o755)
    return StandIn(python, write_checkpoint(folder / "step-1", LLAVA))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
