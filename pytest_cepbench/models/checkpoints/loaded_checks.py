"""Checks of what was loaded: every tensor has a value and a place, and the tokens are the model's.

Libraries fill a tensor that a checkpoint lacks with random numbers, leave out one that they do not
know, and log a line about it. A number measured with such weights looks like any other, so here
both are errors. So are tokens that the weights do not know.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.errors import CheckpointError, few_of
from pytest_cepbench.models.checkpoints.checkpoint import VOCABULARIES, Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import tensor_shapes
from pytest_cepbench.models.torch_runtime import own_memory, plain_tensors, set_levels

if TYPE_CHECKING:
    import torch

# Where diffusers logs that tensors were missing or left over.
_DIFFUSERS = ("diffusers.models.modeling_utils", "diffusers.loaders.single_file_model")

# Constants that older versions of the libraries saved beside the weights.
_CONSTANT = re.compile(r"(^|[._])(masked_bias|position_ids|inv_freq|num_batches_tracked)$")

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer among its like

_MEDIA_TOKEN = re.compile(r"(image|vision|video|audio).*_token_(id|index)")

_MEDIA_TOKENS = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index")
_WITHOUT_VOCABULARY = ("ByT5", "Canine", "Perceiver")  # these read bytes or code points


@contextmanager
def no_random_weights(checkpoint: Checkpoint, *, allow_unused: bool = True) -> Iterator[None]:
    """Raise CheckpointError when a library logs that it made up tensors that the files lack.

    For loaders that return no such list themselves (pipelines); enter it inside `quiet`, which
    would otherwise keep the log line back.

    allow_unused: false raises it also for tensors that a part made by diffusers does not know. What
    transformers leaves over says nothing: text encoders are often cut out of larger models.
    """
    missing: list[str] = []
    unused: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        text = " ".join(record.getMessage().split())[:600]
        if "newly initialized" in text:
            missing.append(text)
        elif "were not used when initializing" in text and record.name in _DIFFUSERS:
            unused.append(text)
        return False  # no handler gets it

    loggers = [logging.getLogger(name) for name in (*_DIFFUSERS, "transformers.modeling_utils")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addFilter(note)
    set_levels(loggers, [logging.WARNING] * len(loggers))
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(note)
        set_levels(loggers, levels)
    refuse_missing(checkpoint, missing)
    refuse_unused(checkpoint, [] if allow_unused else unused)


def refuse_missing(checkpoint: Checkpoint, missing: Collection[str]) -> None:
    """Raise CheckpointError when tensors are missing that would be used."""
    if missing:
        raise CheckpointError(
            f"{checkpoint.path}: tensors of {checkpoint.what} are missing from the weights and "
            f"would be random numbers: {few_of(missing)}. Save the whole model again"
        )


def refuse_unused(checkpoint: Checkpoint, unused: Collection[str]) -> None:
    """Raise CheckpointError when the files hold tensors that the architecture does not know."""
    names = [name for name in unused if not _CONSTANT.search(name)]
    if names:
        raise CheckpointError(
            f"{checkpoint.path}: {checkpoint.what} does not know tensors that lie in the weights "
            f"and would leave them out: {few_of(names)}. An adapter that was not merged looks like "
            "this. Save the whole model again, or add allow_unused=true to its spec where they are "
            "not needed"
        )


def refuse_cut_off(checkpoint: Checkpoint, model: Any, stored: Collection[str]) -> None:
    """Raise CheckpointError as `refuse_unused` where `cut_off` finds tensors."""
    if left := cut_off(model, stored):
        raise CheckpointError(
            f"{checkpoint.path}: {checkpoint.what} would leave out layers that lie in the weights: "
            f"{few_of(left)}. Either config.json counts fewer than were trained, or an adapter was "
            "not merged. Save the whole model again"
        )


def cut_off(model: Any, stored: Collection[str]) -> list[str]:
    """The names of tensors that are left out of layers which a model of transformers has: further
    layers, and LoRA. What else it does not know is of heads and towers that nothing asks for.

    stored: the names in its files, as `stored_names` gives them.
    """
    known = set(model.state_dict())
    kinds = {_NUMBER.sub("#", name) for name in known}
    # Among these, layers that predict several tokens at once, which only serving engines use.
    passed_over = [*(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())]
    passed_over.append(_CONSTANT.pattern)
    left = []
    for name in stored:
        own = {name, name.removeprefix(f"{model.base_model_prefix}.")}
        layer = "lora_" in name or {_NUMBER.sub("#", each) for each in own} & kinds
        if layer and not own & known and not any(re.search(p, name) for p in passed_over):
            left.append(name)
    return left


def stored_names(model: Any, files: Iterable[Path]) -> list[str]:
    """The names of tensors in safetensors files, as transformers renamed them for a loaded model:
    many families' had others when their files were written.
    """
    names = [name for file in files for name in tensor_shapes(file)]
    for renaming in getattr(model, "_weight_conversions", None) or ():
        names = [renaming.rename_source_key(name)[0] for name in names]
    if hasattr(model, "_weight_conversions"):
        return names
    # Before transformers 5.
    patterns = getattr(model, "_checkpoint_conversion_mapping", {}).items()
    return [next((re.sub(p, new, n) for p, new in patterns if re.search(p, n)), n) for n in names]


def take_weights(
    checkpoint: Checkpoint, parts: Mapping[str, Any], made_up: Collection[str] = ()
) -> None:
    """Make the weights of a loaded model independent of its files, and look them over.

    On a CPU, safetensors leaves weights in the file and maps that into memory: a trainer that
    writes into the file changes the model that was loaded from it, between one answer and the next.

    A model with NaN among its weights writes empty texts and draws nothing, which would be counted
    as so many failures of its own. It is neither better nor worse than its baseline: it is broken.
    Looked for by one reduction per tensor, on the device that it is on.

    parts: its modules by name, "" for a model that is one module; a part without weights is passed
    over. made_up: names of tensors that the files lack and that take no part, which are not looked
    at: transformers before 5 leaves some of them as the memory happens to be. Raises
    CheckpointError for a parameter that holds NaN or infinity, and for a buffer that holds NaN
    (infinity has its place in masks). Warns of weight matrices that are zero throughout: a layer
    may start like that, and a damaged checkpoint may look like that.
    """
    import torch

    for module in parts.values():
        if not hasattr(module, "named_parameters"):
            continue
        for parameter in module.parameters():
            parameter.data = own_memory(parameter.data)
        for part in module.modules():
            for name, buffer in list(part.named_buffers(recurse=False)):
                copy = own_memory(buffer)
                # Put in its place: it may be a view, and keep the file mapped.
                if copy is not buffer:
                    setattr(part, name, copy)

    # Name with precision, whether it must be finite, whether it is a matrix, least and largest.
    listed: dict[torch.device, list[tuple[str, str, bool, bool, torch.Tensor]]] = defaultdict(list)
    for name, tensor, finite in _tensors(parts):
        if name in made_up:
            continue
        matrix = name.endswith("weight") and sum(side > 1 for side in tensor.shape) > 1
        extremes = torch.stack(torch.aminmax(tensor.detach())).float()
        precision = str(tensor.dtype).removeprefix("torch.")
        listed[tensor.device].append((name, precision, finite, matrix, extremes))
    broken, empty = [], []
    for own in listed.values():
        # Fetched together: one by one, each would wait for its device.
        numbers = torch.stack([extremes for *_, extremes in own]).tolist()
        for (name, precision, finite, matrix, _), (low, high) in zip(own, numbers, strict=True):
            if np.isnan(low) or (finite and not np.isfinite([low, high]).all()):
                broken.append(f"{name} ({precision})")
            elif low == high == 0 and matrix:
                empty.append(name)
    if broken:
        raise CheckpointError(
            f"{checkpoint.path}: {checkpoint.what} holds NaN or infinite values in "
            f"{few_of(broken)}. Take a step from before the training diverged; where the file's "
            "own values are finite, give a dtype that holds them"
        )
    if empty:
        msg = (
            f"{checkpoint.path}: zero throughout: {few_of(empty)}. A layer may start so, and a "
            "damaged checkpoint may look so"
        )
        warnings.warn(msg, stacklevel=2)


def _tensors(parts: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Name, tensor, whether it must be finite; of floating tensors of 16 bits and more."""
    for part, module in parts.items():
        if not hasattr(module, "named_parameters"):
            continue
        prefix = f"{part}." if part else ""
        for listed, finite in ((module.named_parameters(), True), (module.named_buffers(), False)):
            for name, tensor in plain_tensors(listed):
                # Lower precisions have no such reduction, and most of them no NaN.
                wide = tensor.is_floating_point() and tensor.element_size() > 1
                if wide and tensor.numel() and not tensor.is_meta:
                    yield prefix + name, tensor, finite


