"""Pipelines whose parts lie in several places, brought together: components, single files, LoRA.

diffusers brings the tensors of a LoRA file into its own form, loads those that it knows and logs
the rest. A pipeline that took half of its LoRA draws well and is another model, so here every
tensor has to have a place of its shape, and has to be there afterwards.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, error_line, few_of
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, CheckpointPart
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    component_names,
    tensor_shapes,
    unwrapped_file,
)
from pytest_cepbench.models.checkpoints.pipeline_parts import SINGLE_FILE, TEXT_ENCODERS
from pytest_cepbench.models.torch_runtime import dtype_option, is_out_of_memory


def assemble(auto: Any, checkpoint: Checkpoint, options: dict[str, Any]) -> Any:
    """The pipeline of a checkpoint, with the components and the file that a spec puts in it.

    auto: class of diffusers that finds the class of the pipeline for a role. options: of
    from_pretrained. Raises CheckpointError for a file of another family and where tensors lack, or
    that diffusers does not read from one file.
    """
    import diffusers

    dtype = options.get("dtype", options.get("torch_dtype"))
    for part in checkpoint.parts:
        if part.name in part.supplies:
            folder, kind = checkpoint.path / part.name, _class_of(checkpoint, part.name)
            options |= {part.name: _from_file(kind, part.path, folder, dtype)}
    for part in checkpoint.named(SINGLE_FILE):
        kind = getattr(diffusers, checkpoint.what, None)
        pipeline = _load_single_file(kind, checkpoint, part, dtype, options)
        image = auto is diffusers.AutoPipelineForImage2Image
        return auto.from_pipe(pipeline) if image else pipeline
    # Custom pipelines name [module, class], which the auto classes cannot look up.
    if isinstance(checkpoint.config.get("_class_name"), str):
        try:
            return auto.from_pretrained(checkpoint.path, **options)
        except ValueError as error:
            if "AutoPipeline" not in str(error):
                raise
    return diffusers.DiffusionPipeline.from_pretrained(checkpoint.path, **options)


def _load_single_file(
    kind: Any, checkpoint: Checkpoint, file: CheckpointPart, dtype: Any, options: Mapping[str, Any]
) -> Any:
    """The pipeline of a file, what it lacks read from the folder of its configuration."""
    names = component_names(checkpoint.config)
    supplied = {name for part in checkpoint.parts for name in part.supplies}
    supplied -= {part.component for part in checkpoint.parts}
    beside = {name: options[name] for name in names if options.get(name) is not None}
    for name in names:
        if name not in supplied and (checkpoint.path / name / "config.json").is_file():
            own = _class_of(checkpoint, name)
            beside[name] = own.from_pretrained(
                checkpoint.path / name,
                use_safetensors=options["use_safetensors"],
                **dtype_option(own.__module__, dtype),
            )
    pipeline = _from_file(kind, file.path, checkpoint.path, dtype, **beside)
    # Of denoiser and autoencoder diffusers logs what it leaves out; of text encoders it does not.
    known = {"embeddings.position_ids", "text_projection.weight", "logit_scale"}
    for name, part in pipeline.components.items():
        if "text_encoder" in name and part is not None:
            known |= {tensor.removeprefix("text_model.") for tensor in part.state_dict()}
    stored = tensor_shapes(file.path) if file.path.suffix == ".safetensors" else ()
    left_over = [
        name
        for name in stored
        for prefix in TEXT_ENCODERS
        if name.startswith(prefix)
        and name.removeprefix(prefix).removeprefix("text_model.") not in known
    ]
    if left_over:
        raise CheckpointError(
            f"{file.path}: its text encoder has tensors that the configuration in "
            f"{checkpoint.path} does not know and would leave out: {few_of(left_over)}. Give a "
            "pipeline of the same family"
        )
    return pipeline


def _class_of(checkpoint: Checkpoint, name: str) -> Any:
    """The class of a component, which the pipeline's index names."""
    library, class_name = checkpoint.config[name]
    return getattr(importlib.import_module(library), class_name)


def _from_file(kind: Any, file: Path, folder: Path, dtype: Any, **beside: Any) -> Any:
    """What a class of diffusers makes of a file of weights and a folder's configuration."""
    if not hasattr(kind, "from_single_file"):
        name = getattr(kind, "__name__", "pipeline of this class")
        raise CheckpointError(f"{file}: diffusers reads no {name} from one file: give its folder")
    try:
        with unwrapped_file(file) as own:
            made = kind.from_single_file(
                str(own),
                config=str(folder),
                local_files_only=True,
                **dtype_option("diffusers", dtype),
                **beside,
            )
    except (LookupError, ValueError, RuntimeError, AttributeError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        raise CheckpointError(
            f"{file}: not the weights that the configuration in {folder} is for "
            f"({error_line(error)}). Give a pipeline of the same family"
        ) from error
    missing = [
        name
        for part in getattr(made, "components", {"": made}).values()
        if hasattr(part, "named_parameters")
        for name, tensor in (*part.named_parameters(), *part.named_buffers())
        if tensor.is_meta
    ]
    if missing:
        raise CheckpointError(
            f"{file}: tensors that the configuration in {folder} asks for are missing from it: "
            f"{few_of(missing)}. Give a pipeline of the same family"
        )
    return made


State = Mapping[str, Any]
"""Tensors of one component by name, in peft's form: LAYER.lora_A.weight and LAYER.lora_B.weight."""


def apply_loras(
    pipeline: Any, paths: Sequence[Path], scales: Sequence[float], *, fuse: bool
) -> None:
    """Apply files of LoRA weights to a pipeline, all at once.

    scales: the strength of each. fuse: add them to the pipeline's own weights, as in a pipeline
    that is saved with them; else they are computed beside these in every step.
    Raises CheckpointError, naming tensors, for weights of another pipeline.
    """
    if not hasattr(pipeline, "load_lora_weights"):
        raise CheckpointError(
            f"{paths[0]}: a {type(pipeline).__name__} takes no LoRA weights in diffusers"
        )
    names = [f"lora_{number}" for number in range(len(paths))]
    holders: dict[str, None] = {}
    for name, path in zip(names, paths, strict=True):
        try:
            with unwrapped_file(path) as file:
                components = _load(pipeline, name, file)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{path}: diffusers does not take these LoRA weights ({error_line(error)}). Were "
                "they trained on another base?"
            ) from error
        holders |= dict.fromkeys(components)
        for component in components if fuse else ():
            if getattr(getattr(pipeline, component), "hf_quantizer", None) is not None:
                raise CheckpointError(
                    f"{path}: its {component} is quantized, and rounded to so few bits the LoRA "
                    "would be another one: add fuse=false"
                )
    pipeline.set_adapters(names, list(scales))
    if fuse:
        pipeline.fuse_lora(components=list(holders), adapter_names=names)
        pipeline.unload_lora_weights()


