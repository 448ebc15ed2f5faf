"""What adapters need of torch and its libraries: device, precision, threads, memory, silence.

Functions that run at binding do not import torch; only those for loaded models do. At the end are
the differences between releases of the libraries: each names the release that made it necessary,
and goes when that is the oldest supported one.
"""

from __future__ import annotations

import gc
import logging
import re
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata, util
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from packaging.version import Version

from pytest_cepbench.errors import MissingDependencyError, ModelError
from pytest_cepbench.models.devices import visible_devices

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16")

_LOUD_LOGGERS = tuple(
    logging.getLogger(name)
    for name in ("accelerate", "bitsandbytes", "torchao", "torch.utils._pytree")
)
"""Of libraries that transformers calls for models that are divided or quantized, and of what torch
says to torchao when it is imported."""

_DEVICE = re.compile(r"cpu|cuda(:\d+)?|mps")
_LIBRARIES = (
    "torch",
    "torchvision",
    "transformers",
    "diffusers",
    "open_clip_torch",
    "timm",
    "sentence-transformers",
    "clean-fid",
)


def require(*packages: str) -> None:
    """Check, without importing, that packages can be imported.

    Raises MissingDependencyError naming those that are not installed and how to get them.
    """
    missing = [package for package in packages if util.find_spec(package) is None]
    if missing:
        raise MissingDependencyError(
            f"this model needs {', '.join(missing)}, which is not installed: "
            f'pip install "pytest-cepbench[models]"'
        )


def resolve_device(name: str) -> str:
    """The device that a spec's `device` means: "auto" is cuda where one is visible, else cpu.

    Raises ValueError for a name that is none of auto, cpu, cuda, cuda:N, mps.
    """
    if name == "auto":
        return "cuda" if visible_devices() else "cpu"
    if not _DEVICE.fullmatch(name):
        raise ValueError(f"device must be auto, cpu, cuda, cuda:N or mps, got {name!r}")
    return name


def resolve_dtype(name: str, device: str, config: Mapping[str, Any]) -> str:
    """The precision that a spec's `dtype` means on a device: one of `DTYPES`.

    "auto" is float32 on the CPU, where half precision is slow and rounds differently from machine
    to machine, and the checkpoint's own precision (`dtype` or `torch_dtype` of its config, float32
    where it says nothing) on an accelerator. Raises ValueError for any other name.
    """
    if name == "auto":
        stored = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        stored = stored.removeprefix("torch.")
        return stored if device != "cpu" and stored in DTYPES else "float32"
    if name not in DTYPES:
        raise ValueError(f"dtype must be auto, {', '.join(DTYPES)}, got {name!r}")
    return name


def to_torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of one of `DTYPES`."""
    import torch

    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[name]


def check_device(device: str) -> None:
    """Raise ModelError when torch cannot use the device here."""
    import torch

    kind, _, index = device.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ModelError(
                f"device {device!r}: torch {torch.__version__} sees no accelerator. "
                "Give device=cpu, or install a torch build that fits the driver"
            )
        if index and int(index) >= torch.cuda.device_count():
            raise ModelError(
                f"device {device!r}: torch sees {torch.cuda.device_count()} device(s), from cuda:0"
            )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ModelError(
            f"device 'mps': torch {torch.__version__} cannot use it here. Give device=cpu"
        )


@contextmanager
def seeded(devices: Iterable[torch.device], seed: int) -> Iterator[None]:
    """Let torch's global generators start from a seed, and leave the caller's state as it was.

    devices: those of the model; the state of others is left alone, saving it would start a context
    on each.
    """
    import torch

    forked = [device for device in devices if device.type == "cuda"]
    with torch.random.fork_rng(devices=forked):
        torch.manual_seed(seed)
        yield


def is_out_of_memory(error: BaseException) -> bool:
    """True where a batch did not fit in memory, so that half of it might."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # The CPU allocator and several CUDA libraries raise a plain RuntimeError.
    text = str(error).lower()
    words = ("out of memory", "can't allocate memory", "cublas_status_alloc_failed")
    return isinstance(error, RuntimeError) and any(word in text for word in words)


def release_memory() -> None:
    """Give an accelerator's memory back that is free but kept, so that a smaller batch finds it in
    one piece.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        gc.collect()  # unloaded models refer to themselves
        torch.cuda.empty_cache()


class DeviceMemory:
    """The memory of a CUDA device where a model is: whether a larger batch would fit."""

    _SPARE = 0.9  # of what torch can get: fragments and other libraries take the rest

    def __init__(self, device: str) -> None:
        self._device = device
        self._before = 0

    def watch(self) -> None:
        """A batch begins."""
        import torch

        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)

    def fits_twice(self) -> bool:
        """True where twice the memory of the last batch is available beside the model's."""
        import torch

        peak = torch.cuda.max_memory_allocated(self._device)
        free, _ = torch.cuda.mem_get_info(self._device)
        reachable = free + torch.cuda.memory_reserved(self._device)
        return bool(peak + (peak - self._before) <= self._SPARE * reachable)


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where its memory is not torch's own: mostly a mapped file."""
    plain = plain_tensors([("", tensor)])
    if tensor.device.type != "cpu" or all(t.untyped_storage().resizable() for _, t in plain):
        return tensor
    return tensor.clone()


