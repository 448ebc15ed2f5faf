"""Runs of pytest in processes of their own, with their imports behind them: a third of the work.

A process plays a small suite once, forgets it, and waits. Each run is a fork of it, with a folder,
arguments and an environment of its own, whose output goes to files. For runs of one process whose
start is not what is tested; workers of xdist are started by their controller as ever.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_SECONDS = 120.0


def run(folder: Path, args: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """(exit code, output, errors) of `python -m pytest ARGS` in a folder."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        order = {"cwd": str(folder), "args": list(args), "env": dict(env)}
        code = _server().do(order | {"out": str(out), "err": str(err)})
        return code, out.read_text(), err.read_text()


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

    for number, name in ((1, "out"), (2, "err")):
        file = os.open(str(order[name]), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    cwd, env, args = order["cwd"], order["env"], order["args"]
    assert isinstance(env, dict)
    assert isinstance(args, list)
    os.chdir(str(cwd))
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, str(cwd))
    if "xdist.plugin" in sys.modules:  # which keeps what it was when that was imported, for workers
        sys.modules["xdist.plugin"]._sys_path[:] = sys.path
    random.seed()
    try:
        code = int(pytest.main(args))
    except SystemExit as error:
        code = int(error.code or 0)
    atexit._run_exitfuncs()  # as at the end of any process
    sys.stdout.flush()
    sys.stderr.flush()
    return code


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
