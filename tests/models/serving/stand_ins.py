"""A stand-in for the servers of other environments, and what it did, for tests in several rooms."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models.files import LLAVA, write_checkpoint

PROGRAM = f"""#!{sys.executable}
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.models.serving.stand_in import main
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


def kill(pid: int) -> None:
    """End a process as the kernel does."""
    os.kill(pid, 9)
