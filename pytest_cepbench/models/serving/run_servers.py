"""The servers of a run: each is started once, by the first process that needs an answer of it."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import (
    CepError,
    MissingDependencyError,
    ModelError,
    SpecError,
    WriteError,
)
from pytest_cepbench.escapes import is_secret_name, mask_secrets, one_line
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.models.api.client import OwnServer
from pytest_cepbench.models.api.responses import read_json, read_models
from pytest_cepbench.models.devices import DEVICE_VARIABLES, THREADS
from pytest_cepbench.models.serving import supervisor
from pytest_cepbench.models.serving.engines import ServerPlan
from pytest_cepbench.models.serving.server_folder import (
    FAILED,
    ServerFolder,
    lock_shared,
    wait_for_end,
)
from pytest_cepbench.models.serving.supervisor import (
    COMMAND,
    ENDED,
    HOST,
    READY,
    RUN,
    RUNNING,
    free_port,
    get,
    is_free,
    listens,
)

_LOGS = 10  # that are kept

_PORTS = 3  # tried, where another program takes a free one first

_POLL = 0.1  # seconds

_TAKEN = re.compile(r"address already in use|errno 98\b|port \d+ is already in use", re.IGNORECASE)

_NOT_INSTALLED = 3

_PRINT_VERSION = f"""
import sys
from importlib import metadata, util
try:
    print(metadata.version(sys.argv[1]))
except metadata.PackageNotFoundError:
    sys.exit(0 if util.find_spec(sys.argv[1]) else {_NOT_INSTALLED})
