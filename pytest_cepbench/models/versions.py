"""Differences between releases of the libraries that run models.

Each entry names the release that made it necessary, and goes when that is the oldest supported one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from inspect import signature
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


def undistributed(call: Any) -> dict[str, Any]:
    """The option by which torch's distributed checkpoints are read in one process of many.

    torch 2.6 has none; there it depends on whether a process group is set up.
    """
    return {"no_dist": True} if "no_dist" in signature(call).parameters else {}


def adapter_names(adapted: Any, name: str, tensors: dict[str, Any]) -> Mapping[str, Any]:
    """An adapter's tensors under the names that the base's modules have today.

    Architectures were renamed inside of transformers 5; PEFT 0.19 follows for files from before.
    """
    if find_spec("peft.utils.transformers_weight_conversion") is None:
        return tensors
    from peft.utils.transformers_weight_conversion import (
        convert_peft_adapter_state_dict_for_transformers,
    )

    converted: Mapping[str, Any] = convert_peft_adapter_state_dict_for_transformers(
        model=adapted,
        peft_config=adapted.peft_config[name],
        adapter_state_dict=tensors,
        adapter_name=name,
    )
    return converted


def sentence_lengths(model: Any, texts: list[str], prompt: str) -> list[int]:
    """Tokens of each text after the prompt, uncut, for which sentence-transformers 6 has a call."""
    if not hasattr(model[0], "preprocess"):
        whole = model.tokenizer([prompt + text.strip() for text in texts], truncation=False)
        return [len(tokens) for tokens in whole["input_ids"]]
    options = {"text": {"truncation": False}}
    whole = model[0].preprocess(texts, prompt=prompt or None, processing_kwargs=options)
    lengths: list[int] = whole["attention_mask"].sum(dim=1).tolist()
    return lengths
