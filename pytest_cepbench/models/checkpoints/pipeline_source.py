"""Where the parts of a pipeline lie, told from a spec and from what its target holds.

A spec names a pipeline of diffusers and what takes the place of its parts (`BASE?unet=FOLDER`), or
what a training wrote and the pipeline that it belongs to (`FOLDER?base=BASE`), which means the
same. No model library is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NoReturn

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints.checkpoint_files import read_json, tensor_shapes
from pytest_cepbench.models.checkpoints.lora_files import find_lora_file, is_lora
from pytest_cepbench.models.checkpoints.single_files import PIPELINE_SUFFIXES, describe_file
from pytest_cepbench.models.model_spec import ModelSpec, parse_params


@dataclass(frozen=True)
class PipelineOptions:
    """The parameters of a spec that put a pipeline of diffusers together.

    base: the pipeline that LoRA weights, a component or a training's folder belong to.
    config: the pipeline whose configuration goes with a single file of weights.
    lora: LoRA weights, folders, files or hub ids, separated by commas.
    unet, transformer, transformer_2, vae, text_encoder, text_encoder_2, text_encoder_3, prior: what
        takes the place of the component: a folder, or a file of its weights alone.
    """

    base: str | None = None
    config: str | None = None
    lora: str | None = None
    unet: str | None = None
    transformer: str | None = None
    transformer_2: str | None = None
    vae: str | None = None
    text_encoder: str | None = None
    text_encoder_2: str | None = None
    text_encoder_3: str | None = None
    prior: str | None = None

    @property
    def components(self) -> dict[str, str]:
        """The components that are named, and where each lies."""
        given = {name: getattr(self, name) for name in COMPONENTS}
        return {name: place for name, place in given.items() if place is not None}

    @property
    def loras(self) -> tuple[str, ...]:
        """The places of LoRA weights, in the order in which they are applied."""
        return () if self.lora is None else tuple(self.lora.split(","))


COMPONENTS = tuple(
    entry.name for entry in fields(PipelineOptions) if entry.name not in ("base", "config", "lora")
)
"""The components that a spec can replace."""

_EMA_FOLDERS = ("{}_ema", "ema_{}")
"""Beside a component's folder, where trainings keep the average of its weights."""


@dataclass(frozen=True)
class PipelineSource:
    """A spec's pipeline, and what takes the place of its parts.

    spec: names the pipeline's own folder or hub id.
    components: where those lie that are replaced, by name.
    loras: where LoRA weights lie, in the order in which they are applied.
    component: the folder of a component whose name only the pipeline's index tells.
    single_file: a file with the weights of the whole pipeline.
    remarks: what was taken from a training's folder, a line each.
    """

    spec: ModelSpec
    components: Mapping[str, str] = field(default_factory=dict)
    loras: tuple[str, ...] = ()
    component: Path | None = None
    single_file: Path | None = None
    remarks: tuple[str, ...] = ()


def pipeline_source(spec: ModelSpec) -> PipelineSource:
    """Take a spec's target for what it is: a pipeline, or parts of the one that `base` names.

    A target that is neither is left as it is. Raises CheckpointError, with what to type, for parts
    that come without their pipeline, and SpecError for parameters that do not go together.
    """
    options = _options(spec)
    source = PipelineSource(spec, options.components, options.loras)
    target = Path(spec.target).expanduser()
    if target.is_file():
        return _file_source(source, options, target)
    if options.config is not None:
        raise SpecError(
            f"model spec {spec.text!r}: config goes with a file of weights, not with {target}"
        )
    if not target.is_dir():
        return source
    if (target / "model_index.json").is_file():
        if options.base is not None:
            raise SpecError(
                f"model spec {spec.text!r}: {target} is a whole pipeline, which needs no base"
            )
        return source
    return _folder_source(source, options, target)


def _options(spec: ModelSpec) -> PipelineOptions:
    """Those options of a spec; the others are left for the role's adapter to judge."""
    known = {entry.name for entry in fields(PipelineOptions)}
    own = {name: value for name, value in spec.params.items() if name in known}
    options = parse_params(replace(spec, params=own), PipelineOptions, "a pipeline")
    if options.base is not None and options.config is not None:
        raise SpecError(
            f"model spec {spec.text!r}: base is for LoRA weights and components, config for a file "
            "of a whole pipeline: give one of them"
        )
    if not all(options.loras):
        raise SpecError(
            f"model spec {spec.text!r}: lora={options.lora!r} has an empty place in its list"
        )
    return options