def plain_tensors(listed: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors, with those in the place of one of which it is made.

    Quantized weights are whole numbers and their scales, a DTensor is a shard and its mesh.
    """
    import torch

    for name, tensor in listed:
        flatten = getattr(tensor, "__tensor_flatten__", None)
        inner = {} if flatten is None else {part: getattr(tensor, part) for part in flatten()[0]}
        tensors = {part: held for part, held in inner.items() if isinstance(held, torch.Tensor)}
        if tensors:
            yield from plain_tensors((f"{name}.{part}", held) for part, held in tensors.items())
        else:
            yield name, tensor


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that run models, by distribution name; imports none."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


# -- silence ---------------------------------------------------------------------------------------


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, log lines below errors and warnings of transformers and diffusers.

    Reaches the libraries imported before it is entered. Python warnings are silenced too: a test
    run with `-W error` must not fail because a model's library deprecates something of its own.
    """
    with ExitStack() as stack, warnings.catch_warnings(action="ignore"):
        libraries = [name for name in ("transformers", "diffusers") if name in sys.modules]
        loggers = [*map(logging.getLogger, libraries), *_LOUD_LOGGERS]
        stack.callback(set_levels, loggers, [logger.level for logger in loggers])
        set_levels(loggers, [logging.ERROR] * len(loggers))
        for library in libraries:
            settings: Any = __import__(f"{library}.utils.logging", fromlist=["logging"])
            if settings.is_progress_bar_enabled():
                stack.callback(settings.enable_progress_bar)
                settings.disable_progress_bar()
        yield


def set_levels(loggers: Sequence[logging.Logger], levels: Sequence[int]) -> None:
    """Set the level of each logger."""
    for logger, level in zip(loggers, levels, strict=True):
        logger.level = level
    # setLevel also clears what every logger of the process remembers of levels: all share one
    # manager, which walks through hundreds of them for it. So one call does for all of these.
    loggers[-1].setLevel(levels[-1])


T = TypeVar("T")


def by_kind(kinds: Sequence[Hashable], answer: Callable[[Sequence[int]], Sequence[T]]) -> list[T]:
    """The results of `answer` in order, which is called with the indices of one kind at a time."""
    groups: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(index)
    results: dict[int, T] = {}
    for indices in groups.values():
        results.update(zip(indices, answer(indices), strict=True))
    return [results[index] for index in range(len(kinds))]


def has(library: str, version: str) -> bool:
    """Whether a distribution is installed in this version or a later one."""
    return Version(metadata.version(library)) >= Version(version)


def need(what: str, library: str, version: str) -> None:
    """Raise MissingDependencyError where what a spec asks for needs a later version."""
    if not has(library, version):
        raise MissingDependencyError(
            f"{what} needs {library} >= {version}, and {metadata.version(library)} is installed"
        )


def check_configuration_names(config: Mapping[str, Any]) -> None:
    """Raise MissingDependencyError for a configuration of which the installed transformers would
    pass over a part: until 5.0 rope_parameters is unknown, and positions turn as by default.
    """
    if "rope_parameters" in config:
        need("rope_parameters in config.json", "transformers", "5.0")
    for part in config.values():
        if isinstance(part, dict):
            check_configuration_names(part)


def generate_options(model: Any) -> dict[str, Any]:
    """Options of `generate` by which our settings are all that counts: from 4.50 until 5.0 those of
    the checkpoint take the place of each of ours that is as by default.
    """
    known = "use_model_defaults" in signature(model.generate).parameters
    return {"use_model_defaults": False} if known else {}


def backend_option(name: str) -> dict[str, Any]:
    """The backend pil or torchvision as AutoImageProcessor's option, renamed in 5.4."""
    return {"backend": name} if has("transformers", "5.4") else {"use_fast": name == "torchvision"}


def dtype_option(module: str, dtype: Any) -> dict[str, Any]:
    """Torch's dtype as the option of from_pretrained: transformers 4.56 and diffusers 0.40 renamed
    torch_dtype.

    module: of the class that is loaded.
    """
    library = "diffusers" if module.startswith("diffusers") else "transformers"
    renamed = has(library, {"transformers": "4.56", "diffusers": "0.40"}[library])
    return {"dtype" if renamed else "torch_dtype": dtype}


def undistributed(call: Any) -> dict[str, Any]:
    """The option by which torch's distributed checkpoints are read in one process of many.

    torch 2.6 has none; there it depends on whether a process group is set up.
    """
    return {"no_dist": True} if "no_dist" in signature(call).parameters else {}


def device_name(device: str) -> str:
    """The name of an accelerator for people: "cpu", "mps", the product, or "cuda" where unknown.

    device: cpu, mps, cuda or cuda:N, as torch counts.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return kind
    visible = visible_devices()
    position = int(index or 0)
    return visible[position].name if position < len(visible) else kind
