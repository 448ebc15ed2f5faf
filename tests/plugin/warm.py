"""Runs of pytest in processes of their own, with their imports behind them: a third of the work.

A process plays a small suite once, forgets it, and waits. Each run is a fork of it, with a folder,
arguments and an environment of its own, whose output goes to files. Workers of xdist are forks as
well, of a copy of the process that knows nothing of the run. For runs whose start is not tested.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

_SECONDS = 600.0  # a whole suite on a busy machine takes minutes

# Each start of pytest reads the metadata of all installed packages: a sixth of a small run.
_PACKAGES = tuple(metadata.distributions())
metadata.distributions = lambda **_: _PACKAGES
for _name in ("entry_points", "files", "metadata"):
    _kept = cached_property(vars(metadata.Distribution)[_name].fget)
    _kept.__set_name__(metadata.Distribution, _name)
    setattr(metadata.Distribution, _name, _kept)


def run(
    folder: Path, args: Sequence[str], env: Mapping[str, str], *, typed: bool = False
) -> tuple[int, str, str]:
    """(exit code, output, errors) of `python -m pytest ARGS` in a folder.

    typed: of `pytest ARGS`, whose path lacks the folder; errors stand in the output.
    """
    with tempfile.TemporaryDirectory() as place:
        out, err = (Path(place, name) for name in ("out", "out" if typed else "err"))
        order = {"cwd": str(folder), "args": list(args), "env": dict(env), "typed": typed}
        code = _server().do(order | {"out": str(out), "err": str(err)})
        return code, out.read_text(), "" if typed else err.read_text()


class _Server:
    """The waiting process, as the tests have it."""

    def __init__(self) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=clean,
        )
        atexit.register(self.end)
        from tests.plugin.project import INI, SHAPES, TEST_MODULE  # too much for the process itself

        files = {"pytest.ini": INI, "suite.toml": SHAPES, "test_toy.py": TEST_MODULE}
        assert self.do(files) == 0, "no run was possible"

    def do(self, order: Mapping[str, object]) -> int:
        """The exit code of a run."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """It ends with its input."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _SECONDS)
        if not ready:
            self._process.kill()
            raise TimeoutError(f"a run took more than {_SECONDS:g} s")
        return int(self._process.stdout.readline())


@cache
def _server() -> _Server:
    return _Server()


def _serve() -> None:
    """Do what is asked, a line each, until there are no more lines."""
    answers = os.fdopen(os.dup(1), "w")
    sys.path.remove(str(Path.cwd()))
    print(_warm_up(json.loads(sys.stdin.readline())), file=answers, flush=True)
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os._exit(_play(json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _play(order: Mapping[str, object]) -> int:
    """Be a process of that folder, and run pytest."""
    import pytest

    args, cwd, env = order["args"], order["cwd"], order["env"]
    assert isinstance(args, list)
    assert isinstance(env, dict)
    if sys.platform == "linux" and any(arg.startswith("-n") for arg in args):
        _fork_workers()
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(str(order[name]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _settle(str(cwd), env)
    if not order["typed"]:
        sys.path.insert(0, str(cwd))
    if "xdist.plugin" in sys.modules:  # which keeps what it was when that was imported, for workers
        sys.modules["xdist.plugin"]._sys_path[:] = sys.path
    try:
        code = int(pytest.main(args))
    except SystemExit as error:
        code = int(error.code or 0)
    _end()
    return code


def _settle(cwd: str, env: Mapping[str, str]) -> None:
    """Have a folder, an environment and random numbers of one's own, as a new process has."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    random.seed()


def _end() -> None:
    """What is done at the end of any process."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def _fork_workers() -> None:
    """Have xdist's workers forked by a copy of this process, made now: before the run's first step.

    A worker has its pipes, standard error, folder and environment from the controller, and is its
    child, as if that had started it.
    """
    from execnet import gateway_base, gateway_io

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _fork_for(theirs)
    theirs.close()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become its children

    def start(self: Any, args: Sequence[str], execmodel: Any) -> None:
        self.popen = worker = _Worker(ours)
        gateway_base.Popen2IO.__init__(self, worker.stdin, worker.stdout, execmodel=execmodel)

    gateway_io.Popen2IOMaster.__init__ = start  # type: ignore[method-assign]


class _Worker:
    """A worker as its controller has it; what execnet and the plugin use of `subprocess.Popen`."""

    def __init__(self, forker: socket.socket) -> None:
        (stdin, write), (read, stdout) = os.pipe(), os.pipe()
        place = {"cwd": str(Path.cwd()), "env": dict(os.environ)}
        socket.send_fds(forker, [json.dumps(place).encode()], [stdin, stdout, 2])
        self.pid = int(forker.recv(20))
        os.close(stdin)
        os.close(stdout)
        self.stdin, self.stdout = os.fdopen(write, "wb", 0), os.fdopen(read, "rb")
        self._ends, self._lock = os.pidfd_open(self.pid), threading.Lock()
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has one."""
        if not select.select([self._ends], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        with self._lock:
            if self._code is None:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        """At once."""
        signal.pidfd_send_signal(self._ends, signal.SIGKILL)


def _fork_for(controller: socket.socket) -> None:
    """Fork a worker for each message, until the controller is no more."""
    while True:
        text, files, _, _ = socket.recv_fds(controller, 1 << 20, 3)
        if not text:
            os._exit(0)
        if (between := os.fork()) == 0:
            parent = os.getpid()
            if os.fork() == 0:
                _work(controller, parent, files, text)
            os._exit(0)
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _work(controller: socket.socket, parent: int, files: Sequence[int], place: bytes) -> None:
    """Be a worker, as soon as this process is a child of the controller."""
    while os.getppid() == parent:
        time.sleep(0.0005)
    controller.send(str(os.getpid()).encode())
    controller.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    _settle(**json.loads(place))
    exec(eval(sys.stdin.readline()), {})  # what execnet has a new Python do
    _end()
    os._exit(0)


def _warm_up(files: Mapping[str, str]) -> int:
    """Import what a run imports, as pytest does it, and keep nothing of the run; its exit code."""
    import pytest

    before, path, here = set(sys.modules), list(sys.path), Path.cwd()
    folder = Path(tempfile.mkdtemp()).resolve()
    for name, text in files.items():
        (folder / name).write_text(text)
    os.chdir(folder)
    quiet = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:terminal")
    code = int(pytest.main([*quiet, "--snapshot-update"]))
    os.chdir(here)
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]
    shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    _serve()