def check_vocabulary(folder: Path, tokenizer: str) -> None:
    """Raise CheckpointError when a folder holds no vocabulary for a tokenizer of this class.

    transformers 5 makes do with an empty one and maps every text to unknown tokens.
    """
    if tokenizer.startswith(_WITHOUT_VOCABULARY):
        return
    if not any(any(folder.glob(pattern)) for pattern in VOCABULARIES):
        raise CheckpointError(
            f"{folder}: no vocabulary for {tokenizer} (expected one of "
            f"{', '.join(VOCABULARIES)}). Save the tokenizer again beside the model"
        )


def check_tokens(folder: Path, tokenizer: Any, model: Any, apart: Collection[int] = ()) -> None:
    """Raise CheckpointError when a tokenizer has no tokens beside those that were added to it, or
    tokens that the model's weights do not know.

    Without its files, several tokenizers make nothing of any text. Looked up, a token that is not
    known is an IndexError on a CPU, and on an accelerator the end of the process's CUDA context.
    The other way round nothing is wrong: tables of embeddings are often padded.

    apart: ids of tokens that are never looked up, as several models keep their image token. A model
    that does not say how many tokens it knows is not judged.
    """
    vocabulary = tokenizer.get_vocab()
    if vocabulary and tokenizer.added_tokens_decoder.keys() >= set(vocabulary.values()):
        raise CheckpointError(
            f"{folder}: {type(tokenizer).__name__} knows {few_of(sorted(vocabulary))} and no other "
            "tokens: the files of its vocabulary are missing, or those of another tokenizer. Save "
            "it again beside the model"
        )
    rows = embedded_tokens(model)
    if rows is None:
        return
    beyond = {i: token for token, i in vocabulary.items() if i >= rows and i not in apart}
    if beyond:
        first = min(beyond)
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        raise CheckpointError(
            f"{folder}: the tokenizer has the token {beyond[first]!r} at {first}{more}, and the "
            f"weights know {rows} tokens, from 0: the tokenizer is not the one of these weights. "
            "Save the one that the model was trained with, or give new tokens a row "
            "(resize_token_embeddings)"
        )


