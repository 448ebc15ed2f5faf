"""PEFT adapters, put onto their base as PEFT does it, and parts that were not trained yet.

PEFT logs which tensors of a file it had no place for, and fills those that the file lacks with its
own start values. Both would give the answers of another model, so here every tensor of the file has
to have its place, and every place its tensor.

A gate of a checkpoint whose trained parts change nothing measures what was accepted before the
training: adapters as a training begins, components as they were. That is found in the files, since
stored results are not computed again and load no model.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import CheckpointError, error_line, few_of
from pytest_cepbench.models.binding import IdleParts
from pytest_cepbench.models.checkpoints import Checkpoint, CheckpointPart, list_files
from pytest_cepbench.models.checkpoints.checkpoint import without_wrappers
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    readable_files,
    refuse_ungathered,
    tensor_shapes,
)
from pytest_cepbench.models.checkpoints.pipeline_parts import LORA
from pytest_cepbench.models.checkpoints.source_options import FileOptions
from pytest_cepbench.models.checkpoints.tokenizer_checks import embedded_tokens
from pytest_cepbench.models.checkpoints.transformers_parts import (
    ADAPTER_CONFIG,
    adapter_weights,
    read_adapter,
)
from pytest_cepbench.models.torch_runtime import adapter_names

if TYPE_CHECKING:
    import torch


_BASE = "base_model.model."
"""Before the names of an adapter's tensors, as PEFT writes them."""


