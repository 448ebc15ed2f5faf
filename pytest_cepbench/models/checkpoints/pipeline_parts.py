"""The parts of a pipeline that lie outside its folder: made of their places, and checked.

A component's folder has to hold the class that the pipeline's index names, LoRA weights and files
of weights have to be whole. Reads JSON and file headers; no model library is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, SpecError, unknown_name
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    FileOptions,
    check_safetensors,
    check_weights,
    component_names,
    list_files,
    read_json,
    readable_files,
)
from pytest_cepbench.models.checkpoints.checkpoint_parts import CheckpointPart
from pytest_cepbench.models.checkpoints.lora_files import LORA_FILE, check_lora, find_lora_file
from pytest_cepbench.models.checkpoints.pipeline_source import PipelineSource, component_of_class
from pytest_cepbench.models.checkpoints.single_files import COMPONENT_SUFFIX, supplied_components

LORA, SINGLE_FILE = "lora", "single_file"
"""Names of the parts that are no component."""

_HUB_PLACE = re.compile(
    r"(?P<repository>[\w][\w.-]*/[\w][\w.-]*)(?P<file>(/[\w][\w.-]*)*)(@(?P<revision>[\w./-]+))?"
)
_INTERFACE = (
    "in_channels", "out_channels", "latent_channels", "cross_attention_dim", "joint_attention_dim",
    "pooled_projection_dim", "caption_channels", "addition_embed_type", "encoder_hid_dim_type",
    "hidden_size", "d_model", "projection_dim",
)  # fmt: skip
"""Settings of a component's configuration that its neighbours in the pipeline rely on."""

Fetch = Callable[[str, str | None, list[str]], Path]
"""Brings the files of a hub repository that fit patterns into the cache, and says where that is."""


def pipeline_parts(
    source: PipelineSource,
    folder: Path,
    index: Mapping[str, Any],
    options: FileOptions,
    fetch: Fetch,
) -> tuple[CheckpointPart, ...]:
    """What takes the place of a pipeline's parts, and what is added to them.

    folder: the pipeline's own. index: its model_index.json. options: those with which components
    are read. fetch: for LoRA weights on the hub.
    Raises CheckpointError for a place that holds nothing or something else, SpecError for a
    component that the pipeline does not have.
    """
    base = source.spec.params.get("base")
    if base and base != source.spec.target:
        raise SpecError(
            f"model spec {source.spec.text!r}: base goes with LoRA weights or components on this "
            f"machine. For LoRA weights on the hub write PIPELINE?lora={source.spec.target}"
        )
    places = dict(source.components)
    if source.component is not None:
        places[_component_of(source.component, index)] = str(source.component)
    known = component_names(index)
    parts = []
    for name, place in places.items():
        if name not in known:
            fault = unknown_name(f"component of {index.get('_class_name')}", name, known)
            raise SpecError(f"model spec {source.spec.text!r}: {fault}")
        part = _component_part(name, place, options)
        if part.component:
            _check_class(part, str(index[name][1]))
            _check_interface(part, folder / name / "config.json")
        parts.append(part)
    if source.single_file is not None:
        supplied = supplied_components(source.single_file, index)
        parts.append(_file_part(SINGLE_FILE, source.single_file, supplied))
    parts += [_lora_part(place, fetch) for place in source.loras]
    return tuple(parts)


def check_parts(parts: tuple[CheckpointPart, ...], folder: Path, options: FileOptions) -> None:
    """Raise CheckpointError where a part of a pipeline is not whole, or its kind is not allowed.

    folder: the pipeline's own, which has the configuration of components that come as files.
    """
    for part in parts:
        if part.component:
            check_weights(part.path, part.files(part.path), {}, "transformers")
        elif part.name == LORA:
            check_lora(part.path)
        elif part.path.suffix == ".ckpt":
            _refuse_pickle(part.path, options)
        else:
            check_safetensors(part.path)
        if part.name in part.supplies and not (folder / part.name / "config.json").is_file():
            raise CheckpointError(
                f"{folder / part.name}: no config.json, without which the weights of {part.path} "
                "cannot be read: give a pipeline of the same family"
            )