def _file_source(source: PipelineSource, options: PipelineOptions, path: Path) -> PipelineSource:
    """The pipeline that a file of weights is, or belongs to."""
    if path.suffix == ".safetensors" and is_lora(tensor_shapes(path)):
        if options.base is None:
            _refuse_lora_alone(path)
        loras = (str(path), *source.loras)
        return replace(source, spec=replace(source.spec, target=options.base), loras=loras)
    if options.config is None:
        advice = describe_file(path)
        if advice is not None:
            raise CheckpointError(advice)
        return source
    if path.suffix not in PIPELINE_SUFFIXES:
        raise CheckpointError(
            f"{path}: a file of a whole pipeline ends in {' or '.join(PIPELINE_SUFFIXES)}"
        )
    return replace(source, spec=replace(source.spec, target=options.config), single_file=path)


def _folder_source(
    source: PipelineSource, options: PipelineOptions, folder: Path
) -> PipelineSource:
    """The pipeline to which what lies in a folder belongs; the source itself where nothing does."""
    if (folder / "config.json").is_file():
        if "_class_name" not in read_json(folder / "config.json"):
            return source  # a model of transformers, or of others
        if options.base is None:
            _refuse_component_alone(folder)
        return replace(
            source, spec=replace(source.spec, target=options.base), component=folder.resolve()
        )
    if (folder / "adapter_config.json").is_file():
        return source
    lora = find_lora_file(folder)
    trained, remarks = _find_components(folder)
    if lora is None and not trained:
        return source
    if options.base is None:
        if lora is not None:
            _refuse_lora_alone(folder)
        _refuse_components_alone(folder, trained)
    taken = sorted(trained) + (["LoRA weights"] if lora is not None else [])
    remark = f"{folder}: taken are {', '.join(taken)}; the rest is of {options.base}"
    return replace(
        source,
        spec=replace(source.spec, target=options.base),
        components={**trained, **source.components},
        loras=((str(lora),) if lora is not None else ()) + source.loras,
        remarks=(remark, *remarks),
    )


def _find_components(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The components in a training's folder by name, and what was chosen between two of them."""
    trained: dict[str, str] = {}
    remarks = []
    for name in COMPONENTS:
        own = folder / name
        averages = [folder / pattern.format(name) for pattern in _EMA_FOLDERS]
        averages = [path for path in averages if (path / "config.json").is_file()]
        if (own / "config.json").is_file():
            trained[name] = str(own)
            remarks += [
                f"{folder}: {path.name}, the average of the weights, is left out: gate it with "
                f"{name}={path}"
                for path in averages
            ]
        elif averages:
            trained[name] = str(averages[0])
            remarks.append(f"{folder}: {name} is {averages[0].name}, the average of its weights")
    return trained, remarks


def _refuse_lora_alone(place: Path) -> NoReturn:
    raise CheckpointError(
        f"{place}: LoRA weights, which belong to a pipeline: name it with "
        f'"{place}?base=PIPELINE", or write "PIPELINE?lora={place}"'
    )


def _refuse_component_alone(folder: Path) -> NoReturn:
    what = read_json(folder / "config.json")["_class_name"]
    name = component_of_class(folder, str(what))
    raise CheckpointError(
        f'{folder}: a single component of a pipeline ({what}): write --model="PIPELINE?{name}='
        f'{folder}"'
    )


def _refuse_components_alone(folder: Path, trained: Mapping[str, str]) -> NoReturn:
    raise CheckpointError(
        f"{folder}: parts of a pipeline ({', '.join(sorted(trained))}) without the rest: name the "
        f'pipeline that they belong to with "{folder}?base=PIPELINE"'
    )


def component_of_class(folder: Path, class_name: str) -> str:
    """The component that a folder is by its own name, else by the name of its class."""
    stem = folder.name.removesuffix("_ema").removeprefix("ema_")
    if stem in COMPONENTS:
        return stem
    words = {"UNet": "unet", "Transformer": "transformer", "Autoencoder": "vae", "Prior": "prior"}
    return next((name for word, name in words.items() if word in class_name), "COMPONENT")