def apply_adapters(checkpoint: Checkpoint, model: Any) -> Any:
    """A loaded base with the checkpoint's adapters: merged, or at work beside its weights.

    The arithmetic is PEFT's: `merge_and_unload` in the precision that the base was loaded in, with
    the adapter's own tensors in at least float32. Several adapters add up, each times its factor:
    W + sum of factor * delta W, PEFT's combination "cat".

    Raises CheckpointError naming the tensors that do not fit, are missing or have no place.
    """
    parts = checkpoint.adapters
    if not parts:
        return model
    # Names that no layer has, and of which none begins another.
    names = [f"adapter{index:03}" for index in range(len(parts))]
    tensors = [read_tensors(adapter_weights(part.path)) for part in parts]
    if len(parts) > 1:
        _check_addable(parts)
    for part, state in zip(parts, tensors, strict=True):
        _resize_embeddings(part.path, model, state)
    adapted = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns of what is checked here
        for name, part, state in zip(names, parts, tensors, strict=True):
            adapted = _add(part.path, model, adapted, name)
            _fill(part.path, adapted, name, state)
            _scale(part, adapted, name)
        assert adapted is not None
        if parts[0].settings.get("merge", True):
            return adapted.merge_and_unload(adapter_names=names)
        adapted.base_model.set_adapter(names)
    # The layers of the adapter are in their places inside of the base, so that it can be used as
    # what it is, and not by the wrapper's own methods.
    return adapted.get_base_model().eval()


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of an adapter's file by their names, without running code.

    Raises CheckpointError for a file that holds none, and for weights that were not gathered.
    """
    import torch
    from safetensors.torch import load

    try:
        # Read whole, not mapped: what is not merged would otherwise stay in the trainer's file.
        if path.suffix == ".safetensors":
            state = load(path.read_bytes())
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # A damaged file makes these raise anything.
        raise CheckpointError(
            f"{path}: could not be read as an adapter's weights: {error_line(error)}"
        ) from error
    if not isinstance(state, dict) or not all(hasattr(value, "shape") for value in state.values()):
        raise CheckpointError(f"{path}: expected tensors by their names, as PEFT writes them")
    refuse_ungathered(path, [name for name, tensor in state.items() if tensor.shape == (0,)])
    return {without_wrappers(name): tensor for name, tensor in state.items()}


def _check_addable(parts: list[CheckpointPart]) -> None:
    """Raise CheckpointError for adapters whose changes do not simply add up."""
    for part in parts:
        config = read_adapter(part.path)
        trained = config.get("modules_to_save") or config.get("trainable_token_indices")
        if config["peft_type"] != "LORA" or config.get("use_dora") or trained:
            what = "DoRA" if config.get("use_dora") else config["peft_type"]
            what = "modules_to_save" if trained else what
            raise CheckpointError(
                f"{part.path}: several adapters are added up, which is right for LoRA alone; this "
                f"one has {what}. Merge it into the base first"
            )


def _add(folder: Path, model: Any, adapted: Any, name: str) -> Any:
    """The base with the layers of one more adapter, not yet filled; adapted: with those before."""
    from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftModel, PeftType

    stored = read_adapter(folder)
    try:
        kind = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(stored["peft_type"])]
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: the installed PEFT knows no adapters of type {stored['peft_type']!r}"
        ) from error
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = [key for key, value in stored.items() if key not in known and value]
    if unknown:
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: the installed PEFT does not know {few_of(unknown)}, and "
            f"would leave it out. It was written by PEFT {stored.get('peft_version', '?')}: "
            "install that version or a later one"
        )
    try:
        stored.pop("runtime_config", None)  # PEFT leaves that of the training out, too
        config = kind.from_peft_type(**kind.check_kwargs(**stored))
        config.inference_mode = True
        if adapted is None:
            return PeftModel(model, config, adapter_name=name)
        adapted.add_adapter(name, config)
    except Exception as error:
        # PEFT checks a configuration as it goes, with errors of every type.
        raise CheckpointError(
            f"{folder}: the adapter does not fit {_trained_on(stored)}its base "
            f"{type(model).__name__}: {error_line(error)}"
        ) from error
    return adapted


def _fill(folder: Path, adapted: Any, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put an adapter's tensors into its layers; raises CheckpointError unless all fit exactly."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    places = get_peft_model_state_dict(adapted, adapter_name=name, save_embedding_layers=False)
    # An adapter that was trained with new tokens brings the tables of all of them.
    has_tables = embedded_tokens(adapted.get_base_model()) is not None
    tables = get_peft_model_state_dict(adapted, adapter_name=name, save_embedding_layers=has_tables)
    renamed = adapter_names(adapted, name, dict(tensors))
    shapes = {key: tuple(value.shape) for key, value in (places | tables).items()}
    wrong = [
        f"{key} is {tuple(value.shape)}, expected {shapes[key]}"
        for key, value in renamed.items()
        if key in shapes and tuple(value.shape) != shapes[key]
    ]
    if wrong:
        raise CheckpointError(_misfit(folder, adapted, name, few_of(wrong)))
    extra = renamed.keys() - shapes.keys()
    if extra:
        what = f"its base has no place for {few_of(extra)}"
        raise CheckpointError(_misfit(folder, adapted, name, what))
    missing = places.keys() - renamed.keys()
    if missing:
        raise CheckpointError(
            f"{folder}: {adapter_weights(folder).name} lacks tensors that {ADAPTER_CONFIG} "
            f"announces for this base: {few_of(missing)}. Was it written completely, and on this "
            "base?"
        )
    try:
        result = set_peft_model_state_dict(adapted, dict(tensors), adapter_name=name)
    except (KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(_misfit(folder, adapted, name, error_line(error))) from error
    if result.unexpected_keys:
        what = f"its base has no place for {few_of(result.unexpected_keys)}"
        raise CheckpointError(_misfit(folder, adapted, name, what))


def _scale(part: CheckpointPart, adapted: Any, name: str) -> None:
    """Multiply what an adapter of LoRA adds by its factor."""
    factor = part.settings.get("factor", 1.0)
    if factor == 1:
        return
    from peft.tuners.lora import LoraLayer

    _check_addable([part])
    for layer in adapted.modules():
        if isinstance(layer, LoraLayer) and name in layer.scaling:
            layer.scaling[name] *= factor


def _resize_embeddings(folder: Path, model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give the base the rows of an adapter that was trained with new tokens.

    Raises CheckpointError where the adapter's file has only one of two tables.
    """
    rows = embedded_tokens(model)
    if rows is None:
        return
    tables = {"input": model.get_input_embeddings(), "output": model.get_output_embeddings()}
    tables = {name: table for name, table in tables.items() if hasattr(table, "weight")}
    modules = {module: name for name, module in model.named_modules()}
    stored = {
        name: tensors[key].shape[0]
        for name, table in tables.items()
        for key in (
            f"{_BASE}{modules.get(table)}{end}" for end in (".weight", ".base_layer.weight")
        )
        if key in tensors
    }
    new = next((count for count in stored.values() if count != rows), None)
    if new is None:
        return
    tied = len({id(table.weight) for table in tables.values()}) == 1
    lacking = [name for name in tables if name not in stored]
    if lacking and not tied:
        raise CheckpointError(
            f"{folder}: the adapter was trained with {new} tokens and its base has {rows}, and "
            f"the file has no {lacking[0]} embeddings, which would be random numbers. Save it "
            "with save_embedding_layers=True"
        )
    model.resize_token_embeddings(new, mean_resizing=False)


