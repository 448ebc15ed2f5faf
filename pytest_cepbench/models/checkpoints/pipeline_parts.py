"""The parts of a pipeline of diffusers that lie outside its folder: found, made parts, and checked.

A component's folder has to hold the class that the pipeline's index names; LoRA weights (diffusers'
training scripts, peft and kohya's scripts write them, each with names of its own) and single files
of weights (in the layouts of their authors) have to be whole. Reads JSON and file headers; no model
library is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from pytest_cepbench.errors import CheckpointError, few_of, unknown_name
from pytest_cepbench.files import expand_user
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, CheckpointPart
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    ADAPTER_CONFIG,
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


TEXT_ENCODERS = (
    "cond_stage_model.transformer.", "conditioner.embedders.0.transformer.",
    "text_encoders.clip_l.transformer.", "text_encoders.clip_g.transformer.",
    "text_encoders.t5xxl.transformer.",
)  # fmt: skip
"""Before the names that transformers has for a text encoder's tensors, in authors' layouts."""

_CLIP = ("cond_stage_model.", "conditioner.embedders.", "text_encoders.clip_")

_T5 = ("text_encoders.t5xxl.",)

LORA, SINGLE_FILE = "lora", "single_file"
"""Names of the parts that are no component."""

Places = list[tuple[str, str]]
"""Name of each part, and where it lies: components first."""


def pipeline_source(spec: ModelSpec, options: SourceOptions) -> tuple[str, Places, tuple[str, ...]]:
    """Take a spec's target for what it is: a pipeline, or parts of the one that `base` names.

    A spec names a pipeline of diffusers and what takes the place of its parts
    (`BASE?unet=FOLDER`), or what a training wrote and the pipeline that it belongs to
    (`FOLDER?base=BASE`), which means the same. A target that is neither is left as it is.

    Returns the pipeline's folder or hub id, its parts that lie elsewhere, and what was taken from a
    training's folder, a line each. Raises CheckpointError, with what to type, for parts that come
    without their pipeline, and SpecError for parameters that do not go together.
    """
    target = expand_user(spec.target)
    config = target / "config.json"
    component = read_json(config).get("_class_name") if config.is_file() else None
    if config.is_file() and component is None and options.config is None:
        return spec.target, [], ()  # of transformers
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
    if target.is_file():
        if target.suffix == ".safetensors" and is_lora(tensor_shapes(target)):
            base = options.base or _refuse_alone(target, "LoRA weights")
            return base, [*components, (LORA, str(target)), *loras], ()
        if target.suffix not in (".safetensors", ".ckpt"):
            return as_it_is
        if options.config is None:
            raise CheckpointError(
                f"{target}: weights in one file. To those of a whole pipeline add ?config=PIPELINE,"
                " the folder or hub id of one of its family (to pickled ones "
                "?config=PIPELINE&allow_pickle=true, if you trust where they come from); of a "
                f'component write "PIPELINE?COMPONENT={target}"; of Lightning load it in the '
                "training's own code and write the model with save_pretrained(FOLDER), then give "
                "FOLDER"
            )
        return options.config, [*components, (SINGLE_FILE, str(target)), *loras], ()
    if options.config is not None:
        raise spec.error(f"config goes with a file of weights, not with {target}")
    if (target / "model_index.json").is_file():
        if options.base is not None:
            raise spec.error(f"{target} is a whole pipeline, which needs no base")
        return as_it_is
    if component is not None:
        name = target.name if target.name in COMPONENTS else "COMPONENT"
        raise CheckpointError(
            f"{target}: a single component of a pipeline ({component}): write "
            f'--model="PIPELINE?{name}={target}"'
        )
    if not target.is_dir() or (target / ADAPTER_CONFIG).is_file():
        return as_it_is
    # A folder of a training.
    lora = find_lora_file(target)
    trained = {n: str(target / n) for n in COMPONENTS if (target / n / "config.json").is_file()}
    averages = [
        (name, path)
        for name in COMPONENTS
        for path in (target / f"{name}_ema", target / f"ema_{name}")
        if (path / "config.json").is_file() and name not in options.components
    ]
    for name, path in averages:
        if name not in trained:
            raise CheckpointError(
                f"{target}: {path} is the average of a {name}'s weights, without the {name}: "
                f"gate it with {name}={path}"
            )
    taken = ", ".join(sorted(trained) + (["LoRA weights"] if lora is not None else []))
    if not taken:
        return as_it_is
    base = options.base or _refuse_alone(target, taken)
    own = [(LORA, str(lora))] if lora is not None else []
    remarks = [f"{target}: taken are {taken}; the rest is of {base}"]
    remarks += [
        f"{target}: {path}, the average of the weights, is left out: gate it with {name}={path}"
        for name, path in averages
    ]
    return base, [*{**trained, **options.components}.items(), *own, *loras], tuple(remarks)


def _refuse_alone(place: Path, what: str) -> NoReturn:
    raise CheckpointError(
        f"{place}: {what} without the rest of a pipeline: name the one that they belong to with "
        f'"{place}?base=PIPELINE"'
    )


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
) -> list[CheckpointPart]:
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
    known, parts = component_names(index), []
    trained = expand_user(spec.target)
    for name in known if target != spec.target else ():
        if name not in COMPONENTS and (trained / name / "config.json").is_file():
            raise CheckpointError(
                f"{trained / name}: the {name} of a pipeline, which no parameter replaces: put it "
                f"into a copy of {target} and give that"
            )
    for name, place in places:
        if name == LORA:
            parts.append(_lora_part(place, fetch))
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
            parts.append(_file_part(name, path.resolve(), tuple(supplied)))
        elif name in known:
            parts.append(_component_part(name, place, pipeline))
        else:
            kind = f"component of {index.get('_class_name')}"
            raise spec.error(unknown_name(kind, name, known))
    return parts


def check_parts(pipeline: Checkpoint) -> None:
    """Raise CheckpointError where a part of a pipeline is not whole, or its kind is not allowed."""
    for part in pipeline.parts:
        path = part.path
        if part.component:
            check_weights(path, part.files(path), {}, "transformers")
        elif path.suffix != ".ckpt":
            names = check_safetensors(path).keys()
            others = [n for n in names if part.name == LORA and not _LORA_TENSOR.fullmatch(n)]
            if not names:
                raise CheckpointError(
                    f"{path}: no tensors: it is damaged or was written before the training began"
                )
            if others:
                raise CheckpointError(
                    f"{path}: {others[0]} is no part of a LoRA that diffusers loads: it would be "
                    "left out. Merge it into the pipeline with the tool that trained it, and give "
                    "the whole pipeline"
                )
        elif not pipeline.options.allow_pickle:
            raise CheckpointError(
                f"{path}: the weights are pickled, and unpickling can run code. Give them "
                "as safetensors, or add allow_pickle=true to the model's spec if you trust where "
                "they come from"
            )
        # The pipeline's own folder has the configuration of components that come as files.
        own = pipeline.path / part.name
        if part.name in part.supplies and not (own / "config.json").is_file():
            raise CheckpointError(
                f"{own}: no config.json, without which the weights of {path} cannot be read: give "
                "a pipeline of the same family"
            )


def _component_part(name: str, place: str, pipeline: Checkpoint) -> CheckpointPart:
    """A component that lies at a place, as a part of a pipeline.

    Raises CheckpointError where it cannot work with the pipeline's other ones. Depth and width may
    be others, as in distilled models.
    """
    path = expand_user(place)
    if path.is_file():
        if path.suffix != ".safetensors":
            raise CheckpointError(
                f"{path}: no file of a component's weights: expected a folder with config.json, or "
                "a file that ends in .safetensors"
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
    path = expand_user(place)
    if path.is_dir():
        file = find_lora_file(path)
        if file is None:
            names = few_of(entry.name for entry in path.iterdir()) or "nothing"
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
