"""The engines that can serve a checkpoint: how each is found, started and asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import util
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import MissingDependencyError, SpecError, unknown_name
from pytest_cepbench.escapes import is_secret_name, mask_secrets, one_line
from pytest_cepbench.models.binding import CoveredFiles
from pytest_cepbench.models.devices import DEVICE_VARIABLES, THREADS
from pytest_cepbench.models.serving.parameters import EngineParams, ServeParams

HOST = "127.0.0.1"

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

_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")

_NOT_KEYED = (*_PARALLEL, "gpu_memory_utilization", "max_num_seqs", "device", "max_lora_rank")
"""Parameters that say where and how fast a model works, as `device` and `batch_size` elsewhere."""

_FINGERPRINTED = ("chat_template", "lora_modules", "lora")
"""Parameters whose files enter the fingerprint."""

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Largest ranks that vLLM can be started with."""

_SET_BY_THE_RUN = (
    "--model", "--model-path", "--force-model", "--host", "--port", "--uds", "--root-path",
    "--served-model-name", "--api-key", "--admin-api-key", "--config", "--headless",
    "--enable-lora", "--trust-remote-code", "--dtype", "--ssl-keyfile", "--ssl-certfile",
)  # fmt: skip

_OTHER_FILES = (
    "--tokenizer", "--tokenizer-path", "--tokenizer-revision", "--revision", "--code-revision",
    "--hf-config-path", "--load-format", "--download-dir", "--model-loader-extra-config",
    "--quantization-param-path", "--decision-config", "--middleware", "--tool-parser-plugin",
)  # fmt: skip
"""Flags that let an engine read other files than those of the fingerprint."""


