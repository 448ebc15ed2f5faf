"""The parameters of a spec that say where the parts of a checkpoint lie, and which are read.

They are read before its folder is, because they decide which folder that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from pytest_cepbench.models.spec import ModelSpec, parse_params


@dataclass(frozen=True)
class FileOptions:
    """The parameters of a spec that say which of a checkpoint's files may be read."""

    variant: str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True)
class SourceOptions:
    """Where the parts of a checkpoint lie that its folder lacks.

    base: folder or hub id of an adapter's base model, in the place of the one that the adapter
        names; of sharded weights, the model whose configuration and processor they have.
    adapters: folders or hub ids of PEFT adapters that are applied to the checkpoint, with commas.
    weights: the factor of each of `adapters`, with commas; None is 1 for each.
    merge: whether adapters are added to the base's weights; None does so unless it is quantized.
    processor: folder or hub id of the processor, tokenizer included where it has one.
    tokenizer: folder or hub id of the tokenizer.
    Raises ValueError for weights that are no numbers, or not one for each adapter.
    """

    base: str | None = None
    adapters: str | None = None
    weights: str | None = None
    merge: bool | None = None
    processor: str | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if self.weights is not None and self.adapters is None:
            raise ValueError(
                "weights are those of adapters: add adapters=FOLDER,FOLDER, or leave it out"
            )
        assert self.weighted is not None  # raises for wrong values

    @property
    def weighted(self) -> tuple[tuple[str, float], ...]:
        """Each of `adapters` with its factor."""
        if self.adapters is None:
            return ()
        names = [name.strip() for name in self.adapters.split(",")]
        if not all(names):
            raise ValueError(
                f"adapters must be folders or hub ids with commas, got {self.adapters!r}"
            )
        if self.weights is None:
            return tuple((name, 1.0) for name in names)
        factors = [_number(text) for text in self.weights.split(",")]
        if len(factors) != len(names):
            raise ValueError(
                f"weights must be one number for each of the {len(names)} adapters, got "
                f"{self.weights!r}"
            )
        return tuple(zip(names, factors, strict=True))


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"weights must be finite numbers with commas, got {text!r}")
    return value


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


T = TypeVar("T")


def options_of(spec: ModelSpec, kind: type[T], what: str = "a checkpoint") -> T:
    """The options of a kind in a spec; its other parameters are left for the role's adapter.

    Raises SpecError for a value of the wrong kind, or one that cannot be.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    own = {name: value for name, value in spec.params.items() if name in known}
    return parse_params(replace(spec, params=own), kind, what)


def file_options(spec: ModelSpec) -> FileOptions:
    """As `options_of`."""
    return options_of(spec, FileOptions)
