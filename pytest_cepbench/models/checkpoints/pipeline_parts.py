"""The parts of a pipeline of diffusers that lie outside its folder: found, made parts, and checked.

A component's folder has to hold the class that the pipeline's index names; LoRA weights (diffusers'
training scripts, peft and kohya's scripts write them, each with names of its own) and single files
of weights (in the layouts of their authors) have to be whole. Reads JSON and file headers; no model
library is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, unknown_name
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, CheckpointPart
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    check_safetensors,
    check_weights,
    component_names,
    list_files,
    readable_files,
    tensor_shapes,
)
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.checkpoints.parameters import COMPONENTS, SourceOptions
from pytest_cepbench.models.spec import ModelSpec

LORA_FILE = "pytorch_lora_weights.safetensors"
"""The name under which diffusers saves LoRA weights."""

_LORA_TENSOR = re.compile(
    r".*[._](lora_[AB]|lora_down|lora_up|down|up)\.([\w-]+\.)?weight"
    r"|.*(\.alpha|\.lora_B\.([\w-]+\.)?bias|\.lora_magnitude_vector(\.[\w-]+)*)"
)
"""Names that diffusers reads. It leaves out others (kohya's DoRA, LoHa, LoKr, OFT, differences of
whole layers) with a line in its log, or with none."""


def is_lora(names: Iterable[str]) -> bool:
    """True where tensors of these names are LoRA weights for a pipeline, and nothing else.

    Those of a PEFT adapter begin with the model that it wraps.
    """
    names = list(names)
    return bool(names) and all(
        ("lora" in name or name.endswith(".alpha")) and not name.startswith("base_model.")
        for name in names
    )


def find_lora_file(folder: Path) -> Path | None:
    """The file of LoRA weights in a folder: of diffusers' name, else the one of its kind.

    None where there is none. Raises CheckpointError where there are several, and for a damaged one.
    """
    named = folder / LORA_FILE
    if named.is_file():
        return named
    paths = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    paths = [path for path in paths if is_lora(tensor_shapes(path))]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise CheckpointError(
            f"{folder}: several files of LoRA weights ({names}): give the path of one of them"
        )
    return paths[0] if paths else None


PIPELINE_SUFFIXES = (".safetensors", ".ckpt")
"""How files end that can hold a whole pipeline."""

COMPONENT_SUFFIX = ".safetensors"
"""How files end that can hold the weights of one component."""

_WHOLE = ("first_stage_model.", "cond_stage_model.", "conditioner.", "text_encoders.", "vae.")
"""How tensors of a whole pipeline's other parts begin, in the layouts of the authors."""

TEXT_ENCODERS = (
    "cond_stage_model.transformer.", "conditioner.embedders.0.transformer.",
    "text_encoders.clip_l.transformer.", "text_encoders.clip_g.transformer.",
    "text_encoders.t5xxl.transformer.",
)  # fmt: skip
"""Before the names that transformers has for a text encoder's tensors."""

_CLIP = ("cond_stage_model.", "conditioner.embedders.", "text_encoders.clip_")

_T5 = ("text_encoders.t5xxl.",)


def describe_file(path: Path) -> str | None:
    """What a file of weights is and how it is given, for a message; None where that is unknown.

    Raises CheckpointError for safetensors that are not whole.
    """
    if path.suffix == ".ckpt":
        return (
            f"{path}: pickled weights without a configuration. Of a whole pipeline: add "
            "?config=PIPELINE&allow_pickle=true, where PIPELINE is the folder or hub id of a "
            "pipeline of the same family, if you trust where they come from. Of a training with "
            "Lightning: load it in the training's own code and write the model inside with "
            "save_pretrained(FOLDER), then give FOLDER"
        )
    if path.suffix != ".safetensors":
        return None
    if any(name.startswith(_WHOLE) for name in tensor_shapes(path)):
        return (
            f"{path}: a whole pipeline in one file, which is read with the configuration of its "
            "family: add ?config=PIPELINE, the folder or hub id of a pipeline of diffusers"
        )
    return f'{path}: weights in one file: of a component write "PIPELINE?COMPONENT={path}"'


LORA, SINGLE_FILE = "lora", "single_file"
"""Names of the parts that are no component."""

