"""Weights that lie elsewhere or otherwise than a plain model's: divided, offloaded, quantized.

Models of transformers are spread over devices, host memory and disk by accelerate. Weights that lie
elsewhere than where they work are brought in by its hooks, layer by layer. Here they are made
independent of the checkpoint's files, and handed out to be checked: a parameter that was offloaded
is an empty shell on the device `meta`.

transformers reads the `quantization_config` of a checkpoint and loads its weights as they are
stored. What it needs for that is known before torch is imported.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_cepbench.errors import (
    CheckpointError,
    DeviceMemoryError,
    MissingDependencyError,
    ModelError,
)
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.parameters import (
    OFFLOADS,
    TransformersParams,
    parse_max_memory,
)
from pytest_cepbench.models.devices import free_memory
from pytest_cepbench.models.torch_runtime import own_memory

if TYPE_CHECKING:
    import torch


_HOST_SHARE = 0.9  # of free host memory: loading takes some beside the weights


@contextmanager
def divided(
    params: TransformersParams, device: str, checkpoint: Checkpoint
) -> Iterator[tuple[dict[str, Any], Callable[[Any], None]]]:
    """The options of from_pretrained with which transformers divides a model, none without a map,
    and what checks the loaded one.

    That raises DeviceMemoryError where parts lie in host memory or on disk that may not lie there:
    such a model works, many times slower than anyone expects who did not ask for it.

    device: where it works. The folder for the parts on disk is made here, removed if what the block
    does raises, and left to a model that was checked. Raises ModelError for limits of devices that
    are not there.
    """
    if params.device_map is None:
        yield {}, lambda _: None
        return
    limits: dict[int | str, int] | None = None  # None leaves it to transformers: what is free
    if params.max_memory is not None:
        limits = parse_max_memory(params.max_memory)
        if device == "cpu" and limits.keys() - {"cpu"}:
            raise ModelError(
                f"max_memory {params.max_memory!r} names a device, and the model runs on the cpu"
            )
    elif device == "cpu" and (memory := free_memory()) is not None:
        limits = {"cpu": int(_HOST_SHARE * memory)}  # accelerators there may be are not asked for
    folder = tempfile.mkdtemp(prefix="cepbench-offload-", dir=params.offload_folder)

    def check_division(model: Any) -> None:
        allowed = set() if params.offload is None else {"cpu", params.offload}
        if device == "cpu" or "cpu" in (limits or {}):
            allowed.add("cpu")
        outside = ({str(place) for place in places(model)} & set(OFFLOADS)) - allowed
        if not outside:
            weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
            return
        place = "disk" if "disk" in outside else "cpu"
        where = {"cpu": "in host memory", "disk": "on disk"}[place]
        raise DeviceMemoryError(
            f"{checkpoint.path}: {checkpoint.what} has no room on the devices that this process "
            f"sees: parts of it would lie {where}. Give it more devices (--cep-devices-per-worker) "
            f"or a smaller dtype, or allow it with offload={place}, which is many times slower"
        )

    try:
        yield (
            {"device_map": params.device_map, "max_memory": limits, "offload_folder": folder},
            check_division,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def places(model: Any) -> list[Any]:
    """Where the parts of a transformers model lie: devices as torch names or numbers them, "cpu"
    and "disk".
    """
    divided = getattr(model, "hf_device_map", None)
    return list(divided.values()) if divided else [model.device]


def input_device(model: Any) -> torch.device:
    """Where the inputs of a transformers model go: of a divided one, the first of its devices."""
    import torch

    devices = [torch.device(place) for place in places(model) if str(place) not in OFFLOADS]
    return min(devices, key=lambda device: device.index or 0, default=torch.device("cpu"))


# -- offloaded weights -----------------------------------------------------------------------------


def offloaded_weight(model: Any, name: str) -> torch.Tensor | None:
    """The value of a parameter or buffer that was offloaded; None for one that was not.

    name: as `named_parameters` and `named_buffers` give it.
    """
    steps = name.split(".")
    for depth in reversed(range(len(steps))):
        owner, rest = ".".join(steps[:depth]), ".".join(steps[depth:])
        for weights in _weights_of(model.get_submodule(owner)):
            try:
                tensor: torch.Tensor = weights[rest]
            except KeyError:
                continue
            return tensor
    return None


def own_offloaded_weights(model: Any) -> None:
    """Make the offloaded weights of a model independent of the checkpoint's files.

    Those in host memory may be a mapped file, and those on disk are read from the checkpoint itself
    at every call: a trainer that writes there would change the model between two answers. Those on
    disk are copied to the model's own folder.
    """
    sources: dict[int, Any] = {}
    for module in model.modules():
        for weights in _weights_of(module):
            source = getattr(weights, "dataset", weights)
            sources[id(source)] = source
    for source in sources.values():
        held = getattr(source, "state_dict", source)  # of a loader of both, or by itself
        for name, tensor in held.items():
            held[name] = own_memory(tensor)
        if index := getattr(source, "index", None):
            _copy_to_folder(index, Path(source.save_folder))


def _weights_of(module: Any) -> Iterator[Mapping[str, torch.Tensor]]:
    """The weights that accelerate's hooks of a module bring to its device, by their names in it."""
    hook = getattr(module, "_hf_hook", None)
    for part in getattr(hook, "hooks", (hook,)):  # several in a row are one
        weights = getattr(part, "weights_map", None)
        if weights is not None and getattr(part, "offload", False):
            yield weights


