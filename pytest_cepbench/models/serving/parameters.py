"""The parameters of `serve:` specs: how a server is started and asked, and the engine's flags."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pytest_cepbench.files import parse_json
from pytest_cepbench.models.api.parameters import RequestLimits
from pytest_cepbench.models.spec import check_at_least

_LORA_NAME = re.compile(r"[A-Za-z0-9_.-]+")

_LIMIT = re.compile(r"[a-z_]+=[0-9]+")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_DEVICE = re.compile(r"[A-Za-z0-9./:_-]+")


@dataclass(frozen=True)
class ServeParams(RequestLimits):
    """How a server is started and how it is asked; of these only `engine_args` changes an answer.

    engine: vllm, sglang or transformers.
    python: interpreter of the environment that the engine is installed in; None looks for the
        engine beside this interpreter, then on PATH.
    port: auto for a free one, or its number.
    devices: what the server's CUDA_VISIBLE_DEVICES holds; None gives it the devices of the process
        that starts it, or all of the run's where it needs more.
    start_timeout: seconds that the server has until it answers.
    env: names of variables that the engine gets of the environment, joined by commas, in addition
        to those of the system, of devices and of engines.
    engine_args: further flags of the engine, as in a shell.
    revision: commit, tag or branch of a hub id.
    allow_pickle: whether pickled weights may be read where there are no others.
    trust_remote_code: whether the engine runs the checkpoint's Python files.
    Raises ValueError for a value outside its range.
    """

    engine: str = "vllm"
    python: str | None = None
    port: str = "auto"
    devices: str | None = None
    start_timeout: float = 900.0
    env: str = ""
    engine_args: str = ""
    revision: str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    timeout: float = 600.0
    patience: float = 900.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.port != "auto" and not (self.port.isdecimal() and 0 < int(self.port) < 65536):
            raise ValueError(f"port must be auto or a number from 1 to 65535, got {self.port!r}")
        if not 0 < self.start_timeout < float("inf"):
            raise ValueError(
                f"start_timeout must be a number of seconds above 0, got {self.start_timeout}"
            )
        if self.devices is not None and not all(map(_DEVICE.fullmatch, self.devices.split(","))):
            raise ValueError(
                f"devices must be numbers or names as in CUDA_VISIBLE_DEVICES, got {self.devices}"
            )
        if not all(map(_VARIABLE.fullmatch, self.variables)):
            # What is given may be a value, which is not repeated.
            raise ValueError("env must be names of variables of the environment, joined by commas")
        try:
            _ = self.further_arguments
        except ValueError as error:
            raise ValueError(
                f"engine_args cannot be read as a shell reads it ({error}): {self.engine_args}"
            ) from error

    @property
    def variables(self) -> tuple[str, ...]:
        """`env`, taken apart."""
        return tuple(filter(None, self.env.split(",")))

    @property
    def further_arguments(self) -> list[str]:
        """`engine_args`, taken apart. Raises ValueError for an open quote."""
        return shlex.split(self.engine_args)


def _flag(vllm: str = "", sglang: str = "", transformers: str = "", default: Any = None) -> Any:
    """A parameter, and the flag of each engine that knows it."""
    return field(
        default=default,
        metadata={"vllm": vllm, "sglang": sglang, "transformers": transformers},
    )


@dataclass(frozen=True)
class EngineParams:
    """Flags of engines under one name for all; None leaves a flag to the engine.

    max_model_len: most tokens of a question and its answer.
    limit_mm_per_prompt: most inputs of a kind in a question: image=10, or JSON.
    mm_processor_kwargs: JSON for the processor of images.
    quantization: as the engine names its methods.
    kv_cache_dtype: precision of the cache.
    attention_backend: kernels of the attention (vLLM and SGLang).
    attn_implementation: implementation of the attention (transformers).
    chat_template: file of a template in the place of the checkpoint's.
    lora_modules: adapters as NAME=FOLDER, several joined by commas.
    lora: name of the adapter that answers; None is the only one.
    max_lora_rank: largest rank of an adapter; None is read from the adapters.
    enforce_eager: whether CUDA graphs are left out.
    continuous_batching: whether requests are batched (transformers).
    compile: whether torch.compile is used (transformers).
    seed: of what is sampled without a seed.
    tensor_parallel_size, pipeline_parallel_size, data_parallel_size: devices are multiplied.
    gpu_memory_utilization: part of a device's memory, in (0, 1].
    max_num_seqs: most requests that are worked on at once.
    device: cpu, cuda, cuda:N, ... (transformers).
    Raises ValueError for a value outside its range.
    """

    max_model_len: int | None = _flag("--max-model-len", "--context-length")
    limit_mm_per_prompt: str | None = _flag("--limit-mm-per-prompt", "--limit-mm-data-per-request")
    mm_processor_kwargs: str | None = _flag("--mm-processor-kwargs")
    quantization: str | None = _flag("--quantization", "--quantization", "--quantization")
    kv_cache_dtype: str | None = _flag("--kv-cache-dtype", "--kv-cache-dtype")
    attention_backend: str | None = _flag("--attention-backend", "--attention-backend")
    attn_implementation: str | None = _flag(transformers="--attn-implementation")
    chat_template: str | None = _flag("--chat-template", "--chat-template")
    lora_modules: str | None = _flag("--lora-modules", "--lora-paths")
    lora: str | None = None
    max_lora_rank: int | None = _flag("--max-lora-rank", "--max-lora-rank")
    enforce_eager: bool = _flag("--enforce-eager", "--disable-cuda-graph", default=False)
    continuous_batching: bool = _flag(transformers="--continuous-batching", default=False)
    compile: bool = _flag(transformers="--compile", default=False)
    seed: int | None = _flag("--seed", "--random-seed", "--default-seed")
    tensor_parallel_size: int | None = _flag("--tensor-parallel-size", "--tp-size")
    pipeline_parallel_size: int | None = _flag("--pipeline-parallel-size", "--pp-size")
    data_parallel_size: int | None = _flag("--data-parallel-size", "--dp-size")
    gpu_memory_utilization: float | None = _flag(
        "--gpu-memory-utilization", "--mem-fraction-static"
    )
    max_num_seqs: int | None = _flag("--max-num-seqs", "--max-running-requests")
    device: str | None = _flag(transformers="--device")

    def __post_init__(self) -> None:
        check_at_least(
            self, 1, "max_model_len", "max_lora_rank", "tensor_parallel_size",
            "pipeline_parallel_size", "data_parallel_size", "max_num_seqs",
        )  # fmt: skip
        part = self.gpu_memory_utilization
        if part is not None and not 0 < part <= 1:
            raise ValueError(f"gpu_memory_utilization must be above 0 and at most 1, got {part}")
        _ = self.json_values, self.adapter
        if self.chat_template is not None and not Path(self.chat_template).expanduser().is_file():
            raise ValueError(
                f"chat_template must be a file, which is fingerprinted; got {self.chat_template}"
            )

    @property
    def json_values(self) -> dict[str, str]:
        """The parameters that engines expect as JSON. Raises ValueError for what is none."""
        values = {}
        if self.limit_mm_per_prompt is not None:
            values["limit_mm_per_prompt"] = _limits(self.limit_mm_per_prompt)
        if self.mm_processor_kwargs is not None:
            values["mm_processor_kwargs"] = _object("mm_processor_kwargs", self.mm_processor_kwargs)
        return values

    @property
    def adapters(self) -> Mapping[str, Path]:
        """Name -> folder of each adapter. Raises ValueError for what is no NAME=FOLDER."""
        adapters: dict[str, Path] = {}
        for text in filter(None, (self.lora_modules or "").split(",")):
            name, equals, folder = text.partition("=")
            if not (equals and folder and _LORA_NAME.fullmatch(name)) or name in adapters:
                raise ValueError(
                    "lora_modules must be NAME=FOLDER, several joined by commas, each name once "
                    f"and of letters, digits, - . and _ only; got {self.lora_modules!r}"
                )
            adapters[name] = Path(folder).expanduser().absolute()
        return adapters

    @property
    def adapter(self) -> str | None:
        """Name of the adapter that answers. Raises ValueError where that is not clear."""
        names = list(self.adapters)
        if self.lora is not None and self.lora not in names:
            given = ", ".join(names) or "none"
            raise ValueError(f"lora must name one of lora_modules ({given}), got {self.lora!r}")
        if self.lora is None and len(names) > 1:
            raise ValueError(
                f"lora_modules are several: say which answers with lora=NAME ({', '.join(names)})"
            )
        return self.lora or (names[0] if names else None)

    @property
    def device_count(self) -> int:
        """Devices that the server needs, at least one."""
        sizes = (self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size)
        return math.prod(size or 1 for size in sizes)

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that differ from their defaults, those in JSON in its canonical form."""
        defaults = {field.name: field.default for field in fields(self)}
        values = vars(self) | self.json_values
        return {name: value for name, value in values.items() if value != defaults[name]}


def _limits(text: str) -> str:
    """`image=10,video=0`, or JSON, as JSON."""
    if text.lstrip().startswith("{"):
        return _object("limit_mm_per_prompt", text)
    pairs = text.split(",")
    if not all(map(_LIMIT.fullmatch, pairs)):
        raise ValueError(f"limit_mm_per_prompt must be as image=10,video=0, or JSON, got {text!r}")
    limits = {name: int(count) for name, _, count in (pair.partition("=") for pair in pairs)}
    return json.dumps(limits, sort_keys=True)


def _object(name: str, text: str) -> str:
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {text!r}")  # noqa: TRY004 - as for every other value of a spec
    return json.dumps(value, sort_keys=True)
