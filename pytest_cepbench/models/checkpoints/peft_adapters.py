"""PEFT adapters: found, checked, and put onto their base as PEFT does it.

PEFT logs which tensors of a file it had no place for, and fills those that the file lacks with its
own start values. Both would give the answers of another model, so here every tensor of the file has
to have its place, and every place its tensor.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, error_line, few_of
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    ADAPTER_CONFIG,
    check_safetensors,
    holds_adapter,
    refuse_ungathered,
    without_wrappers,
)
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.checkpoints.loaded_checks import embedded_tokens

if TYPE_CHECKING:
    import torch

ADAPTER_WEIGHTS, PICKLED_ADAPTER = "adapter_model.safetensors", "adapter_model.bin"

ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLED_ADAPTER)
"""The files that PEFT's save_pretrained writes."""

_NOT_APPLIED = (
    "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE",
    "ADAPTION_PROMPT", "POLY", "XLORA",
)  # fmt: skip
"""Types of PEFT whose models are asked in another way: by prompts, tasks or experts of a text."""


def read_adapter(folder: Path) -> dict[str, Any]:
    """The configuration of an adapter, its peft_type in capitals as PEFT has it.

    Raises CheckpointError for one that is no adapter's, that of a type which changes no weights or
    begins at random, and one that would have code of its own imported.
    """
    if not holds_adapter(folder):
        whole = " It holds a whole model" if (folder / "config.json").is_file() else ""
        raise CheckpointError(f"{folder}: no {ADAPTER_CONFIG}, so it is no PEFT adapter.{whole}")
    config = read_json(folder / ADAPTER_CONFIG)
    kind = config.get("peft_type")
    if not isinstance(kind, str) or not kind.isidentifier():
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: no peft_type, so nothing says what kind of adapter it is"
        )
    kind = config["peft_type"] = kind.upper()
    if kind in _NOT_APPLIED:
        raise CheckpointError(
            f"{folder}: a PEFT adapter of type {kind}, which is not applied: it puts prompts "
            "before a text or chooses among modules, and cannot be merged into weights"
        )
    if "_niter_" in (start := str(config.get("init_lora_weights"))):
        raise CheckpointError(
            f"{folder}: it began as {start}, a random approximation of its base, which PEFT takes "
            "out of the base when it loads it: another one each time. Save it as plain LoRA "
            "(path_initial_model_for_weight_conversion), or merge it where it was trained"
        )
    if config.get("megatron_config"):
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: megatron_config has a module imported by its name, which "
            "a configuration may not. Merge the adapter where it was trained"
        )
    return config


def check_adapter(folder: Path, *, allow_pickle: bool) -> None:
    """Raise CheckpointError where an adapter's weights are missing, pickled only or cut off."""
    if (folder / ADAPTER_WEIGHTS).is_file():
        check_safetensors(folder / ADAPTER_WEIGHTS)
    elif not (folder / PICKLED_ADAPTER).is_file():
        names = few_of((path.name for path in folder.iterdir() if path.is_file()), 12)
        raise CheckpointError(
            f"{folder}: a PEFT adapter without weights: expected {ADAPTER_WEIGHTS}, found {names}. "
            "Was it written completely?"
        )
    elif not allow_pickle:
        raise CheckpointError(
            f"{folder}: the adapter's weights are pickled only ({PICKLED_ADAPTER}), and unpickling "
            "can run code. Save them as safetensors, or add allow_pickle=true to the model's spec "
            "if you trust where they come from"
        )
    for name in ("non_lora_trainables.bin", "non_lora_state_dict.bin"):
        if (folder / name).is_file():
            raise CheckpointError(
                f"{folder}: {name} beside the adapter holds weights that its training code alone "
                "puts in place, and without them it is another model. Merge with that code, save "
                "the whole model and give its folder"
            )


def adapter_weights(folder: Path) -> Path:
    """The file that an adapter's weights are read from."""
    safe = folder / ADAPTER_WEIGHTS
    return safe if safe.is_file() else folder / PICKLED_ADAPTER


def adapter_files(folder: Path) -> list[str]:
    """The files that are read of an adapter's folder, as far as they are there.

    What is missing shows when it is checked: a list that cannot be made would hide the reason.
    """
    names = (ADAPTER_CONFIG, adapter_weights(folder).name)
    return sorted(name for name in names if (folder / name).is_file())