Places = list[tuple[str, str]]
"""Name of each part, and where it lies: components first; "" for one whose name only the
pipeline's index tells."""


def pipeline_source(spec: ModelSpec, options: SourceOptions) -> tuple[str, Places, tuple[str, ...]]:
    """Take a spec's target for what it is: a pipeline, or parts of the one that `base` names.

    A spec names a pipeline of diffusers and what takes the place of its parts
    (`BASE?unet=FOLDER`), or what a training wrote and the pipeline that it belongs to
    (`FOLDER?base=BASE`), which means the same. A target that is neither is left as it is.

    The target is none with the configuration of a model of transformers.

    Returns the pipeline's folder or hub id, its parts that lie elsewhere, and what was taken from a
    training's folder, a line each. Raises CheckpointError, with what to type, for parts that come
    without their pipeline, and SpecError for parameters that do not go together.
    """
    if options.base is not None and options.config is not None:
        raise spec.error(
            "base is for LoRA weights and components, config for a file of a whole pipeline: give "
            "one of them"
        )
    named = [] if options.lora is None else options.lora.split(",")
    if not all(named):
        raise spec.error(f"lora={options.lora!r} has an empty place in its list")
    loras: Places = [(LORA, place) for place in named]
    components: Places = list(options.components.items())
    as_it_is = (spec.target, components + loras, ())
    target = Path(spec.target).expanduser()
    if target.is_file():
        if target.suffix == ".safetensors" and is_lora(tensor_shapes(target)):
            if options.base is None:
                raise CheckpointError(_lora_alone(target))
            return options.base, [*components, (LORA, str(target)), *loras], ()
        if options.config is None:
            if (advice := describe_file(target)) is not None:
                raise CheckpointError(advice)
            return as_it_is
        if target.suffix not in PIPELINE_SUFFIXES:
            raise CheckpointError(
                f"{target}: a file of a whole pipeline ends in {' or '.join(PIPELINE_SUFFIXES)}"
            )
        return options.config, [*components, (SINGLE_FILE, str(target)), *loras], ()
    if options.config is not None:
        raise spec.error(f"config goes with a file of weights, not with {target}")
    if not target.is_dir():
        return as_it_is
    if (target / "model_index.json").is_file():
        if options.base is not None:
            raise spec.error(f"{target} is a whole pipeline, which needs no base")
        return as_it_is
    return _training_source(target, options, loras) or as_it_is


def _training_source(
    folder: Path, options: SourceOptions, loras: Places
) -> tuple[str, Places, tuple[str, ...]] | None:
    """The pipeline to which what lies in a folder belongs; None where nothing does."""
    if (folder / "config.json").is_file():  # with the name of a class of diffusers
        what = read_json(folder / "config.json").get("_class_name")
        if options.base is None:
            raise CheckpointError(
                f"{folder}: a single component of a pipeline ({what}): write "
                f'--model="PIPELINE?{_component_of_class(folder, str(what))}={folder}"'
            )
        named = [*options.components.items(), ("", str(folder.resolve()))]
        return options.base, named + loras, ()
    if (folder / "adapter_config.json").is_file():
        return None
    lora = find_lora_file(folder)
    trained: dict[str, str] = {}
    averages = {
        str(path): name
        for name in COMPONENTS
        for path in (folder / f"{name}_ema", folder / f"ema_{name}")
        if (path / "config.json").is_file()
    }
    for name in COMPONENTS:
        if (folder / name / "config.json").is_file():
            trained[name] = str(folder / name)
    for path, name in averages.items():
        if name not in trained and name not in options.components:
            raise CheckpointError(
                f"{folder}: {path} is the average of a {name}'s weights, without the {name}: "
                f"gate it with {name}={path}"
            )
    if lora is None and not trained:
        return None
    if options.base is None:
        raise CheckpointError(
            _lora_alone(folder)
            if lora is not None
            else f"{folder}: parts of a pipeline ({', '.join(sorted(trained))}) without the rest: "
            f'name the pipeline that they belong to with "{folder}?base=PIPELINE"'
        )
    taken = sorted(trained) + (["LoRA weights"] if lora is not None else [])
    remark = f"{folder}: taken are {', '.join(taken)}; the rest is of {options.base}"
    left = [
        f"{folder}: {path}, the average of the weights, is left out: gate it with {name}={path}"
        for path, name in averages.items()
        if name not in options.components
    ]
    own = [(LORA, str(lora))] if lora is not None else []
    named = [*{**trained, **options.components}.items(), *own, *loras]
    return options.base, named, (remark, *left)