def _copy_to_folder(index: Mapping[str, dict[str, str]], folder: Path) -> None:
    """Have an index of offloaded tensors name copies in a folder. Tied tensors share an entry."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    entries = {id(entry): entry for entry in index.values() if "safetensors_file" in entry}
    for number, entry in enumerate(entries.values()):
        name = entry["weight_name"]
        with safe_open(entry["safetensors_file"], framework="pt", device="cpu") as file:
            tensor = file.get_tensor(name)
        copy = folder / f"{number}.safetensors"
        save_file({name: tensor.contiguous()}, copy)
        entry["safetensors_file"] = str(copy)


_PACKAGES: dict[str, tuple[str, ...]] = {
    "aqlm": ("accelerate", "aqlm"),
    "auto-round": ("auto_round",),
    "awq": ("accelerate", "gptqmodel"),
    "bitnet": ("accelerate",),
    "bitsandbytes": ("accelerate", "bitsandbytes"),
    "compressed-tensors": ("compressed_tensors",),
    "eetq": ("accelerate", "kernels"),
    "fbgemm_fp8": ("accelerate", "fbgemm_gpu"),
    "fp8": ("accelerate",),
    "gptq": ("optimum", "gptqmodel"),
    "higgs": ("accelerate", "flute"),
    "hqq": ("accelerate", "hqq"),
    "modelopt": ("accelerate", "modelopt"),
    "mxfp4": ("accelerate",),
    "quanto": ("accelerate", "optimum.quanto"),
    "quark": ("quark",),
    "spqr": ("accelerate", "spqr_quant"),
    "torchao": ("torchao",),
    "vptq": ("accelerate", "vptq"),
}
"""The packages, as they are imported, by the `quant_method` of a configuration."""

_DISTRIBUTIONS = {
    "auto_round": "auto-round",
    "compressed_tensors": "compressed-tensors",
    "fbgemm_gpu": "fbgemm-gpu-genai",
    "flute": "flute-kernel",
    "modelopt": "nvidia-modelopt",
    "optimum.quanto": "optimum-quanto",
    "quark": "amd-quark",
}
"""Those whose name at the package index is another one."""

_ACCELERATOR_ONLY = ("eetq", "fbgemm_fp8", "fp_quant", "higgs", "nvfp4", "spqr", "vptq")


def quantization_method(checkpoint: Checkpoint) -> str | None:
    """The method by which the weights of a transformers checkpoint are quantized; None for others.

    Raises CheckpointError for a `quantization_config` that names none.
    """
    stated = checkpoint.quantization
    if not stated:
        return None
    method = stated.get("quant_method") if isinstance(stated, dict) else None
    # The first versions of bitsandbytes' support wrote no method.
    if method is None and isinstance(stated, dict):
        method = "bitsandbytes" if {"load_in_8bit", "load_in_4bit"} & stated.keys() else None
    if not isinstance(method, str):
        raise CheckpointError(
            f"{checkpoint.path / 'config.json'}: a quantization_config without quant_method, so "
            "nothing says how its weights are read"
        )
    return method


def require_quantization(checkpoint: Checkpoint, device: str) -> None:
    """Check, without importing, that a checkpoint's quantized weights can be read and used.

    device: where it will run. Raises MissingDependencyError naming the packages that are not
    installed, CheckpointError for a method that has no code for a CPU.
    """
    method = quantization_method(checkpoint)
    if method is None:
        return
    require_packages(checkpoint.path, "its weights are", method)
    if device == "cpu" and method in _ACCELERATOR_ONLY:
        refuse_cpu(checkpoint.path, "its weights are", method)


def require_packages(place: Path, what: str, method: str) -> None:
    """Check, without importing, that what a method of quantization needs is installed.

    place: of the weights. what: they are, for people: "the unet is". Raises MissingDependencyError.
    """
    missing = []
    for name in _PACKAGES.get(method, ()):
        try:
            found = util.find_spec(name) is not None
        except ModuleNotFoundError:  # the package around it is not
            found = False
        missing += [] if found else [name]
    if missing:
        names = " ".join(_DISTRIBUTIONS.get(name, name) for name in missing)
        raise MissingDependencyError(
            f"{place}: {what} quantized by {method}, which needs {', '.join(missing)}, not "
            f"installed: pip install {names}"
        )


def refuse_cpu(place: Path, what: str, method: str) -> NoReturn:
    """Raise CheckpointError for a method that has no code for a CPU; as `require_packages`."""
    raise CheckpointError(
        f"{place}: {what} quantized by {method}, which runs on an accelerator only, and device is "
        "cpu. Gate it where there is one, or gate the weights before they were quantized"
    )
