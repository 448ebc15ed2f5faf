"""Parameters of the specs of checkpoints: which files are read, and where and how a model runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar

from pytest_cepbench.models.spec import Bounds, ModelSpec, Positive, given_params, parse_params
from pytest_cepbench.models.torch_runtime import resolve_device, resolve_dtype


@dataclass(frozen=True)
class SourceOptions:
    """The parameters of a spec that say where the parts of a checkpoint lie, and which of its files
    may be read. They are read before its folder is, because they decide which folder that is.

    revision: commit, tag or branch of a hub id.
    allow_pickle: read pickled weights where there are no others.
    variant: weights variant, such as fp16.
    trust_remote_code: run the checkpoint's Python files.
    base: folder or hub id of an adapter's base model, in the place of the one that the adapter
        names; of sharded weights, the model whose configuration and processor they have; the
        pipeline that LoRA weights, a component or a training's folder belong to.
    adapters: folders or hub ids of PEFT adapters that are applied to the checkpoint, with commas.
    weights: the factor of each of `adapters`, with commas; None is 1 for each.
    merge: whether adapters are added to the base's weights; None does so unless it is quantized.
    processor: folder or hub id of the processor, tokenizer included where it has one.
    tokenizer: folder or hub id of the tokenizer.
    config: the pipeline whose configuration goes with a single file of weights.
    lora: LoRA weights, folders, files or hub ids, separated by commas.
    unet, transformer, transformer_2, vae, text_encoder, text_encoder_2, text_encoder_3, prior: what
        takes the place of the component: a folder, or a file of its weights alone.
    Raises ValueError for weights that are no numbers, or not one for each adapter.
    """

    revision: str | None = None
    allow_pickle: bool = False
    variant: str | None = None
    trust_remote_code: bool = False
    base: str | None = None
    adapters: str | None = None
    weights: str | None = None
    merge: bool | None = None
    processor: str | None = None
    tokenizer: str | None = None
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
        given = ["1"] * len(names) if self.weights is None else self.weights.split(",")
        try:
            factors = [float(text) for text in given]
        except ValueError:
            factors = []
        if len(factors) != len(names) or not all(map(math.isfinite, factors)):
            raise ValueError(
                f"weights must be finite numbers, one for each of the {len(names)} adapters, got "
                f"{self.weights!r}"
            )
        return tuple(zip(names, factors, strict=True))

    @property
    def code(self) -> dict[str, bool]:
        """The option of a library's from_pretrained that says whether such files run."""
        return {"trust_remote_code": self.trust_remote_code}

    @property
    def components(self) -> dict[str, str]:
        """The components of a pipeline that are named, and where each lies."""
        given = {name: getattr(self, name) for name in COMPONENTS}
        return {name: place for name, place in given.items() if place is not None}


_NAMES = tuple(entry.name for entry in fields(SourceOptions))

COMPONENTS = _NAMES[_NAMES.index("unet") :]
"""The components that a spec can replace."""

OF_CHECKPOINTS = ("revision", "allow_pickle")
"""Source options of every folder and hub id."""


def source_options(spec: ModelSpec) -> SourceOptions:
    """The source options in a spec; its other parameters are left for the role's adapter.

    Raises SpecError for a value of the wrong kind, or one that cannot be.
    """
    own = {name: value for name, value in spec.params.items() if name in _NAMES}
    return parse_params(replace(spec, params=own), SourceOptions, "a checkpoint")


@dataclass(frozen=True)
class Placement:
    """The parameters that say where and how a model runs.

    device: auto, cpu, cuda, cuda:N or mps.
    dtype: auto, float32, float16 or bfloat16.
    batch_size: most inputs in one call.
    Raises ValueError for another device or dtype, so that a wrong one fails at binding.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ()
    """Names of the source options that such a spec can have beside its own parameters."""

    device: str = "auto"
    dtype: str = "auto"
    batch_size: Positive = 8

    def __post_init__(self) -> None:
        resolve_device(self.device)
        resolve_dtype(self.dtype, "cpu", {})

    @property
    def decisive(self) -> dict[str, Any]:
        """The parameters, besides dtype, that can change an answer: they enter keys.

        Source options are left out: the fingerprint covers the files.
        """
        return {}

    @property
    def seeded(self) -> bool:
        """Whether answers depend on the seed."""
        return False

    @property
    def dispatched(self) -> bool:
        """Whether a library places the model's parts, so that it cannot be moved as a whole."""
        return False


_STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")


@dataclass(frozen=True)
class TransformersParams(Placement):
    """Parameters of every transformers checkpoint, with those of `Placement`.

    attn_implementation: eager, sdpa, flash_attention_2, ...; None leaves the library's choice.
    backend: of the image processor, pil or torchvision. The two differ by a level of a pixel here
        and there, so one is pinned: Pillow's, which every installation has; a processor that comes
        in one form only is used in that form.
    device_map: auto, balanced, balanced_low_0 or sequential: how the model is divided among the
        devices that the process sees; None puts it on one.
    """

    SOURCES: ClassVar[tuple[str, ...]] = (
        *OF_CHECKPOINTS, "variant", "trust_remote_code", "base", "adapters", "weights", "merge",
        "processor", "tokenizer",
    )  # fmt: skip

    attn_implementation: str | None = None
    backend: Annotated[str, Bounds(choices=("pil", "torchvision"))] = "pil"
    device_map: Annotated[str, Bounds(choices=_STRATEGIES)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device_map is not None and ":" in self.device:
            raise ValueError(
                f"device_map divides a model among all devices that the process sees: leave out "
                f"device={self.device}"
            )

    @property
    def decisive(self) -> dict[str, Any]:
        """The backend, and the attention where one is given."""
        return {"backend": self.backend, **given_params(self, "attn_implementation")}

    @property
    def dispatched(self) -> bool:
        """Where a device map divides it."""
        return self.device_map is not None