def apply_adapters(checkpoint: Checkpoint, model: Any) -> Any:
    """A loaded base with the adapters that a checkpoint has: merged, or at work beside its weights.

    The arithmetic is PEFT's: `merge_and_unload` in the precision that the base was loaded in, with
    the adapter's own tensors in at least float32. Several adapters add up, each times its factor:
    W + sum of factor * delta W, PEFT's combination "cat".

    Raises CheckpointError naming the tensors that do not fit, are missing or have no place.
    """
    from peft.tuners.lora import LoraLayer

    parts = checkpoint.adapters
    # Names that no layer has, and of which none begins another.
    names = [f"adapter{index:03}" for index in range(len(parts))]
    tensors = [read_tensors(adapter_weights(part.path)) for part in parts]
    if len(parts) > 1 or parts[0].settings.get("factor", 1.0) != 1:
        for part in parts:
            config = read_adapter(part.path)
            trained = config.get("modules_to_save") or config.get("trainable_token_indices")
            if config["peft_type"] != "LORA" or config.get("use_dora") or trained:
                raise CheckpointError(
                    f"{part.path}: several adapters are added up, which is right for LoRA alone: "
                    "this one is DoRA, of another type, or has trained more. Merge it into the base"
                )
    for part, state in zip(parts, tensors, strict=True):
        _resize_embeddings(part.path, model, state)
    adapted = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns of what is checked here
        for name, part, state in zip(names, parts, tensors, strict=True):
            adapted = _add(part.path, model, adapted, name)
            _fill(part.path, adapted, name, state)
            for layer in adapted.modules():
                if isinstance(layer, LoraLayer) and name in layer.scaling:
                    layer.scaling[name] *= part.settings.get("factor", 1.0)
        assert adapted is not None
        if parts[0].settings.get("merge", True):
            return adapted.merge_and_unload(adapter_names=names)
        adapted.base_model.set_adapter(names)
    # The layers of the adapter are in their places inside of the base, so that it can be used as
    # what it is, and not by the wrapper's own methods.
    return adapted.get_base_model().eval()


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of an adapter's file by their names, without running code.

    Raises CheckpointError for a file that holds none, and for weights that were not gathered.
    """
    import torch
    from safetensors.torch import load

    try:
        # Read whole, not mapped: what is not merged would otherwise stay in the trainer's file.
        if path.suffix == ".safetensors":
            state = load(path.read_bytes())
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # A damaged file makes these raise anything.
        raise CheckpointError(
            f"{path}: could not be read as an adapter's weights: {error_line(error)}"
        ) from error
    if not isinstance(state, dict) or not all(hasattr(value, "shape") for value in state.values()):
        raise CheckpointError(f"{path}: expected tensors by their names, as PEFT writes them")
    refuse_ungathered(path, [name for name, tensor in state.items() if tensor.shape == (0,)])
    return {without_wrappers(name): tensor for name, tensor in state.items()}


def _add(folder: Path, model: Any, adapted: Any, name: str) -> Any:
    """The base with the layers of one more adapter, not yet filled; adapted: with those before."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftModel, PeftType

    stored = read_adapter(folder)
    try:
        kind = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(stored["peft_type"])]
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: the installed PEFT knows no adapters of type {stored['peft_type']!r}"
        ) from error
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = [key for key, value in stored.items() if key not in known and value]
    if unknown:
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: the installed PEFT does not know {few_of(unknown)}, and "
            f"would leave it out. It was written by PEFT {stored.get('peft_version', '?')}: "
            "install that version or a later one"
        )
    try:
        stored.pop("runtime_config", None)  # PEFT leaves that of the training out, too
        config = kind.from_peft_type(**kind.check_kwargs(**stored))
        config.inference_mode = True
        if adapted is None:
            return PeftModel(model, config, adapter_name=name)
        adapted.add_adapter(name, config)
    except Exception as error:
        # PEFT checks a configuration as it goes, with errors of every type.
        raise _misfit(folder, model, error_line(error)) from error
    return adapted


def _fill(folder: Path, adapted: Any, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put an adapter's tensors into its layers; raises CheckpointError unless all fit exactly."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    needed = get_peft_model_state_dict(adapted, adapter_name=name, save_embedding_layers=False)
    try:
        result = set_peft_model_state_dict(adapted, dict(tensors), adapter_name=name)
    except (KeyError, RuntimeError, ValueError) as error:
        line = str(error).strip().splitlines()[-1].strip()  # of several, the last names a tensor
        raise _misfit(folder, adapted, line.replace(f".{name}", "")) from error
    if left := [key.replace(f".{name}", "") for key in result.unexpected_keys]:
        raise _misfit(folder, adapted, f"it has no place for {few_of(left)}")
    missing = [key.replace(f".{name}", "") for key in result.missing_keys if name in key]
    if missing or len(tensors) < len(needed):  # a bias is the base's own by its name
        raise CheckpointError(
            f"{folder}: {adapter_weights(folder).name} lacks tensors that {ADAPTER_CONFIG} "
            f"announces for this base: {few_of(missing) or 'some'}. Was it written completely, and "
            "on this base?"
        )


def _resize_embeddings(folder: Path, model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give the base the rows of an adapter that was trained with new tokens.

    Raises CheckpointError where the adapter's file has only one of two tables.
    """
    rows = embedded_tokens(model)
    if rows is None:
        return
    tables = {"input": model.get_input_embeddings(), "output": model.get_output_embeddings()}
    tables = {name: table for name, table in tables.items() if hasattr(table, "weight")}
    modules = {module: name for name, module in model.named_modules()}
    stored = {
        name: tensors[key].shape[0]
        for name, table in tables.items()
        for end in (".weight", ".base_layer.weight")
        if (key := f"base_model.model.{modules.get(table)}{end}") in tensors
    }
    new = next((count for count in stored.values() if count != rows), None)
    if new is None:
        return
    tied = len({id(table.weight) for table in tables.values()}) == 1
    lacking = [name for name in tables if name not in stored]
    if lacking and not tied:
        raise CheckpointError(
            f"{folder}: the adapter was trained with {new} tokens and its base has {rows}, and "
            f"the file has no {lacking[0]} embeddings, which would be random numbers. Save it "
            "with save_embedding_layers=True"
        )
    model.resize_token_embeddings(new, mean_resizing=False)


def _misfit(folder: Path, adapted: Any, what: str) -> CheckpointError:
    base = adapted.get_base_model() if hasattr(adapted, "get_base_model") else adapted
    mapping = read_adapter(folder).get("auto_mapping")
    trained = mapping.get("base_model_class") if isinstance(mapping, dict) else None
    return CheckpointError(
        f"{folder}: the adapter does not fit its base {type(base).__name__}: {what}. Give the base "
        f"that it was trained on (base=FOLDER{f', a {trained}' if trained else ''}), or merge it "
        "where it was trained (merge_and_unload), save the whole model and give its folder"
    )