def check_image_token(folder: Path, processor: Any, config: Any) -> None:
    """Raise CheckpointError when the processor marks an image's place with another token than the
    model.

    Such a model finds no place to put the image, or puts it in the place of a word.
    """
    written = getattr(processor, "image_token_id", None)
    # Its own, or that for the sound of a model that sees none.
    stated = (getattr(config, name, None) for name in _MEDIA_TOKENS)
    read = next((int(token) for token in stated if token is not None), None)
    if written is None or read is None or written == read:
        return
    image = Image.new("RGB", (64, 64))
    # Gemma 3, Llama 4 and Ovis 2 write the model's token in the place of a marker of their own.
    with suppress(Exception):  # else it is not the processor of these parts
        made = processor(images=[image], text=[processor.image_token], return_tensors="pt")
        if read in set(map(int, np.ravel(made["input_ids"]))):
            return
    raise CheckpointError(
        f"{folder}: the tokenizer marks an image's place with token {written}, and the model's "
        f"config.json says {read}: the tokenizer is not the one of these weights. Save the one "
        "that the model was trained with"
    )


def embedded_tokens(model: Any) -> int | None:
    """How many tokens the weights know, None where the model does not say."""
    try:
        table = model.get_input_embeddings()
    # transformers raises NotImplementedError for models without a table, such as vision backbones;
    # networks of other libraries have no such method.
    except (NotImplementedError, AttributeError):
        return None
    rows = getattr(table, "num_embeddings", None)
    # Idefics keeps the tokens that were added to its language model in a table of their own.
    return None if rows is None else rows + getattr(table, "num_additional_embeddings", 0)


def media_tokens(config: Any) -> set[int]:
    """The ids that a model's configuration gives to what is no word: images, videos, sounds."""
    return {
        value
        for name, value in config.to_dict().items()
        if _MEDIA_TOKEN.fullmatch(name) and isinstance(value, int)
    }


class TruncationNotice:
    """Warns once per loaded model that texts were cut: captions that grow longer show here."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._given = False

    def check(self, lengths: Sequence[int], longest: int) -> None:
        """Warn where a text has more tokens than are read; lengths, longest: of `text_lengths`."""
        count = sum(length > longest for length in lengths)
        if count and not self._given:
            self._given = True
            msg = (
                f"{self._what} reads {longest} tokens: {count} longer text(s) of this batch were "
                "cut for it (said once)"
            )
            warnings.warn(msg, stacklevel=3)