@dataclass(frozen=True)
class Engine:
    """A program that serves a checkpoint by the API of OpenAI.

    name: as `engine=` has it, which is its Python package too.
    title: for people.
    module: run with `python -m`.
    install: command that installs it.
    subcommand: that follows the module and the console script.
    model_flag: before the folder of the checkpoint; empty where it stands alone.
    lists_model: whether its list of models has what it serves.
    key_variable: environment variable of its key; empty for --api-key, None where it has none.
    maps_files: whether a loaded model may go on reading its files.
    """

    name: str
    title: str
    module: str
    install: str
    subcommand: tuple[str, ...] = ()
    model_flag: tuple[str, ...] = ()
    lists_model: bool = True
    key_variable: str | None = None
    maps_files: bool = False

    @cached_property
    def flags(self) -> Mapping[str, str]:
        """Parameter -> flag, of the parameters that it knows."""
        known = ((each.name, each.metadata.get(self.name)) for each in fields(EngineParams))
        return {name: flag for name, flag in known if flag}

    def check(self, params: EngineParams) -> None:
        """Raise ValueError where a parameter is given that this engine does not know."""
        known = [*self.flags, *(["lora"] if "lora_modules" in self.flags else [])]
        for name in params.given:
            if name not in known:
                raise ValueError(unknown_name(f"parameter for {self.title}", name, known))

    def decisive(self, params: EngineParams) -> dict[str, object]:
        """The parameters that can change an answer and are in no file."""
        left_out = (*_NOT_KEYED, *_FINGERPRINTED)
        return {name: value for name, value in params.given.items() if name not in left_out}

    def arguments(self, params: EngineParams, ranks: Sequence[int] = ()) -> list[str]:
        """The flags of parameters. ranks: of the adapters."""
        arguments: list[str] = []
        for name, value in params.given.items():
            flag = self.flags.get(name)
            if flag is None:
                continue
            if name == "chat_template":
                arguments += [flag, str(Path(str(value)).expanduser().absolute())]
            elif name != "lora_modules":
                arguments += [flag] if value is True else [flag, str(value)]
            elif self.name != "vllm":
                adapters = [f"{adapter}={folder}" for adapter, folder in params.adapters.items()]
                arguments += ["--enable-lora", flag, *adapters]
            else:
                adapters = [
                    json.dumps({"name": adapter, "path": str(folder)})
                    for adapter, folder in params.adapters.items()
                ]
                arguments += ["--enable-lora", flag, *adapters]
                rank = max(ranks, default=0)
                if params.max_lora_rank is None and rank > 16:  # vLLM's limit where none is given
                    room = next((size for size in _LORA_RANKS if size >= rank), rank)
                    arguments += [self.flags["max_lora_rank"], str(room)]
        return arguments

    def model_name(self, served: str, adapter: str | None) -> str:
        """The name by which requests ask for an adapter, or for the checkpoint itself.

        served: the name of the checkpoint.
        """
        if adapter is None:
            return served
        return f"{served}:{adapter}" if self.name == "sglang" else adapter

    def check_further(self, arguments: Sequence[str]) -> None:
        """Raise ValueError where `engine_args` sets what the spec or the run has to set."""
        for argument in arguments:
            name, _, value = argument.partition("=")
            if name.startswith("--"):
                flag = name.replace("_", "-")
                # Engines also take the beginning of a flag for the flag.
                begun = [each for each, known in self.flags.items() if known.startswith(flag)]
                for parameter in [each for each in begun if self.flags[each] == flag] or begun:
                    raise ValueError(
                        f"engine_args: write {flag} as a parameter of the spec, {parameter}="
                    )
                if any(known.startswith(flag) for known in _SET_BY_THE_RUN):
                    raise ValueError(
                        f"engine_args: {flag} is set by the run, or by a parameter of the spec"
                    )
                if any(known.startswith(flag) for known in _OTHER_FILES):
                    raise ValueError(
                        f"engine_args: {flag} lets the engine read other files than those of the "
                        "checkpoint, which no fingerprint would cover"
                    )
            value = value if name.startswith("-") else argument
            # A number or a word may happen to be the name of a file here.
            if value.isalnum():
                continue
            with suppress(OSError, RuntimeError):  # too long for a name; no home of such a user
                if value and Path(value).expanduser().exists():
                    raise ValueError(
                        f"engine_args names {value}, a file that no fingerprint would cover"
                    )


ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="vllm",
            title="vLLM",
            module="vllm.entrypoints.cli.main",
            subcommand=("serve",),
            key_variable="VLLM_API_KEY",
            install="pip install vllm",
        ),
        Engine(
            name="sglang",
            title="SGLang",
            module="sglang.launch_server",
            model_flag=("--model-path",),
            key_variable="",
            install='pip install "sglang[all]"',
        ),
        Engine(
            name="transformers",
            title="transformers serve",
            module="transformers.cli.transformers",
            subcommand=("serve",),
            lists_model=False,  # it lists what the hub's cache has
            install='pip install "transformers[serving]"',
            maps_files=True,
        ),
    )
}


@dataclass(frozen=True)
class Program:
    """An engine as it is installed on this machine.

    argv: what it is started with, before the checkpoint and the flags.
    interpreter: of its environment; None where that is unknown.
    """

    argv: tuple[str, ...]
    interpreter: str | None


def find_program(engine: Engine, python: str | None) -> Program:
    """The installed engine: of the interpreter that was named, of this one, or of PATH.

    Raises SpecError for a name that is no interpreter, MissingDependencyError where there is no
    such engine.
    """
    if python is not None:
        interpreter = shutil.which(str(Path(python).expanduser()))
        if interpreter is None:
            raise SpecError(
                f"python={python}: no such program. Give the interpreter of an environment that "
                f"has {engine.title}, such as ~/{engine.name}/bin/python"
            )
        interpreter = str(Path(interpreter).absolute())
        return Program((interpreter, "-m", engine.module, *engine.subcommand), interpreter)
    if engine.name == "sglang" and util.find_spec("sglang") is not None:
        return Program((sys.executable, "-m", engine.module), sys.executable)
    beside = Path(sys.executable).with_name(engine.name)
    if os.access(beside, os.X_OK):
        return Program((str(beside), "serve"), sys.executable)
    script = shutil.which(engine.name)
    if script is None:
        raise MissingDependencyError(
            f"{engine.title} is neither beside {sys.executable} nor on PATH. Install it in an "
            f"environment of its own ({engine.install}) and name its interpreter: "
            f"python=~/{engine.name}/bin/python"
        )
    interpreter = None
    with suppress(OSError, UnicodeDecodeError), Path(script).open("rb") as stream:
        first = stream.readline(500).decode("utf-8")  # a console script names it there
        path = first.removeprefix("#!").strip()
        is_python = first.startswith("#!") and Path(path).name.startswith("python")
        interpreter = path if is_python and os.access(path, os.X_OK) else None
    return Program((script, "serve"), interpreter)