def _misfit(folder: Path, adapted: Any, name: str, what: str) -> str:
    base = type(adapted.get_base_model()).__name__
    trained = _trained_on(read_adapter(folder))
    rank = getattr(adapted.peft_config[name], "r", None)
    of_rank = f" with r={rank}" if rank is not None else ""
    remedy = "Give the base that it was trained on (base=FOLDER), or save the adapter again"
    if trained and base not in trained:
        remedy = (
            "Merge it into the model that it was trained on (merge_and_unload), save that whole "
            "and give its folder"
        )
    return f"{folder}: the adapter does not fit {trained}its base {base}{of_rank}: {what}. {remedy}"


def _trained_on(stored: Mapping[str, Any]) -> str:
    """The class that an adapter was trained on, in brackets, where it says so."""
    mapping = stored.get("auto_mapping")
    trained = str(mapping.get("base_model_class")) if isinstance(mapping, dict) else ""
    return f"(trained on {trained}) " if trained.isidentifier() and trained != "None" else ""


_FACTOR = re.compile(
    r"(.*[._])(lora_(embedding_)?[AB]|lora_down|lora_up|down|up|(hada|lokr)_\w+|vera_lambda_[bd])"
    r"(\.weight)?"
)
"""Names of the matrices whose product a layer adds: where one is zero, it adds nothing."""

_NEUTRAL: tuple[tuple[re.Pattern[str], float | None], ...] = (
    (re.compile(r".*\.(ia3_l|b?oft_s)"), 1.0),
    (re.compile(r".*\.(lora_B\.bias|b?oft_[rR](\.weight)?)"), 0.0),
    (re.compile(r".*\.alpha|.*\bvera_[AB]"), None),
)
"""Names of other tensors of adapters, and the value with which they change nothing; None: any."""

_NORM = re.compile(r".*\.(lora_magnitude_vector(\.weight)?|dora_scale)")
"""DoRA's lengths of a layer's rows: those of its base as a training begins."""


def idle_parts(checkpoint: Checkpoint, options: FileOptions) -> IdleParts:
    """Which adapters, LoRA weights and components of a checkpoint change nothing.

    Compared are values: one that was saved in another precision is the same. A part is taken to
    change something where its base is pickled or not on this machine, and where its kind is none of
    LoRA, DoRA, IA3, LoHa, LoKr, VeRA, OFT and trained modules or tokens.
    options: with which the checkpoint's files are read.
    """
    trained = [p for p in checkpoint.parts if p.name in ("adapter", LORA) or _replaces(p)]
    idle = [part for part in trained if _is_idle(checkpoint, part, options)]
    whole = bool(idle) and len(idle) == len(trained)
    return IdleParts(
        tuple(
            f"{part.path} is equal to the {part.name} that it replaces"
            if _replaces(part)
            else f"{part.path} changes nothing: it is as a training begins"
            for part in idle
            # A training's folder holds components that it left as they were.
            if whole or not _replaces(part)
        ),
        whole,
    )


def _replaces(part: CheckpointPart) -> bool:
    return bool(part.component) or part.name in part.supplies


def _is_idle(checkpoint: Checkpoint, part: CheckpointPart, options: FileOptions) -> bool:
    names = readable_files(list_files(checkpoint.path), checkpoint.kind, checkpoint.config, options)
    loose = checkpoint.weights_part
    own_paths = [checkpoint.path / name for name in names]
    base = _Weights(own_paths if loose is None else [path for _, path in loose.paths()])
    if not _replaces(part):
        is_lora = part.name == LORA
        tokens = {} if is_lora else read_adapter(part.path).get("trainable_token_indices") or {}
        state = read_tensors(part.path if is_lora else adapter_weights(part.path))
        return bool(state) and _adds_nothing(state, base, tokens)
    own = _Weights([path for _, path in part.paths()])
    within = base.within(checkpoint.path / part.name)
    return bool(own.names) and all(within.holds(name, own.read(name)) for name in own.names)