def _lora_alone(place: Path) -> str:
    return (
        f"{place}: LoRA weights, which belong to a pipeline: name it with "
        f'"{place}?base=PIPELINE", or write "PIPELINE?lora={place}"'
    )


def _component_of_class(folder: Path, class_name: str) -> str:
    """The component that a folder is by its own name, else by the name of its class."""
    stem = folder.name.removesuffix("_ema").removeprefix("ema_")
    if stem in COMPONENTS:
        return stem
    words = {"UNet": "unet", "Transformer": "transformer", "Autoencoder": "vae", "Prior": "prior"}
    return next((name for word, name in words.items() if word in class_name), "COMPONENT")


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
    spec: ModelSpec, pipeline: Checkpoint, target: str, places: Places, fetch: Fetch
) -> tuple[CheckpointPart, ...]:
    """What takes the place of a pipeline's parts, and what is added to them.

    target, places: of `pipeline_source`. fetch: for LoRA weights on the hub.
    Raises CheckpointError for a place that holds nothing or something else, SpecError for a
    component that the pipeline does not have.
    """
    base, index = pipeline.options.base, pipeline.config
    if base and base != target:
        raise spec.error(
            "base goes with LoRA weights or components on this machine. For LoRA weights on the "
            f"hub write PIPELINE?lora={target}"
        )
    known = component_names(index)
    components: dict[str, str] = {}
    added = []
    for name, place in places:
        if name == LORA:
            added.append(_lora_part(place, fetch))
        elif name == SINGLE_FILE:
            # Denoiser and autoencoder always come from the file, text encoders where it has them,
            # else from the folder of the configuration; the safety checker is not loaded at all.
            # In a pickled file, CLIP is taken to be there.
            path = Path(place)
            tensors = tensor_shapes(path) if path.suffix == ".safetensors" else _CLIP
            has_clip = any(tensor.startswith(_CLIP) for tensor in tensors)
            has_t5 = any(tensor.startswith(_T5) for tensor in tensors)
            supplied = [
                own
                for own in known
                if own == "safety_checker"
                or (index[own][0] == "diffusers" and "Scheduler" not in str(index[own][1]))
                or (has_clip and str(index[own][1]).startswith("CLIPTextModel"))
                or (has_t5 and str(index[own][1]).startswith("T5"))
            ]
            added.append(_file_part(name, path.resolve(), tuple(supplied)))
        else:
            components[name or _component_of(Path(place), index)] = place
    parts = []
    for name, place in components.items():
        if name not in known:
            kind = f"component of {index.get('_class_name')}"
            raise spec.error(unknown_name(kind, name, known))
        parts.append(_component_part(name, place, pipeline))
    return *parts, *added


def check_parts(pipeline: Checkpoint) -> None:
    """Raise CheckpointError where a part of a pipeline is not whole, or its kind is not allowed."""
    for part in pipeline.parts:
        if part.component:
            check_weights(part.path, part.files(part.path), {}, "transformers")
        elif part.name == LORA:
            _check_lora(part.path)
        elif part.path.suffix != ".ckpt":
            check_safetensors(part.path)
        elif not pipeline.options.allow_pickle:
            raise CheckpointError(
                f"{part.path}: the weights are pickled, and unpickling can run code. Give them "
                "as safetensors, or add allow_pickle=true to the model's spec if you trust where "
                "they come from"
            )
        # The pipeline's own folder has the configuration of components that come as files.
        own = pipeline.path / part.name
        if part.name in part.supplies and not (own / "config.json").is_file():
            raise CheckpointError(
                f"{own}: no config.json, without which the weights of {part.path} "
                "cannot be read: give a pipeline of the same family"
            )


def _check_lora(path: Path) -> None:
    """Raise CheckpointError where a file holds no LoRA, or anything else."""
    check_safetensors(path)
    names = tensor_shapes(path)
    if not names:
        raise CheckpointError(
            f"{path}: no tensors: it is damaged or was written before the training began"
        )
    if others := [name for name in names if not _LORA_TENSOR.fullmatch(name)]:
        raise CheckpointError(
            f"{path}: {others[0]} is no part of a LoRA that diffusers loads: it would be left out. "
            "Merge it into the pipeline with the tool that trained it, and give the whole pipeline"
        )


