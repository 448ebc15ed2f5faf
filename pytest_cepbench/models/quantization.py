"""Quantized checkpoints: by which method, which packages that needs, and where it runs.

transformers reads the `quantization_config` of a checkpoint and loads its weights as they are
stored. What it needs for that is known before torch is imported.
"""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import NoReturn

from pytest_cepbench.errors import CheckpointError, MissingDependencyError
from pytest_cepbench.models.checkpoints import Checkpoint

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
    missing = [name for name in _PACKAGES.get(method, ()) if not _is_installed(name)]
    if missing:
        names = " ".join(_DISTRIBUTIONS.get(name, name) for name in missing)
        raise MissingDependencyError(
            f"{place}: {what} quantized by {method}, which needs {', '.join(missing)}, not "
            f"installed: pip install {names}"
        )


def _is_installed(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it is not
        return False


def refuse_cpu(place: Path, what: str, method: str) -> NoReturn:
    """Raise CheckpointError for a method that has no code for a CPU; as `require_packages`."""
    raise CheckpointError(
        f"{place}: {what} quantized by {method}, which runs on an accelerator only, and device is "
        "cpu. Gate it where there is one, or gate the weights before they were quantized"
    )
