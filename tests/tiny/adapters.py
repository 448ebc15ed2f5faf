"""Tiny PEFT adapters with random weights, trained on nothing and saved as PEFT saves them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_cepbench.models.torch_runtime import dtype_option, quiet


def build_lora(folder: Path, base: Path, seed: int = 7, **options: Any) -> Path:
    """A LoRA of rank 4 for a describer's language model and vision tower.

    options: further ones of peft.LoraConfig.
    """
    from peft import LoraConfig

    targets = ["q_proj", "v_proj"]
    config = LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": targets, **options})
    return build_adapter(folder, base, config, seed)


def build_adapter(
    folder: Path,
    base: Path,
    config: Any,
    seed: int = 7,
    *,
    spread: float = 0.2,
    change: Callable[[Any], object] = lambda _: None,
    auto_class: str = "AutoModelForImageTextToText",
) -> Path:
    """An adapter of any type, whose tensors all differ from their start.

    spread: by how much; with 0 it is as PEFT begins it. change: of the base model, before the
    adapter is put on. auto_class: of transformers.
    """
    import transformers
    from peft import get_peft_model

    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, auto_class).from_pretrained(base)
        change(model)
        adapted = get_peft_model(model, config)
        torch.manual_seed(seed)
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data += spread * torch.randn_like(parameter)
        adapted.save_pretrained(folder)
    return folder


def merge(
    folder: Path,
    *adapters: Path,
    auto_class: str = "AutoModelForImageTextToText",
    dtype: str = "float32",
    **options: Any,
) -> Path:
    """The model that PEFT makes of adapters and their base, saved whole with the base's files.

    auto_class: of transformers. dtype: in which it is merged. options: of `add_weighted_adapter`,
    where there are several.
    """
    import transformers
    from peft import PeftConfig, PeftModel

    base = PeftConfig.from_pretrained(adapters[0]).base_model_name_or_path
    shutil.copytree(base, folder)
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, auto_class).from_pretrained(
            base, **dtype_option("transformers", dtype)
        )
        adapted = PeftModel.from_pretrained(model, adapters[0], adapter_name="0")
        names = [str(index) for index in range(len(adapters))]
        for name, adapter in zip(names[1:], adapters[1:], strict=True):
            adapted.load_adapter(adapter, name)
        if len(adapters) > 1:
            adapted.add_weighted_adapter(adapters=names, adapter_name="all", **options)
            adapted.set_adapter("all")
        adapted.merge_and_unload().save_pretrained(folder)
    return folder
