"""The engines that can serve a checkpoint: their parameters, and how each is found and started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import MissingDependencyError, SpecError, unknown_name
from pytest_cepbench.escapes import is_secret_name
from pytest_cepbench.files import expand_user
from pytest_cepbench.models.api.parameters import RequestLimits
from pytest_cepbench.models.binding import CoveredFiles
from pytest_cepbench.models.devices import DEVICE_VARIABLES, THREADS
from pytest_cepbench.models.spec import AboveZero, NotNegative, Positive, Share, given_params

HOST = "127.0.0.1"

_CREDENTIALS = re.compile(r"://[^/@\s]+@")  # in a URL, of a proxy or a database

_DEVICE = re.compile(r"[A-Za-z0-9./:_-]+")

_REFUSED = (
    # Set by the run, or by a parameter of the spec.
    "--model", "--model-path", "--force-model", "--host", "--port", "--uds", "--root-path",
    "--served-model-name", "--api-key", "--admin-api-key", "--config", "--headless",
    "--trust-remote-code", "--dtype", "--ssl-keyfile", "--ssl-certfile",
    # By which an engine reads other files than those of the fingerprint.
    "--tokenizer", "--tokenizer-path", "--tokenizer-revision", "--revision", "--code-revision",
    "--hf-config-path", "--load-format", "--download-dir", "--model-loader-extra-config",
    "--quantization-param-path", "--decision-config", "--middleware", "--tool-parser-plugin",
    "--chat-template", "--enable-lora", "--lora-modules", "--lora-paths",
)  # fmt: skip


@dataclass(frozen=True)
class ServeParams(RequestLimits):
    """How a server is started and how it is asked; None leaves a flag to the engine.

    engine: vllm, sglang or transformers.
    python: interpreter of the environment that the engine is installed in; None looks for the
        engine beside this interpreter, then on PATH.
    devices: what the server's CUDA_VISIBLE_DEVICES holds; None gives it the devices of the process
        that starts it, or all of the run's where it needs more.
    start_timeout: seconds that the server has until it answers.
    engine_args: further flags of the engine, as in a shell.
    revision: commit, tag or branch of a hub id.
    allow_pickle: whether pickled weights may be read where there are no others.
    trust_remote_code: whether the engine runs the checkpoint's Python files.
    quantization: as the engine names its methods.
    tensor_parallel_size: devices that the model is divided among.
    gpu_memory_utilization: part of a device's memory, in (0, 1].
    max_num_seqs: most requests that are worked on at once.
    Raises ValueError for devices of no such names, for a parameter that the engine does not have,
    and for `engine_args` that set what the spec or the run has to set, or name other files.
    """

    engine: str = "vllm"
    python: str | None = None
    devices: str | None = None
    start_timeout: AboveZero = 900.0
    engine_args: str = ""
    revision: str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    timeout: AboveZero = 600.0
    patience: NotNegative = 900.0
    quantization: str | None = None
    tensor_parallel_size: Positive | None = None
    gpu_memory_utilization: Share | None = None
    max_num_seqs: Positive | None = None

    def __post_init__(self) -> None:
        if self.devices is not None and not all(map(_DEVICE.fullmatch, self.devices.split(","))):
            raise ValueError(
                f"devices must be numbers or names as in CUDA_VISIBLE_DEVICES, got {self.devices}"
            )
        flags = ENGINES[self.engine].flags
        for name in self.given:
            if name not in flags:
                title = ENGINES[self.engine].title
                raise ValueError(unknown_name(f"parameter for {title}", name, flags))
        for argument in self.further_arguments:
            name, _, value = argument.partition("=")
            flag = name.replace("_", "-")
            # Engines also take the beginning of a flag for the flag.
            known = (*_REFUSED, *flags.values())
            if flag.startswith("--") and any(each.startswith(flag) for each in known):
                raise ValueError(
                    f"engine_args: {flag} is set by the run or by a parameter of the spec, or lets "
                    "the engine read other files than those of the checkpoint, which no "
                    "fingerprint would cover"
                )
            value = value if name.startswith("-") else argument
            # A number or a word may happen to be the name of a file here.
            with suppress(OSError):  # too long for a name
                if value and not value.isalnum() and expand_user(value).exists():
                    raise ValueError(
                        f"engine_args names {value}, a file that no fingerprint would cover"
                    )

    @property
    def further_arguments(self) -> list[str]:
        """`engine_args`, taken apart. Raises ValueError for an open quote."""
        try:
            return shlex.split(self.engine_args)
        except ValueError as error:
            raise ValueError(
                f"engine_args cannot be read as a shell reads it ({error}): {self.engine_args}"
            ) from error

    @property
    def given(self) -> dict[str, object]:
        """The parameters of the engine that are given."""
        return given_params(self, *_OF_ENGINES)

    @property
    def decisive(self) -> dict[str, object]:
        """What can change an answer and is in no file, not where and how fast a model works."""
        further = {"engine_args": self.engine_args} if self.engine_args.strip() else {}
        return {"engine": self.engine, **given_params(self, "quantization"), **further}


_OF_ENGINES = (
    "quantization", "tensor_parallel_size", "gpu_memory_utilization", "max_num_seqs",
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """A program that serves a checkpoint by the API of OpenAI.

    title: for people.
    module: run with `python -m`.
    install: command that installs it.
    flags: parameter -> flag, of the parameters that it knows.
    subcommand: that follows the module and the console script.
    model_flag: before the folder of the checkpoint; empty where it stands alone.
    lists_model: whether its list of models has what it serves.
    key_variable: environment variable of its key; empty for --api-key, None where it has none.
    maps_files: whether a loaded model may go on reading its files.
    """

    title: str
    module: str
    install: str
    flags: Mapping[str, str]
    subcommand: tuple[str, ...] = ()
    model_flag: tuple[str, ...] = ()
    lists_model: bool = True
    key_variable: str | None = None
    maps_files: bool = False


ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        title="vLLM",
        module="vllm.entrypoints.cli.main",
        subcommand=("serve",),
        key_variable="VLLM_API_KEY",
        install="pip install vllm",
        flags={name: f"--{name.replace('_', '-')}" for name in _OF_ENGINES},
    ),
    "sglang": Engine(
        title="SGLang",
        module="sglang.launch_server",
        model_flag=("--model-path",),
        key_variable="",
        install='pip install "sglang[all]"',
        flags={
            "quantization": "--quantization",
            "tensor_parallel_size": "--tp-size",
            "gpu_memory_utilization": "--mem-fraction-static",
            "max_num_seqs": "--max-running-requests",
        },
    ),
    "transformers": Engine(
        title="transformers serve",
        module="transformers.cli.transformers",
        subcommand=("serve",),
        lists_model=False,  # it lists what the hub's cache has
        install='pip install "transformers[serving]"',
        flags={"quantization": "--quantization"},
        maps_files=True,
    ),
}
"""By the name that `engine=` has, which is that of the Python package too."""


def find_program(name: str, python: str | None) -> tuple[str, ...]:
    """The installed engine: of the interpreter that was named, of this one, or of PATH.

    Returns what it is started with, before the checkpoint and the flags. Raises SpecError for a
    name that is no interpreter, MissingDependencyError where there is no such engine.
    """
    engine = ENGINES[name]
    if python is not None:
        interpreter = shutil.which(str(expand_user(python)))
        if interpreter is None:
            raise SpecError(
                f"python={python}: no such program. Give the interpreter of an environment that "
                f"has {engine.title}, such as ~/{name}/bin/python"
            )
        return (str(Path(interpreter).absolute()), "-m", engine.module, *engine.subcommand)
    if name == "sglang" and util.find_spec("sglang") is not None:
        return (sys.executable, "-m", engine.module)
    script = shutil.which(Path(sys.executable).with_name(name)) or shutil.which(name)
    if script is None:
        raise MissingDependencyError(
            f"{engine.title} is neither beside {sys.executable} nor on PATH. Install it in an "
            f"environment of its own ({engine.install}) and name its interpreter: "
            f"python=~/{name}/bin/python"
        )
    return (str(script), "serve")


@dataclass(frozen=True)
class ServerPlan:
    """A server as a spec describes it, before it is started.

    label: of the model, for people ("serve:checkpoints/step-8000").
    program: what it is started with, before the checkpoint and the flags.
    folder: of the checkpoint.
    served_name: by which requests ask for it.
    arguments: flags of the engine.
    serve: how it is started.
    files: that decide its answers.
    """

    label: str
    program: tuple[str, ...]
    folder: Path
    served_name: str
    arguments: tuple[str, ...]
    serve: ServeParams
    files: CoveredFiles

    @property
    def engine(self) -> Engine:
        """What serves it."""
        return ENGINES[self.serve.engine]

    @property
    def digest(self) -> str:
        """Tells servers of a run apart; specs that differ in their requests alone share one."""
        parts = (
            self.program, self.folder, self.arguments, self.serve.devices, self.files.fingerprint,
            os.uname().nodename,
        )  # fmt: skip
        return digest_json([str(part) for part in parts])[:16]

    def argv(self, port: int, key: str | None) -> list[str]:
        """The command that starts the server."""
        model = [*self.engine.model_flag, str(self.folder)]
        argv = [*self.program, *model, "--host", HOST, "--port", str(port)]
        if self.engine.lists_model:
            argv += ["--served-model-name", self.served_name]
        if key is not None and not self.engine.key_variable:
            argv += ["--api-key", key]
        return [*argv, *self.arguments]

    def environment(self, unleased: Mapping[str, str] | None) -> dict[str, str]:
        """The environment of the server: that of this process, and none of its keys.

        unleased: variables as they are without the lease of this process; None where it has none.
        Raises SpecError for too few devices.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if not is_secret_name(name)
            and not _CREDENTIALS.search(value)
            and name not in ("PYTHONPATH", "PYTHONHOME")  # of this interpreter, not of any other
        }
        # All that it reads is fingerprinted, so that it needs nothing from a network.
        environment |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "VLLM_NO_USAGE_STATS": "1"}
        unleased = dict(environment) if unleased is None else unleased
        named = [name for name in DEVICE_VARIABLES if name in environment or name in unleased]
        variable = named[0] if named else DEVICE_VARIABLES[0]
        needed = self.serve.tensor_parallel_size or 1

        def lacks_devices() -> bool:
            visible = environment.get(variable)
            return visible is not None and len(list(filter(None, visible.split(",")))) < needed

        restored = [THREADS]  # one server works for all
        if self.serve.devices is not None:
            environment[variable] = self.serve.devices
        elif lacks_devices():
            restored.append(variable)
        for name in restored:
            environment.pop(name, None)
            environment |= {name: unleased[name]} if name in unleased else {}
        if needed > 1 and lacks_devices():
            raise SpecError(
                f"{self.label} needs {needed} devices, and {variable} is {environment[variable]}: "
                "name more with devices=, or lower tensor_parallel_size"
            )
        return environment
