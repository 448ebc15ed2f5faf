"""The engines that can serve a checkpoint: how each is found, started and asked."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import MissingDependencyError, SpecError, unknown_name
from pytest_cepbench.models.binding import CoveredFiles
from pytest_cepbench.models.serving.parameters import EngineParams, ServeParams
from pytest_cepbench.models.serving.supervisor import HOST

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
    subcommand: that follows the module and the console script.
    model_flag: before the folder of the checkpoint; empty where it stands alone.
    flags: parameter -> flag; the parameters that it knows.
    lists_model: whether its list of models has what it serves.
    key_variable: environment variable of its key; empty for --api-key, None where it has none.
    install: command that installs it.
    maps_files: whether a loaded model may go on reading its files.
    """

    name: str
    title: str
    module: str
    subcommand: tuple[str, ...]
    model_flag: str
    flags: Mapping[str, str]
    lists_model: bool
    key_variable: str | None
    install: str
    maps_files: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that it knows."""
        loras = ("lora",) if "lora_modules" in self.flags else ()
        return (*self.flags, *loras)

    def check(self, params: EngineParams) -> None:
        """Raise ValueError where a parameter is given that this engine does not know."""
        for name in params.given:
            if name not in self.parameters:
                raise ValueError(unknown_name(f"parameter for {self.title}", name, self.parameters))

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


_SHARED = {
    "quantization": "--quantization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "attention_backend": "--attention-backend",
    "chat_template": "--chat-template",
    "max_lora_rank": "--max-lora-rank",
}

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            "vllm",
            "vLLM",
            "vllm.entrypoints.cli.main",
            ("serve",),
            "",
            {
                "max_model_len": "--max-model-len",
                "limit_mm_per_prompt": "--limit-mm-per-prompt",
                "mm_processor_kwargs": "--mm-processor-kwargs",
                **_SHARED,
                "lora_modules": "--lora-modules",
                "enforce_eager": "--enforce-eager",
                "seed": "--seed",
                "tensor_parallel_size": "--tensor-parallel-size",
                "pipeline_parallel_size": "--pipeline-parallel-size",
                "data_parallel_size": "--data-parallel-size",
                "gpu_memory_utilization": "--gpu-memory-utilization",
                "max_num_seqs": "--max-num-seqs",
            },
            lists_model=True,
            key_variable="VLLM_API_KEY",
            install="pip install vllm",
        ),
        Engine(
            "sglang",
            "SGLang",
            "sglang.launch_server",
            (),
            "--model-path",
            {
                "max_model_len": "--context-length",
                "limit_mm_per_prompt": "--limit-mm-data-per-request",
                **_SHARED,
                "lora_modules": "--lora-paths",
                "enforce_eager": "--disable-cuda-graph",
                "seed": "--random-seed",
                "tensor_parallel_size": "--tp-size",
                "pipeline_parallel_size": "--pp-size",
                "data_parallel_size": "--dp-size",
                "gpu_memory_utilization": "--mem-fraction-static",
                "max_num_seqs": "--max-running-requests",
            },
            lists_model=True,
            key_variable="",
            install='pip install "sglang[all]"',
        ),
        Engine(
            "transformers",
            "transformers serve",
            "transformers.cli.transformers",
            ("serve",),
            "",
            {
                "quantization": "--quantization",
                "attn_implementation": "--attn-implementation",
                "continuous_batching": "--continuous-batching",
                "compile": "--compile",
                "seed": "--default-seed",
                "device": "--device",
            },
            lists_model=False,  # it lists what the hub's cache has
            key_variable=None,
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
        model = [self.engine.model_flag] if self.engine.model_flag else []
        argv = [*self.program.argv, *model, str(self.folder), "--host", HOST, "--port", str(port)]
        if self.engine.lists_model:
            argv += ["--served-model-name", self.served_name]
        if key is not None and not self.engine.key_variable:
            argv += ["--api-key", key]
        return [*argv, *self.arguments]
