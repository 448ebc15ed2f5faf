"""The parameters of a spec that say where the parts of a transformers checkpoint lie.

They are read before its folder is, because they decide which folder that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from pytest_cepbench.models.spec import ModelSpec, parse_params


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


def source_options(spec: ModelSpec) -> SourceOptions:
    """The source options of a spec; its other parameters are left for the role's adapter to judge.

    Raises SpecError for a value of the wrong kind, or one that cannot be.
    """
    known = {field.name for field in fields(SourceOptions)}
    own = {name: value for name, value in spec.params.items() if name in known}
    return parse_params(replace(spec, params=own), SourceOptions, "a checkpoint")