def _component_of(folder: Path, index: Mapping[str, Any]) -> str:
    """The component of a pipeline that a folder holds, by its class."""
    class_name = read_json(folder / "config.json").get("_class_name")
    names = [name for name in component_names(index) if index[name][1] == class_name]
    guess = _component_of_class(folder, str(class_name))
    if guess in names or len(names) == 1:
        return guess if guess in names else names[0]
    which = f"several of its components are {class_name}" if names else f"it has no {class_name}"
    classes = ", ".join(f"{name} ({index[name][1]})" for name in component_names(index))
    raise CheckpointError(
        f"{folder}: not to be told apart for {index.get('_class_name')}: {which}. Write "
        f'"PIPELINE?NAME={folder}" with one of {classes}'
    )


def _component_part(name: str, place: str, pipeline: Checkpoint) -> CheckpointPart:
    """A component that lies at a place, as a part of a pipeline.

    Raises CheckpointError where it cannot work with the pipeline's other ones. Depth and width may
    be others, as in distilled models.
    """
    path = Path(place).expanduser()
    if path.is_file():
        if path.suffix != COMPONENT_SUFFIX:
            raise CheckpointError(
                f"{path}: no file of a component's weights: expected a folder with config.json, or "
                f"a file that ends in {COMPONENT_SUFFIX}"
            )
        return _file_part(name, path.resolve(), (name,))
    if not (path / "config.json").is_file() and (path / name / "config.json").is_file():
        path = path / name  # the training's folder was given
    if not (path / "config.json").is_file():
        state = "it has no config.json" if path.is_dir() else "there is no such folder or file"
        raise CheckpointError(f"{path}: not the {name} of a pipeline: {state}")
    path = path.resolve()
    given, expected = read_json(path / "config.json"), str(pipeline.config[name][1])
    class_name = given.get("_class_name") or (given.get("architectures") or [None])[0]
    if class_name is not None and class_name != expected:
        raise CheckpointError(
            f"{path}: a {class_name}, and the {name} of this pipeline is a {expected}: "
            f"give the {name} of a training of this pipeline"
        )
    replaced = pipeline.path / name / "config.json"
    own = read_json(replaced) if replaced.is_file() else {}
    differences = [
        f"{key} is {given[key]!r}, the pipeline's {own[key]!r}"
        for key in _INTERFACE
        if key in own and key in given and own[key] != given[key]
    ]
    if differences:
        raise CheckpointError(
            f"{path}: does not fit this pipeline's other components: "
            f"{'; '.join(differences)}. Give a {name} that was trained from this pipeline"
        )

    def files(folder: Path) -> list[str]:
        return readable_files(list_files(folder), "transformers", {}, pipeline.options)

    return CheckpointPart(name, path, files, component=name)


def _file_part(name: str, path: Path, supplies: tuple[str, ...] = ()) -> CheckpointPart:
    return CheckpointPart(name, path, lambda _: [""], supplies=supplies)


def _lora_part(place: str, fetch: Fetch) -> CheckpointPart:
    """The file of LoRA weights that a folder, a file or a hub id (ORG/NAME[/FILE][@REVISION]) is.

    Links are not followed: to a file of the hub's cache they give its name.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        file = find_lora_file(path)
        if file is None:
            names = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
            raise CheckpointError(
                f"{path}: no LoRA weights ({LORA_FILE}); the folder holds {names}"
            )
        path = file
    elif not path.is_file():
        match = _HUB_PLACE.fullmatch(place)
        if match is None:
            raise CheckpointError(f"{path}: no LoRA weights: there is no such folder or file")
        name = match["file"].strip("/") or LORA_FILE
        path = fetch(match["repository"], match["revision"], [name]) / name
        if not path.is_file():
            raise CheckpointError(
                f"{match['repository']}: no {name}: write {match['repository']}/FILE.safetensors"
            )
    if path.suffix != ".safetensors":
        raise CheckpointError(
            f"{path}: LoRA weights are read from safetensors: save them with save_lora_weights, "
            "or convert the file with safetensors.torch.save_file"
        )
    return _file_part(LORA, path.absolute())