def _load(pipeline: Any, name: str, path: Path) -> list[str]:
    """Load a file as the adapter of a name, and return the components that it is for.

    Raises CheckpointError where a loaded component lacks tensors of the file, or has others, where
    its own were changed, and where an alpha, which scales its layer, did not get to the layer.
    """
    states, alphas = _convert(pipeline, path)
    modules = {component: getattr(pipeline, component) for component in states}
    sizes = {component: _own_size(module) for component, module in modules.items()}
    pipeline.load_lora_weights(str(path), adapter_name=name)
    for component, state in states.items():
        # In peft's form without the adapter's name and without ".weight".
        loaded = {}
        for key, tensor in modules[component].named_parameters():
            layer, mark, rest = f"{key}.".partition(f".{name}.")
            if mark and ".lora_" in layer:
                end = rest.rstrip(".").removesuffix("weight")
                loaded[".".join(filter(None, (layer, end)))] = tensor.shape
        # DoRA's magnitudes are a layer of their own when loaded.
        given = {key.removesuffix(".weight"): tensor.shape for key, tensor in state.items()}
        lost = sorted({f"{component}.{key}" for key, _ in given.items() ^ loaded.items()})
        if lost:
            raise CheckpointError(
                f"{path}: diffusers left out tensors of the LoRA, or made some up: {few_of(lost)}. "
                "Trained on another base, or saved with names of several conventions?"
            )
        if _own_size(modules[component]) != sizes[component]:  # as it does for control LoRAs
            raise CheckpointError(
                f"{path}: diffusers widened layers of the {component} for these LoRA weights: they "
                "were trained on another base than this pipeline"
            )
    scaled = Counter(
        float(layer.lora_alpha[name])
        for module in modules.values()
        for layer in module.modules()
        if name in getattr(layer, "lora_alpha", {})
    )
    if missing := Counter(float(alpha) for alpha in alphas) - scaled:
        values = ", ".join(f"{value:g}" for value in sorted(missing))
        raise CheckpointError(
            f"{path}: diffusers did not take over the alpha {values} of {missing.total()} layers"
        )
    return list(states)


def _own_size(module: Any) -> int:
    """The numbers that a component's own tensors hold, without those of LoRA weights."""
    return sum(t.numel() for name, t in module.named_parameters() if ".lora_" not in name)


def _convert(pipeline: Any, path: Path) -> tuple[dict[str, State], Sequence[float]]:
    """The tensors of a file by component, as diffusers converts them, and the alphas beside them.

    Raises CheckpointError where a tensor is of no component, and where the conversion lost some.
    """
    from diffusers import ModelMixin
    from diffusers.utils import state_dict_utils

    parts = type(pipeline)._lora_loadable_modules  # noqa: SLF001 - its only list
    # Kohya's scripts number SDXL's blocks as the original code does: diffusers needs their count.
    original = {"unet", "text_encoder_2"} <= set(parts)
    sizes = {"unet_config": pipeline.unet.config} if original else {}
    converted = pipeline.lora_state_dict(str(path), **sizes)
    tensors, alphas = converted if isinstance(converted, tuple) else (converted, None)
    stored = [name for name in tensor_shapes(path) if not name.endswith(".alpha")]
    if len(tensors) < len(stored):
        raise CheckpointError(
            f"{path}: diffusers would take {len(tensors)} of its {len(stored)} tensors: its names "
            "are of several conventions, or of none that diffusers knows"
        )
    components = [part for part in parts if getattr(pipeline, part, None) is not None]
    states: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        component, _, rest = name.partition(".")
        if component not in components:
            raise CheckpointError(
                f"{path}: {name} is for a {component!r}, and a {type(pipeline).__name__} takes "
                f"LoRA weights for {' and '.join(components)} only: trained on another base?"
            )
        states.setdefault(component, {})[rest] = tensor
    peft: dict[str, State] = {}
    for name, state in states.items():
        if isinstance(getattr(pipeline, name), ModelMixin):
            peft[name] = state_dict_utils.convert_unet_state_dict_to_peft(dict(state))
            continue
        diffusers_form = state_dict_utils.convert_state_dict_to_diffusers(dict(state))
        converted = state_dict_utils.convert_state_dict_to_peft(diffusers_form)
        # Transformers' CLIPTextModel had one level more when older files were written.
        prefix = "" if hasattr(getattr(pipeline, name), "text_model") else "text_model."
        peft[name] = {key.removeprefix(prefix): tensor for key, tensor in converted.items()}
    return peft, list((alphas or {}).values())