def _adds_nothing(
    state: Mapping[str, torch.Tensor], base: _Weights, tokens: Mapping[str, Any] | Sequence[int]
) -> bool:
    """Whether an adapter's tensors leave its base as it is.

    tokens: indices of those that were trained, of one table or by the names of several.
    """
    layers: dict[str, list[str]] = defaultdict(list)
    others: list[str] = []
    for name in state:
        match = _FACTOR.fullmatch(name)
        if match:
            layers[match[1]].append(name)
        else:
            others.append(name)
    if any(all(state[name].any() for name in factors) for factors in layers.values()):
        return False
    return all(_is_neutral(name, state[name], base, tokens) for name in others)


def _is_neutral(
    name: str,
    tensor: torch.Tensor,
    base: _Weights,
    tokens: Mapping[str, Any] | Sequence[int],
) -> bool:
    for pattern, value in _NEUTRAL:
        if pattern.fullmatch(name):
            return value is None or bool((tensor == value).all())
    if _NORM.fullmatch(name):
        return base.has_rows_of(tensor)
    if "trainable_tokens" in name:
        listed = tokens.items() if isinstance(tokens, Mapping) else [("", tokens)]
        indices = next((own for table, own in listed if table in name), [])
        return base.holds(name, tensor, lambda table: table[indices])
    return base.holds(name, tensor)


class _Weights:
    """The tensors of safetensors files; one is read when it is asked for.

    files: others among them are left out.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [path for path in files if path.suffix == ".safetensors"]
        self.names: dict[str, tuple[Path, tuple[int, ...]]] = {
            name: (path, shape)
            for path in self._files
            for name, shape in tensor_shapes(path).items()
        }

    def within(self, folder: Path) -> _Weights:
        """Those of the files in a folder alone."""
        return _Weights([path for path in self._files if path.parent == folder])

    def read(self, name: str) -> torch.Tensor:
        """A tensor, on the CPU. Raises CheckpointError where it cannot be read."""
        from safetensors import safe_open

        path = self.names[name][0]
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                tensor: torch.Tensor = file.get_tensor(name)
        except Exception as error:
            # A file that is being written, and a type of numbers that torch does not have.
            raise CheckpointError(f"{path}: {name} cannot be read: {error_line(error)}") from error
        return tensor

    def holds(
        self,
        name: str,
        tensor: torch.Tensor,
        part: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> bool:
        """Whether the values are those of the tensor of this name, where there is none of any.

        Libraries rename tensors, and the names in an adapter are not those in its base's files.
        part: of each, in the place of all of it.
        """
        known = [name] if name in self.names else self.names
        for other in known:
            shape = self.names[other][1]
            if part is None and shape == tuple(tensor.shape) and _same(tensor, self.read(other)):
                return True
            is_table = len(shape) == 2 and shape[1:] == tuple(tensor.shape[1:])
            if part is not None and is_table and _same(tensor, part(self.read(other))):
                return True
        return False

    def has_rows_of(self, lengths: torch.Tensor) -> bool:
        """Whether the rows of some matrix have these lengths, but for rounding."""
        import torch

        lengths = lengths.flatten()
        for name, (_, shape) in self.names.items():
            if len(shape) > 1 and shape[0] == len(lengths):
                weight = self.read(name)
                if not weight.is_floating_point():
                    continue
                rows = weight.float().flatten(1).norm(dim=1)
                rounding = max(torch.finfo(each.dtype).eps for each in (weight, lengths))
                if torch.allclose(rows, lengths.float(), rtol=4 * rounding, atol=0):
                    return True
        return False


def _same(trained: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a trained tensor has the values of its base's, in its own precision."""
    import torch

    return trained.shape == base.shape and bool(torch.equal(trained, base.to(trained.dtype)))
