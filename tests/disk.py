"""A small disk for a test: a tmpfs in a mount namespace of its own, which goes with its process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Disk:
    """place: where processes of `run` see it. seen: the same folder, as the test can look at it."""

    place: Path
    seen: Path
    _enter: tuple[str, ...]

    def run(
        self, *command: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A process that has the disk."""
        return subprocess.run(
            [*self._enter, f"--wdns={cwd}", *command],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def fill(self, left: int) -> Path:
        """Leave so many bytes free. Returns the file that takes the rest."""
        ballast = self.seen / "ballast"
        with ballast.open("wb", buffering=0) as stream, suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        os.truncate(ballast, max(0, ballast.stat().st_size - left))
        return ballast


@contextmanager
def small_disk(place: Path, options: str) -> Iterator[Disk]:
    """A tmpfs with these options, such as `size=1m`; skips where none may be mounted."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("no unshare: cannot mount a small disk here")
    place.mkdir(exist_ok=True)
    who: Sequence[str] = ["-m"] if os.geteuid() == 0 else ["-Urm"]
    work = 'mount -t tmpfs -o "$1" tmpfs "$2" && echo mounted && exec cat'
    holder = subprocess.Popen(
        ["unshare", *who, "sh", "-c", work, "sh", options, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "mounted\n":
            pytest.skip(f"may not mount a small disk here: {holder.communicate()[1].strip()}")
        own = () if os.geteuid() == 0 else ("-U", "--preserve-credentials")
        enter = ("nsenter", "-t", str(holder.pid), *own, "-m")
        yield Disk(place, Path(f"/proc/{holder.pid}/root{place}"), enter)
    finally:
        holder.communicate()  # it ends with its input