def _component_of(folder: Path, index: Mapping[str, Any]) -> str:
    """The component of a pipeline that a folder holds, by its class."""
    class_name = read_json(folder / "config.json").get("_class_name")
    names = [name for name in component_names(index) if index[name][1] == class_name]
    guess = component_of_class(folder, str(class_name))
    if guess in names or len(names) == 1:
        return guess if guess in names else names[0]
    which = f"several of its components are {class_name}" if names else f"it has no {class_name}"
    classes = ", ".join(f"{name} ({index[name][1]})" for name in component_names(index))
    raise CheckpointError(
        f"{folder}: not to be told apart for {index.get('_class_name')}: {which}. Write "
        f'"PIPELINE?NAME={folder}" with one of {classes}'
    )


def _component_part(name: str, place: str, options: FileOptions) -> CheckpointPart:
    path = Path(place).expanduser()
    if path.is_file():
        if path.suffix != COMPONENT_SUFFIX:
            raise CheckpointError(
                f"{path}: no file of a component's weights: expected a folder with config.json, or "
                f"a file that ends in {COMPONENT_SUFFIX}"
            )
        return _file_part(name, path, (name,))
    if not (path / "config.json").is_file() and (path / name / "config.json").is_file():
        path = path / name  # the training's folder was given
    if not (path / "config.json").is_file():
        state = "it has no config.json" if path.is_dir() else "there is no such folder or file"
        raise CheckpointError(f"{path}: not the {name} of a pipeline: {state}")

    def files(folder: Path) -> list[str]:
        return readable_files(list_files(folder), "transformers", {}, options)

    return CheckpointPart(name, path.resolve(), files, component=name)


def _check_class(part: CheckpointPart, expected: str) -> None:
    """Raise CheckpointError where a component is of another class than the pipeline's."""
    config = read_json(part.path / "config.json")
    architectures = config.get("architectures") or [None]
    given = config.get("_class_name") or architectures[0]
    if given is not None and given != expected:
        raise CheckpointError(
            f"{part.path}: a {given}, and the {part.name} of this pipeline is a {expected}: give "
            f"the {part.name} of a training of this pipeline"
        )


def _check_interface(part: CheckpointPart, replaced: Path) -> None:
    """Raise CheckpointError where a component cannot work with the pipeline's other ones.

    replaced: the configuration of the pipeline's own, which may be absent. Depth and width may be
    others, as in distilled models.
    """
    if not replaced.is_file():
        return
    own, given = read_json(replaced), read_json(part.path / "config.json")
    differences = [
        f"{key} is {given[key]!r}, the pipeline's {own[key]!r}"
        for key in _INTERFACE
        if key in own and key in given and own[key] != given[key]
    ]
    if differences:
        raise CheckpointError(
            f"{part.path}: does not fit this pipeline's other components: "
            f"{'; '.join(differences)}. Give a {part.name} that was trained from this pipeline"
        )


def _file_part(name: str, path: Path, supplies: tuple[str, ...] = ()) -> CheckpointPart:
    return CheckpointPart(name, path.resolve(), lambda _: [""], supplies=supplies)


def _lora_part(place: str, fetch: Fetch) -> CheckpointPart:
    """The file of LoRA weights that a folder, a file or a hub id (ORG/NAME[/FILE][@REVISION]) is.

    Links are not followed: to a file of the hub's cache they give its name.
    """
    path = Path(place).expanduser()
    if path.is_file():
        return _lora_file_part(path)
    if path.is_dir():
        file = find_lora_file(path)
        if file is None:
            names = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
            raise CheckpointError(
                f"{path}: no LoRA weights ({LORA_FILE}); the folder holds {names}"
            )
        return _lora_file_part(file)
    match = _HUB_PLACE.fullmatch(place)
    if match is None:
        raise CheckpointError(f"{path}: no LoRA weights: there is no such folder or file")
    name = match["file"].strip("/") or LORA_FILE
    snapshot = fetch(match["repository"], match["revision"], [name])
    if not (snapshot / name).is_file():
        raise CheckpointError(
            f"{match['repository']}: no {name}: write {match['repository']}/FILE.safetensors"
        )
    return _lora_file_part(snapshot / name)


def _lora_file_part(path: Path) -> CheckpointPart:
    if path.suffix != ".safetensors":
        raise CheckpointError(
            f"{path}: LoRA weights are read from safetensors: save them with save_lora_weights, "
            "or convert the file with safetensors.torch.save_file"
        )
    return CheckpointPart(LORA, path.absolute(), lambda _: [""])


def _refuse_pickle(path: Path, options: FileOptions) -> None:
    if not options.allow_pickle:
        raise CheckpointError(
            f"{path}: the weights are pickled, and unpickling can run code. Give them as "
            "safetensors, or add allow_pickle=true to the model's spec if you trust where they "
            "come from"
        )
