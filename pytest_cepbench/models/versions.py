"""Differences between releases of the libraries that run models.

Each entry names the release that made it necessary, and goes when that is the oldest supported one.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from packaging.version import Version

from pytest_cepbench.errors import MissingDependencyError


def has(library: str, version: str) -> bool:
    """Whether a distribution is installed in this version or a later one."""
    return Version(metadata.version(library)) >= Version(version)


def need(what: str, library: str, version: str) -> None:
    """Raise MissingDependencyError where what a spec asks for needs a later version."""
    if not has(library, version):
        raise MissingDependencyError(
            f"{what} needs {library} >= {version}, and {metadata.version(library)} is installed"
        )


def backend_option(name: str) -> dict[str, Any]:
    """One of `IMAGE_BACKENDS` as AutoImageProcessor's option, which transformers 5.4 renamed."""
    return {"backend": name} if has("transformers", "5.4") else {"use_fast": name == "torchvision"}


def dtype_option(module: str, dtype: Any) -> dict[str, Any]:
    """Torch's dtype as the option of from_pretrained: transformers 4.56 and diffusers 0.40 renamed
    torch_dtype.

    module: of the class that is loaded.
    """
    library = "diffusers" if module.startswith("diffusers") else "transformers"
    renamed = has(library, {"transformers": "4.56", "diffusers": "0.40"}[library])
    return {"dtype" if renamed else "torch_dtype": dtype}
