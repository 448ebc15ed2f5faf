"""Pipelines whose parts lie in several places, brought together for diffusers to load."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_parts import CheckpointPart
from pytest_cepbench.models.checkpoints.pipeline_parts import SINGLE_FILE
from pytest_cepbench.models.safe_loading import refuse_missing


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
    with tempfile.TemporaryDirectory(prefix="cepbench-pipeline-") as name:
        folder = Path(name)
        for entry in checkpoint.path.iterdir():
            if entry.name not in replaced:
                (folder / entry.name).symlink_to(entry)
        for component, path in replaced.items():
            (folder / component).symlink_to(path, target_is_directory=True)
        yield replace(checkpoint, path=folder)


def load_component_files(diffusers: Any, checkpoint: Checkpoint, dtype: Any) -> dict[str, Any]:
    """The components of a pipeline that are given as files of weights, loaded, by name.

    dtype: torch's. Raises CheckpointError for one that lacks tensors, or whose class diffusers does
    not read from a file.
    """
    return {
        part.name: _load_component_file(diffusers, checkpoint, part, dtype)
        for part in checkpoint.parts
        if part.name in part.supplies
    }


def _load_component_file(
    diffusers: Any, checkpoint: Checkpoint, part: CheckpointPart, dtype: Any
) -> Any:
    library, class_name = checkpoint.config[part.name]
    component_class: Any = getattr(importlib.import_module(library), class_name, None)
    if not hasattr(component_class, "from_single_file"):
        msg = (
            f"{part.path}: diffusers reads no {class_name} from a file of weights: give its "
            "folder, with config.json"
        )
        raise CheckpointError(msg)
    options = {"config": str(checkpoint.path / part.name), "torch_dtype": dtype}
    if part.path.suffix == ".gguf":
        options["quantization_config"] = diffusers.GGUFQuantizationConfig(compute_dtype=dtype)
    component = component_class.from_single_file(str(part.path), local_files_only=True, **options)
    _refuse_meta(replace(checkpoint, path=part.path, what=class_name), component)
    return component


def load_single_file(
    diffusers: Any, checkpoint: Checkpoint, file: Path, options: Mapping[str, Any]
) -> Any:
    """The pipeline of a single file, with the configuration of the checkpoint's own folder.

    options: as of from_pretrained; those that have a meaning here are passed on. Raises RoleError
    for a pipeline that diffusers does not read from one file, CheckpointError where tensors lack.
    """
    name = checkpoint.config.get("_class_name")
    pipeline_class: Any = getattr(diffusers, name, None) if isinstance(name, str) else None
    if not hasattr(pipeline_class, "from_single_file"):
        msg = f"{file}: diffusers reads no {checkpoint.what} from a single file: give its folder"
        raise RoleError(msg)
    pipeline = pipeline_class.from_single_file(
        str(file), config=str(checkpoint.path), torch_dtype=options["dtype"], local_files_only=True
    )
    for component_name, component in pipeline.components.items():
        _refuse_meta(replace(checkpoint, path=file, what=component_name), component)
    return pipeline


def single_file(checkpoint: Checkpoint) -> Path | None:
    """The file that holds the weights of a whole pipeline, where one is given."""
    return next((part.path for part in checkpoint.parts if part.name == SINGLE_FILE), None)


def _refuse_meta(checkpoint: Checkpoint, component: Any) -> None:
    """Raise CheckpointError where a component has tensors that its file did not bring."""
    if hasattr(component, "named_parameters"):
        tensors = [*component.named_parameters(), *component.named_buffers()]
        refuse_missing(checkpoint, [name for name, tensor in tensors if tensor.is_meta])
