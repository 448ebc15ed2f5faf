"""Pipelines whose parts lie in several places, brought together for diffusers to load."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, RoleError, error_line, few_of
from pytest_cepbench.models.checkpoints import Checkpoint, component_names
from pytest_cepbench.models.checkpoints.checkpoint_files import tensor_shapes
from pytest_cepbench.models.checkpoints.checkpoint_parts import CheckpointPart
from pytest_cepbench.models.checkpoints.pipeline_parts import SINGLE_FILE
from pytest_cepbench.models.checkpoints.preparation_files import linked_folder
from pytest_cepbench.models.checkpoints.single_files import TEXT_ENCODERS
from pytest_cepbench.models.checkpoints.wrapped_names import unwrapped_file
from pytest_cepbench.models.safe_loading import refuse_missing
from pytest_cepbench.models.torch_runtime import is_out_of_memory
from pytest_cepbench.models.versions import dtype_option


@contextmanager
def assembled(checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """The checkpoint with components of other folders in the places of its own.

    Where there are any, its path is a folder of links, laid out as if the pipeline had been saved
    with them, until the end of the block. So they are loaded as a whole pipeline's are.
    """
    replaced = {part.component: part.path for part in checkpoint.parts if part.component}
    if not replaced:
        yield checkpoint
        return
    own = {entry.name: entry for entry in checkpoint.path.iterdir()}
    with linked_folder(own | replaced) as folder:
        yield replace(checkpoint, path=folder)


def load_component_files(checkpoint: Checkpoint, dtype: Any) -> dict[str, Any]:
    """The components of a pipeline that are given as files of weights, loaded, by name.

    dtype: torch's. Raises CheckpointError for one that lacks tensors, or whose class diffusers does
    not read from a file.
    """
    return {
        part.name: _load_component_file(checkpoint, part, dtype)
        for part in checkpoint.parts
        if part.name in part.supplies
    }


def _load_component_file(checkpoint: Checkpoint, part: CheckpointPart, dtype: Any) -> Any:
    component_class = _class_of(checkpoint, part.name)
    folder = checkpoint.path / part.name
    if not hasattr(component_class, "from_single_file"):
        raise CheckpointError(
            f"{part.path}: diffusers reads no {component_class.__name__} from a file of weights: "
            "give its folder, with config.json"
        )
    with _fitting(part.path, folder), unwrapped_file(part.path) as file:
        component = component_class.from_single_file(
            str(file),
            config=str(folder),
            local_files_only=True,
            **dtype_option("diffusers", dtype),
        )
    what = f"{component_class.__name__} (as {folder} has it)"
    _refuse_meta(replace(checkpoint, path=part.path, what=what), component)
    return component


def load_pipeline_class(
    auto: Any, diffusers: Any, checkpoint: Checkpoint, options: Mapping[str, Any]
) -> Any:
    """The pipeline of an auto class of diffusers where that knows one, else the one that was saved.

    options: of from_pretrained.
    """
    # Custom pipelines name [module, class], which the auto classes cannot look up.
    if isinstance(checkpoint.config.get("_class_name"), str):
        try:
            return auto.from_pretrained(checkpoint.path, **options)
        except ValueError as error:
            if "AutoPipeline" not in str(error):
                raise
    return diffusers.DiffusionPipeline.from_pretrained(checkpoint.path, **options)


def load_single_file(
    diffusers: Any, checkpoint: Checkpoint, file: Path, options: Mapping[str, Any]
) -> Any:
    """The pipeline of a single file, with the configuration of the checkpoint's own folder.

    Components that the file lacks, and those that the spec replaces, are read beside it. options:
    as of from_pretrained; the precision and components that are loaded already are passed on.
    Raises RoleError for a pipeline that diffusers does not read from one file, CheckpointError for
    a file of another family and where tensors lack.
    """
    name = checkpoint.config.get("_class_name")
    pipeline_class: Any = getattr(diffusers, name, None) if isinstance(name, str) else None
    if not hasattr(pipeline_class, "from_single_file"):
        raise RoleError(
            f"{file}: diffusers reads no {checkpoint.what} from a single file: give its folder"
        )
    dtype = options.get("dtype", options.get("torch_dtype"))
    names = component_names(checkpoint.config)
    supplied = {name for part in checkpoint.parts for name in part.supplies}
    supplied -= {part.component for part in checkpoint.parts}
    beside = {name: options[name] for name in names if options.get(name) is not None}
    beside |= {
        name: (component_class := _class_of(checkpoint, name)).from_pretrained(
            checkpoint.path / name,
            use_safetensors=options["use_safetensors"],
            **dtype_option(component_class.__module__, dtype),
        )
        for name in names
        if name not in supplied and (checkpoint.path / name / "config.json").is_file()
    }
    with _fitting(file, checkpoint.path), unwrapped_file(file) as own:
        pipeline = pipeline_class.from_single_file(
            str(own),
            config=str(checkpoint.path),
            local_files_only=True,
            **dtype_option("diffusers", dtype),
            **beside,
        )
    for name, component in pipeline.components.items():
        what = f"{name} (as {checkpoint.path} has it)"
        _refuse_meta(replace(checkpoint, path=file, what=what), component)
    _refuse_left_over_texts(checkpoint, file, pipeline)
    return pipeline


def _refuse_left_over_texts(checkpoint: Checkpoint, file: Path, pipeline: Any) -> None:
    """Raise CheckpointError where a file's text encoder has tensors that the loaded one lacks.

    Of denoiser and autoencoder diffusers logs those; of text encoders it takes what it finds.
    """
    if file.suffix != ".safetensors":
        return
    encoders = [part for name, part in pipeline.components.items() if "text_encoder" in name]
    known = {
        name.removeprefix("text_model.")
        for encoder in encoders
        if encoder is not None
        for name in encoder.state_dict()
    } | {"embeddings.position_ids", "text_projection.weight", "logit_scale"}
    left_over = [
        name
        for name in tensor_shapes(file)
        for prefix in TEXT_ENCODERS
        if name.startswith(prefix)
        and name.removeprefix(prefix).removeprefix("text_model.") not in known
    ]
    if left_over:
        raise CheckpointError(
            f"{file}: its text encoder has tensors that the configuration in {checkpoint.path} "
            f"does not know and would leave out: {few_of(left_over)}. Give a pipeline of the same "
            "family"
        )


def _class_of(checkpoint: Checkpoint, name: str) -> Any:
    """The class of a component, which the pipeline's index names."""
    library, class_name = checkpoint.config[name]
    return getattr(importlib.import_module(library), class_name)


@contextmanager
def _fitting(file: Path, folder: Path) -> Iterator[None]:
    """Explain what diffusers raises for a file that is not of a folder's configuration."""
    try:
        yield
    except (LookupError, ValueError, RuntimeError, AttributeError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        reason = error_line(error)
        if "meta tensor" in reason:  # what is left without values where the file has none
            reason = "tensors that it asks for are missing"
        raise CheckpointError(
            f"{file}: not the weights that the configuration in {folder} is for ({reason}). Give a "
            "pipeline of the same family"
        ) from error


def single_file(checkpoint: Checkpoint) -> Path | None:
    """The file that holds the weights of a whole pipeline, where one is given."""
    return next((part.path for part in checkpoint.parts if part.name == SINGLE_FILE), None)


def _refuse_meta(checkpoint: Checkpoint, component: Any) -> None:
    """Raise CheckpointError where a component has tensors that its file did not bring."""
    if hasattr(component, "named_parameters"):
        tensors = [*component.named_parameters(), *component.named_buffers()]
        refuse_missing(checkpoint, [name for name, tensor in tensors if tensor.is_meta])