@dataclass(frozen=True)
class ServerPlan:
    """A server as a spec describes it, before it is started.

    label: of the model, for people ("serve:checkpoints/step-8000").
    engine, program: what serves it.
    folder: of the checkpoint.
    served_name: by which requests ask for it.
    arguments: flags of the engine.
    device_count: devices that it needs.
    serve: how it is started.
    files: that decide its answers.
    """

    label: str
    engine: Engine
    program: Program
    folder: Path
    served_name: str
    arguments: tuple[str, ...]
    device_count: int
    serve: ServeParams
    files: CoveredFiles

    @property
    def digest(self) -> str:
        """Tells servers of a run apart; specs that differ in their requests alone share one."""
        parts = (
            self.program.argv, self.folder, self.arguments, self.serve.variables,
            self.serve.devices, self.serve.port, self.files.fingerprint, os.uname().nodename,
        )  # fmt: skip
        return digest_json([str(part) for part in parts])[:16]

    def argv(self, port: int, key: str | None) -> list[str]:
        """The command that starts the server."""
        model = [*self.engine.model_flag, str(self.folder)]
        argv = [*self.program.argv, *model, "--host", HOST, "--port", str(port)]
        if self.engine.lists_model:
            argv += ["--served-model-name", self.served_name]
        if key is not None and not self.engine.key_variable:
            argv += ["--api-key", key]
        return [*argv, *self.arguments]

    def environment(self, unleased: Mapping[str, str] | None) -> dict[str, str]:
        """The environment of the server: what it needs of that of this process, and no key.

        unleased: variables as they are without the lease of this process; None where it has none.
        Raises SpecError for a variable that the spec names and that is not set, and for too few
        devices.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if _PASSED_ON.fullmatch(name)
            and not is_secret_name(name)
            and name not in ("PYTHONPATH", "PYTHONHOME")  # of this interpreter, not of any other
        }
        for name in self.serve.variables:
            if name not in os.environ:
                raise SpecError(
                    f"{self.label}: env= names {name}, which is not set in the environment"
                )
            environment[name] = os.environ[name]
        # All that it reads is fingerprinted, so that it needs nothing from a network.
        environment |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "VLLM_NO_USAGE_STATS": "1"}
        unleased = dict(environment) if unleased is None else unleased
        named = [name for name in DEVICE_VARIABLES if name in environment or name in unleased]
        variable = named[0] if named else DEVICE_VARIABLES[0]

        def lacks_devices() -> bool:
            visible = environment.get(variable)
            names = [] if visible is None else [name for name in visible.split(",") if name]
            return visible is not None and len(names) < self.device_count

        restored = [THREADS]  # one server works for all
        if self.serve.devices is not None:
            environment[variable] = self.serve.devices
        elif lacks_devices():
            restored.append(variable)
        for name in restored:
            environment.pop(name, None)
            environment |= {name: unleased[name]} if name in unleased else {}
        if self.device_count > 1 and lacks_devices():
            raise SpecError(
                f"{self.label} needs {self.device_count} devices, and {variable} is "
                f"{environment[variable]}: name more with devices=, or lower "
                "tensor_parallel_size, pipeline_parallel_size or data_parallel_size"
            )
        return environment

    def engine_version(self, environment: Mapping[str, str], place: Path) -> str:
        """The version of the engine, of its own environment; empty where that is unknown.

        place: a folder without any module.
        Raises MissingDependencyError where the engine is not there.
        """
        interpreter = self.program.interpreter
        if interpreter is None:
            return ""
        try:
            done = subprocess.run(  # noqa: S603 - the interpreter that the user named
                [interpreter, "-c", _PRINT_VERSION, self.engine.name],
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
                f"{self.label}: {interpreter} has no {self.engine.title}: {interpreter} -m "
                f"{self.engine.install}"
            )
        return one_line(mask_secrets(done.stdout)) if done.returncode == 0 else ""