"""


_PASSED_ON = re.compile(
    r"(?:PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|TMPDIR|TEMP|TMP|LANG|VIRTUAL_ENV|MAX_JOBS|CC|CXX"
    r"|CUDAHOSTCXX|CPATH|C_INCLUDE_PATH|LIBRARY_PATH|LD_LIBRARY_PATH|LD_PRELOAD"
    r"|(?:LC|XDG|CONDA|PYTHON|MALLOC"
    r"|CUDA|NVIDIA|NV|ROCR|ROCM|HIP|HSA|AMD|GPU|MIOPEN|ZE|SYCL|XPU|ONEAPI|ONEDNN|DNNL|CCL|ASCEND"
    r"|HABANA|PT_HPU|TPU|PJRT|XLA|NEURON"
    r"|HF|TRANSFORMERS|TOKENIZERS|SAFETENSORS|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER"
    r"|VLLM|SGLANG|SGL|RAY|NCCL|RCCL|GLOO|UCX|OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR)_?[A-Z0-9_]*)"
)
"""Variables of the environment that a server gets: the system's, those of devices, libraries and
engines. Tokens are not among them: it serves a folder, and asks no hub."""

_SUPERVISORS: list[subprocess.Popen[bytes]] = []
"""Kept, since Python complains of processes that are forgotten while they run."""


class RunServers:
    """The servers of a run, as one of its processes uses them.

    folder: that all processes of the run share; made where it is absent.
    logs: folder of the servers' logs, which stay.
    unleased: variables as they are without the lease of this process; None where it has none.
    show: called with what is waited for, and with an empty text afterwards.
    is_controller: whether servers end with this process at the latest, which waits for their end.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path,
        *,
        unleased: Mapping[str, str] | None = None,
        show: Callable[[str], None] = lambda _: None,
        is_controller: bool = True,
    ) -> None:
        self._folder = folder
        self._logs = logs
        self._unleased = unleased
        self._show = show
        self._is_controller = is_controller
        self._folders: dict[str, ServerFolder] = {}
        self._run: int | None = None  # the file whose lock says that the controller lives

    def join(self, plan: ServerPlan) -> ServerFolder:
        """Count as a user of a server, which is not started by this: it then lives until `close`.

        Raises WriteError.
        """
        if self._is_controller and self._run is None:
            self._run = lock_shared(self._folder / RUN, plan.label)
        if plan.digest not in self._folders:
            self._folders[plan.digest] = ServerFolder(self._folder / plan.digest, plan.label)
        return self._folders[plan.digest]

    def running(self, plan: ServerPlan) -> OwnServer:
        """The server, started where no process of the run has done so.

        Raises ModelError where it does not start, or has ended; IdentityError where its files
        changed meanwhile; SpecError for a port or devices that it cannot have;
        MissingDependencyError where its interpreter has no such engine.
        """
        folder, title = self.join(plan), plan.engine.title
        try:
            with folder.starting(lambda: self._show(f"waiting for {title}")):
                failed = folder.read(FAILED)
                if failed is not None:
                    raise ModelError(failed["reason"])
                if folder.read(READY) is None and folder.read(ENDED) is None:
                    try:
                        with plan.files.unchanged("the server was started"):
                            self._start(plan, folder)
                    except CepError as error:  # the other processes are told why
                        folder.end()
                        with suppress(WriteError):
                            folder.write(FAILED, {"reason": str(error)})
                        raise
                ready = folder.read(READY)
                folder.check()
        finally:
            self._show("")
        if ready is None:
            raise ModelError(
                f"{plan.label}: its server ends, since the controller of the run has ended"
            )
        return OwnServer(
            f"http://{HOST}:{ready['port']}/v1",
            ready["key"],
            {"engine": f"{title} {ready['version']}".strip()},
            ready["log"],
            folder.check,
            plan.files if plan.engine.maps_files else None,
        )

    def close(self) -> None:
        """Use the servers no more; those that no other process uses end."""
        folders, self._folders = self._folders, {}
        for folder in folders.values():
            folder.leave()
        if self._run is not None:
            os.close(self._run)
            self._run = None
        if self._is_controller:
            # Also those that only other processes have used, which may have left just now.
            for path in self._folder.glob("*"):
                wait_for_end(path)
            for folder in folders.values():
                folder.mask_log()

    def _start(self, plan: ServerPlan, folder: ServerFolder) -> None:
        """Start the server and wait until it answers; take over from a process that was killed."""
        until = time.monotonic() + plan.serve.start_timeout
        command = folder.read(COMMAND) if folder.is_supervised else None
        for tries_left in reversed(range(_PORTS if plan.serve.port == "auto" else 1)):
            if command is None:
                command = self._launch(plan, folder)
            if self._answers(plan, folder, command, until):
                folder.write(READY, command)
                return
            if not (tries_left and any(map(_TAKEN.search, folder.log_lines()))):
                msg = f"{plan.label}: {plan.engine.title} did not start ({folder.end_reason}). "
                raise ModelError(msg + folder.log_end())
            command = None

    def _launch(self, plan: ServerPlan, folder: ServerFolder) -> dict[str, Any]:
        """Start the supervisor; returns the command, as the folder has it."""
        environment = self._environment(plan)
        version = _engine_version(plan, environment, folder.path)
        port = free_port() if plan.serve.port == "auto" else int(plan.serve.port)
        if not is_free(port):
            raise SpecError(
                f"{plan.label}: port={port} is taken by another program. Leave port= out, and the "
                "run takes a free one"
            )
        key = None if plan.engine.key_variable is None else secrets.token_hex(24)
        if key is not None and plan.engine.key_variable:
            environment[plan.engine.key_variable] = key
        log = self._new_log(plan)
        command = {
            "argv": plan.argv(port, key),
            "log": str(log),
            "port": port,
            "key": key,
            "version": version,
        }
        folder.forget()
        folder.write(COMMAND, command)
        shown = plan.argv(port, None if key is None else "[key]")
        log.write_bytes(f"$ {shlex.join(shown)}\n".encode("utf-8", "surrogateescape"))
        try:
            with log.open("ab") as stream:
                process = subprocess.Popen(  # noqa: S603 - a script of this package
                    # The standard library is all that it needs, whatever the environment holds.
                    [sys.executable, "-I", "-S", supervisor.__file__, str(folder.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stream,
                    cwd=folder.path,  # `python -m` would find the modules of a project first
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the run
                )
        except OSError as error:
            raise ModelError(
                f"{plan.label}: the supervisor of its server could not be started: {error}"
            ) from error
        _SUPERVISORS.append(process)
        while not (folder.read(RUNNING) or folder.read(ENDED)):
            if process.poll() is not None and not folder.read(ENDED):
                msg = f"{plan.label}: the supervisor of its server ended at once. "
                raise ModelError(msg + folder.log_end())
            time.sleep(_POLL / 10)
        return command

    def _answers(
        self, plan: ServerPlan, folder: ServerFolder, command: Mapping[str, Any], until: float
    ) -> bool:
        """Wait until the server answers; False where it ended before.

        It has to be healthy, the one that was started, and to list what was asked for.
        """
        started, port = time.monotonic(), command["port"]
        while folder.end_reason is None:
            state = folder.read(RUNNING)
            is_own = state is not None and listens(state["supervisor"], port)
            if is_own and get(port, "/health") is not None:
                if not plan.engine.lists_model:
                    return True
                listed = get(port, "/v1/models", command["key"]) or b""
                if plan.served_name in read_models(read_json(listed)):
                    return True
            if time.monotonic() > until:
                folder.end()
                msg = (
                    f"{plan.label}: {plan.engine.title} gave no answer within "
                    f"{plan.serve.start_timeout:g} s (start_timeout= in its spec). "
                )
                raise ModelError(msg + folder.log_end())
            seconds = time.monotonic() - started
            self._show(f"starting {plan.engine.title}, {seconds:.0f} s")
            time.sleep(_POLL if seconds < 10 else 5 * _POLL)
        return False

    def _environment(self, plan: ServerPlan) -> dict[str, str]:
        """The environment of a server: what it needs of that of this process, and no key.

        Raises SpecError for a variable that the spec names and that is not set.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if _PASSED_ON.fullmatch(name)
            and not is_secret_name(name)
            and name not in ("PYTHONPATH", "PYTHONHOME")  # of this interpreter, not of any other
        }
        for name in plan.serve.variables:
            if name not in os.environ:
                raise SpecError(
                    f"{plan.label}: env= names {name}, which is not set in the environment"
                )
            environment[name] = os.environ[name]
        # All that it reads is fingerprinted, so that it needs nothing from a network.
        environment |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "VLLM_NO_USAGE_STATS": "1"}
        unleased = environment if self._unleased is None else self._unleased
        _restore(environment, THREADS, unleased)  # one server works for all
        named = [name for name in DEVICE_VARIABLES if name in environment or name in unleased]
        variable = named[0] if named else DEVICE_VARIABLES[0]
        if plan.serve.devices is not None:
            environment[variable] = plan.serve.devices
        elif _count(environment.get(variable)) < plan.device_count:
            _restore(environment, variable, unleased)
        if plan.device_count > 1 and _count(environment.get(variable)) < plan.device_count:
            raise SpecError(
                f"{plan.label} needs {plan.device_count} devices, and {variable} is "
                f"{environment[variable]}: name more with devices=, or lower "
                "tensor_parallel_size, pipeline_parallel_size or data_parallel_size"
            )
        return environment

    def _new_log(self, plan: ServerPlan) -> Path:
        """A new log, for its owner alone; the oldest ones make room. Raises WriteError."""
        now = time.strftime("%Y%m%d-%H%M%S")
        path = self._logs / f"{now}-{plan.engine.name}-{plan.folder.name}-{plan.digest[:4]}.log"
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            keep_out_of_git(self._logs.parent, path)
            for old in sorted(self._logs.glob("*.log"))[: 1 - _LOGS]:
                old.unlink(missing_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            raise WriteError(
                f"{plan.label}: the log of its server, {path}, cannot be written: {error}"
            ) from error
        return path


def _restore(environment: dict[str, str], name: str, unleased: Mapping[str, str]) -> None:
    """Give a variable the value that it has without a lease."""
    if name in unleased:
        environment[name] = unleased[name]
    else:
        environment.pop(name, None)


def _count(devices: str | None) -> float:
    """How many devices a variable leaves to a process."""
    return float("inf") if devices is None else len([name for name in devices.split(",") if name])


def _engine_version(plan: ServerPlan, environment: Mapping[str, str], place: Path) -> str:
    """The version of the engine, of its own environment; empty where that is unknown.

    place: a folder without any module.
    Raises MissingDependencyError where the engine is not there.
    """
    interpreter, engine = plan.program.interpreter, plan.engine
    if interpreter is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [interpreter, "-c", _PRINT_VERSION, engine.name],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # what starts the server says why
        return ""
    if done.returncode == _NOT_INSTALLED:
        raise MissingDependencyError(
            f"{plan.label}: {interpreter} has no {engine.title}: {interpreter} -m {engine.install}"
        )
    return one_line(mask_secrets(done.stdout)) if done.returncode == 0 else ""


@cache
def own_servers() -> RunServers:
    """Servers of this process alone, where there is no run around it; they end with it."""
    folder = Path(tempfile.mkdtemp(prefix="cepbench-servers-"))
    servers = RunServers(folder / "run", folder / "logs")
    atexit.register(servers.close)
    return servers
